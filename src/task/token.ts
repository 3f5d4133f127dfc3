/**
 * Signal tokens: 256 random bits that allow their holder to complete one task. Only a hash is stored, and the token sealed with the key ring, so
 * that a creation that is repeated returns the same one, and the call can carry it.
 */

import { hash as digest } from "node:crypto";
import { checkId } from "../kernel/check.ts";
import type { Kernel } from "../kernel/kernel.ts";
import { bytesFrom, NONCE_BYTES } from "../kernel/seal/cipher.ts";
import { KeysMissingError, KeyUnavailableError } from "../kernel/seal/errors.ts";
import { KeyRing, type RingKeys, type Sealed } from "../kernel/seal/ring.ts";
import { TokenNotFoundError } from "./errors.ts";
import { TOKENS } from "./stored.ts";

const PREFIX = "sig_";
const TOKEN_BYTES = 32;
const FORM = /^sig_[A-Za-z0-9_-]{43}(?:\.([A-Za-z0-9_-]{1,342}))?$/;

export interface SignalToken {
  readonly token: string;
  readonly hash: string;
  readonly sealed: Sealed;
}

export class Tokens {
  readonly #ring: KeyRing | undefined;
  /** What follows the random part. */
  readonly #where: string;

  constructor(kernel: Kernel, keys: RingKeys | undefined) {
    const { namespace } = kernel;
    this.#where = namespace === "default" ? "" : `.${Buffer.from(namespace).toString("base64url")}`;
    this.#ring = keys === undefined ? undefined : new KeyRing(keys, namespace, TOKENS, () => "a signal token");
  }

  /** Draws a new token. Throws `keys_missing`. */
  draw(uuid: () => string): SignalToken {
    if (this.#ring === undefined) throw new KeysMissingError("a task that waits for a signal");
    const token = `${PREFIX}${Buffer.from(bytesFrom(uuid, TOKEN_BYTES)).toString("base64url")}${this.#where}`;
    const hash = hashOf(token);
    return { token, hash, sealed: this.#ring.seal(hash, token, bytesFrom(uuid, NONCE_BYTES)) };
  }

  open(tokenHash: string, sealed: Sealed): string {
    if (this.#ring === undefined) throw new KeyUnavailableError(sealed.keyId);
    return this.#ring.open(tokenHash, sealed);
  }
}

/** The hash under which the task of a token is found. Throws `token_not_found` for what cannot be a token. */
export function checkToken(token: unknown): string {
  if (typeof token !== "string" || !FORM.test(token)) throw new TokenNotFoundError();
  return hashOf(token);
}

/** What stands for the token of a task in what its target returned. */
const MASK = "[signal token]";
/** How much of a token's random part is masked at least. Who knows less than that has more than 200 bits to guess. */
const LEAST_MASKED = 8;

/**
 * Masks a token in texts: as it is, in another case, and with characters that are percent-encoded or escaped as in JSON; with or without its prefix; and
 * its beginning alone, which is what is left of it where a text is cut off.
 */
export function maskOf(token: string): (text: string) => string {
  const chars = [...token].map((char) => {
    const hex = char.charCodeAt(0).toString(16).padStart(2, "0");
    return `(?:[${char === "-" ? "\\-" : char}]|%${hex}|\\\\u00${hex})`;
  });
  const prefix = chars.splice(0, PREFIX.length).join("");
  const least = chars.splice(0, LEAST_MASKED).join("");
  const rest = chars.reduceRight((more, char) => `(?:${char}${more})?`, "");
  const pattern = new RegExp(`(?:${prefix})?${least}${rest}`, "gi");
  return (text) => text.replaceAll(pattern, MASK);
}

/** The namespace that a token names; undefined for one without, and for what cannot be a token. */
export function namespaceOf(token: string): string | undefined {
  const named = FORM.exec(token)?.[1];
  if (named === undefined) return undefined;
  try {
    return checkId(Buffer.from(named, "base64url").toString(), "the namespace");
  } catch {
    return undefined;
  }
}

const hashOf = (token: string): string => digest("sha256", token, "base64url");
