/**
 * Codecs: how a value becomes the text that a store keeps in a text column, and comes back.
 *
 * `jsonCodec` (json.ts) is the default. `transformed` (transform.ts) puts a transform such as encryption or compression around
 * a codec; what it writes is *sealed*: `~name:…`. No JSON text begins with `~`, so whoever meets sealed text and lacks
 * the transform can say which one it lacks and never takes it for a value.
 *
 * Leaves out: size limits and checksums, which are the business of whoever stores the text.
 */

export interface Codec {
  encode(value: unknown, at: Place): string;
  decode(text: string, at: Place): unknown;
}

/** What a text belongs to. Encryption authenticates it, so that text moved to another record is found out. */
export interface Place {
  readonly namespace: string;
  readonly space: string;
  readonly key: string;
}

/** What sealed text of this transform begins with. */
export function sealOf(name: string): string {
  return `~${name}:`;
}

/** The name of the transform that sealed the text, or null when the text is not sealed. */
export function sealedBy(text: string): string | null {
  return /^~([^:]*):/.exec(text)?.[1] ?? null;
}
