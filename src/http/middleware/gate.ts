/**
 * The gate: what all middleware does, whatever the framework.
 *
 * A request comes to the gate with its key. It is refused; or it gets the reply that is stored; or it enters, and its handler runs. What
 * the handler replies is stored before it is sent, so that whoever asks again, because the reply was lost, hears the same.
 *
 * - No key, or a malformed one: 400. A request may go without a key unless it is `required`.
 * - The same key while the first request is under way: 409, with `Retry-After`.
 * - The same key with another request: 422.
 * - A reply of 5xx, 408, 425 or 429 is not stored, unless `storeStatus` says so, and frees the key: the client may try again.
 * - A reply that is too large to be stored is sent, and not sent again: whoever asks again is told, as a 500, that the request was
 *   carried out. It is not carried out again.
 * - A handler that throws frees the key.
 *
 * Promises: what `Idempotency` promises, for requests (G3, G6); the keys of two callers are never one.
 */

import type { Answered, Attempt } from "../../idempotency/attempt.ts";
import { IdempotencyInProgressError, IdempotencyMismatchError, isReplayed } from "../../idempotency/errors.ts";
import type { IdempotentOptions } from "../../idempotency/idempotency.ts";
import { checkTtl } from "../../idempotency/input.ts";
import {
  checkBoolean,
  checkCount,
  checkFunction,
  checkId,
  checkLease,
  checkList,
  checkOptions,
  type Duration,
  type OptionNames,
  optionNames,
} from "../../kernel/check.ts";
import { refusePromise, type Sync } from "../../kernel/decision.ts";
import { FencedError, InvalidArgumentError, ValueTooLargeError } from "../../kernel/errors.ts";
import { parseKey } from "./key.ts";
import { isReply, problem, type Reply, type ReplyInit, replayed, replyOf } from "./reply.ts";

/** What the middleware needs of a handle: a Pawl is one. */
export interface IdempotentHandle<Face, Touch> {
  idempotent<T>(
    key: string,
    options: IdempotentOptions | undefined,
    fn: (attempt: Attempt<Face, Touch>) => T | Promise<T>,
  ): Promise<Answered<T>>;
}

/** Options of all middleware. `Request` is the framework's request, or its context; `Copy` is what a fingerprint is taken of. */
export interface MiddlewareOptions<Request, Copy = Request> {
  /**
   * Returns who is calling: an account, a tenant, a token. The keys of two callers are independent of each other. Annotate the parameter with
   * the framework's type to use what is special to it.
   */
  readonly scope: (request: Request) => string | Promise<string>;
  /** Refuse requests without a key. Default: they pass through. */
  readonly required?: boolean | undefined;
  /** The methods that it applies to; others pass through. Default: POST and PATCH. */
  readonly methods?: readonly string[] | undefined;
  /** Returns what tells one request from another, instead of method, path, query and body. */
  readonly fingerprint?: ((request: Copy) => unknown) | undefined;
  /** Which replies are stored, by their status. Default: all but 5xx, 408, 425 and 429. */
  readonly storeStatus?: ((status: number) => boolean) | undefined;
  /** The longest body that is read or stored, in bytes. Default: 1 MiB. A longer request is refused with 413. */
  readonly maxBodyBytes?: number | undefined;
  /** How long a reply is kept. Default: 24 hours. */
  readonly ttl?: Duration | undefined;
  /** How long a handler whose process died keeps its key. Default: 30 s. */
  readonly lease?: Duration | undefined;
}

const OPTIONS = optionNames<MiddlewareOptions<never>>({
  scope: true,
  required: true,
  methods: true,
  fingerprint: true,
  storeStatus: true,
  maxBodyBytes: true,
  ttl: true,
  lease: true,
});

/** What a handler can do with its attempt. */
export interface HttpAttempt<Face, Touch>
  extends Pick<Attempt<Face, Touch>, "key" | "attempt" | "fence" | "abortSignal"> {
  /**
   * Runs a decision and stores the reply that it returns, in one commit: the effect happens exactly once, whatever crashes. That reply is
   * what is sent, whatever the handler sends.
   */
  commit(decide: (tx: Face) => Sync<ReplyInit>, options?: Touch): Promise<Reply>;
}

/** A request, as the gate sees it. */
export interface Incoming {
  readonly method: string;
  readonly key: string | null | undefined;
  readonly scope: () => string | Promise<string>;
  /** Or the reply that refuses the request, because it cannot be read. */
  readonly fingerprint: () => Promise<{ readonly of: unknown } | { readonly refusal: Reply }>;
}

export type Entry<Face, Touch> =
  /** The request is none of its business. */
  | { readonly is: "pass" }
  | { readonly is: "reply"; readonly reply: Reply }
  | { readonly is: "entered"; readonly visit: Visit<Face, Touch> };

/** What a handler came to. */
export type Outcome = { readonly reply: Reply } | { readonly tooLarge: true };

const MAX_BODY_BYTES = 1024 * 1024;
const METHODS = ["POST", "PATCH"];
/** These say: try again. */
const TRANSIENT = [408, 425, 429];

const isLasting = (status: number): boolean => status >= 200 && status < 500 && !TRANSIENT.includes(status);

/** What all middleware takes: functions that must be there, functions that may be, and times. @internal */
export function checkCommon(
  options: { readonly required?: boolean | undefined; readonly ttl?: unknown; readonly lease?: unknown },
  required: readonly string[],
  optional: readonly string[],
  known: OptionNames,
): void {
  checkOptions(options ?? null, known);
  const given = options as Readonly<Record<string, unknown>>;
  for (const name of required) checkFunction(given[name], `the ${name}`);
  for (const name of optional) if (given[name] !== undefined) checkFunction(given[name], name);
  if (options.required !== undefined) checkBoolean(options.required, "required");
  if (options.ttl !== undefined) checkTtl(options.ttl);
  if (options.lease !== undefined) checkLease(options.lease, "the lease");
}

export class Gate<Face, Touch, Request, Copy = Request> {
  readonly #handle: IdempotentHandle<Face, Touch>;
  readonly #options: MiddlewareOptions<Request, Copy>;
  readonly #methods: ReadonlySet<string>;
  readonly maxBodyBytes: number;

  constructor(handle: IdempotentHandle<Face, Touch>, options: MiddlewareOptions<Request, Copy>) {
    if (typeof handle?.idempotent !== "function")
      throw new InvalidArgumentError("the handle", "must be a Pawl, as open gives it");
    // Without it, whoever guesses a key would be told another caller's reply.
    checkCommon(options, ["scope"], ["fingerprint", "storeStatus"], OPTIONS);
    if (options.methods !== undefined) checkList(options.methods, "the methods");
    for (const method of options.methods ?? []) checkId(method, "a method");
    this.#handle = handle;
    this.#options = options;
    this.#methods = new Set((options.methods ?? METHODS).map((method) => method.toUpperCase()));
    this.maxBodyBytes = checkCount(options.maxBodyBytes ?? MAX_BODY_BYTES, "maxBodyBytes", 2 ** 30);
  }

  /** The fingerprint that the options ask for, if they do. */
  get fingerprint(): ((request: Copy) => unknown) | undefined {
    return this.#options.fingerprint;
  }

  scope(request: Request): string | Promise<string> {
    return this.#options.scope(request);
  }

  async enter({ method, key: header, scope, fingerprint }: Incoming): Promise<Entry<Face, Touch>> {
    if (!this.#methods.has(method.toUpperCase())) return { is: "pass" };
    const parsed = parseKey(header);
    if (parsed.is === "missing" && this.#options.required !== true) return { is: "pass" };
    if (parsed.is !== "key") return { is: "reply", reply: parsed.is === "missing" ? MISSING : MALFORMED };
    const read = await fingerprint();
    if ("refusal" in read) return { is: "reply", reply: read.refusal };
    const { ttl, lease, storeStatus = isLasting } = this.#options;
    const who = await scope();
    if (typeof who !== "string" || who === "")
      throw new InvalidArgumentError("the scope", "must give a text that says who is calling");
    const options = { scope: `pawl.http\n${who}`, fingerprint: read.of, ttl, lease };
    return begin(this.#handle, parsed.key, options, storeStatus);
  }
}

/** Asks for the key, and answers as soon as it is known whether the handler runs. */
async function begin<Face, Touch>(
  handle: IdempotentHandle<Face, Touch>,
  key: string,
  options: IdempotentOptions,
  storeStatus: (status: number) => boolean,
): Promise<Entry<Face, Touch>> {
  const entered = Promise.withResolvers<Entry<Face, Touch>>();
  const outcome = Promise.withResolvers<unknown>();
  const answered = handle.idempotent(key, options, (attempt) => {
    entered.resolve({ is: "entered", visit: new Visit(attempt, outcome, answered, storeStatus) });
    return outcome.promise;
  });
  const told = answered.then(
    ({ value }): Entry<Face, Touch> => ({ is: "reply", reply: isReply(value) ? replayed(value) : replayed(NOT_KEPT) }),
    (error: unknown): Entry<Face, Touch> => ({ is: "reply", reply: refusalOf(error) }),
  );
  return Promise.race([entered.promise, told]);
}

/** The reply that says why a request did not enter; anything else is thrown on. */
function refusalOf(error: unknown): Reply {
  if (error instanceof IdempotencyMismatchError)
    return problem(
      422,
      "idempotency_mismatch",
      "This idempotency key was used for another request. Use a new key for a new request.",
    );
  if (error instanceof IdempotencyInProgressError) return inProgress(error.data.retryAfterMs);
  if (isReplayed(error)) return replayed(NOT_KEPT);
  throw error;
}

/** A request whose handler runs. */
export class Visit<Face, Touch> {
  readonly attempt: HttpAttempt<Face, Touch>;
  readonly #attempt: Attempt<Face, Touch>;
  readonly #outcome: PromiseWithResolvers<unknown>;
  readonly #answered: Promise<Answered<unknown>>;
  readonly #storeStatus: (status: number) => boolean;
  #committed: Promise<Reply> | undefined;

  constructor(
    attempt: Attempt<Face, Touch>,
    outcome: PromiseWithResolvers<unknown>,
    answered: Promise<Answered<unknown>>,
    storeStatus: (status: number) => boolean,
  ) {
    this.#attempt = attempt;
    this.#outcome = outcome;
    this.#answered = answered;
    this.#storeStatus = storeStatus;
    this.attempt = {
      key: attempt.key,
      attempt: attempt.attempt,
      fence: attempt.fence,
      get abortSignal() {
        return attempt.abortSignal;
      },
      commit: (decide, options) => {
        const committed = attempt.commit((tx) => {
          const init = decide(tx);
          refusePromise(init);
          return replyOf(init);
        }, options);
        this.#committed = committed;
        committed.catch(() => {});
        return committed;
      },
    };
  }

  /** The handler replied. Once that is stored it may be sent; or the answer is what is to be sent instead. */
  async leave(outcome: Outcome): Promise<Reply | null> {
    const isCommitted = await this.#isCommitted();
    const isKept = "tooLarge" in outcome || (outcome.reply.status >= 200 && this.#storeStatus(outcome.reply.status));
    if (isCommitted) this.#outcome.resolve(undefined);
    else if (isKept) this.#outcome.resolve("reply" in outcome ? outcome.reply : outcome);
    else this.#outcome.reject(new NotKept());
    try {
      const { value } = await this.#answered;
      return isCommitted && isReply(value) ? value : null;
    } catch (error) {
      // It is done, and it is known that it is; only the reply is not kept.
      if (error instanceof NotKept || error instanceof ValueTooLargeError) return null;
      // Another attempt has taken over, and its reply is the one that counts.
      if (error instanceof FencedError) return inProgress(0);
      throw error;
    }
  }

  /** The handler threw: the key is free again, unless something was committed. */
  async fail(error: unknown): Promise<void> {
    this.#outcome.reject(error);
    await this.#answered.catch(() => {});
  }

  /** Nobody waits for the reply any more. If there is none before the lease ends, the next caller takes over. */
  lapse(): void {
    this.#attempt.lapse();
  }

  async #isCommitted(): Promise<boolean> {
    return (
      this.#committed?.then(
        () => true,
        () => false,
      ) ?? false
    );
  }
}

/** Thrown through an attempt whose reply is not to be stored. */
class NotKept extends Error {}

const MISSING = problem(
  400,
  "idempotency_key_missing",
  "This operation requires the header Idempotency-Key. Send one key for each operation, and the same one to repeat it.",
);
const MALFORMED = problem(
  400,
  "idempotency_key_malformed",
  'The header Idempotency-Key must be one string of 1 to 255 visible ASCII characters, as in Idempotency-Key: "8e03978e".',
);
const NOT_KEPT = problem(
  500,
  "response_not_kept",
  "The request was carried out, and is not carried out again. Its response was too large to be kept.",
);

const inProgress = (retryAfterMs: number): Reply =>
  problem(
    409,
    "idempotency_in_progress",
    "A request with this idempotency key is being carried out. Repeat it later to hear what it came to.",
    [["retry-after", String(Math.max(1, Math.ceil(retryAfterMs / 1000)))]],
  );

/** The refusal of a request that is too long to be read. */
export const tooLargeRequest = (maxBytes: number): Reply =>
  problem(413, "request_too_large", `A request with an idempotency key may have at most ${maxBytes} bytes.`);
