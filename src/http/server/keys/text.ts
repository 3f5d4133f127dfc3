/**
 * The text of an API key: `pawl_<id><secret>_<checksum>`.
 *
 * The id finds the record, and is no secret; the secret has 256 bits, of which only a hash is stored; the checksum lets a mistyped or cut
 * key be refused without a look at the store, and scanners of leaked secrets recognize keys.
 */

import { createHash } from "node:crypto";

const ID_CHARS = 16;
const SECRET_CHARS = 43;
const SHAPE = /^pawl_([A-Za-z0-9_-]{59})_([0-9a-f]{8})$/;

/** What may be part of a key, wherever it appears. */
export const LOOKS_LIKE_KEY = /pawl_[A-Za-z0-9_-]{22}/;

export interface ParsedApiKey {
  readonly id: string;
  readonly hash: string;
}

/** Makes a key of chance: unguessable ids, as many as needed. */
export function makeKey(
  uuid: () => string,
  id = hashOf(uuid() + uuid()).slice(0, ID_CHARS),
): ParsedApiKey & { readonly key: string } {
  // Three ids have more than 256 random bits.
  const secret = hashOf(uuid() + uuid() + uuid()).slice(0, SECRET_CHARS);
  const body = id + secret;
  return { id, key: `pawl_${body}_${checksumOf(body)}`, hash: hashOf(body) };
}

/** The id and the hash of a key; null for what is not a key. */
export function parseApiKey(key: string): ParsedApiKey | null {
  const [, body, checksum] = SHAPE.exec(key) ?? [];
  if (body === undefined || checksum !== checksumOf(body)) return null;
  return { id: body.slice(0, ID_CHARS), hash: hashOf(body) };
}

const hashOf = (text: string): string => createHash("sha256").update(text).digest("base64url");

const checksumOf = (body: string): string => createHash("sha256").update(`pawl-key\n${body}`).digest("hex").slice(0, 8);
