/**
 * Fingerprints: what tells one request from another under the same key.
 *
 * A fingerprint is a hash of a value's text, with the keys of objects in order, so that equal values have equal ones however they were
 * put together, and different values have different ones. What cannot be stored has none, and is refused.
 */

import { hash as digest } from "node:crypto";
import { jsonCodec } from "./codec/json.ts";
import { InvalidValueError } from "./errors.ts";

/** A short hash of texts; their lengths keep them apart. */
export function hash(...parts: readonly string[]): string {
  const text = parts.map((part) => `${Buffer.byteLength(part)}:${part}`).join("");
  return digest("sha256", text, "hex").slice(0, 32);
}

const NOWHERE = { namespace: "", space: "", key: "" };
/** The codec refuses what is deeper, so there is no need to follow it, nor a circle. */
const MAX_LEVELS = 64;

/** The same for equal values, whatever the order of their keys. */
export function fingerprintOf(value: unknown): string {
  return digest("sha256", jsonCodec.encode(readable(value), NOWHERE), "base64url");
}

/** A getter of the user's may throw anything. */
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
