/**
 * Deleting an instance: its record with the audit log, and the records of the events that it was sent with an id.
 *
 * The events go first, in as many commits as it takes, and the instance last, in a commit that finds it as it was before the events were looked
 * for: every event that is accepted changes the instance, so none is left behind. A deletion that is cut short is finished by the next.
 */

import { type Address, address } from "../kernel/contract.ts";
import type { Tx } from "../kernel/decision.ts";
import type { Kernel } from "../kernel/kernel.ts";
import type { MachineRules } from "./definition.ts";
import { MachineNotFoundError } from "./errors.ts";
import { eventPrefix, instanceAt } from "./records.ts";
import { eventSpace } from "./words.ts";

/** So many records are removed in one commit. */
const AT_ONCE = 500;

export async function deleteInstance(kernel: Kernel, rules: MachineRules, id: string): Promise<void> {
  const at = instanceAt(rules, id);
  const space = eventSpace(rules.name);
  for (let isGone = false; !isGone; ) {
    const [row] = await kernel.read([at]);
    if (row == null || row.value === null) throw new MachineNotFoundError(rules.name, id);
    const events = await kernel.list({ space, prefix: eventPrefix(at.key), after: null, limit: AT_ONCE });
    const parts = events.map(({ key }) => address(space, key));
    const last = parts.length < AT_ONCE ? row.version : undefined;
    isGone = await kernel.transact((tx) => remove(tx, at, parts, last), [at, ...parts]);
  }
}

/** Returns whether the instance is gone: it goes if this is the last commit, and it has not changed since the events were looked for. */
function remove(tx: Tx, at: Address, parts: readonly Address[], lastVersion: number | undefined): boolean {
  tx.load([at, ...parts]);
  const instance = tx.record(at);
  if (!instance.exists) return true;
  for (const part of parts) tx.record(part).remove();
  if (lastVersion === undefined || instance.version !== lastVersion) return false;
  instance.remove();
  return true;
}
