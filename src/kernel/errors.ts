/**
 * Errors: every refusal has a stable `code` to branch on and typed `data` to act on.
 *
 * Losing a race is a refusal (`version_conflict`, `fenced`), bad input is a refusal made before anything is written
 * (`invalid_id`, `invalid_value`, …), and a store that cannot serve says which way it failed (`store_full`, `store_busy`, …).
 * Only `outcome_unknown` leaves open whether the commit happened; repeating the call with the same id or key is then the cure.
 *
 * A code, once published, is for ever.
 */

/** The base of all errors of Pawl. After `error instanceof PawlError`, `code` is a string; `isPawlError` tells one code from another. */
export abstract class PawlError<Code extends string = string, Data extends object = object> extends Error {
  readonly code: Code;
  readonly data: Data;

  /**
   * What `instanceof` does anyway. It is declared for its type: without it, TypeScript narrows to a class with type parameters by filling
   * them in with `any`. Each class narrows to itself.
   */
  static override [Symbol.hasInstance]<T>(this: abstract new (...args: never) => T, value: unknown): value is T {
    // biome-ignore lint/complexity/noThisInStatic: it is the class that was asked for, which may be one that extends this one.
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

/** A duration is not one: give a number of milliseconds, or a string such as "90s" or "2 days". */
export class InvalidDurationError extends PawlError<"invalid_duration", { what: string; reason: string }> {
  constructor(what: string, reason: string) {
    super("invalid_duration", `${what} ${reason}`, { what, reason });
  }
}

/** A value cannot be stored as it is. `data.path` leads to the part that cannot be kept, `data.name` says of which record. */
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
    const message = `${what}${of(name)} takes ${bytes} bytes, and at most ${maxBytes} may be stored`;
    super("value_too_large", message, { bytes, maxBytes, name });
  }
}

/** A stored value was written by something this release cannot read: a newer release, another codec, or by hand. */
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

/** What a decision was given was used when it had returned. It must not be kept. */
export class DecisionOverError extends PawlError<"decision_over", Record<string, never>> {
  constructor() {
    super("decision_over", "this decision is over: what it was given cannot be used any more", {});
  }
}

/** A decision returned a promise or is an async function. Decisions are synchronous: do the I/O before or after `transact`. */
export class DecisionAsyncError extends PawlError<"decision_async", Record<string, never>> {
  constructor() {
    super("decision_async", "a decision must be synchronous: do I/O and awaiting before or after it", {});
  }
}

/** A decision reached for ambient time, chance or I/O, or came out differently the second time. Use `tx.nowMs`, `tx.random()`, `tx.uuid()`. */
export class DecisionImpureError extends PawlError<"decision_impure", { reason: string }> {
  constructor(reason: string) {
    super("decision_impure", `a decision must be pure: ${reason}`, { reason });
  }
}

/** A decision touched more records than one commit may. Split it up. */
export class TooManyKeysError extends PawlError<"too_many_keys", { max: number }> {
  constructor(max: number) {
    super("too_many_keys", `a decision may touch at most ${max} records`, { max });
  }
}

/** Somebody else wrote first. Read again, and decide again on `data.current`. */
export class VersionConflictError extends PawlError<
  "version_conflict",
  { name: string; expected: number; current: number }
> {
  constructor(name: string, expected: number, current: number) {
    super("version_conflict", `${name} is at version ${current}, not ${expected}`, { name, expected, current });
  }
}

/** The lease was lost: another holder has taken over, or it has ended. Nothing was written; stop working on it. */
export class FencedError extends PawlError<"fenced", { name: string; fence: number; current: number }> {
  constructor(name: string, fence: number, current: number, reason = reasonOf(fence, current)) {
    super("fenced", `${name} ${reason}`, { name, fence, current });
  }
}

const reasonOf = (fence: number, current: number): string =>
  fence === current
    ? `is no longer held under fence ${fence}: it was released, or has ended`
    : `was taken over: its fence is ${current}, and yours was ${fence}`;

/**
 * The record is not what its holder last saw, after the server was restarted or replaced: a commit that was under way came out otherwise, or
 * commits were lost, by a promotion or a restore. Nothing was written; a run is resumed from its history.
 */
export class CommitsLostError extends FencedError {
  constructor(name: string, fence: number) {
    super(name, fence, fence);
    this.message = `${name} is not what its holder last saw, after the server was restarted or replaced: it is resumed from what is stored`;
  }
}

/** The lease could not be renewed in time, so another may hold it by now. Stop working; commits are refused if one does. */
export class LeaseUncertainError extends PawlError<"lease_uncertain", Record<string, never>> {
  constructor() {
    super("lease_uncertain", "the lease could not be renewed in time, so another may hold it by now", {});
  }
}

/** The handle was used in the body of a run, where it would happen again at each replay. Use `ctx`, or do it inside a step. */
export class UsedInBodyError extends PawlError<"used_in_body", { run: string }> {
  constructor(run: string) {
    super(
      "used_in_body",
      `pawl was used in the body of run "${run}", where it would happen again at each replay: use ctx, as in ctx.start, ctx.slot or ctx.call, or do it inside ctx.step`,
      { run },
    );
  }
}

/** `close()` was called on this handle. */
export class ClosedError extends PawlError<"closed", Record<string, never>> {
  constructor() {
    super("closed", "this handle is closed", {});
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
 * - retry: the same may work in a moment
 * - split: one decision of the batch is the reason; run each alone
 * - halve: the batch was too large, or took too long; try smaller ones
 * - settle: it may have been written; ask the store
 * - fail: tell the callers now
 */
export type Remedy = "retry" | "split" | "halve" | "settle" | "fail";

/** The store could not serve. Nothing was written, except perhaps where `code` is `outcome_unknown`: repeat that with the same id. */
export class StoreError extends PawlError<StoreCode, { remedy: Remedy }> {
  constructor(code: StoreCode, remedy: Remedy, message: string, options?: { cause?: unknown }) {
    super(code, message, { remedy }, options);
  }
}

/** For stores: a batch that arrives after its lane was settled without it. */
export function staleEpoch(): StoreError {
  return new StoreError(
    "store_refused",
    "settle",
    "the batch is of an older epoch: its outcome was settled without it",
  );
}

/** For stores: one of the user's statements ended a transaction that is Pawl's as well. */
export function endedEarly(): StoreError {
  return new StoreError("store_refused", "fail", "a statement ended the transaction, which is not its to end");
}
