/**
 * Sweeping: actions whose retention has ended are removed, a few records at a time.
 *
 * A record of an action is due when its retention ends, or when the lease of its claim does. The uses of an action with many are removed
 * first, in as many sweeps as it takes, and the action with the last of them: until then it stays due, and the next sweep continues.
 */

import { checkCount } from "../kernel/check.ts";
import { type Address, address, type Row } from "../kernel/contract.ts";
import { showReadable } from "../kernel/encoding.ts";
import type { Kernel } from "../kernel/kernel.ts";
import { usesOf } from "./decide.ts";
import { type ActionDeps, type ActionPlan, sweepAction } from "./records.ts";
import { type ActionValue, actionAt, KIND, ownedAt, payloadAt, useAt, useSpace } from "./stored.ts";

const MAX_SWEPT = 500;

export interface Swept {
  /** How many records were removed. */
  readonly removed: number;
  /** Whether nothing is due for removal any more. */
  readonly isDone: boolean;
}

/** Sweeps actions that are due, until about `limit` records are removed. */
export async function sweepActions(kernel: Kernel, deps: ActionDeps, limit: number): Promise<Swept> {
  checkCount(limit, "the limit", MAX_SWEPT);
  const { keys } = await kernel.due({ kinds: [KIND], limit });
  const rows = await kernel.read(keys.map(({ space, key }) => address(space, key)));
  let isDone = keys.length < limit;
  let left = limit;
  const sweeps: Promise<number>[] = [];
  for (const row of rows) {
    const action = readAction(kernel, row);
    if (action === undefined) continue;
    const uses = await someUses(kernel, action, left + 1);
    sweeps.push(sweepOne(kernel, deps, action, uses.slice(0, left), uses.length > left));
    left -= uses.length;
    if (left > 0) continue;
    isDone = false;
    break;
  }
  const removed = await Promise.all(sweeps);
  return { removed: removed.reduce((sum, count) => sum + count, 0), isDone };
}

/** The same for one action. Returns whether something was removed. */
export async function sweepActionAt(kernel: Kernel, deps: ActionDeps, at: Address): Promise<boolean> {
  const [row = null] = await kernel.read([at]);
  const action = readAction(kernel, row);
  if (action === undefined) return false;
  const uses = await someUses(kernel, action, MAX_SWEPT + 1);
  const removed = await sweepOne(kernel, deps, action, uses.slice(0, MAX_SWEPT), uses.length > MAX_SWEPT);
  return removed > 0;
}

interface SweptAction extends ActionValue {
  readonly ref: string;
}

/** An action that cannot be read is left for later, and does not keep others from being swept. */
function readAction(kernel: Kernel, row: Row | null): SweptAction | undefined {
  if (row === null || row.value === null) return undefined;
  const text = row.value;
  const [action] = showReadable([row], () => kernel.decodeFresh(row, text) as ActionValue).shown;
  return action === undefined ? undefined : { ref: row.key, ...action };
}

async function someUses(kernel: Kernel, action: SweptAction, limit: number): Promise<readonly string[]> {
  if (usesOf(action) === 1) return [];
  const rows = await kernel.list({ space: useSpace(action.ref), prefix: "", after: null, limit });
  return rows.map((row) => row.key);
}

async function sweepOne(
  kernel: Kernel,
  deps: ActionDeps,
  action: SweptAction,
  uses: readonly string[],
  hasMore: boolean,
): Promise<number> {
  const { ref } = action;
  const keys = [...addressesOf(action), ...uses.map((consumer) => useAt(ref, consumer))];
  const { removed } = await kernel.transact((tx) => sweepAction(tx, ref, uses, hasMore, deps), keys);
  return removed;
}

/** The records of an action, as far as they are known before the commit. */
export function addressesOf({
  ref,
  request,
  createdAtMs,
}: Pick<ActionPlan, "ref" | "request" | "createdAtMs">): Address[] {
  const { uses = 1, owner } = request;
  const addresses = [actionAt(ref)];
  if (uses > 1) addresses.push(payloadAt(ref));
  if (owner !== undefined && createdAtMs !== undefined) addresses.push(ownedAt(owner, createdAtMs, ref));
  return addresses;
}
