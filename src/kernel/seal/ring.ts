/**
 * The key ring: what is stored sealed is sealed with the current key, and opened with the one that sealed it.
 *
 * The namespace, the kind of record, its ref and the key's id are authenticated (`cipher.ts`), so that data moved to another record does not
 * open. A key is rotated by adding a new one and naming it current; the old one stays in the ring for as long as something is sealed with it.
 */

import { checkId, optionNames } from "../check.ts";
import { InvalidArgumentError } from "../errors.ts";
import { KEY_BYTES, openText, placeOf, sealText } from "./cipher.ts";
import { DecryptFailedError, KeyUnavailableError } from "./errors.ts";

/** Keys of 32 bytes by their ids, and the id of the key that seals what is new. */
export interface RingKeys {
  readonly current: string;
  readonly ring: Readonly<Record<string, Uint8Array>>;
}

/** Text that only the holder of the key can read. */
export interface Sealed {
  readonly keyId: string;
  /** Nonce, ciphertext and tag, in base64url. */
  readonly data: string;
}

/** @internal */
export const KEYS_OPTIONS = optionNames<RingKeys>({ current: true, ring: true });

export class KeyRing {
  readonly #namespace: string;
  readonly #kind: string;
  readonly #named: (ref: string) => string;
  readonly #current: string;
  readonly #keys = new Map<string, Uint8Array>();

  /** `kind` is that of the records; `named` says in errors what a ref is of. */
  constructor(keys: RingKeys, namespace: string, kind: string, named: (ref: string) => string) {
    this.#namespace = namespace;
    this.#kind = kind;
    this.#named = named;
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
    return { keyId, data: sealText(this.#key(keyId), this.#place(ref, keyId), text, nonce) };
  }

  open(ref: string, { keyId, data }: Sealed): string {
    const key = this.#key(keyId);
    try {
      return openText(key, this.#place(ref, keyId), data);
    } catch {
      // The cause would only help an attacker.
      throw new DecryptFailedError(this.#named(ref), ref, keyId);
    }
  }

  #key(id: string): Uint8Array {
    const key = this.#keys.get(id);
    if (key === undefined) throw new KeyUnavailableError(id);
    return key;
  }

  #place(ref: string, keyId: string): Buffer {
    return placeOf(this.#namespace, this.#kind, ref, keyId);
  }
}
