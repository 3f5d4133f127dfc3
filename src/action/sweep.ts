/**
 * Sweeping: what has been kept for long enough is removed, a few records at a time.
 *
 * A record of an action is due when its retention ends, or when the lease of whoever claimed it does. The uses of an action with many
 * go first, in as many sweeps as it takes, and the action with the last of them: until then it stays due, and the next sweep goes on.
 */

import { checkCount } from "../kernel/check.ts";
import { type Address, address, type Row } from "../kernel/contract.ts";
import { showReadable } from "../kernel/encoding.ts";
import type { Kernel } from "../kernel/kernel.ts";
import { usesOf } from "./decide.ts";
import { type Means, type Plan, sweepAction } from "./records.ts";
import { type ActionValue, actionAt, KIND, ownedAt, payloadAt, useAt, useSpace } from "./words.ts";

const MAX_SWEPT = 500;

export interface Swept {
  /** How many records went. */
  readonly removed: number;
  /** Whether nothing is left to be swept now. */
  readonly isDone: boolean;
}

export async function sweepActions(kernel: Kernel, means: Means, limit: number): Promise<Swept> {
  checkCount(limit, "the limit", MAX_SWEPT);
  const { keys } = await kernel.due({ kinds: [KIND], limit });
  const rows = await kernel.read(keys.map(({ space, key }) => address(space, key)));
  let isDone = keys.length < limit;
  let left = limit;
  const sweeps: Promise<number>[] = [];
  for (const row of rows) {
    if (row === null || row.value === null) continue;
    const text = row.value;
    const [action] = showReadable([row], () => kernel.decodeFresh(row, text) as ActionValue).shown;
    // One that cannot be read is left for later, and keeps no other.
    if (action === undefined) continue;
    const uses = usesOf(action) === 1 ? [] : await someUses(kernel, row, left + 1);
    sweeps.push(sweepOne(kernel, means, { ref: row.key, ...action }, uses.slice(0, left), uses.length > left));
    left -= uses.length;
    if (left > 0) continue;
    isDone = false;
    break;
  }
  const removed = await Promise.all(sweeps);
  return { removed: removed.reduce((sum, count) => sum + count, 0), isDone };
}

async function someUses(kernel: Kernel, { key }: Row, limit: number): Promise<readonly string[]> {
  const rows = await kernel.list({ space: useSpace(key), prefix: "", after: null, limit });
  return rows.map((row) => row.key);
}

async function sweepOne(
  kernel: Kernel,
  means: Means,
  action: ActionValue & { readonly ref: string },
  uses: readonly string[],
  hasMore: boolean,
): Promise<number> {
  const { ref } = action;
  const keys = [...addressesOf(action), ...uses.map((consumer) => useAt(ref, consumer))];
  const { removed } = await kernel.transact((tx) => sweepAction(tx, ref, uses, hasMore, means), keys);
  return removed;
}

/** The records that an action is made of, as far as they are known before. */
export function addressesOf({ ref, request, createdAtMs }: Pick<Plan, "ref" | "request" | "createdAtMs">): Address[] {
  const { uses = 1, owner } = request;
  const addresses = [actionAt(ref)];
  if (uses > 1) addresses.push(payloadAt(ref));
  if (owner !== undefined && createdAtMs !== undefined) addresses.push(ownedAt(owner, createdAtMs, ref));
  return addresses;
}
