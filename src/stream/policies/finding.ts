/**
 * Finding the streams that a policy is about: those that are there when it begins, in the order of their ids, and then those that events are appended to.
 *
 * An append costs nothing for it. A worker follows the events, once a minute, from where the last one stopped, and stores a record for each stream that will
 * have to be looked at; one that is there already is left as it is, unless it waits for just this version. Each page is one commit with the place where to
 * continue, which it checks: of two workers, one finds each page.
 */

import type { Address, Row } from "../../kernel/contract.ts";
import type { Tx } from "../../kernel/decision.ts";
import type { Kernel } from "../../kernel/kernel.ts";
import { endOf } from "../reactions/routing.ts";
import { CLOSED, CLOSED_EVENT, firstVersionOf, STREAMS, type StreamValue } from "../stored.ts";
import { isLookedAt } from "./decide.ts";
import type { PolicyRules } from "./definition.ts";
import {
  type PolicyStreamValue,
  type PolicyValue,
  policyAt,
  policyQueueOf,
  policyStreamAt,
  policyStreamQueueOf,
} from "./stored.ts";

/** How many streams, or events, are looked at together. */
const PAGE = 400;

/** Makes these rules those that count. Where they are others than before, all streams are looked at anew. */
export async function ensurePolicy(kernel: Kernel, { name, by }: PolicyRules): Promise<void> {
  const at = policyAt(name);
  if ((await readPolicy(kernel, at))?.by === by) return;
  // Before streams are listed: what is appended meanwhile is followed.
  const cursor = await endOf(kernel);
  await kernel.transact(
    (tx) => {
      const record = tx.record(at);
      const value = record.value as PolicyValue | undefined;
      if (value?.by === by) return;
      const next: PolicyValue = { ...(value ?? NOTHING_DONE), by, cursor, listed: { after: null } };
      record.write({ value: next, kind: policyQueueOf(name), dueMs: tx.nowMs });
    },
    [at],
  );
}

const NOTHING_DONE = { closed: 0, pruned: 0, removed: 0, inUse: 0, noState: 0, failed: 0 };

export async function readPolicy(kernel: Kernel, at: Address): Promise<PolicyValue | undefined> {
  const [row] = await kernel.read([at]);
  return row == null || row.value === null ? undefined : (kernel.decode(at, row.value) as PolicyValue);
}

/** Looks at the next page. Returns whether there is more; false also where other rules count. */
export async function findStreams(kernel: Kernel, rules: PolicyRules): Promise<boolean> {
  const value = await readPolicy(kernel, policyAt(rules.name));
  if (value?.by !== rules.by) return false;
  if (value.listed === undefined) return followStreams(kernel, rules, value);
  await listStreams(kernel, rules, value.listed.after);
  return true;
}

async function listStreams(kernel: Kernel, rules: PolicyRules, after: string | null): Promise<void> {
  const rows = await kernel.list({ space: STREAMS, prefix: rules.prefix, after, limit: PAGE });
  const open = rows.filter(({ status }) => status !== CLOSED);
  const known = await readKnown(kernel, rules, open);
  const found = open.filter((row, i) => known[i] != null || isLookedAt(rules, undefined, countOf(kernel, row)));
  const last = rows.length < PAGE ? undefined : rows.at(-1)?.key;
  await commit(kernel, rules, found, (tx, value) => {
    if (value.listed === undefined || value.listed.after !== after) return undefined;
    // Those that are known were by other rules.
    for (const { key } of found) lookAt(tx, rules, key);
    const { listed: _, ...rest } = value;
    return last === undefined ? rest : { ...rest, listed: { after: last } };
  });
}

/** How many events of a stream are kept. */
const countOf = (kernel: Kernel, row: Row): number =>
  row.head - firstVersionOf(kernel.decode(row, row.value ?? "") as StreamValue) + 1;

async function followStreams(kernel: Kernel, rules: PolicyRules, { cursor }: PolicyValue): Promise<boolean> {
  const page = await kernel.follow({ space: STREAMS, prefix: rules.prefix, after: cursor, limit: PAGE });
  const versions = new Map<string, number>();
  for (const { key, version, name } of page.entries) if (name !== CLOSED_EVENT) versions.set(key, version);
  const seen = Array.from(versions, ([key, version]) => ({ key, version }));
  const known = await readKnown(kernel, rules, seen);
  const found = seen.filter(({ version }, i) => isLookedAt(rules, toKnown(kernel, known[i]), version));
  if (found.length > 0 || page.upTo !== cursor)
    await commit(kernel, rules, found, (tx, value) => {
      if (value.listed !== undefined || value.cursor !== cursor) return undefined;
      for (const { key, version } of found) {
        const record = tx.record(policyStreamAt(rules.name, key));
        const before = record.exists ? { value: record.value as PolicyStreamValue, dueMs: record.dueMs } : undefined;
        if (isLookedAt(rules, before, version)) lookAt(tx, rules, key);
      }
      return { ...value, cursor: page.upTo };
    });
  return page.hasMore;
}

async function readKnown(
  kernel: Kernel,
  { name }: PolicyRules,
  streams: readonly { readonly key: string }[],
): Promise<readonly (Row | null)[]> {
  if (streams.length === 0) return [];
  const rows = await kernel.read(streams.map(({ key }) => policyStreamAt(name, key)));
  return rows.map((row) => (row === null || row.value === null ? null : row));
}

const toKnown = (kernel: Kernel, row: Row | null | undefined) =>
  row == null ? undefined : { value: kernel.decode(row, row.value ?? "") as PolicyStreamValue, dueMs: row.dueMs };

/** Commits a page, if these rules still count. `change` returns undefined where another worker has found the page. */
async function commit(
  kernel: Kernel,
  { name, by }: PolicyRules,
  found: readonly { readonly key: string }[],
  change: (tx: Tx, value: PolicyValue) => PolicyValue | undefined,
): Promise<void> {
  const at = policyAt(name);
  await kernel.transact(
    (tx) => {
      const record = tx.record(at);
      const value = record.value as PolicyValue | undefined;
      const next = value?.by === by ? change(tx, value) : undefined;
      if (next !== undefined) record.write({ value: next });
    },
    [at, ...found.map(({ key }) => policyStreamAt(name, key))],
  );
}

/** The stream is looked at as soon as a worker gets to it. */
function lookAt(tx: Tx, { name }: PolicyRules, stream: string): void {
  const record = tx.record(policyStreamAt(name, stream));
  const { prunesAt: _, ...value } = (record.value ?? {}) as PolicyStreamValue;
  record.write({ value, kind: policyStreamQueueOf(name), dueMs: tx.nowMs });
}
