/**
 * Server-sent events: what a stream of the server says, continued after the last event wherever it breaks off.
 *
 * The response is read with `fetch`, because `EventSource` cannot send a key. A stream that ends, or whose connection is lost, is opened again with
 * `Last-Event-ID`; only a refusal of the server, or no connection for the patience of the client, ends the iteration with an error.
 */

import type { Platform } from "../platform/platform.ts";
import { PawlHttpError } from "./errors.ts";
import { routeOf } from "./replies.ts";
import { anySignal, type Request, sleep, type Transport } from "./transport.ts";

export interface ServerEvent {
  readonly id: string | null;
  readonly event: string;
  readonly data: string;
}

/** An event of the API: its data is an object. */
export interface FollowedEvent {
  readonly id: string | null;
  readonly data: object;
}

const PAUSE_MS = 250;
/** The server says something every 15 s, so that a connection that is dead and does not know it is noticed. */
const SILENT_MS = 45_000;

/** Follows a stream of events until the signal aborts, which ends the iteration without an error. */
export async function* follow(
  transport: Transport,
  request: Omit<Request, "method">,
  abortSignal: AbortSignal | undefined,
): AsyncGenerator<FollowedEvent> {
  const stop = new AbortController();
  const signal = anySignal([abortSignal, transport.abortSignal, stop.signal]) as AbortSignal;
  let lastId: string | null = null;
  try {
    while (!signal.aborted) {
      const headers: Record<string, string> = {
        ...request.headers,
        accept: "text/event-stream",
        ...(lastId === null ? {} : { "last-event-id": lastId }),
      };
      const response = await transport.open({ ...request, method: "GET", headers }, signal);
      // There is nothing more to come.
      if (response.status === 204) return;
      for await (const event of eventsIn(response.body, transport.platform)) {
        const data = objectIn(event.data, request.path);
        if (event.id !== null) lastId = event.id;
        yield { id: event.id, data };
      }
      await sleep(transport.platform, PAUSE_MS, signal);
    }
  } catch (error) {
    if (signal.aborted && !(error instanceof PawlHttpError)) return;
    throw error;
  } finally {
    // A caller that stops to iterate closes the connection.
    stop.abort();
  }
}

/** The events of a response. A connection that is lost ends them. */
async function* eventsIn(body: ReadableStream<Uint8Array> | null, platform: Platform): AsyncGenerator<ServerEvent> {
  if (body === null) return;
  const reader = body.getReader();
  const parser = new EventParser();
  const close = (): void => void reader.cancel().catch(() => {});
  try {
    for (;;) {
      const cancel = platform.after(SILENT_MS, close);
      const { done, value } = await reader.read().finally(cancel);
      if (done) return;
      yield* parser.push(value);
    }
  } catch {
    // It is opened again after the last whole event.
  } finally {
    close();
  }
}

function objectIn(data: string, path: string): object {
  let json: unknown;
  let cause: unknown;
  try {
    json = JSON.parse(data);
  } catch (error) {
    cause = error;
  }
  if (typeof json === "object" && json !== null) return json;
  const route = routeOf("GET", path);
  const reason = "the data of an event is not a JSON object";
  const message = `the response to ${route} is not one of a Pawl server: ${reason}`;
  throw new PawlHttpError({ status: 200, code: "unexpected_response", message, data: { route, reason }, cause });
}

/** Parses bytes as they arrive, as the HTML standard says. */
export class EventParser {
  readonly #decoder = new TextDecoder();
  #rest = "";
  #data: string[] = [];
  #event = "";
  #id: string | null = null;

  *push(bytes: Uint8Array): Generator<ServerEvent> {
    this.#rest += this.#decoder.decode(bytes, { stream: true });
    // A carriage return at the end may be the first half of a line end.
    for (let match = LINE.exec(this.#rest); match !== null; match = LINE.exec(this.#rest)) {
      const line = this.#rest.slice(0, match.index);
      this.#rest = this.#rest.slice(match.index + match[0].length);
      const event = this.#line(line);
      if (event !== undefined) yield event;
    }
  }

  #line(line: string): ServerEvent | undefined {
    if (line === "") return this.#dispatch();
    const colon = line.indexOf(":");
    const field = colon < 0 ? line : line.slice(0, colon);
    const value = colon < 0 ? "" : line.slice(colon + 1).replace(/^ /, "");
    if (field === "data") this.#data.push(value);
    else if (field === "event") this.#event = value;
    else if (field === "id" && !value.includes("\0")) this.#id = value;
    return undefined;
  }

  #dispatch(): ServerEvent | undefined {
    const event = { id: this.#id, event: this.#event === "" ? "message" : this.#event, data: this.#data.join("\n") };
    const isEmpty = this.#data.length === 0;
    this.#data = [];
    this.#event = "";
    return isEmpty ? undefined : event;
  }
}

const LINE = /\r\n|\n|\r(?!$)/;
