/**
 * Outgoing HTTP on Node: the system's resolver, and connections that are kept for each address.
 *
 * A request names the address to connect to, and the socket is opened to that address: there is no second look at the name that could bring another
 * one. The name is still what the server gets as `Host`, and what its certificate must be for.
 *
 * Guarantees: a reply is whole or the promise rejects; a body is never held beyond `mostBytes`; an aborted request leaves no socket behind.
 * Out of scope: redirects, cookies, compressed replies and proxies, none of which it asks for or follows.
 */

import { lookup } from "node:dns/promises";
import { Agent as HttpAgent, request as httpRequest, type IncomingMessage, type RequestOptions } from "node:http";
import { Agent as HttpsAgent, request as httpsRequest } from "node:https";
import { isIP } from "node:net";
import type { HttpClient, HttpReply, HttpRequest } from "../kernel/http.ts";

/** Servers close idle connections after some seconds, often five; one that was closed fails a request, which is not sent again by itself. */
const IDLE_MS = 4000;
/** Idle connections that are kept for each address, and altogether. */
const MOST_IDLE = 256;

export interface HttpSettings {
  /** All addresses of a name. Default: the system's resolver. */
  readonly resolve?: ((hostname: string) => Promise<readonly string[]>) | undefined;
  /** What certificates are checked against, for tests. Default: the authorities that Node knows. */
  readonly ca?: string | undefined;
}

export function openHttp({ resolve = resolveWithSystem, ca }: HttpSettings = {}): HttpClient {
  const kept = { keepAlive: true, timeout: IDLE_MS, maxFreeSockets: MOST_IDLE, scheduling: "lifo" } as const;
  const plain = new HttpAgent(kept);
  const secure = new HttpsAgent({ ...kept, ...(ca === undefined ? {} : { ca }) });
  /** Names that are being resolved: concurrent requests to one share the answer. */
  const asked = new Map<string, Promise<readonly string[]>>();
  return {
    resolve(hostname) {
      const known = asked.get(hostname);
      if (known !== undefined) return known;
      const answer = resolve(hostname).finally(() => asked.delete(hostname));
      asked.set(hostname, answer);
      return answer;
    },

    send: (request) => sendOnce(request, request.url.protocol === "https:" ? secure : plain),

    close() {
      plain.destroy();
      secure.destroy();
    },
  };
}

async function resolveWithSystem(hostname: string): Promise<readonly string[]> {
  return (await lookup(hostname, { all: true })).map(({ address }) => address);
}

function sendOnce(
  { url, address, method, headers, body, mostBytes, abortSignal }: HttpRequest,
  agent: HttpAgent | HttpsAgent,
): Promise<HttpReply> {
  return new Promise((resolve, reject) => {
    if (abortSignal.aborted) return reject(abortSignal.reason);
    const isSecure = url.protocol === "https:";
    const name = nameOf(url);
    const options: RequestOptions & { servername?: string } = {
      agent,
      // The address: Node resolves nothing.
      host: address,
      family: isIP(address),
      port: url.port === "" ? (isSecure ? 443 : 80) : Number(url.port),
      path: `${url.pathname}${url.search}`,
      method,
      headers: { ...headers, host: url.host, ...framed(body) },
      setHost: false,
    };
    if (isSecure) {
      // An address is no name to ask for; the certificate must have it as an address then.
      options.servername = isIP(name) === 0 ? name : "";
    }
    const sent = (isSecure ? httpsRequest : httpRequest)(options);
    let isOver = false;
    const end = (settle: () => void): void => {
      if (isOver) return;
      isOver = true;
      abortSignal.removeEventListener("abort", abort);
      settle();
    };
    const fail = (error: unknown): void => {
      end(() => reject(error));
      sent.destroy();
    };
    const abort = (): void => fail(abortSignal.reason);
    abortSignal.addEventListener("abort", abort);
    // Also where a connection that was kept turns out to be closed: the server may have got the request before it closed it.
    sent.on("error", fail);
    sent.on("upgrade", (_response, socket) => {
      socket.destroy();
      fail(new Error("the server changed the protocol, which was not asked for"));
    });
    const done = (reply: HttpReply): void => {
      end(() => resolve(reply));
      if (reply.isCut) sent.destroy();
    };
    sent.on("response", (response) => receive(response, mostBytes, done, fail));
    sent.end(body);
  });
}

/** Node frames a body by itself only for some methods. With DELETE, the receiver would take it for the next request on the connection. */
const framed = (body: HttpRequest["body"]): Record<string, string> =>
  body === undefined ? {} : { "content-length": String(Buffer.byteLength(body)) };

function receive(
  response: IncomingMessage,
  mostBytes: number,
  done: (reply: HttpReply) => void,
  fail: (error: unknown) => void,
): void {
  const parts: Buffer[] = [];
  let size = 0;
  const end = (isCut: boolean): void => {
    const [first = Buffer.alloc(0)] = parts;
    const body = parts.length <= 1 ? first : Buffer.concat(parts);
    done({ status: response.statusCode ?? 0, headers: headersOf(response), body, isCut });
  };
  response.on("data", (part: Buffer) => {
    const room = mostBytes - size;
    size += part.length;
    parts.push(part.length <= room ? part : part.subarray(0, Math.max(0, room)));
    if (size <= mostBytes) return;
    response.pause();
    end(true);
  });
  response.on("end", () => end(false));
  response.on("error", fail);
  response.on("close", () => {
    if (!response.complete) fail(new Error("the connection was closed in the middle of the reply"));
  });
}

function headersOf({ headers }: IncomingMessage): Record<string, string> {
  const all: Record<string, string> = {};
  for (const name of Object.keys(headers)) {
    const value = headers[name];
    if (value !== undefined) all[name] = Array.isArray(value) ? value.join(", ") : value;
  }
  return all;
}

/** A host name, or an address without its brackets. */
const nameOf = ({ hostname }: URL): string => (hostname.startsWith("[") ? hostname.slice(1, -1) : hostname);
