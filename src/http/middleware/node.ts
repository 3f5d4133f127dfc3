/**
 * What middleware for servers of Node shares: how a request that a framework has parsed is told from another, and how a reply is written.
 *
 * The body must have been read before the gate: what a parser left in `body` counts, or the bytes in `rawBody` where there are any. A body
 * that nobody has read is refused, because two requests would not be told apart.
 */

import { InvalidArgumentError } from "../../kernel/errors.ts";
import { describe } from "./fetch.ts";
import type { Reply } from "./reply.ts";

/** What is used of a request of Node. */
export interface NodeRequest {
  readonly method?: string | undefined;
  readonly headers: Readonly<Record<string, string | readonly string[] | undefined>>;
  /** Whether anything of the body was read. */
  readonly readableDidRead: boolean;
}

/** A header, of which there may be several. */
export function headerOf({ headers }: Pick<NodeRequest, "headers">, name: string): string | undefined {
  const value = headers[name];
  return typeof value === "string" || value === undefined ? value : value.join(", ");
}

/** What tells a request from another; `url` is the path with its query. */
export function fingerprintOfParsed(request: NodeRequest, url: string, body: unknown, rawBody: unknown): unknown {
  const at = url.indexOf("?");
  const [path, query] = at < 0 ? [url, ""] : [url.slice(0, at), url.slice(at)];
  const isBodyUnknown = hasBody(request) && (!request.readableDidRead || (body === undefined && rawBody === undefined));
  if (isBodyUnknown)
    throw new InvalidArgumentError(
      "the request",
      "must have its body parsed before the idempotency middleware, or be told from others by `fingerprint`",
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

/** Headers by name, with all values of each, as servers of Node want them. */
export function headersOf({ headers }: Reply): Map<string, string | string[]> {
  const byName = new Map<string, string | string[]>();
  for (const [name, value] of headers) {
    const before = byName.get(name);
    byName.set(name, before === undefined ? value : [before, value].flat());
  }
  return byName;
}
