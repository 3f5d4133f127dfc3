/**
 * Captures the response of a Node server: what a handler writes is buffered until the response ends or exceeds the limit, then stored, and
 * only then sent.
 *
 * `write`, `end`, `writeHead` and `flushHeaders` of this response are replaced. They stay replaced, because other code may have wrapped them
 * since; after the response is stored they call the originals.
 */

import { joined } from "./body.ts";
import type { Outcome } from "./core.ts";
import { bytesOf, headersOf } from "./node.ts";
import { type HeaderList, type Reply, storedBody, storedHeaders } from "./reply.ts";

/** The part of a Node response that is used. */
export interface NodeResponse {
  statusCode: number;
  getHeaders(): Readonly<Record<string, unknown>>;
  getHeaderNames(): string[];
  setHeader(name: string, value: string | string[]): unknown;
  removeHeader(name: string): void;
  write(chunk: unknown, encoding?: unknown, callback?: unknown): boolean;
  end(chunk?: unknown, encoding?: unknown, callback?: unknown): unknown;
  writeHead(status: number, reason?: unknown, headers?: unknown): unknown;
  flushHeaders(): void;
  emit(event: string): boolean;
}

/**
 * Buffers what is written from now on. `store` is called once, with the handler's outcome; it returns the reply to send instead, or null to
 * send what was written. If it throws, what was written is discarded, and `failed` sends the response.
 */
export function capture(
  res: NodeResponse,
  maxBytes: number,
  store: (outcome: Outcome) => Promise<Reply | null>,
  failed: (error: unknown) => void,
): void {
  const original = {
    write: res.write.bind(res),
    end: res.end.bind(res),
    writeHead: res.writeHead.bind(res),
    flushHeaders: res.flushHeaders.bind(res),
  };
  const chunks: Uint8Array[] = [];
  const callbacks: (() => void)[] = [];
  let length = 0;
  let hasEnded = false;
  let state: "buffering" | "storing" | "passing" | "discarding" = "buffering";

  const buffer = (chunk: unknown, encoding: unknown, callback: unknown, isEnd: boolean): void => {
    const written = [chunk, encoding, callback].find((given) => typeof given === "function") as
      | (() => void)
      | undefined;
    // To a writer that waits for its callback before it continues, a buffered chunk counts as written.
    if (written !== undefined && state === "buffering" && !isEnd) queueMicrotask(written);
    else if (written !== undefined) callbacks.push(written);
    if (typeof chunk !== "string" && !(chunk instanceof Uint8Array)) return;
    const bytes = bytesOf(chunk, typeof encoding === "string" ? (encoding as BufferEncoding) : "utf8");
    chunks.push(bytes);
    length += bytes.length;
  };

  const storeAndSend = async (outcome: Outcome): Promise<void> => {
    state = "storing";
    let instead: Reply | null;
    try {
      instead = await store(outcome);
    } catch (error) {
      clearHeaders(res);
      if (hasEnded) {
        state = "passing";
        failed(error);
      } else {
        // The handler is still writing, so that no other code may write the response.
        state = "discarding";
        original.writeHead(500);
        original.end();
      }
      return;
    }
    state = "passing";
    if (instead !== null) {
      sendReply(res, instead, original.end);
      state = "discarding";
    } else if (hasEnded) original.end(joined(chunks, length));
    else {
      for (const chunk of chunks) original.write(chunk);
      res.emit("drain");
    }
    chunks.length = 0;
    for (const callback of callbacks) callback();
  };

  res.write = (chunk, encoding, callback) => {
    if (state === "passing") return original.write(chunk, encoding, callback);
    if (state === "discarding") return true;
    buffer(chunk, encoding, callback, false);
    if (state === "buffering" && length > maxBytes) void storeAndSend({ tooLarge: true });
    // False asks the writer to wait for the `drain` event.
    return state === "buffering";
  };
  res.end = (chunk, encoding, callback) => {
    if (state === "passing") return original.end(chunk, encoding, callback);
    if (state === "discarding" || hasEnded) return res;
    buffer(chunk, encoding, callback, true);
    hasEnded = true;
    if (state === "buffering")
      void storeAndSend(length > maxBytes ? { tooLarge: true } : { reply: replyOf(res, joined(chunks, length)) });
    return res;
  };
  res.writeHead = (status, reason, headers) => {
    if (state === "passing") return original.writeHead(status, reason, headers);
    if (state === "discarding") return res;
    res.statusCode = status;
    setHeaders(res, typeof reason === "object" ? reason : headers);
    return res;
  };
  res.flushHeaders = () => {
    if (state === "passing") original.flushHeaders();
  };
}

export function sendReply(
  res: NodeResponse,
  reply: Reply,
  end: (chunk?: unknown) => unknown = (chunk) => res.end(chunk),
): void {
  clearHeaders(res);
  res.statusCode = reply.status;
  for (const [name, value] of headersOf(reply)) res.setHeader(name, value);
  if (reply.body === null) end();
  else end(bytesOf(reply.body));
}

function clearHeaders(res: NodeResponse): void {
  for (const name of res.getHeaderNames()) res.removeHeader(name);
}

/** Sets headers in one of the forms that `writeHead` takes: an object, or a list of names and values. */
function setHeaders(res: NodeResponse, headers: unknown): void {
  if (Array.isArray(headers)) {
    const pairs = headers.flat();
    for (let i = 0; i + 1 < pairs.length; i += 2) res.setHeader(String(pairs[i]), String(pairs[i + 1]));
  } else if (typeof headers === "object" && headers !== null)
    for (const [name, value] of Object.entries(headers))
      if (value !== undefined) res.setHeader(name, Array.isArray(value) ? value.map(String) : String(value));
}

const replyOf = (res: NodeResponse, bytes: Uint8Array): Reply => ({
  status: res.statusCode,
  headers: storedHeaders(listOf(res.getHeaders())),
  body: storedBody(bytes),
});

/** A list of a Node server's headers, whose values are strings, numbers, or arrays of strings. */
export const listOf = (headers: Readonly<Record<string, unknown>>): HeaderList =>
  Object.entries(headers).flatMap(([name, value]) =>
    value === undefined || value === null ? [] : [value].flat().map((one) => [name, String(one)] as const),
  );
