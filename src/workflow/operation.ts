/**
 * An operation of `ctx`: it can be awaited, or written `yield*` in a generator workflow. It begins when it is asked for, like a promise.
 *
 * Its rejection never ends the process, however late it is awaited. One that is never observed fails its run instead.
 */

/** What the run knows of an operation that its code has. */
export interface Tracked {
  /** As messages name it: `step "charge"`. */
  readonly shown: string;
  /** The code has awaited it, or attached a handler. */
  isObserved: boolean;
  /** Cancels it, because another operation of its race settled first. */
  cancel(): void;
}

export class Operation<T> implements PromiseLike<T> {
  readonly #promise: Promise<T>;
  readonly #tracked: Tracked | undefined;

  /** @internal */
  constructor(promise: Promise<T>, tracked?: Tracked | undefined) {
    this.#promise = promise;
    this.#tracked = tracked;
  }

  /** Cancels it. @internal */
  cancel(): void {
    this.#tracked?.cancel();
  }

  #observe(): Promise<T> {
    if (this.#tracked !== undefined) this.#tracked.isObserved = true;
    return this.#promise;
  }

  // biome-ignore lint/suspicious/noThenProperty: it is made to be awaited.
  then<A = T, B = never>(
    fulfilled?: ((value: T) => A | PromiseLike<A>) | null,
    rejected?: ((reason: unknown) => B | PromiseLike<B>) | null,
  ): Promise<A | B> {
    return this.#observe().then(fulfilled, rejected);
  }

  catch<B = never>(rejected?: ((reason: unknown) => B | PromiseLike<B>) | null): Promise<T | B> {
    return this.#observe().catch(rejected);
  }

  finally(settled?: (() => void) | null): Promise<T> {
    return this.#observe().finally(settled);
  }

  *[Symbol.iterator](): Generator<Operation<unknown>, T, unknown> {
    return (yield this) as T;
  }
}

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

/** Whether a function that was called gave a generator to run. */
export function isGenerator(code: unknown): code is Generator<Operation<unknown>, unknown, unknown> {
  return typeof code === "object" && code !== null && "next" in code && "throw" in code && !("then" in code);
}
