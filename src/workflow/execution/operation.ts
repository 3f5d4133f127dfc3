/**
 * An operation of `ctx`: it can be awaited, or written `yield*` in a generator workflow. It begins when it is created, like a promise.
 *
 * Its rejection never ends the process, however late it is awaited. One that is never observed fails its run instead.
 *
 * It is a promise, and knows how it is observed: awaited, with a handler, or as one of several in `Promise.race`. A wait for a signal that
 * only a race observed is abandoned once the race is over, and must not take a message that a later wait is for.
 */

import { InvalidArgumentError } from "../../kernel/errors.ts";

/** The functions that a promise is observed with. `Promise.race` gives the same two to each of its promises, and nothing else does. */
export interface Reaction {
  readonly fulfilled: unknown;
  readonly rejected: unknown;
}

/** What the run knows of an operation that its code has. */
export interface Tracked {
  /** As messages name it: `step "charge"`. */
  readonly shown: string;
  /** The code has awaited it, or attached a handler. */
  isObserved: boolean;
  /** It is awaited, or has a handler of its own: code receives its outcome whatever else happens. */
  isAwaited: boolean;
  /** It was given to `Promise.race`, or to something like it. */
  joined(reaction: Reaction): void;
  /** Cancels it, because another operation of its race settled first. */
  cancel(): void;
}

interface Settlers {
  readonly resolve: (value: unknown) => void;
  readonly reject: (error: unknown) => void;
}

/** Those of the promise that was made last. The constructor of Promise hands them out before there is an operation to keep them in. */
let made: Settlers | undefined;
const keepSettlers = (resolve: (value: never) => void, reject: (error: unknown) => void): void => {
  made = { resolve: resolve as (value: unknown) => void, reject };
};

/** The operation that was looked at last, and whether it was awaited before that. */
let lookedAt: { readonly operation: object; readonly wasAwaited: boolean } | undefined;
let isOwnLook = false;

export class Operation<T> extends Promise<T> {
  #tracked: Tracked | undefined;
  #settlers: Settlers | undefined;

  /** @internal */
  constructor(settle: (resolve: (value: T | PromiseLike<T>) => void, reject: (error: unknown) => void) => void) {
    super(settle);
  }

  /** An operation that settles when it is told to. @internal */
  static pending<T>(): Operation<T> {
    const operation = new Operation<T>(keepSettlers);
    operation.#settlers = made;
    return operation;
  }

  /** @internal */
  fulfill(value: unknown): void {
    this.#settlers?.resolve(value);
  }

  /** Its rejection does not end the process: code may look at it later, or never. @internal */
  fail(error: unknown): void {
    this.hush();
    this.#settlers?.reject(error);
  }

  /** An operation that settles as the promise does. @internal */
  static of<T>(promise: Promise<T>, tracked?: Tracked | undefined): Operation<T> {
    const operation = new Operation<T>((resolve) => resolve(promise));
    operation.hush();
    operation.track(tracked);
    return operation;
  }

  /** @internal */
  track(tracked: Tracked | undefined): void {
    this.#tracked = tracked;
  }

  /** Cancels it. @internal */
  cancel(): void {
    this.#tracked?.cancel();
  }

  /** Its rejection does not end the process, whether it is observed or not. @internal */
  hush(): void {
    void this.#then(undefined, () => {});
  }

  /**
   * Its class, as `await`, `Promise.race` and the like ask for before they observe a promise. With this answer they take the operation as it
   * is. `await` does no more than that; the others call `then` immediately.
   */
  static looked(operation: Operation<unknown>): PromiseConstructor {
    const tracked = operation.#tracked;
    if (tracked !== undefined && !isOwnLook) {
      lookedAt = { operation, wasAwaited: tracked.isAwaited };
      tracked.isObserved = true;
      tracked.isAwaited = true;
    }
    return Promise;
  }

  // biome-ignore lint/suspicious/noThenProperty: it is made to be awaited.
  override then<A = T, B = never>(
    fulfilled?: ((value: T) => A | PromiseLike<A>) | null,
    rejected?: ((reason: unknown) => B | PromiseLike<B>) | null,
  ): Promise<A | B> {
    const tracked = this.#tracked;
    if (tracked !== undefined) {
      tracked.isObserved = true;
      if (lookedAt?.operation === this) {
        tracked.isAwaited = lookedAt.wasAwaited;
        tracked.joined({ fulfilled, rejected });
      } else tracked.isAwaited = true;
    }
    lookedAt = undefined;
    return this.#then(fulfilled, rejected);
  }

  #then<A = T, B = never>(
    fulfilled?: ((value: T) => A | PromiseLike<A>) | null,
    rejected?: ((reason: unknown) => B | PromiseLike<B>) | null,
  ): Promise<A | B> {
    isOwnLook = true;
    try {
      return super.then(fulfilled, rejected);
    } finally {
      isOwnLook = false;
    }
  }

  *[Symbol.iterator](): Generator<Operation<unknown>, T, unknown> {
    return (yield this) as T;
  }
}

Object.defineProperty(Operation.prototype, "constructor", {
  configurable: true,
  get(this: Operation<unknown>) {
    return Operation.looked(this);
  },
});

/** Runs a generator to its end, waiting for each operation that it yields. */
export async function drive<T>(code: Generator<Operation<unknown>, T, unknown>): Promise<T> {
  let next = code.next();
  while (next.done !== true) {
    let value: unknown;
    try {
      value = await next.value;
    } catch (error) {
      next = code.throw(error);
      continue;
    }
    next = code.next(value);
  }
  return next.value;
}

/** Whether a function that was called gave a generator to run. Throws if it is an async one, which would never end. */
export function isGenerator(code: unknown): code is Generator<Operation<unknown>, unknown, unknown> {
  if (typeof code !== "object" || code === null || !("next" in code && "throw" in code) || "then" in code) return false;
  if (Symbol.asyncIterator in code) throw new InvalidArgumentError("the function", NOT_ASYNC_GENERATOR);
  return true;
}

export const NOT_ASYNC_GENERATOR =
  "must be an async function, or a function* that writes yield* before each operation, not an async function*";
