/**
 * Fingerprints: tell one request from another under the same key.
 *
 * A fingerprint is a hash of a value's text with sorted object keys: equal values have equal fingerprints, whatever the order of their
 * keys, and different values have different ones. A value that cannot be stored is refused.
 */

import { hash as digest } from "node:crypto";
import { jsonCodec } from "./codec/json.ts";
import { InvalidValueError } from "./errors.ts";

/** A short hash of texts. Their lengths are part of it, so that no two lists of texts are joined to the same text. */
export function hash(...parts: readonly string[]): string {
  const text = parts.map((part) => `${Buffer.byteLength(part)}:${part}`).join("");
  return digest("sha256", text, "hex").slice(0, 32);
}

const NOWHERE = { namespace: "", space: "", key: "" };
/** The codec refuses deeper values, and cycles with them. */
const MAX_LEVELS = 64;

/** Returns the same text for equal values, whatever the order of their keys. Throws `invalid_value`. */
export function fingerprintOf(value: unknown): string {
  return digest("sha256", jsonCodec.encode(readable(value), NOWHERE), "base64url");
}

/** A getter in the value may throw anything. */
function readable(value: unknown): unknown {
  try {
    return sorted(value, 0);
  } catch (error) {
    throw new InvalidValueError("$", `reading it threw: ${error instanceof Error ? error.message : String(error)}`);
  }
}

function sorted(value: unknown, level: number): unknown {
  if (typeof value !== "object" || value === null || level > MAX_LEVELS) return value;
  if (Array.isArray(value)) return Array.from(value, (item) => sorted(item, level + 1));
  const prototype: unknown = Object.getPrototypeOf(value);
  if (prototype !== Object.prototype && prototype !== null) return value;
  const entries = Object.entries(value).map(([name, part]): [string, unknown] => [name, sorted(part, level + 1)]);
  return Object.fromEntries(entries.sort(([a], [b]) => (a < b ? -1 : a > b ? 1 : 0)));
}
