/**
 * What is wrong with a history: the violations that were found, with the names of transactions as they are printed.
 */

import type { CycleName } from "../cycles.ts";
import type { KeyHistory } from "./history.ts";
import type { ListTransaction, ListValue } from "./transactions.ts";

export type Anomaly =
  | CycleName
  | "G1a"
  | "G1b"
  | "lost update"
  | "incompatible orders"
  | "duplicate"
  | "vanished"
  | "never written"
  | "own writes not seen";

export interface Violation {
  readonly anomaly: Anomaly;
  /** Wrong only in real time: because one transaction had ended before another began. */
  readonly needsTime: boolean;
  /** A description, with one line for each step of a cycle. */
  readonly message: string;
  /** The ids of the transactions in it. */
  readonly transactions: readonly string[];
}

/** The most violations that are reported for a history. */
export const MAX_VIOLATIONS = 10;

export class Report {
  readonly violations: Violation[] = [];
  readonly #transactions: readonly ListTransaction[];

  constructor(transactions: readonly ListTransaction[]) {
    this.#transactions = transactions;
  }

  tell(violation: Violation): void {
    if (this.violations.length < MAX_VIOLATIONS) this.violations.push(violation);
  }

  id(node: number): string {
    return this.#transactions[node]?.id ?? "no transaction";
  }

  idsOf(key: KeyHistory, value: ListValue | undefined): string[] {
    const writing = value === undefined ? undefined : key.writers.get(value);
    return writing === undefined ? [] : [this.id(writing.node)];
  }

  name(node: number): string {
    const transaction = this.#transactions[node];
    if (transaction === undefined) return "no transaction";
    return transaction.about === undefined ? transaction.id : `${transaction.id} (${transaction.about})`;
  }

  writerName(key: KeyHistory, value: ListValue | undefined): string {
    const writing = value === undefined ? undefined : key.writers.get(value);
    return writing === undefined ? "no transaction" : this.name(writing.node);
  }
}
