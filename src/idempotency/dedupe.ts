/**
 * Dedupe: a message or a webhook that is delivered more than once has its effect once.
 *
 * That a message was handled is a mark, one record for each consumer and message, written in the commit of the effect: a crash loses
 * both or neither. Of two concurrent deliveries, the later one finds the mark of the earlier; both succeed.
 *
 * With SQL, the mark comes first: a second delivery waits for the first one's transaction to end, and its own statements do
 * not run. No other call uses that record, so no other waits.
 *
 * Guarantees: one effect for each message, while its mark lasts (G2, G29).
 * Out of scope: order, and deliveries after the mark's `ttl`: it must be longer than the time in which the sender repeats messages.
 */

import { checkFunction, checkId, checkOptions, type Duration, optionNames } from "../kernel/check.ts";
import type { Address } from "../kernel/contract.ts";
import { refusePromise, type Sync, type Tx } from "../kernel/decision.ts";
import type { Kernel } from "../kernel/kernel.ts";
import { type Prepare, runInSql, type SqlWork } from "../kernel/sql/in-sql.ts";
import { checkTtl } from "./input.ts";
import { mark } from "./records.ts";
import { markAt } from "./stored.ts";

export interface DedupeOptions {
  /** How long the message is remembered. Default: 7 days. Longer than its sender repeats it. */
  readonly ttl?: Duration | undefined;
}

/** The message was handled now, with what its decision returned; or it had been handled before. */
export type Deduplicated<T> =
  | { readonly deduplicated: false; readonly value: T }
  | { readonly deduplicated: true; readonly value?: undefined };

export interface Dedupe<Face, Touch> {
  /**
   * Runs the decision if this consumer has not handled this message yet; the mark and the effect are one commit. What the decision
   * throws drops both, so that the message can be delivered again.
   */
  <T>(
    consumer: string,
    messageId: string,
    decide: (tx: Face) => Sync<T>,
    options?: DedupeOptions & Touch,
  ): Promise<Deduplicated<T>>;
  /** The same for an effect in SQL of your own, on PostgreSQL and SQLite: the mark and your statements are one transaction. */
  sql<T>(
    consumer: string,
    messageId: string,
    work: SqlWork<T, Face, Touch>,
    options?: DedupeOptions,
  ): Promise<Deduplicated<T>>;
}

const DEDUPE_OPTIONS = optionNames<DedupeOptions>({ ttl: true });
/** With those of the decision. */
const DECISION_OPTIONS = optionNames<DedupeOptions & { touches?: unknown }>({ ttl: true, touches: true });
const TTL = "7 days";
const AGAIN = { deduplicated: true } as const;

/** @internal */
export function dedupeOn<Face, Touch>(kernel: Kernel, prepare: Prepare<Face, Touch>): Dedupe<Face, Touch> {
  async function dedupe<T>(
    consumer: string,
    messageId: string,
    decide: (tx: Face) => Sync<T>,
    options?: DedupeOptions & Touch,
  ): Promise<Deduplicated<T>> {
    const { at, ttlMs } = checkMark(consumer, messageId, options, DECISION_OPTIONS);
    checkFunction(decide, "the decision");
    // What is not about the mark is about the decision.
    const { ttl: _ttl, ...rest } = { ...options };
    const [effect, touches] = prepare(decide, rest as Touch);
    const marked = (tx: Tx): Deduplicated<T> => {
      if (!mark(tx, at, ttlMs)) return AGAIN;
      const value = effect(tx);
      refusePromise(value);
      return { deduplicated: false, value };
    };
    return kernel.mending(() => kernel.transact(marked, [at, ...touches]));
  }
  async function sql<T>(
    consumer: string,
    messageId: string,
    work: SqlWork<T, Face, Touch>,
    options?: DedupeOptions,
  ): Promise<Deduplicated<T>> {
    const { at, ttlMs } = checkMark(consumer, messageId, options);
    checkFunction(work, "the work");
    return kernel.share<Deduplicated<T>>(async (sql, join) => {
      if (!(await join((tx) => mark(tx, at, ttlMs), [at]))) return AGAIN;
      return { deduplicated: false, value: await runInSql(sql, join, prepare, work) };
    });
  }
  return Object.assign(dedupe, { sql });
}

/** Marks the message in a decision. Returns whether it is new. */
export function markIn(tx: Tx, consumer: string, messageId: string, options?: DedupeOptions): boolean {
  const { at, ttlMs } = checkMark(consumer, messageId, options);
  return mark(tx, at, ttlMs);
}

function checkMark(
  consumer: string,
  messageId: string,
  options: DedupeOptions | undefined,
  known = DEDUPE_OPTIONS,
): { readonly at: Address; readonly ttlMs: number } {
  checkOptions(options, known);
  const at = markAt(checkId(consumer, "the consumer"), checkId(messageId, "the message's id"));
  return { at, ttlMs: checkTtl(options?.ttl ?? TTL) };
}
