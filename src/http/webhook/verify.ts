/**
 * Verifies deliveries as Standard Webhooks says: `webhook-signature` signs `webhook-id`, `webhook-timestamp` and the body, byte by byte.
 *
 * It needs nothing of Node and no open handle, so it runs in edge runtimes too. The body must be the bytes that arrived: JSON that was parsed and written again
 * has another signature. The package `standardwebhooks` is what the tests sign with; it is not used here, because it takes bodies of text only, while a task may
 * send any bytes.
 *
 * Guarantees: a delivery is accepted only with a signature of one of the secrets, which is compared in constant time, and a timestamp within `tolerance`.
 * Out of scope: deliveries that are repeated within the tolerance. They are genuine, so what handles them must be idempotent: by `id`, which
 * `core.ts` does with the keys of a handle.
 */

import { checkCount, checkDuration, checkList, checkOptions, type Duration, optionNames } from "../../kernel/check.ts";
import { InvalidArgumentError } from "../../kernel/errors.ts";
import { type HmacKey, platform } from "../platform/platform.ts";
import { BodyTooLargeError, SignatureInvalidError, TimestampOutOfRangeError } from "./errors.ts";

/** A secret as text, "whsec_" and base64, or as bytes. */
export type WebhookSecret = string | Uint8Array;

export interface VerifyOptions {
  /** What the sender signs with: "whsec_" and base64, or bytes. While secrets are rotated, both: each is enough. */
  readonly secrets: WebhookSecret | readonly WebhookSecret[];
  /** How far from now a delivery may have been signed, in both directions. Default: 5 min. */
  readonly tolerance?: Duration | undefined;
  /** The longest body that is accepted, in bytes. Default: 1 MiB. */
  readonly maxBodyBytes?: number | undefined;
}

const VERIFY_OPTIONS = optionNames<VerifyOptions>({ secrets: true, tolerance: true, maxBodyBytes: true });

/** A request as it arrived. */
export interface WebhookRequest {
  readonly headers: Headers | Readonly<Record<string, string | readonly string[] | undefined>>;
  readonly body: string | Uint8Array;
}

/** A delivery that was verified. */
export interface WebhookDelivery {
  /** The `webhook-id`: the same for every attempt at this delivery. */
  readonly id: string;
  /** When this attempt was signed, to the second. */
  readonly sentAt: Date;
  readonly body: Uint8Array;
  /** The body as text; bytes that are not UTF-8 are replaced. */
  readonly text: string;
  /** Parses the body. Throws `SyntaxError` if it is not JSON. */
  json<T = unknown>(): T;
  /** What a call of a Pawl task says about itself; null for a delivery of another sender. */
  readonly task: WebhookTask | null;
}

/**
 * The task that made this call, from headers that the signature does not cover: they are what the sender says as long as nothing between
 * sender and receiver changes them (HTTPS). `key` is the `webhook-id`, which is signed.
 */
export interface WebhookTask {
  readonly id: string;
  /** 1 for the first attempt. */
  readonly attempt: number;
  /** Higher for each later attempt: a resource that remembers the highest one refuses what an older attempt still writes. */
  readonly fence: number;
  /** The same for all attempts. */
  readonly key: string;
}

const TOLERANCE = "5 min";
const MAX_BODY_BYTES = 1024 * 1024;
/**
 * What an idempotency key may have, since that is what the id becomes, but no dot: id, timestamp and body are signed with dots between them, so with a dot in the id, what
 * was signed for one delivery would also be signed for another one.
 */
const ID = /^[\x21-\x2d\x2f-\x7e]{1,256}$/;
const SECONDS = /^\d{1,12}$/;
const COUNT = /^\d{1,16}$/;

/** Verifies a delivery. Throws `signature_invalid`, `timestamp_out_of_range` or `body_too_large`. */
export async function verifyWebhook(request: WebhookRequest, options: VerifyOptions): Promise<WebhookDelivery> {
  checkOptions(options ?? null, VERIFY_OPTIONS);
  const { headers, body } = request ?? {};
  if (typeof headers !== "object" || headers === null || Array.isArray(headers))
    throw new InvalidArgumentError("the headers", "must be Headers, or an object of them");
  if (typeof body !== "string" && !(body instanceof Uint8Array))
    throw new InvalidArgumentError(
      "the body",
      "must be a string or bytes, as it arrived: what was parsed cannot be verified",
    );
  return new Verifier(options).verify({ headers, body });
}

/** Verifies deliveries with options that were checked once. @internal */
export class Verifier {
  readonly maxBodyBytes: number;
  readonly #secrets: readonly Uint8Array[];
  readonly #toleranceMs: number;
  #keys: Promise<readonly HmacKey[]> | undefined;

  constructor({ secrets, tolerance, maxBodyBytes }: VerifyOptions) {
    this.#secrets = checkSecrets(secrets);
    this.#toleranceMs = checkDuration(tolerance ?? TOLERANCE, "the tolerance");
    this.maxBodyBytes =
      maxBodyBytes === undefined ? MAX_BODY_BYTES : checkCount(maxBodyBytes, "maxBodyBytes", Number.MAX_SAFE_INTEGER);
  }

  /** Verifies the delivery as it is at this time. */
  async verify(request: WebhookRequest, nowMs = platform.nowMs()): Promise<WebhookDelivery> {
    const header = (name: string): string => headerOf(request.headers, name);
    const [id, timestamp] = [header("webhook-id"), header("webhook-timestamp")];
    if (!ID.test(id))
      throw new SignatureInvalidError("webhook-id must be 1 to 256 visible ASCII characters without a dot");
    if (!SECONDS.test(timestamp)) throw new SignatureInvalidError("webhook-timestamp must be in seconds since 1970");
    const body = typeof request.body === "string" ? new TextEncoder().encode(request.body) : request.body;
    if (body.length > this.maxBodyBytes) throw new BodyTooLargeError(this.maxBodyBytes);
    await this.#checkSignature(header("webhook-signature"), signedBytes(id, timestamp, body));
    // Only a sender that has a secret learns that its clock is wrong.
    const sentAtMs = Number(timestamp) * 1000;
    if (Math.abs(sentAtMs - nowMs) > this.#toleranceMs) throw new TimestampOutOfRangeError(sentAtMs, this.#toleranceMs);
    const text = new TextDecoder("utf-8", { ignoreBOM: true }).decode(body);
    return {
      id,
      sentAt: new Date(sentAtMs),
      body,
      text,
      json: <T>() => JSON.parse(text) as T,
      task: taskOf(id, header("pawl-task-id"), header("pawl-attempt"), header("pawl-fence")),
    };
  }

  async #checkSignature(header: string, signed: Uint8Array): Promise<void> {
    const versions = header.split(" ").filter((one) => one.startsWith(VERSION));
    if (versions.length === 0) throw new SignatureInvalidError("webhook-signature has no signature of version v1");
    if (versions.length > MOST_SIGNATURES) throw new SignatureInvalidError("webhook-signature has too many signatures");
    this.#keys ??= Promise.all(this.#secrets.map((secret) => platform.hmacKey(secret)));
    const keys = await this.#keys;
    for (const one of versions) {
      const given = bytesOf(one.slice(VERSION.length));
      for (const key of keys) if (given !== undefined && (await platform.isHmac(key, given, signed))) return;
    }
    throw new SignatureInvalidError("no signature fits the body and a secret");
  }
}

const VERSION = "v1,";
/** More than a sender has secrets; each costs a look at the whole body. */
const MOST_SIGNATURES = 20;
const PREFIX = "whsec_";

function checkSecrets(given: VerifyOptions["secrets"]): readonly Uint8Array[] {
  const secrets = typeof given === "string" || given instanceof Uint8Array ? [given] : given;
  checkList(secrets, "the secrets");
  if (secrets.length === 0) throw new InvalidArgumentError("the secrets", "must not be empty");
  return secrets.map((secret: unknown) => {
    const text = typeof secret === "string" && secret.startsWith(PREFIX) ? secret.slice(PREFIX.length) : secret;
    const bytes = typeof text === "string" ? bytesOf(text) : text;
    // The message must not have the secret in it.
    if (!(bytes instanceof Uint8Array) || bytes.length === 0)
      throw new InvalidArgumentError("a secret", 'must be "whsec_" and base64, or bytes');
    return bytes.slice();
  });
}

/** Base64, with or without padding; undefined if it is none. */
function bytesOf(text: string): Uint8Array | undefined {
  if (!/^[A-Za-z0-9+/]*={0,2}$/.test(text)) return undefined;
  try {
    return Uint8Array.from(atob(text), (char) => char.charCodeAt(0));
  } catch {
    return undefined;
  }
}

function signedBytes(id: string, timestamp: string, body: Uint8Array): Uint8Array {
  const head = new TextEncoder().encode(`${id}.${timestamp}.`);
  const bytes = new Uint8Array(head.length + body.length);
  bytes.set(head);
  bytes.set(body, head.length);
  return bytes;
}

function headerOf(headers: WebhookRequest["headers"], name: string): string {
  if (headers instanceof Headers) return headers.get(name) ?? "";
  const found: unknown =
    headers[name] ?? Object.entries(headers).find(([given]) => given.toLowerCase() === name)?.[1] ?? "";
  const texts: readonly unknown[] = Array.isArray(found) ? found : [found];
  if (!texts.every((text) => typeof text === "string"))
    throw new InvalidArgumentError(`the header "${name}"`, "must be a string, as it arrived, or a list of them");
  return texts.join(" ");
}

function taskOf(key: string, id: string, attempt: string, fence: string): WebhookTask | null {
  if (id === "" || !COUNT.test(attempt) || !COUNT.test(fence)) return null;
  return { id, attempt: Number(attempt), fence: Number(fence), key };
}
