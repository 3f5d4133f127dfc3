/**
 * The random choices of a chapter: its names, and the arguments of its operations. All of it follows from the seed.
 *
 * A chapter uses a few families of names, each a set that some store could mix up: names that differ in case only, in
 * their normal form, by a blank at the end, or that mean something to SQL, to arrays or to patterns. The cast is small, so
 * that records are often used again, deleted and created again.
 *
 * Times are either the same on every clock (the seventies for what is due, a far century for what is not), or taken from the
 * store's clock in a decision and then compared by what they mean.
 */

import { type Address, address } from "../../src/kernel/contract.ts";
import { Random } from "../../src/testing/sim/random.ts";

const FAMILIES: readonly (readonly string[])[] = [
  ["a", "A", "aa", "aA", "ab", "b", "B"],
  ["a%", "a_", "axb", "a%b", "a\\", "a\\%", "%", "_"],
  ["\u00e9", "e\u0301", "e", "\u00c9", "\u00df", "ss", "\u0131", "i"],
  ["\u{1f600}", "\u{1f600}\u{1f3fd}", "\uff5e", "\ue000", "\uffff", "\u{10ffff}", "\ud7ff"],
  ["a", "a ", " a", " ", "  ", "\u00a0", "a\u200b"],
  ["NULL", "null", "{}", "{a,b}", "a,b", '"a"', '""', "\\N", "\\"],
  ["'", "''", "$1", "?", "--", ";", "(1,2)", "[]", "\\x41"],
  ["0", "00", "-0", "1", "10", "2", "1e0", "true"],
  ["x".repeat(256), `${"x".repeat(255)}y`, "x".repeat(255), "\u{1f600}".repeat(64), "\u00e9".repeat(128), "x"],
  ["a/b", "a//b", "../a", "..", "a:b", "a b", "a\u202eb", "__proto__"],
];

/** Spaces that a store could mix up, and one full of what means something elsewhere. */
const RECORD_SPACES = ["record", "Record", "o'dd \"{space},\\%\u{1f600}"] as const;

/** Kinds whose records have timers that are the same on every clock, so that the order they come due in is known. */
export const TIMER_KINDS = ["timer", "Timer", "%", "{t,i\"m'er}"] as const;
/** Kinds whose records are woken as well, at times of the store's own clock. */
export const BELL_KINDS = ["bell", "BELL"] as const;

const TEXTS = [
  "",
  " ",
  "new",
  "New",
  "NULL",
  "{a,b}",
  "a\\",
  "it's",
  '"',
  "\u{1f600}",
  "e\u0301",
  "line\nline",
  "\ttab\r\n",
  "%_",
  "\\.",
] as const;

/** The records that a chapter is about. */
export interface Cast {
  readonly slots: readonly string[];
  readonly records: readonly Address[];
  /** Records that come due at times the same on every clock, and are claimed one by one. */
  readonly timers: readonly Address[];
  /** Records that are woken. */
  readonly bells: readonly Address[];
}

export const COUNTERS = ["counter", "Counter", "counter "] as const;
export const ACCOUNTS = ["account 1", "account 2", "account 3", "account 4"] as const;

export type Writer = 0 | 1;

/** What a write names besides the value; what is left out stays. */
export interface Columns {
  readonly status?: string | null;
  readonly kind?: string | null;
  readonly dueMs?: number | null;
  readonly holder?: string | null;
}

/** Due on every clock, and not due on any: no clock has a time between these and now. */
export const SURELY_PAST_MS = 100_000_000_000;
export const SURELY_FUTURE_MS = 4_000_000_000_000;
const LAST_TIME_MS = 8_640_000_000_000_000;

export class Draw extends Random {
  readonly cast: Cast;
  /** The number of the operation that is drawn now. */
  number = 0;
  #pastMs = 1_000;

  constructor(seed: number) {
    super(seed);
    const names = new Set<string>();
    for (const family of this.some(FAMILIES, 3)) for (const name of family) names.add(name);
    const all = this.some([...names], names.size);
    const records = this.some(all, 7);
    this.cast = {
      slots: all.slice(0, 14),
      records: RECORD_SPACES.flatMap((space) => records.map((name) => address(space, name))),
      timers: this.some(all, 8).map((name) => address("timer", name)),
      bells: this.some(all, 5).map((name) => address("bell", name)),
    };
  }

  /** This many different ones, in any order. */
  some<T>(items: readonly T[], count: number): T[] {
    const left = [...items];
    const taken: T[] = [];
    while (taken.length < count && left.length > 0) taken.push(...left.splice(this.below(left.length), 1));
    return taken;
  }

  from(least: number, most: number): number {
    return least + this.below(most - least + 1);
  }

  writer(): Writer {
    return this.chance(0.5) ? 0 : 1;
  }

  slot(): string {
    return this.pick(this.cast.slots);
  }

  record(): Address {
    // Most in one space, so that its records are met again.
    const names = this.cast.records.length / RECORD_SPACES.length;
    return this.chance(0.6) ? this.pick(this.cast.records.slice(0, names)) : this.pick(this.cast.records);
  }

  timer(): Address {
    return this.pick(this.cast.timers);
  }

  bell(): Address {
    return this.pick(this.cast.bells);
  }

  /** A name of the cast, the beginning of one, or what no name begins with. */
  prefix(): string {
    const name = this.slot();
    return this.pick(["", "", name, [...name].slice(0, 1).join(""), [...name].slice(0, -1).join(""), "zz"]);
  }

  after(): string | null {
    return this.chance(0.4) ? null : this.slot();
  }

  limit(): number {
    return this.pick([1, 2, 3, 5, 1000]);
  }

  text(): string {
    return this.chance(0.7) ? this.pick(TEXTS) : this.slot();
  }

  /** Due on every clock, and at no time twice, so that it is known who is due first. */
  pastMs(): number {
    return this.pastTimesMs(7);
  }

  /** The first of a range of milliseconds that no other operation uses. */
  pastTimesMs(count: number): number {
    const firstMs = this.#pastMs;
    this.#pastMs += count;
    return firstMs;
  }

  futureMs(): number {
    return this.chance(0.1) ? LAST_TIME_MS : SURELY_FUTURE_MS + this.number * 1_001 + this.below(1_000);
  }

  timeMs(): number | null {
    return this.pick([this.pastMs(), this.pastMs(), this.futureMs(), null]);
  }

  columns(kinds: readonly string[] = TIMER_KINDS): Columns {
    return {
      ...(this.chance(0.4) ? { status: this.chance(0.2) ? null : this.text() } : {}),
      ...(this.chance(0.4) ? { kind: this.chance(0.2) ? null : this.pick(kinds) } : {}),
      ...(this.chance(0.4) ? { dueMs: this.timeMs() } : {}),
      ...(this.chance(0.1) ? { holder: this.chance(0.3) ? null : this.text() } : {}),
    };
  }

  /** A value of any kind that the codec knows. */
  value(level = 0): unknown {
    if (level === 0 && this.chance(0.004)) return this.long(10_000, 100_000);
    const leaf = this.below(level > 2 ? 14 : 20);
    switch (leaf) {
      case 0:
        return null;
      case 1:
        return undefined;
      case 2:
        return this.chance(0.5);
      case 3:
      case 4:
        return this.below(1000);
      case 5:
        return this.pick([-0, Number.NaN, Number.POSITIVE_INFINITY, Number.NEGATIVE_INFINITY, Number.MAX_SAFE_INTEGER]);
      case 6:
        return this.unit() * 10 ** this.from(-20, 20);
      case 7:
        return BigInt(this.below(2 ** 31)) ** BigInt(this.from(1, 6));
      case 8:
        return new Date(this.from(-1, 1) * this.below(2 ** 31) * 1000);
      case 9:
        return Uint8Array.from({ length: this.below(20) }, () => this.below(256));
      case 10:
        return this.pick(["", "\u0000", "\ud800", "\udc00\ud800", "\u2028", "\u007f", "\\u0000", "{}", "null"]);
      case 14:
        return Array.from({ length: this.below(4) }, () => this.value(level + 1));
      case 15:
        return new Map([[this.value(level + 1), this.value(level + 1)]]);
      case 16:
        return new Set([this.value(level + 1), this.text()]);
      case 17:
        return { [this.pick(["$date", "$$map", "$", "__proto__", "toJSON"])]: this.value(level + 1) };
      case 18:
        return this.#error(level);
      case 19:
        return { [this.text()]: this.value(level + 1), [this.slot()]: this.value(level + 1), n: this.below(10) };
      default:
        return this.text();
    }
  }

  #error(level: number): Error {
    const error = new RangeError(this.text(), { cause: this.value(level + 1) });
    // Where it was made is no part of the draw.
    error.stack = `RangeError: ${this.text()}`;
    return error;
  }

  /** Text that does not compress away, with characters of every length. */
  long(least: number, most: number): string {
    const length = this.from(least, most);
    const alphabet = ["a", "b", '"', "\\", "\u00e9", "\u20ac", "\u{1f600}"];
    let text = "";
    for (let bytes = 0; bytes < length - 8; ) {
      const piece = this.chance(0.1) ? this.pick(alphabet) : this.uuid().slice(0, this.from(1, 36));
      text += piece;
      // As the value is stored: in UTF-8, a quotation mark and a backslash with one more before them.
      bytes += Buffer.byteLength(piece) + (piece === '"' || piece === "\\" ? 1 : 0);
    }
    return text;
  }
}
