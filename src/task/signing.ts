/**
 * Signatures as Standard Webhooks describes them (standardwebhooks.com): an HMAC-SHA256 of id, time and body for each secret, so that a receiver
 * accepts a request while secrets are rotated.
 */

import { createHmac, createSecretKey, type KeyObject } from "node:crypto";
import { checkList } from "../kernel/check.ts";
import { InvalidArgumentError } from "../kernel/errors.ts";

/** A secret as text, "whsec_" and base64, or as bytes: 24 to 64 of them. */
export type WebhookSecret = string | Uint8Array;

export type SigningKeys = readonly KeyObject[];

const PREFIX = "whsec_";
const BYTES = { least: 24, most: 64 };
const MOST_SECRETS = 10;

export function checkSecrets(given: WebhookSecret | readonly WebhookSecret[] | undefined): SigningKeys {
  if (given === undefined) return [];
  const secrets = typeof given === "string" || given instanceof Uint8Array ? [given] : given;
  checkList(secrets, "the secrets");
  if (secrets.length > MOST_SECRETS) throw new InvalidArgumentError("the secrets", `must be at most ${MOST_SECRETS}`);
  return secrets.map((secret) => {
    const bytes = secret instanceof Uint8Array ? secret : bytesOf(secret);
    // The secret itself must not get into a log.
    if (bytes === undefined || bytes.length < BYTES.least || bytes.length > BYTES.most)
      throw new InvalidArgumentError(
        "the secrets",
        `must be "whsec_" and base64, or bytes, of ${BYTES.least} to ${BYTES.most} bytes`,
      );
    return createSecretKey(bytes);
  });
}

function bytesOf(secret: unknown): Uint8Array | undefined {
  if (typeof secret !== "string") return undefined;
  const text = secret.startsWith(PREFIX) ? secret.slice(PREFIX.length) : secret;
  return /^[A-Za-z0-9+/]+={0,2}$/.test(text) ? Buffer.from(text, "base64") : undefined;
}

/** The headers that name and sign a message. Without a secret it has no signature. */
export function signed(
  keys: SigningKeys,
  id: string,
  nowMs: number,
  body: string | Uint8Array,
): Readonly<Record<string, string>> {
  // The dot is what separates the id from the time in what is signed.
  if (id.includes(".")) throw new Error(`a webhook-id has a dot: ${id}`);
  const seconds = String(Math.floor(nowMs / 1000));
  const head = { "webhook-id": id, "webhook-timestamp": seconds };
  if (keys.length === 0) return head;
  const signatures = keys.map(
    (key) => `v1,${createHmac("sha256", key).update(`${id}.${seconds}.`).update(body).digest("base64")}`,
  );
  return { ...head, "webhook-signature": signatures.join(" ") };
}
