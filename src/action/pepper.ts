/**
 * The pepper: a secret that is not in the database, with which PINs and consumer keys are hashed before they are stored.
 *
 * A PIN is short, so with a stolen database all PINs could be tried. What is stored is a slow hash of the PIN under the pepper, with a salt
 * for each action; without the pepper nothing can be tried at all, and with it each try is slow. The salt is derived from the pepper and
 * the action, so it need not be stored, and hashing does not need the record first: it takes the same time whether the action exists or
 * not.
 *
 * Guarantees: what is no PIN (a number, full-width digits, a megabyte) is refused before anything is hashed.
 * Out of scope: a change of the pepper, which is in `peppers.ts`.
 */

import { createHmac, scrypt, timingSafeEqual } from "node:crypto";
import { utf8Length } from "../kernel/check.ts";
import { InvalidArgumentError } from "../kernel/errors.ts";
import type { PinMark } from "./stored.ts";

export const LEAST_PEPPER_BYTES = 16;
const LEAST_PIN = 4;
const LONGEST_PIN = 128;
/** Stored with every hash, so that another way of hashing can be added later. */
const VERSION = "1.";

/** A slow hash function, so that trying many PINs takes very long. */
export type SlowHash = (secret: Uint8Array, salt: Uint8Array) => Promise<Uint8Array>;

/** 32 MiB and about a fifth of a second. */
export const slowHash: SlowHash = (secret, salt) =>
  new Promise((resolve, reject) => {
    const cost = { N: 2 ** 15, r: 8, p: 3, maxmem: 2 ** 26 };
    scrypt(secret, salt, 32, cost, (error, hash) => (error === null ? resolve(hash) : reject(error)));
  });

/**
 * A PIN is 4 to 128 characters in normal form. Characters that Unicode calls compatible, such as full-width digits, are refused: the PIN
 * could be typed in one form and expected in the other.
 */
export function checkPin(pin: unknown): string {
  const reason = faultOf(pin);
  if (reason !== undefined) throw new InvalidArgumentError("the PIN", reason);
  return pin as string;
}

function faultOf(pin: unknown): string | undefined {
  if (typeof pin !== "string") return `must be a string, not ${pin === null ? "null" : typeof pin}`;
  if (pin.length < LEAST_PIN || pin.length > LONGEST_PIN)
    return `must have ${LEAST_PIN} to ${LONGEST_PIN} characters, not ${pin.length}`;
  if (!pin.isWellFormed()) return "must not have lone surrogates";
  if (pin.normalize("NFKC") !== pin)
    return "must be in the normal form NFKC: no full-width digits, no decomposed letters";
  return undefined;
}

export class Pepper {
  readonly #secret: Uint8Array | string;
  readonly #namespace: string;
  /** Identifies the pepper without revealing it. */
  readonly id: string;

  constructor(secret: Uint8Array | string, namespace: string) {
    const bytes = typeof secret === "string" ? utf8Length(secret) : secret instanceof Uint8Array ? secret.length : 0;
    if (bytes < LEAST_PEPPER_BYTES)
      throw new InvalidArgumentError("the pepper", `must be a text or bytes, ${LEAST_PEPPER_BYTES} bytes or longer`);
    this.#secret = typeof secret === "string" ? secret : Uint8Array.from(secret);
    this.#namespace = namespace;
    this.id = this.#mix("which pepper").toString("base64url").slice(0, 8);
  }

  /** The stored hash of a consumer key. */
  consumer(ref: string, consumerKey: string): string {
    return this.#mix("consumer", this.#namespace, ref, consumerKey).toString("base64url");
  }

  /** The stored hash of a PIN. */
  async pin(ref: string, pin: string, hash: SlowHash): Promise<string> {
    const secret = this.#mix("pin", this.#namespace, ref, pin);
    const salt = this.#mix("salt", this.#namespace, ref).subarray(0, 16);
    return VERSION + Buffer.from(await hash(secret, salt)).toString("base64url");
  }

  /** The lengths of the parts are hashed too, so that different lists of parts give different hashes. */
  #mix(...parts: readonly string[]): Buffer {
    const mac = createHmac("sha256", this.#secret);
    for (const part of parts) mac.update(`${utf8Length(part)}:`).update(part);
    return mac.digest();
  }
}

/** Whether the hash matches. Takes the same time wherever they differ. */
export function isRightPin(pin: PinMark, hash: string): boolean {
  const stored = Buffer.from(pin.hash);
  const given = Buffer.from(hash);
  return stored.length === given.length && timingSafeEqual(stored, given);
}
