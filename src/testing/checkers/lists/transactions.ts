/**
 * Transactions over lists, as a workload notes them: what each read and wrote, in order, and what came of it.
 */

export type ListValue = number | string;

/**
 * What a transaction read or wrote, in order. A list is null where there is none. Versions increase with every write of the key, through
 * deletion and re-creation; they are needed only to order several lives of a key.
 */
export type ListOperation =
  | {
      readonly op: "read";
      readonly key: string;
      readonly list: readonly ListValue[] | null;
      readonly version?: number | undefined;
    }
  | {
      readonly op: "create" | "append";
      readonly key: string;
      readonly value: ListValue;
      readonly version?: number | undefined;
    }
  | { readonly op: "delete"; readonly key: string; readonly version?: number | undefined };

export interface ListTransaction {
  readonly id: string;
  readonly outcome: "committed" | "aborted" | "unknown";
  readonly operations: readonly ListOperation[];
  /** In any unit; for `realTime`. */
  readonly startedAt?: number | undefined;
  /** When its outcome was known to its caller; undefined if never. */
  readonly endedAt?: number | undefined;
  /** Printed with its id. */
  readonly about?: string | undefined;
}

/** The last state of a key, read after all transactions. */
export interface LastRead {
  readonly list: readonly ListValue[] | null;
  readonly version?: number | undefined;
}
