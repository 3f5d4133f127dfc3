/**
 * Capturing the response of a server of Node: what a handler writes is held back until it has ended, or is longer than the limit; then it
 * is stored, and only then sent.
 *
 * `write`, `end`, `writeHead` and `flushHeaders` are replaced on the one response. They stay replaced, because others may have wrapped
 * them since; once all is settled they only pass on.
 */

import { joined } from "./body.ts";
import type { Outcome } from "./gate.ts";
import { bytesOf, headersOf } from "./node.ts";
import { type HeaderList, type Reply, storedBody, storedHeaders } from "./reply.ts";

/** What is used of a response of Node. */
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
 * Holds back what is written from now on. `settle` is called once, with what the handler came to; it answers what to send instead, or null
 * to send what was written. If it throws, what was written is dropped, and `failed` replies.
 */
export function capture(
  res: NodeResponse,
  maxBytes: number,
  settle: (outcome: Outcome) => Promise<Reply | null>,
  failed: (error: unknown) => void,
): void {
  const passOn = {
    write: res.write.bind(res),
    end: res.end.bind(res),
    writeHead: res.writeHead.bind(res),
    flushHeaders: res.flushHeaders.bind(res),
  };
  const chunks: Uint8Array[] = [];
  const callbacks: (() => void)[] = [];
  let length = 0;
  let hasEnded = false;
  let state: "holding" | "settling" | "passing" | "dropping" = "holding";

  const hold = (chunk: unknown, encoding: unknown, callback: unknown, isEnd: boolean): void => {
    const written = [chunk, encoding, callback].find((given) => typeof given === "function") as
      | (() => void)
      | undefined;
    // What is held is as good as written to whoever waits for that before writing on.
    if (written !== undefined && state === "holding" && !isEnd) queueMicrotask(written);
    else if (written !== undefined) callbacks.push(written);
    if (typeof chunk !== "string" && !(chunk instanceof Uint8Array)) return;
    const bytes = bytesOf(chunk, typeof encoding === "string" ? (encoding as BufferEncoding) : "utf8");
    chunks.push(bytes);
    length += bytes.length;
  };

  const settleNow = async (outcome: Outcome): Promise<void> => {
    state = "settling";
    let instead: Reply | null;
    try {
      instead = await settle(outcome);
    } catch (error) {
      clearHeaders(res);
      if (hasEnded) {
        state = "passing";
        failed(error);
      } else {
        // The handler is still writing, and nobody else could be heard.
        state = "dropping";
        passOn.writeHead(500);
        passOn.end();
      }
      return;
    }
    state = "passing";
    if (instead !== null) {
      sendReply(res, instead, passOn.end);
      state = "dropping";
    } else if (hasEnded) passOn.end(joined(chunks, length));
    else {
      for (const chunk of chunks) passOn.write(chunk);
      res.emit("drain");
    }
    chunks.length = 0;
    for (const callback of callbacks) callback();
  };

  res.write = (chunk, encoding, callback) => {
    if (state === "passing") return passOn.write(chunk, encoding, callback);
    if (state === "dropping") return true;
    hold(chunk, encoding, callback, false);
    if (state === "holding" && length > maxBytes) void settleNow({ tooLarge: true });
    // Whoever minds waits for the drain.
    return state === "holding";
  };
  res.end = (chunk, encoding, callback) => {
    if (state === "passing") return passOn.end(chunk, encoding, callback);
    if (state === "dropping" || hasEnded) return res;
    hold(chunk, encoding, callback, true);
    hasEnded = true;
    if (state === "holding")
      void settleNow(length > maxBytes ? { tooLarge: true } : { reply: replyOf(res, joined(chunks, length)) });
    return res;
  };
  res.writeHead = (status, reason, headers) => {
    if (state === "passing") return passOn.writeHead(status, reason, headers);
    if (state === "dropping") return res;
    res.statusCode = status;
    setHeaders(res, typeof reason === "object" ? reason : headers);
    return res;
  };
  res.flushHeaders = () => {
    if (state === "passing") passOn.flushHeaders();
  };
}

/** Writes a reply. */
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

/** Headers in one of the shapes that `writeHead` takes: an object, or names and values in turn. */
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

/** Headers as a server of Node has them: texts, numbers, or several texts. */
export const listOf = (headers: Readonly<Record<string, unknown>>): HeaderList =>
  Object.entries(headers).flatMap(([name, value]) =>
    value === undefined || value === null ? [] : [value].flat().map((one) => [name, String(one)] as const),
  );
