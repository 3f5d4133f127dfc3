/**
 * Shared by the middleware for Node servers: the fingerprint of a request that a framework has parsed, and how a reply is written.
 *
 * The body must be parsed before this middleware: the fingerprint uses the bytes in `rawBody` if there are any, or else the value in `body`. A
 * body that was not read is refused, because different requests would have the same fingerprint.
 */

import { InvalidArgumentError } from "../../kernel/errors.ts";
import { describe } from "./fetch.ts";
import type { Reply } from "./reply.ts";

/** The part of a Node request that is used. */
export interface NodeRequest {
  readonly method?: string | undefined;
  readonly headers: Readonly<Record<string, string | readonly string[] | undefined>>;
  /** Whether any of the body was read. */
  readonly readableDidRead: boolean;
}

/** Returns a header; repeated ones are joined by commas. */
export function headerOf({ headers }: Pick<NodeRequest, "headers">, name: string): string | undefined {
  const value = headers[name];
  return typeof value === "string" || value === undefined ? value : value.join(", ");
}

/** `url` is the path with its query. */
export function fingerprintOfParsed(request: NodeRequest, url: string, body: unknown, rawBody: unknown): unknown {
  const at = url.indexOf("?");
  const [path, query] = at < 0 ? [url, ""] : [url.slice(0, at), url.slice(at)];
  const isBodyUnknown = hasBody(request) && (!request.readableDidRead || (body === undefined && rawBody === undefined));
  if (isBodyUnknown)
    throw new InvalidArgumentError(
      "the request",
      "must have its body parsed before the idempotency middleware: add a body parser before it, or the option `fingerprint`",
    );
  const { method = "" } = request;
  return describe(
    method,
    path,
    query,
    rawBody instanceof Uint8Array || typeof rawBody === "string" ? bytesOf(rawBody) : body,
  );
}

function hasBody(request: NodeRequest): boolean {
  const length = headerOf(request, "content-length");
  return headerOf(request, "transfer-encoding") !== undefined || (length !== undefined && Number(length) !== 0);
}

export function bytesOf(text: string | Uint8Array, encoding: BufferEncoding = "utf8"): Uint8Array {
  return typeof text === "string" ? Buffer.from(text, encoding) : text;
}

/** Headers by name, with all values of each, in the form that Node servers take. */
export function headersOf({ headers }: Reply): Map<string, string | string[]> {
  const byName = new Map<string, string | string[]>();
  for (const [name, value] of headers) {
    const before = byName.get(name);
    byName.set(name, before === undefined ? value : [before, value].flat());
  }
  return byName;
}
