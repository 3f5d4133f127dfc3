/**
 * Replies: HTTP responses in the form in which they are stored and sent again, and the refusals of the middleware.
 *
 * A reply is a status, headers and a body. Not stored are headers about one connection (`Connection` and those it names, `Keep-Alive`,
 * `Transfer-Encoding`, …), `Content-Length` and `Date`, which each response gets anew, and `Set-Cookie`, because a session must not be in the
 * database nor be sent to another caller. The rest is sent again unchanged, with `Idempotent-Replayed: true`.
 */

import { InvalidArgumentError } from "../../kernel/errors.ts";

export type HeaderList = readonly (readonly [name: string, value: string])[];

/** A response as it is stored. A body that is not UTF-8 is bytes. */
export interface Reply {
  readonly status: number;
  readonly headers: HeaderList;
  readonly body: string | Uint8Array | null;
}

/** The response that a decision returns. */
export interface ReplyInit {
  /** Default: 200. */
  readonly status?: number | undefined;
  readonly headers?: Readonly<Record<string, string>> | undefined;
  readonly body?: string | Uint8Array | null | undefined;
  /** Sent as JSON, instead of a body. */
  readonly json?: unknown;
}

export const REPLAYED_HEADER = "idempotent-replayed";

const NOT_STORED: ReadonlySet<string> = new Set([
  "connection",
  "content-length",
  "date",
  "keep-alive",
  "proxy-authenticate",
  "proxy-authorization",
  "proxy-connection",
  "set-cookie",
  "te",
  "trailer",
  "transfer-encoding",
  "upgrade",
  REPLAYED_HEADER,
]);

export function storedHeaders(headers: HeaderList): HeaderList {
  const named = headers
    .filter(([name]) => name.toLowerCase() === "connection")
    .flatMap(([, value]) => value.split(",").map((name) => name.trim().toLowerCase()));
  const isStored = (name: string) => !NOT_STORED.has(name) && !named.includes(name);
  return headers.map(([name, value]) => [name.toLowerCase(), value] as const).filter(([name]) => isStored(name));
}

/** Returns a string if the bytes are UTF-8, and null if there are none. */
export function storedBody(bytes: Uint8Array): string | Uint8Array | null {
  if (bytes.length === 0) return null;
  try {
    return new TextDecoder("utf-8", { fatal: true, ignoreBOM: true }).decode(bytes);
  } catch {
    return bytes;
  }
}

const NO_BODY: readonly number[] = [204, 205, 304];

/** Makes a reply of a decision's response. Throws `invalid_argument` if it cannot be sent, before it is stored. */
export function replyOf(init: ReplyInit): Reply {
  const { status = 200, json } = init;
  if (!Number.isInteger(status) || status < 200 || status > 599)
    throw new InvalidArgumentError("the status", "must be a whole number from 200 to 599");
  let headers: Headers;
  try {
    headers = new Headers(init.headers);
  } catch {
    throw new InvalidArgumentError("the headers", "must have names and values that HTTP allows");
  }
  if (json !== undefined && !headers.has("content-type")) headers.set("content-type", "application/json");
  const body = json === undefined ? (init.body ?? null) : JSON.stringify(json);
  if (body !== null && body !== "" && NO_BODY.includes(status))
    throw new InvalidArgumentError("the body", `must not be given with status ${status}`);
  return { status, headers: storedHeaders([...headers]), body: body === "" ? null : body };
}

export function isReply(value: unknown): value is Reply {
  return (
    typeof value === "object" &&
    value !== null &&
    "status" in value &&
    "headers" in value &&
    Array.isArray(value.headers)
  );
}

export const replayed = (reply: Reply): Reply => ({ ...reply, headers: [...reply.headers, [REPLAYED_HEADER, "true"]] });

const TITLES = {
  400: "Bad Request",
  401: "Unauthorized",
  409: "Conflict",
  413: "Content Too Large",
  422: "Unprocessable Content",
  500: "Internal Server Error",
  503: "Service Unavailable",
} as const;

/** The codes of refusals. They never change. */
export type ProblemCode =
  | "idempotency_key_missing"
  | "idempotency_key_malformed"
  | "idempotency_in_progress"
  | "idempotency_mismatch"
  | "request_too_large"
  | "response_not_kept"
  | "signature_invalid"
  | "timestamp_out_of_range"
  | "body_too_large";

/** A refusal, as `application/problem+json`. */
export function problem(
  status: keyof typeof TITLES,
  code: ProblemCode,
  detail: string,
  headers: HeaderList = [],
): Reply {
  return {
    status,
    headers: [["content-type", "application/problem+json"], ["cache-control", "no-store"], ...headers],
    body: JSON.stringify({ type: "about:blank", title: TITLES[status], status, detail, code }),
  };
}
