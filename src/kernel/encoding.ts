/**
 * Encoding: converts values to the text that a store keeps, and back. The text is bound to its record, and its size is limited.
 */

import { utf8Length } from "./check.ts";
import type { Codec } from "./codec/codec.ts";
import type { Key, Row } from "./contract.ts";
import { InvalidValueError, PawlError, UnsupportedEncodingError, ValueTooLargeError } from "./errors.ts";
import { isAwaitable } from "./sync.ts";

export class Encoding {
  readonly #namespace: string;
  readonly #codec: Codec;
  /** The most that a value may take. */
  readonly maxBytes: number;

  constructor(namespace: string, codec: Codec, maxBytes: number) {
    this.#namespace = namespace;
    this.#codec = codec;
    this.maxBytes = maxBytes;
  }

  encode(at: Key, value: unknown): string {
    const text = this.#encode(at, value);
    // Up to a third of the limit in characters, no text can be over it in bytes.
    if (text.length * 3 > this.maxBytes) {
      const bytes = utf8Length(text);
      if (bytes > this.maxBytes) throw new ValueTooLargeError(bytes, this.maxBytes, nameOf(at));
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
    // A custom codec may return anything; text that a text column would change must not be stored.
    if (typeof text === "string" && text.isWellFormed() && !text.includes("\0")) return text;
    const returned = typeof text === "string" ? "text with NUL or lone surrogates" : `${kindOf(text)} instead of text`;
    throw new InvalidValueError("$", `the codec returned ${returned}`, nameOf(at));
  }

  decode(at: Key, text: string): unknown {
    const value = this.#decode(at, text);
    // A change that is made to a promise would be stored in place of the value.
    if (!isAwaitable(value)) return value;
    const reason = "the codec's decode returned a promise: it must be synchronous";
    throw new UnsupportedEncodingError("$", reason, { name: nameOf(at) });
  }

  #decode(at: Key, text: string): unknown {
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

/** Whether a value is read back as it is, so that nothing need be decoded after it was encoded: a text or a number, but not an object. */
export const isImmutable = (value: unknown): boolean => typeof value !== "object" || value === null;

/** A record of a page whose value cannot be read, and why. */
export interface Unreadable {
  /** Its id, name or ref, as the page shows it for readable records. */
  readonly id: string;
  readonly reason: string;
}

/** Converts rows for a page. Rows that cannot be read are listed separately, so that one of them does not prevent the listing of the others. */
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

const kindOf = (value: unknown): string => (isAwaitable(value) ? "a promise" : typeof value);

/**
 * Freezes plain objects and arrays deeply. Returns whether the whole value is now immutable: Map, Set, Date and bytes have
 * methods that change them, frozen or not, and errors have non-enumerable properties.
 */
export function deepFreeze(value: unknown): boolean {
  if (typeof value !== "object" || value === null) return true;
  if (ArrayBuffer.isView(value) || value instanceof Map || value instanceof Set || value instanceof Date) return false;
  // The properties of an error are not enumerable.
  if (value instanceof Error) return false;
  let fixed = true;
  for (const item of Object.values(value)) if (!deepFreeze(item)) fixed = false;
  Object.freeze(value);
  return fixed;
}
