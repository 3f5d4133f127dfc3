/** Idempotency keys and dedupe as a capability of the handle. */

import type { Capability } from "../kernel/capability.ts";
import type { Sync, Tx } from "../kernel/decision.ts";
import type { Kernel } from "../kernel/kernel.ts";
import { type Prepare, preparedWith } from "../kernel/sql/in-sql.ts";
import type { Answered, Attempt } from "./attempt.ts";
import { type Dedupe, type DedupeOptions, dedupeOn } from "./dedupe.ts";
import { Idempotency, type IdempotentOptions, type KeyOptions } from "./idempotency.ts";

/** `Face` is the `tx` of the handle's decisions. */
export interface IdempotencyVerbs<Face, Touch> {
  /**
   * Does the work of a key once. A later call with the key gets the stored result; one that arrives while the work is under way, or with
   * another request, is refused. `attempt.commit` makes the effect and its result one commit.
   */
  idempotent<T>(
    key: string,
    options: IdempotentOptions | undefined,
    fn: (attempt: Attempt<Face, Touch>) => T | Promise<T>,
  ): Promise<Answered<T>>;
  /** Runs a decision once for each message of a consumer: the mark and the effect are one commit. `dedupe.sql` is for SQL of your own. */
  readonly dedupe: Dedupe<Face, Touch>;
}

export interface IdempotencyTxVerbs {
  /** Returns what is stored under the key, or runs the function and stores what it returns, all in this commit. */
  idempotent<T>(key: string, options: KeyOptions | undefined, decide: () => Sync<T>): Answered<T>;
  /** Marks a message as handled by this consumer; returns whether it is new. */
  dedupe(consumer: string, messageId: string, options?: DedupeOptions): boolean;
}

export function idempotencyCapability<Face, Touch>(kernel: Kernel, prepare: Prepare<Face, Touch>): Capability {
  const keys = new Idempotency(kernel, prepare);
  const verbs: IdempotencyVerbs<Face, Touch> = {
    idempotent: (key, options, fn) => keys.idempotent(key, options, fn),
    dedupe: keys.dedupe,
  };
  return {
    verbs,
    view: {
      idempotent: (tx: Tx, key: string, options: KeyOptions | undefined, decide: () => unknown) =>
        keys.within(tx).idempotent(key, options, decide),
      dedupe: (tx: Tx, consumer: string, messageId: string, options?: DedupeOptions) =>
        keys.within(tx).dedupe(consumer, messageId, options),
    },
    scoped: (origin) => {
      const prepareScoped = preparedWith(prepare, origin);
      const scoped: IdempotencyVerbs<Face, Touch> = {
        idempotent: (key, options, fn) => keys.idempotent(key, options, fn, prepareScoped),
        dedupe: dedupeOn(kernel, prepareScoped),
      };
      return scoped;
    },
    queues: keys.queues,
    get isBusy() {
      return keys.isBusy;
    },
    close: () => keys.close(),
  };
}
