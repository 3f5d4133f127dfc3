/**
 * Errors: every refusal has a stable `code` to branch on and typed `data` to act on.
 *
 * Losing a race is a refusal (`version_conflict`, `fenced`), bad input is a refusal made before anything is written
 * (`invalid_id`, `invalid_value`, …), and a store that cannot serve says which way it failed (`store_full`, `store_busy`, …).
 * Only `outcome_unknown` leaves open whether the commit happened: repeat the call with the same id or key then.
 *
 * A published code never changes.
 */

/** The base class of all errors of Pawl. After `error instanceof PawlError`, `code` is a string; `isPawlError` narrows to one code. */
export abstract class PawlError<Code extends string = string, Data extends object = object> extends Error {
  readonly code: Code;
  readonly data: Data;

  /**
   * The default behavior of `instanceof`. It is declared for its type: without it, TypeScript narrows to a class with type parameters by
   * filling them in with `any`. With it, each class narrows to itself.
   */
  static override [Symbol.hasInstance]<T>(this: abstract new (...args: never) => T, value: unknown): value is T {
    // biome-ignore lint/complexity/noThisInStatic: `this` is the right operand of instanceof, which may be a subclass.
    return Function.prototype[Symbol.hasInstance].call(this, value);
  }

  constructor(code: Code, message: string, data: Data, options?: { cause?: unknown }) {
    super(message, options);
    this.name = new.target.name;
    this.code = code;
    this.data = data;
  }
}

/** An id, key or name is empty, longer than 256 bytes, or has a control character or a lone surrogate. */
export class InvalidIdError extends PawlError<"invalid_id", { what: string; reason: string }> {
  constructor(what: string, reason: string) {
    super("invalid_id", `${what} ${reason}`, { what, reason });
  }
}

/** An argument is out of its range. Nothing was written; `data.what` names the argument. */
export class InvalidArgumentError extends PawlError<"invalid_argument", { what: string; reason: string }> {
  constructor(what: string, reason: string) {
    super("invalid_argument", `${what} ${reason}`, { what, reason });
  }
}

/**
 * A function of yours that the call waits for, such as one of `subjectKeys` or of an archive, did not answer within the patience of the handle. Its outcome is not
 * known; repeat the call.
 */
export class CallbackTimeoutError extends PawlError<"callback_timeout", { what: string; timeoutMs: number }> {
  constructor(what: string, timeoutMs: number) {
    super("callback_timeout", `${what} did not answer within ${timeoutMs} ms`, { what, timeoutMs });
  }
}

/**
 * A function of yours that must be synchronous, such as `concurrency.key` or `storeErrors`, returned a promise or a generator. Do I/O before the call, and let the
 * function compute from what it is given.
 */
export class CallbackAsyncError extends PawlError<"callback_async", { what: string }> {
  constructor(what: string) {
    super(
      "callback_async",
      `${what}: the function must be synchronous, and it returned a promise or a generator: do I/O before the call`,
      { what },
    );
  }
}

/** A duration is malformed or out of range: give a number of milliseconds, or a string such as "90s" or "2 days". */
export class InvalidDurationError extends PawlError<"invalid_duration", { what: string; reason: string }> {
  constructor(what: string, reason: string) {
    super("invalid_duration", `${what} ${reason}`, { what, reason });
  }
}

/** A value cannot be stored without loss. `data.path` is the path to the part that cannot be stored, `data.name` the record. */
export class InvalidValueError extends PawlError<"invalid_value", { path: string; reason: string; name?: string }> {
  constructor(path: string, reason: string, name?: string, what = "the value") {
    super("invalid_value", `cannot store ${what}${of(name)} at ${path}: ${reason}`, named({ path, reason }, name));
  }
}

/** A value is larger than the limit when encoded. Store it elsewhere and keep a reference, or raise `maxValueBytes`. */
export class ValueTooLargeError extends PawlError<
  "value_too_large",
  { bytes: number; maxBytes: number; name: string }
> {
  constructor(bytes: number, maxBytes: number, name: string, what = "the value") {
    const message = `${what}${of(name)} takes ${bytes} bytes, and at most ${maxBytes} can be stored: store it elsewhere and keep a reference, or raise maxValueBytes`;
    super("value_too_large", message, { bytes, maxBytes, name });
  }
}

/** A stored value cannot be read: a newer release, another codec or an edit by hand wrote it. `data.reason` says why. */
export class UnsupportedEncodingError extends PawlError<
  "unsupported_encoding",
  { path: string; reason: string; name?: string }
> {
  constructor(path: string, reason: string, options?: { cause?: unknown; name?: string }) {
    const message = `cannot read the stored value${of(options?.name)} at ${path}: ${reason}`;
    super("unsupported_encoding", message, named({ path, reason }, options?.name), options);
  }
}

const of = (name: string | undefined): string => (name === undefined ? "" : ` of ${name}`);

const named = <Data extends object>(data: Data, name: string | undefined): Data & { name?: string } =>
  name === undefined ? data : { ...data, name };

/** `tx`, or something it gave out, was used after its decision returned. Do not keep them. */
export class DecisionOverError extends PawlError<"decision_over", Record<string, never>> {
  constructor(what = "tx", where: "decision" | "command" = "decision") {
    super("decision_over", `${what} was used after its ${where} returned: use it only inside the ${where}`, {});
  }
}

/** A decision returned a promise, or is an async function. Decisions are synchronous: do the I/O before or after `transact`. */
export class DecisionAsyncError extends PawlError<"decision_async", Record<string, never>> {
  constructor() {
    super(
      "decision_async",
      "a decision must be synchronous, and this one returned a promise: do I/O before or after it",
      {},
    );
  }
}

/** A decision used ambient time, randomness or I/O, or wrote something else in its second run. Use `tx.nowMs`, `tx.random()`, `tx.uuid()`. */
export class DecisionImpureError extends PawlError<"decision_impure", { reason: string }> {
  constructor(reason: string) {
    super("decision_impure", `a decision must be pure: ${reason}`, { reason });
  }
}

/** A decision touched more records than one commit may. Split it into several commits. */
export class TooManyKeysError extends PawlError<"too_many_keys", { max: number }> {
  constructor(max: number) {
    super("too_many_keys", `a decision may touch at most ${max} records: split it into several commits`, { max });
  }
}

/** Another caller wrote first. Read again, and decide again on version `data.current`. */
export class VersionConflictError extends PawlError<
  "version_conflict",
  { name: string; expected: number; current: number }
> {
  constructor(name: string, expected: number, current: number) {
    super("version_conflict", `${name} is at version ${current}, not ${expected}: read it again and decide again`, {
      name,
      expected,
      current,
    });
  }
}

/** The lease was lost: another holder took over, or it ended. Nothing was written; stop working on it. */
export class FencedError extends PawlError<"fenced", { name: string; fence: number; current: number }> {
  constructor(name: string, fence: number, current: number, reason = reasonOf(fence, current)) {
    super("fenced", `${name} ${reason}`, { name, fence, current });
  }
}

const reasonOf = (fence: number, current: number): string =>
  fence === current
    ? `is no longer held under fence ${fence}: it was released, or its lease ended`
    : `was taken over by another holder: its fence is ${current}, and yours was ${fence}`;

/**
 * After the server was restarted or replaced, the record is not what its holder last saw: a commit that was in progress had another outcome
 * than assumed, or commits were lost by a promotion or a restore. Nothing was written; a run is resumed from its history.
 */
export class CommitsLostError extends FencedError {
  constructor(name: string, fence: number) {
    super(name, fence, fence);
    this.message = `${name} is not what its holder last saw, after the server was restarted or replaced: it is resumed from the stored state`;
  }
}

/** The lease could not be renewed in time, so another process may hold it now. Stop working; your commits are refused if one does. */
export class LeaseUncertainError extends PawlError<"lease_uncertain", Record<string, never>> {
  constructor() {
    super(
      "lease_uncertain",
      "the lease could not be renewed in time, so another process may hold it now: stop working on it",
      {},
    );
  }
}

/** The handle was used in the body of a run, where the call would be repeated at each replay. Use `ctx`, or call it inside a step. */
export class UsedInBodyError extends PawlError<"used_in_body", { run: string }> {
  constructor(run: string) {
    super(
      "used_in_body",
      `pawl was used in the body of run "${run}", where the call would be repeated at each replay: use ctx, as in ctx.start, ctx.slot, ctx.call, ctx.stream or ctx.aggregate, or call it inside ctx.step`,
      { run },
    );
  }
}

/** `close()` was called on this handle. Nothing was written. */
export class ClosedError extends PawlError<"closed", Record<string, never>> {
  constructor(message = "this handle is closed: open another one") {
    super("closed", message, {});
  }
}

export type StoreCode =
  | "store_busy"
  | "store_full"
  | "store_io"
  | "store_readonly"
  | "store_corrupt"
  | "store_unreachable"
  | "store_refused"
  | "store_unfit"
  | "outcome_unknown";

/**
 * What the kernel does about a store's failure. In all but `settle`, nothing was written.
 * - retry: the same batch may succeed soon
 * - split: one decision of the batch is the cause; run each in a batch of its own
 * - halve: the batch was too large, or took too long; try smaller ones
 * - settle: it may have been written; ask the store
 * - fail: reject the callers' promises now
 */
export type Remedy = "retry" | "split" | "halve" | "settle" | "fail";

/** The store failed. Nothing was written, unless `code` is `outcome_unknown`: then it may have been; repeat the call with the same id. */
export class StoreError extends PawlError<StoreCode, { remedy: Remedy }> {
  constructor(code: StoreCode, remedy: Remedy, message: string, options?: { cause?: unknown }) {
    super(code, message, { remedy }, options);
  }
}

/** For stores: the error for a batch that arrives after its lane was settled without it. */
export function staleEpoch(): StoreError {
  return new StoreError(
    "store_refused",
    "settle",
    "the batch has an older epoch: its lane was settled before it arrived",
  );
}

/** For stores: the error for a user's statement that ended a transaction which Pawl shares. */
export function endedEarly(): StoreError {
  return new StoreError(
    "store_refused",
    "fail",
    "a statement ended the transaction, which Pawl shares: do not run commit or rollback in it",
  );
}

/** What was given does not fit its schema. */
export class SchemaError extends PawlError<"schema_mismatch", { what: string; issues: readonly SchemaIssue[] }> {
  constructor(what: string, issues: readonly SchemaIssue[]) {
    const first = issues[0];
    const at = first === undefined || first.path === "" ? "" : ` at ${first.path}`;
    super("schema_mismatch", `${what} does not fit its schema${at}: ${first?.message ?? "no reason was given"}`, {
      what,
      issues,
    });
  }
}

export interface SchemaIssue {
  readonly message: string;
  readonly path: string;
}

/**
 * A function of yours threw an error of a class of JavaScript's own, as a TypeError: `data.what` names the function, and `cause` is the error. Errors of classes of
 * your own are thrown as they are.
 */
export class UserFunctionError extends PawlError<"user_function_failed", { what: string }> {
  constructor(what: string, cause: Error) {
    super("user_function_failed", `${what} threw: ${cause.message || cause.name}`, { what }, { cause });
  }
}

const OWN_CLASSES: ReadonlySet<unknown> = new Set([
  Error,
  TypeError,
  RangeError,
  ReferenceError,
  SyntaxError,
  URIError,
]);

/** What to throw for what a function of the user threw: the same with its context, unless callers may distinguish it by its class. */
export const thrownBy = (what: string, error: unknown): unknown =>
  error instanceof Error && OWN_CLASSES.has(error.constructor) ? new UserFunctionError(what, error) : error;

/** Thrown by code that is retried, such as a step, to say that trying again is useless. It fails with it immediately. */
export class NonRetryableError extends Error {
  override readonly name = "NonRetryableError";
}
