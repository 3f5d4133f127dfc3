/**
 * The key ring: payloads are sealed with the current key, and opened with the one that sealed them.
 *
 * AES-256-GCM with a random nonce of 12 bytes and a whole tag of 16, in this order: nonce, ciphertext, tag. The namespace, the
 * kind of record, its ref and the key's id are authenticated too, so that data moved to another record does not open. A key is
 * rotated by adding a new one and naming it current; the old one stays in the ring for as long as something is sealed with it.
 */

import { createCipheriv, createDecipheriv } from "node:crypto";
import { checkId, optionNames, utf8Length } from "../kernel/check.ts";
import { InvalidArgumentError } from "../kernel/errors.ts";
import { DecryptFailedError, KeyUnavailableError } from "./errors.ts";
import { ACTIONS, type Sealed } from "./stored.ts";

/** Keys of 32 bytes by their ids, and the id of the key that seals new payloads. */
export interface ActionKeys {
  readonly current: string;
  readonly ring: Readonly<Record<string, Uint8Array>>;
}

/** @internal */
export const KEYS_OPTIONS = optionNames<ActionKeys>({ current: true, ring: true });

const CIPHER = "aes-256-gcm";
const KEY_BYTES = 32;
export const NONCE_BYTES = 12;
const TAG_BYTES = 16;
const TAG = { authTagLength: TAG_BYTES };

export class KeyRing {
  readonly #namespace: string;
  readonly #current: string;
  readonly #keys = new Map<string, Uint8Array>();

  constructor(keys: ActionKeys, namespace: string) {
    this.#namespace = namespace;
    this.#current = checkId(keys.current, "the id of the current key");
    for (const [id, key] of Object.entries(keys.ring ?? {})) {
      checkId(id, "the key's id");
      if (!(key instanceof Uint8Array) || key.length !== KEY_BYTES)
        throw new InvalidArgumentError(`the key "${id}"`, `must be ${KEY_BYTES} bytes`);
      this.#keys.set(id, Uint8Array.from(key));
    }
    if (!this.#keys.has(this.#current))
      throw new InvalidArgumentError("the current key", `must be in the ring, and "${this.#current}" is not`);
  }

  seal(ref: string, text: string, nonce: Uint8Array): Sealed {
    const keyId = this.#current;
    const cipher = createCipheriv(CIPHER, this.#key(keyId), nonce, TAG).setAAD(this.#place(ref, keyId));
    const parts = [nonce, cipher.update(text, "utf8"), cipher.final(), cipher.getAuthTag()];
    return { keyId, data: Buffer.concat(parts).toString("base64url") };
  }

  open(ref: string, { keyId, data }: Sealed): string {
    const key = this.#key(keyId);
    try {
      const bytes = Buffer.from(data, "base64url");
      const end = bytes.length - TAG_BYTES;
      const decipher = createDecipheriv(CIPHER, key, bytes.subarray(0, NONCE_BYTES), TAG);
      decipher.setAAD(this.#place(ref, keyId)).setAuthTag(bytes.subarray(end));
      return Buffer.concat([decipher.update(bytes.subarray(NONCE_BYTES, end)), decipher.final()]).toString("utf8");
    } catch {
      // The cause would only help an attacker.
      throw new DecryptFailedError(ref, keyId);
    }
  }

  #key(id: string): Uint8Array {
    const key = this.#keys.get(id);
    if (key === undefined) throw new KeyUnavailableError(id);
    return key;
  }

  #place(ref: string, keyId: string): Buffer {
    const parts = [this.#namespace, ACTIONS, ref, keyId];
    return Buffer.from(parts.map((part) => `${utf8Length(part)}:${part}`).join(""));
  }
}
