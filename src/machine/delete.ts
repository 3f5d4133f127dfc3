/**
 * Deletes an instance: its record with the audit log, and the records of its events that had an id.
 *
 * The events are removed first, in as many commits as needed, and the instance last, in a commit that checks that the instance has not changed
 * since the events were listed. Every accepted event changes the instance, so none is left. After an interruption, call it again.
 */

import { type Address, address } from "../kernel/contract.ts";
import type { Tx } from "../kernel/decision.ts";
import type { Kernel } from "../kernel/kernel.ts";
import type { MachineRules } from "./definition.ts";
import { MachineNotFoundError } from "./errors.ts";
import { eventPrefix, instanceAt } from "./request.ts";
import { eventSpace } from "./stored.ts";

const MAX_RECORDS_PER_COMMIT = 500;

export async function deleteInstance(kernel: Kernel, rules: MachineRules, id: string): Promise<void> {
  const at = instanceAt(rules, id);
  const space = eventSpace(rules.name);
  for (let isGone = false; !isGone; ) {
    const [row] = await kernel.read([at]);
    if (row == null || row.value === null) throw new MachineNotFoundError(rules.name, id);
    const events = await kernel.list({
      space,
      prefix: eventPrefix(at.key),
      after: null,
      limit: MAX_RECORDS_PER_COMMIT,
    });
    const parts = events.map(({ key }) => address(space, key));
    const last = parts.length < MAX_RECORDS_PER_COMMIT ? row.version : undefined;
    isGone = await kernel.transact((tx) => remove(tx, at, parts, last), [at, ...parts]);
  }
}

/** Removes events, and the instance too if it still has `lastVersion`. Returns whether the instance no longer exists. */
function remove(tx: Tx, at: Address, parts: readonly Address[], lastVersion: number | undefined): boolean {
  tx.load([at, ...parts]);
  const instance = tx.record(at);
  if (!instance.exists) return true;
  for (const part of parts) tx.record(part).remove();
  if (lastVersion === undefined || instance.version !== lastVersion) return false;
  instance.remove();
  return true;
}
