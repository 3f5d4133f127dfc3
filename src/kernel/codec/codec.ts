/**
 * Codecs: convert a value to the text that a store keeps in a text column, and back.
 *
 * `jsonCodec` (json.ts) is the default. `transformed` (transform.ts) wraps a codec in a transform such as encryption or
 * compression; its text is *sealed*: `~name:…`. No JSON text begins with `~`, so a codec that lacks the transform of a sealed text
 * can say which one it lacks, and never reads the text as a value.
 *
 * Out of scope: size limits and checksums, which belong to the code that stores the text.
 */

export interface Codec {
  encode(value: unknown, at: Place): string;
  decode(text: string, at: Place): unknown;
}

/** The record that a text belongs to. Encryption authenticates it, so that text which was moved to another record is detected. */
export interface Place {
  readonly namespace: string;
  readonly space: string;
  readonly key: string;
}

/** The beginning of text that this transform sealed. */
export function sealOf(name: string): string {
  return `~${name}:`;
}

/** The name of the transform that sealed the text, or null when the text is not sealed. */
export function sealedBy(text: string): string | null {
  return /^~([^:]*):/.exec(text)?.[1] ?? null;
}
