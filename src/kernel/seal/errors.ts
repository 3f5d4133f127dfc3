/**
 * Errors of the key ring. When one is thrown, nothing was changed.
 */

import { PawlError } from "../errors.ts";

/** A payload or a personal field is stored encrypted, and there is no key for it. */
export class KeysMissingError extends PawlError<"keys_missing", Record<string, never>> {
  constructor(what: string) {
    super("keys_missing", `${what} needs a key: open with { actions: { keys: { current, ring } } }`, {});
  }
}

/** What was sealed or hashed with this key cannot be read without it. Nothing was changed: add the key to the ring again. */
export class KeyUnavailableError extends PawlError<"key_unavailable", { keyId: string }> {
  constructor(keyId: string, what = `key "${keyId}" is not in the ring`) {
    super("key_unavailable", `${what}: open with the one that was used, and try again`, { keyId });
  }
}

/** What was sealed was changed, truncated, or moved here from another record, or its key is another one. Nothing was changed. */
export class DecryptFailedError extends PawlError<"decrypt_failed", { ref: string; keyId: string }> {
  constructor(what: string, ref: string, keyId: string) {
    super(
      "decrypt_failed",
      `${what} cannot be decrypted with key "${keyId}": it was changed or moved, or the key is a different one`,
      { ref, keyId },
    );
  }
}
