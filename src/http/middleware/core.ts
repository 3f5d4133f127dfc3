/**
 * The part of the middleware that does not depend on the framework.
 *
 * A request with a key is refused, or gets the stored reply, or its handler runs. The handler's reply is stored before it is sent, so that a
 * client that repeats the request, because the reply was lost, gets the same one.
 *
 * - No key, or a malformed one: 400. A request without a key passes through unless it is `required`.
 * - The same key while the first request is in progress: 409, with `Retry-After`.
 * - The same key with another request: 422.
 * - A reply of 5xx, 408, 425 or 429 is not stored, unless `storeStatus` says so, and frees the key: the client can retry.
 * - A reply that is too large to be stored is sent once. A repetition gets a 500 that says that the request was carried out; it is not
 *   carried out again.
 * - A handler that throws frees the key.
 *
 * Guarantees: those of `Idempotency`, for requests (G3, G6); the keys of two callers are independent.
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

/** The part of a `Pawl` that the middleware uses. */
export interface IdempotentHandle<TxView, TxOptions> {
  idempotent<T>(
    key: string,
    options: IdempotentOptions | undefined,
    fn: (attempt: Attempt<TxView, TxOptions>) => T | Promise<T>,
  ): Promise<Answered<T>>;
}

/** The options of all middleware. `Request` is the framework's request or context; `Copy` is the type that `fingerprint` gets. */
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
  /** Returns a value that differs between different requests. Default: method, path, query and body. */
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

/** The attempt that a handler runs in. */
export interface HttpAttempt<TxView, TxOptions>
  extends Pick<Attempt<TxView, TxOptions>, "key" | "attempt" | "fence" | "abortSignal"> {
  /**
   * Runs a decision and stores the reply that it returns, in one commit: the effect happens exactly once, whatever crashes. This reply is
   * sent, whatever the handler sends.
   */
  commit(decide: (tx: TxView) => Sync<ReplyInit>, options?: TxOptions): Promise<Reply>;
}

export interface Incoming {
  readonly method: string;
  readonly key: string | null | undefined;
  readonly scope: () => string | Promise<string>;
  /** Returns the fingerprint, or the reply that refuses the request because its body is too long. */
  readonly fingerprint: () => Promise<{ readonly of: unknown } | { readonly refusal: Reply }>;
}

export type BegunRequest<TxView, TxOptions> =
  /** The middleware does not apply to the request. */
  | { readonly is: "pass" }
  | { readonly is: "reply"; readonly reply: Reply }
  | { readonly is: "pending"; readonly pending: PendingRequest<TxView, TxOptions> };

/** The outcome of a handler. */
export type Outcome = { readonly reply: Reply } | { readonly tooLarge: true };

export const MAX_BODY_BYTES = 1024 * 1024;
const METHODS = ["POST", "PATCH"];
/** The client errors that ask the client to retry. */
const TRANSIENT = [408, 425, 429];

const isLasting = (status: number): boolean => status >= 200 && status < 500 && !TRANSIENT.includes(status);

/** @internal */
export function checkHandle<TxView, TxOptions>(handle: IdempotentHandle<TxView, TxOptions>): void {
  if (typeof handle?.idempotent !== "function")
    throw new InvalidArgumentError("the handle", "must be a Pawl, as open returns it");
}

/** Checks the options that all middleware takes: required functions, optional functions, and durations. @internal */
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

export class MiddlewareCore<TxView, TxOptions, Request, Copy = Request> {
  readonly #handle: IdempotentHandle<TxView, TxOptions>;
  readonly #options: MiddlewareOptions<Request, Copy>;
  readonly #methods: ReadonlySet<string>;
  readonly maxBodyBytes: number;

  constructor(handle: IdempotentHandle<TxView, TxOptions>, options: MiddlewareOptions<Request, Copy>) {
    checkHandle(handle);
    // Without a scope, a caller that guesses a key would get another caller's reply.
    checkCommon(options, ["scope"], ["fingerprint", "storeStatus"], OPTIONS);
    if (options.methods !== undefined) checkList(options.methods, "the methods");
    for (const method of options.methods ?? []) checkId(method, "a method");
    this.#handle = handle;
    this.#options = options;
    this.#methods = new Set((options.methods ?? METHODS).map((method) => method.toUpperCase()));
    this.maxBodyBytes = checkCount(options.maxBodyBytes ?? MAX_BODY_BYTES, "maxBodyBytes", 2 ** 30);
  }

  get fingerprint(): ((request: Copy) => unknown) | undefined {
    return this.#options.fingerprint;
  }

  scope(request: Request): string | Promise<string> {
    return this.#options.scope(request);
  }

  async begin({ method, key: header, scope, fingerprint }: Incoming): Promise<BegunRequest<TxView, TxOptions>> {
    if (!this.#methods.has(method.toUpperCase())) return { is: "pass" };
    const parsed = parseKey(header);
    if (parsed.is === "missing" && this.#options.required !== true) return { is: "pass" };
    if (parsed.is !== "key") return { is: "reply", reply: parsed.is === "missing" ? MISSING : MALFORMED };
    const read = await fingerprint();
    if ("refusal" in read) return { is: "reply", reply: read.refusal };
    const { ttl, lease, storeStatus = isLasting } = this.#options;
    const who = await scope();
    if (typeof who !== "string" || who === "")
      throw new InvalidArgumentError("the scope", "must return a string that identifies the caller");
    const options = { scope: scopeOf(who), fingerprint: read.of, ttl, lease };
    return beginAttempt(this.#handle, parsed.key, options, { storeStatus, inProgress });
  }
}

/** The scope of a caller's keys. */
export const scopeOf = (who: string): string => `pawl.http\n${who}`;

/** The reply to a repeated request, of what is stored under its key. */
export const replyAgain = (stored: unknown): Reply => replayed(isReply(stored) ? stored : NOT_KEPT);

/** Whether it says that the response was not stored. */
export const isNotKept = ({ status, body }: Reply): boolean => status === NOT_KEPT.status && body === NOT_KEPT.body;

/** How the replies of attempts are kept, and what a repetition gets while the first attempt is in progress. */
export interface ReplyRules {
  readonly storeStatus: (status: number) => boolean;
  readonly inProgress: (retryAfterMs: number) => Reply;
}

/** Claims the key, and returns as soon as it is known whether the handler runs. */
export async function beginAttempt<TxView, TxOptions>(
  handle: IdempotentHandle<TxView, TxOptions>,
  key: string,
  options: IdempotentOptions,
  rules: ReplyRules,
): Promise<BegunRequest<TxView, TxOptions>> {
  const started = Promise.withResolvers<BegunRequest<TxView, TxOptions>>();
  const outcome = Promise.withResolvers<unknown>();
  const answered = handle.idempotent(key, options, (attempt) => {
    started.resolve({ is: "pending", pending: new PendingRequest(attempt, outcome, answered, rules) });
    return outcome.promise;
  });
  const notStarted = answered.then(
    ({ value }): BegunRequest<TxView, TxOptions> => ({ is: "reply", reply: replyAgain(value) }),
    (error: unknown): BegunRequest<TxView, TxOptions> => ({ is: "reply", reply: refusalOf(error, rules) }),
  );
  return Promise.race([started.promise, notStarted]);
}

/** Returns the reply that refuses a request; rethrows other errors. */
export function refusalOf(error: unknown, { inProgress }: Pick<ReplyRules, "inProgress">): Reply {
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
export class PendingRequest<TxView, TxOptions> {
  readonly attempt: HttpAttempt<TxView, TxOptions>;
  readonly #attempt: Attempt<TxView, TxOptions>;
  readonly #outcome: PromiseWithResolvers<unknown>;
  readonly #answered: Promise<Answered<unknown>>;
  readonly #rules: ReplyRules;
  #committed: Promise<Reply> | undefined;

  /** @internal */
  constructor(
    attempt: Attempt<TxView, TxOptions>,
    outcome: PromiseWithResolvers<unknown>,
    answered: Promise<Answered<unknown>>,
    rules: ReplyRules,
  ) {
    this.#attempt = attempt;
    this.#outcome = outcome;
    this.#answered = answered;
    this.#rules = rules;
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

  /** Stores the handler's reply, before it is sent. Returns null, or the reply to send instead. */
  async finish(outcome: Outcome): Promise<Reply | null> {
    const isCommitted = await this.#isCommitted();
    const isKept =
      "tooLarge" in outcome || (outcome.reply.status >= 200 && this.#rules.storeStatus(outcome.reply.status));
    if (isCommitted) this.#outcome.resolve(undefined);
    else if (isKept) this.#outcome.resolve("reply" in outcome ? outcome.reply : outcome);
    else this.#outcome.reject(new NotKept());
    try {
      const { value } = await this.#answered;
      return isCommitted && isReply(value) ? value : null;
    } catch (error) {
      // The request is recorded as carried out; only the reply is not stored.
      if (error instanceof NotKept || error instanceof ValueTooLargeError) return null;
      // Another attempt has taken over, and its reply is the valid one.
      if (error instanceof FencedError) return this.#rules.inProgress(0);
      throw error;
    }
  }

  /** Ends the attempt of a handler that threw: frees the key, unless a reply was committed. */
  async fail(error: unknown): Promise<void> {
    this.#outcome.reject(error);
    await this.#answered.catch(() => {});
  }

  /** Stops renewing the lease, because no client waits for the reply. If there is none before the lease ends, the next caller takes over. */
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

/** Ends an attempt whose reply is not stored. */
class NotKept extends Error {}

const MISSING = problem(
  400,
  "idempotency_key_missing",
  "This operation requires the header Idempotency-Key. Send a new key for each operation, and the same key to repeat it.",
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

export const inProgress = (retryAfterMs: number): Reply =>
  problem(
    409,
    "idempotency_in_progress",
    "A request with this idempotency key is in progress. Repeat it later to get its response.",
    [retryAfter(retryAfterMs)],
  );

/** The header, in whole seconds from 1. */
export const retryAfter = (ms: number): readonly [string, string] => [
  "retry-after",
  String(Math.max(1, Math.ceil(ms / 1000))),
];

export const tooLargeRequest = (maxBytes: number): Reply =>
  problem(413, "request_too_large", `A request with an idempotency key may have at most ${maxBytes} bytes.`);
