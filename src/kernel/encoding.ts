/**
 * Encoding: values as the text that a store keeps, bound to their place and within a limit, and back.
 */

import { utf8Length } from "./check.ts";
import type { Codec } from "./codec/codec.ts";
import type { Key, Row } from "./contract.ts";
import { InvalidValueError, PawlError, UnsupportedEncodingError, ValueTooLargeError } from "./errors.ts";

export class Encoding {
  readonly #namespace: string;
  readonly #codec: Codec;
  readonly #maxBytes: number;

  constructor(namespace: string, codec: Codec, maxBytes: number) {
    this.#namespace = namespace;
    this.#codec = codec;
    this.#maxBytes = maxBytes;
  }

  encode(at: Key, value: unknown): string {
    const text = this.#encode(at, value);
    // Up to a third of the limit in characters, no text can be over it in bytes.
    if (text.length * 3 > this.#maxBytes) {
      const bytes = utf8Length(text);
      if (bytes > this.#maxBytes) throw new ValueTooLargeError(bytes, this.#maxBytes, nameOf(at));
    }
    return text;
  }

  #encode(at: Key, value: unknown): string {
    let text: unknown;
    try {
      text = this.#codec.encode(value, { namespace: this.#namespace, space: at.space, key: at.key });
    } catch (error) {
      if (!(error instanceof InvalidValueError)) throw error;
      throw new InvalidValueError(error.data.path, error.data.reason, nameOf(at));
    }
    // A codec of the user's own may give anything; what a text column would change must not get there.
    if (typeof text === "string" && text.isWellFormed() && !text.includes("\0")) return text;
    const given = typeof text === "string" ? "text with NUL or lone surrogates" : `no text but ${kindOf(text)}`;
    throw new InvalidValueError("$", `the codec gave ${given}`, nameOf(at));
  }

  decode(at: Key, text: string): unknown {
    try {
      return this.#codec.decode(text, { namespace: this.#namespace, space: at.space, key: at.key });
    } catch (error) {
      if (!(error instanceof UnsupportedEncodingError)) {
        if (error instanceof PawlError) throw error;
        const reason = `the codec could not decode it (${error instanceof Error ? error.message : String(error)})`;
        throw new UnsupportedEncodingError("$", reason, { cause: error, name: nameOf(at) });
      }
      const { path, reason } = error.data;
      throw new UnsupportedEncodingError(path, reason, { cause: error.cause, name: nameOf(at) });
    }
  }
}

/** A record on a page whose value cannot be read, and why. */
export interface Unreadable {
  /** The id, name or ref that the page shows readable records under. */
  readonly id: string;
  readonly reason: string;
}

/** What the rows are shown as, and those of them that cannot be read: one must not keep the others from being listed. */
export function showReadable<Shown>(
  rows: readonly Row[],
  show: (row: Row) => Shown,
): { readonly shown: readonly Shown[]; readonly unreadable: readonly Unreadable[] } {
  const shown: Shown[] = [];
  const unreadable: Unreadable[] = [];
  for (const row of rows)
    try {
      shown.push(show(row));
    } catch (error) {
      unreadable.push({ id: row.key, reason: error instanceof Error ? error.message : String(error) });
    }
  return { shown, unreadable };
}

const nameOf = ({ space, key }: Key): string => `${space} "${key}"`;

const kindOf = (value: unknown): string => (value instanceof Promise ? "a promise" : typeof value);

/**
 * Freezes plain objects and arrays, all the way down. Answers whether nothing in the value can change any more: Map, Set,
 * Date and bytes have methods that change them, frozen or not, and errors have hidden parts.
 */
export function deepFreeze(value: unknown): boolean {
  if (typeof value !== "object" || value === null) return true;
  if (ArrayBuffer.isView(value) || value instanceof Map || value instanceof Set || value instanceof Date) return false;
  // What an error carries hides from enumeration.
  if (value instanceof Error) return false;
  let fixed = true;
  for (const item of Object.values(value)) if (!deepFreeze(item)) fixed = false;
  Object.freeze(value);
  return fixed;
}
