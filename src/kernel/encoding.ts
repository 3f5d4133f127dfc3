/**
 * Encoding: values as the text that a store keeps, bound to their place and within a limit, and back.
 */

import { utf8Length } from "./check.ts";
import type { Codec } from "./codec/codec.ts";
import type { Key } from "./contract.ts";
import { ValueTooLargeError } from "./errors.ts";

export class Encoding {
  readonly #namespace: string;
  readonly #codec: Codec;
  readonly #maxBytes: number;

  constructor(namespace: string, codec: Codec, maxBytes: number) {
    this.#namespace = namespace;
    this.#codec = codec;
    this.#maxBytes = maxBytes;
  }

  encode({ space, key }: Key, value: unknown): string {
    const text = this.#codec.encode(value, { namespace: this.#namespace, space, key });
    // Up to a third of the limit in characters, no text can be over it in bytes.
    if (text.length * 3 > this.#maxBytes) {
      const bytes = utf8Length(text);
      if (bytes > this.#maxBytes) throw new ValueTooLargeError(bytes, this.#maxBytes);
    }
    return text;
  }

  decode({ space, key }: Key, text: string): unknown {
    return this.#codec.decode(text, { namespace: this.#namespace, space, key });
  }
}

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
