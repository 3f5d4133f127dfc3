/**
 * Sealing: text that only the holder of a key can read, bound to the place where it is stored.
 *
 * AES-256-GCM with a nonce of 12 bytes and a whole tag of 16, in this order: nonce, ciphertext, tag; stored as base64url. The place is
 * authenticated too, so that text moved to another place does not open.
 */

import { createCipheriv, createDecipheriv, createHash, createHmac } from "node:crypto";
import { utf8Length } from "../check.ts";

export const KEY_BYTES = 32;
export const NONCE_BYTES = 12;
const CIPHER = "aes-256-gcm";
const TAG_BYTES = 16;
const TAG = { authTagLength: TAG_BYTES };

/** Where sealed text belongs. The lengths are part of it, so that different lists of parts are different places. */
export function placeOf(...parts: readonly string[]): Buffer {
  return Buffer.from(parts.map((part) => `${utf8Length(part)}:${part}`).join(""));
}

export function sealText(key: Uint8Array, place: Buffer, text: string, nonce: Uint8Array): string {
  const cipher = createCipheriv(CIPHER, key, nonce, TAG).setAAD(place);
  return Buffer.concat([nonce, cipher.update(text, "utf8"), cipher.final(), cipher.getAuthTag()]).toString("base64url");
}

/** Throws where the text was changed, cut, moved from another place, or sealed with another key. */
export function openText(key: Uint8Array, place: Buffer, sealed: string): string {
  const bytes = Buffer.from(sealed, "base64url");
  const end = bytes.length - TAG_BYTES;
  const decipher = createDecipheriv(CIPHER, key, bytes.subarray(0, NONCE_BYTES), TAG);
  decipher.setAAD(place).setAuthTag(bytes.subarray(end));
  return Buffer.concat([decipher.update(bytes.subarray(NONCE_BYTES, end)), decipher.final()]).toString("utf8");
}

/**
 * A nonce for text that a decision seals. A decision may run again with the same chance and other data, so the nonce depends on the text too:
 * two texts never share one.
 */
export function nonceFor(key: Uint8Array, place: Buffer, text: string): Uint8Array {
  return createHmac("sha256", key)
    .update(`${place.length}:`)
    .update(place)
    .update(text)
    .digest()
    .subarray(0, NONCE_BYTES);
}

/** Enough unguessable ids give unguessable bytes: each has 122 bits. */
export function bytesFrom(uuid: () => string, size: number): Uint8Array {
  const drawn = [uuid(), uuid(), uuid()].join();
  return createHash("sha256").update(drawn).digest().subarray(0, size);
}
