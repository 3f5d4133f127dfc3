/** What policies have done, as operators see it: `pawl.streams.policies`. */

import type { Address } from "../../kernel/contract.ts";
import type { Kernel } from "../../kernel/kernel.ts";
import { type Note, POLICIES, type PolicyValue, policyAt, policySpaceOf } from "./stored.ts";

export interface StreamPolicyInfo {
  readonly name: string;
  /** How many streams it has closed, and how often it has pruned one. */
  readonly closed: number;
  readonly pruned: number;
  /** How many events these had that are not in the store any more. */
  readonly removed: number;
  /**
   * How often it left a stream as it is: because a reaction or a projection needed its events (`stream_in_use`), or because no aggregate had a stored state of
   * the events to prune. Such a stream is looked at again, after a minute at first, and after a day at most.
   */
  readonly skipped: { readonly inUse: number; readonly noState: number };
  /** How often closing or pruning failed, as where an archive throws. Tried again in the same way. */
  readonly failures: number;
  readonly lastSkip: StreamPolicyNote | null;
  readonly lastError: StreamPolicyNote | null;
}

export interface StreamPolicyNote {
  readonly stream: string;
  readonly message: string;
  readonly at: Date;
}

const PAGE = 200;

export async function listPolicies(kernel: Kernel): Promise<readonly StreamPolicyInfo[]> {
  const infos: StreamPolicyInfo[] = [];
  for await (const row of kernel.rows(POLICIES)) {
    const value = kernel.decode(row, row.value ?? "") as PolicyValue;
    const { closed, pruned, removed, inUse, noState, failed: failures, lastSkip, lastError } = value;
    infos.push({
      name: row.key,
      closed,
      pruned,
      removed,
      skipped: { inUse, noState },
      failures,
      lastSkip: toNote(lastSkip),
      lastError: toNote(lastError),
    });
  }
  return infos;
}

const toNote = (note: Note | undefined): StreamPolicyNote | null =>
  note === undefined ? null : { stream: note.stream, message: note.message, at: new Date(note.atMs) };

/** Workers that have its code leave it alone from the first commit on; the last one removes it. In between, the call can be repeated. */
export async function removePolicy(kernel: Kernel, policy: string): Promise<boolean> {
  const at = policyAt(policy);
  const isThere = await kernel.transact(
    (tx) => {
      const record = tx.record(at);
      if (record.exists) record.write({ value: { ...(record.value as PolicyValue), by: REMOVING }, dueMs: null });
      return record.exists;
    },
    [at],
  );
  if (!isThere) return false;
  const space = policySpaceOf(policy);
  for (;;) {
    const rows = await kernel.list({ space, prefix: "", after: null, limit: PAGE });
    if (rows.length === 0) break;
    const all: readonly Address[] = rows.map(({ key }) => ({ space, key, text: `${space}\n${key}` }));
    await kernel.transact((tx) => {
      for (const one of all) tx.record(one).remove();
    }, all);
  }
  await kernel.transact(
    (tx) => {
      // A worker has made it new meanwhile.
      if ((tx.record(at).value as PolicyValue | undefined)?.by === REMOVING) tx.record(at).remove();
    },
    [at],
  );
  return true;
}

/** No rules have this name. */
const REMOVING = "";
