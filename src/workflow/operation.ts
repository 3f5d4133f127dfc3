/**
 * An operation of `ctx`: it can be awaited, or written `yield*` in a generator workflow. It begins when it is asked for, like a promise.
 */

export class Operation<T> implements PromiseLike<T> {
  readonly #promise: Promise<T>;

  /** @internal */
  constructor(promise: Promise<T>) {
    this.#promise = promise;
  }

  // biome-ignore lint/suspicious/noThenProperty: it is made to be awaited.
  then<A = T, B = never>(
    fulfilled?: ((value: T) => A | PromiseLike<A>) | null,
    rejected?: ((reason: unknown) => B | PromiseLike<B>) | null,
  ): Promise<A | B> {
    return this.#promise.then(fulfilled, rejected);
  }

  catch<B = never>(rejected?: ((reason: unknown) => B | PromiseLike<B>) | null): Promise<T | B> {
    return this.#promise.catch(rejected);
  }

  finally(settled?: (() => void) | null): Promise<T> {
    return this.#promise.finally(settled);
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
