/**
 * Seeded random numbers: small, fast, and the same on every machine. Every choice in a simulation is drawn from here.
 */

export class Random {
  #a: number;
  #b: number;
  #c: number;
  #d: number;
  #stamps = 0;

  constructor(seed: number) {
    // Spreads the seed over the whole state (splitmix32), so that neighbouring seeds are unrelated.
    let s = seed >>> 0;
    const next = () => {
      s = (s + 0x9e3779b9) >>> 0;
      let z = s;
      z = Math.imul(z ^ (z >>> 16), 0x85ebca6b);
      z = Math.imul(z ^ (z >>> 13), 0xc2b2ae35);
      return (z ^ (z >>> 16)) >>> 0;
    };
    this.#a = next();
    this.#b = next();
    this.#c = next();
    this.#d = next();
  }

  /** A whole number from 0 to 2^32 - 1 (xoshiro128). */
  #next(): number {
    const t = this.#b << 9;
    const result = Math.imul(rotate(Math.imul(this.#b, 5), 7), 9) >>> 0;
    this.#c ^= this.#a;
    this.#d ^= this.#b;
    this.#b ^= this.#c;
    this.#a ^= this.#d;
    this.#c ^= t;
    this.#d = rotate(this.#d, 11);
    return result;
  }

  /** At least 0, below 1. */
  unit(): number {
    return this.#next() / 2 ** 32;
  }

  /** A whole number from 0 to `below` - 1. */
  below(below: number): number {
    return Math.floor(this.unit() * below);
  }

  /** A new number for each write, independent of the sequence of random numbers. */
  readonly stamp = (): number => {
    this.#stamps += 1;
    return this.#stamps;
  };

  chance(probability: number): boolean {
    return probability > 0 && this.unit() < probability;
  }

  pick<T>(items: readonly T[]): T {
    const item = items[this.below(items.length)];
    if (item === undefined) throw new Error("nothing to pick from");
    return item;
  }

  uuid(): string {
    const hex = Array.from({ length: 4 }, () => this.#next().toString(16).padStart(8, "0")).join("");
    return `${hex.slice(0, 8)}-${hex.slice(8, 12)}-4${hex.slice(13, 16)}-a${hex.slice(17, 20)}-${hex.slice(20)}`;
  }
}

const rotate = (x: number, by: number): number => (x << by) | (x >>> (32 - by));
