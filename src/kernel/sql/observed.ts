/**
 * A promise that knows whether code looks at its outcome. Its rejection does not end the process, whether it does or not: the owner of the promise reports
 * one that nothing has looked at.
 */
export class Observed<T> extends Promise<T> {
  /** It was awaited, returned, or given a handler. */
  isObserved = false;

  /** Settles as the promise does. */
  static of<T>(promise: Promise<T>): Observed<T> {
    const observed = new Observed<T>((resolve) => resolve(promise));
    Promise.prototype.then.call(observed, undefined, () => {});
    return observed;
  }

  /** What `then` returns is not of this class. `await` wraps a promise of another class, and calls its `then`. */
  static override get [Symbol.species](): PromiseConstructor {
    return Promise;
  }

  // biome-ignore lint/suspicious/noThenProperty: it is made to be awaited.
  override then<A = T, B = never>(
    fulfilled?: ((value: T) => A | PromiseLike<A>) | null,
    rejected?: ((reason: unknown) => B | PromiseLike<B>) | null,
  ): Promise<A | B> {
    this.isObserved = true;
    return super.then(fulfilled, rejected);
  }
}
