/**
 * Serializability: is there one order of all transactions, over all their keys, in which each reads what it read?
 *
 * Each key holds a list; a transaction reads lists, appends values that no other transaction appends, and creates and deletes lists. The reads
 * then show the order of the writes: a list that was read is the order of its appends (list-append, the approach of Elle). Deletions and
 * re-creations are ordered by the versions that the writers got. From the order of each key follow the dependencies between
 * transactions, including those of reads that found nothing: a transaction that found a list absent comes before the one that created it. A
 * cycle of dependencies means that there is no such order (Adya).
 *
 * It finds: dirty writes (G0), aborted reads (G1a), intermediate reads (G1b), circular information flow (G1c), cycles with one
 * anti-dependency (G-single: read skew, lost updates) or several (G2: write skew, also between absent keys), lists that contradict
 * each other, values that vanish, appear twice or were never written, and transactions that do not see their own writes. With
 * `realTime`, also orders that contradict the time: what was acknowledged before another began must come before it.
 *
 * An unknown outcome counts as committed if something it wrote was read, and as aborted otherwise. Reads of aborted transactions count
 * as reads: a refusal depends on what was read too. Leave them out of the history where nothing was decided.
 *
 * Histories that share no key can be checked one by one: if each is serializable then so are all of them together, in real time too.
 * So a long run is checked window by window, each with keys of its own, in bounded memory.
 */

import { Dependencies } from "./lists/dependencies.ts";
import { KeyHistories } from "./lists/history.ts";
import { Order } from "./lists/order.ts";
import { Report, type Violation } from "./lists/report.ts";
import { Seen } from "./lists/seen.ts";
import type { LastRead, ListTransaction } from "./lists/transactions.ts";

export interface SerializableOptions {
  /** Whether a transaction that had ended before another began must come before it. */
  readonly realTime?: boolean | undefined;
  /** The final state of each key, where it was read. */
  readonly last?: ReadonlyMap<string, LastRead> | undefined;
}

export interface SerializableReport {
  readonly violations: readonly Violation[];
  readonly transactions: number;
  readonly committed: number;
  readonly aborted: number;
  /** Unknown outcomes, and those of them whose writes were read. */
  readonly unknown: number;
  readonly unknownCommitted: number;
  readonly keys: number;
  readonly edges: { readonly ww: number; readonly wr: number; readonly rw: number };
  /** Reads of an absent list, with a dependency on the transaction that created it afterwards. */
  readonly absentReads: number;
  /** Reads of absence that could be before several lives of a key: they give no dependency. */
  readonly ambiguousReads: number;
}

export function checkSerializable(
  transactions: readonly ListTransaction[],
  { realTime = false, last = new Map() }: SerializableOptions = {},
): SerializableReport {
  const report = new Report(transactions);
  const keys = new KeyHistories();
  const seen = new Seen(transactions, last, keys, report);
  const lost = seen.collect();
  const order = new Order(transactions, last, seen.mayBeDeleted, report);
  for (const key of keys.values()) order.of(key);
  const dependencies = new Dependencies(transactions, report);
  for (const key of keys.values()) dependencies.add(key);
  if (realTime) dependencies.addTime(lost);
  dependencies.reportCycles();
  const count = (outcome: ListTransaction["outcome"]) =>
    transactions.reduce((sum, one) => sum + (one.outcome === outcome ? 1 : 0), 0);
  return {
    violations: report.violations,
    transactions: transactions.length,
    committed: count("committed"),
    aborted: count("aborted"),
    unknown: count("unknown"),
    unknownCommitted: seen.unknownCommitted,
    keys: keys.size,
    edges: dependencies.edges,
    absentReads: dependencies.absentReads,
    ambiguousReads: dependencies.ambiguousReads,
  };
}

/** Returns a few lines with what was checked and what is wrong. */
export function describeSerializable(report: SerializableReport): string {
  const { transactions, committed, aborted, unknown, unknownCommitted, keys, edges, violations } = report;
  const outcomes = `${committed} committed, ${aborted} aborted, ${unknown} unknown of which ${unknownCommitted} committed`;
  const summary =
    `${transactions} transactions (${outcomes}) over ${keys} keys; ` +
    `${edges.ww} ww, ${edges.wr} wr and ${edges.rw} rw dependencies, ${report.absentReads} of them from reads of absence`;
  return [summary, ...violations.map(({ message }) => message)].join("\n");
}
