/**
 * How many events are applied in one transaction. After a failure it is one, so that it is known which event failed, and after each success twice as many:
 * what was too slow together need not be done one by one for ever. The size that failed is not reached again for a while.
 */

/** After this many pages of the largest size that is tried, a larger one is. */
const CONFIDENT = 16;

export class PageSize {
  readonly #most: number;
  #limit: number;
  #size: number;
  #atLimit = 0;

  constructor(most: number) {
    this.#most = most;
    this.#limit = most;
    this.#size = most;
  }

  get size(): number {
    return this.#size;
  }

  /** `tried` is how many events were to be applied together, where that is known. */
  failed(tried = 0): void {
    if (tried > 1) this.#limit = Math.max(1, Math.floor(tried / 2));
    this.#size = 1;
    this.#atLimit = 0;
  }

  applied(): void {
    if (this.#size < this.#limit) this.#size = Math.min(2 * this.#size, this.#limit);
    else if (this.#limit < this.#most && ++this.#atLimit === CONFIDENT) {
      this.#limit = Math.min(2 * this.#limit, this.#most);
      this.#atLimit = 0;
    }
  }
}
