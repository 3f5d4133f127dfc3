/**
 * Another `max` for a limit, when the code of its workflow was changed: runs that wait are admitted, if there is room now.
 */

import { address } from "../../kernel/contract.ts";
import type { Kernel } from "../../kernel/kernel.ts";
import { declareLimit } from "./places.ts";
import { type LimitValue, limitAt, type PlaceRef, placeOf } from "./stored.ts";

/** Declares the limit for all its keys that runs wait for, as they are found without locks. */
export async function declareLimits(kernel: Kernel, name: string, max: number, isOver: () => boolean): Promise<void> {
  const declare = async (ref: PlaceRef, value: LimitValue): Promise<void> => {
    if (value.first === undefined || value.max === max) return;
    await kernel.transact((tx) => declareLimit(tx, ref, max), [limitAt(ref)]);
  };
  const [row] = await kernel.read([limitAt([name])]);
  if (row?.value != null) await declare([name], kernel.decode(row, row.value) as LimitValue);
  for await (const row of kernel.rows(`limit/${name}`)) {
    if (isOver()) return;
    if (row.value === null) continue;
    await declare(placeOf(address(row.space, row.key)), kernel.decode(row, row.value) as LimitValue);
  }
}
