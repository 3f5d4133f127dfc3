/**
 * Server-sent events: live views that a client can resume.
 *
 * Each event has an id; a client that lost the connection sends the last one in `Last-Event-ID` and continues after it. A comment every 15 s keeps proxies
 * from closing the connection. Nothing is read before the client has taken what was sent, and what it does not take is bounded (`unread.ts`): a chunk
 * has `CHUNK` characters, or one event that is longer. A stream ends when the client is gone, the server closes or its API key has ended, and takes
 * one of the places for waiting requests.
 */

import { ClosedError } from "../../kernel/errors.ts";
import { refuse, tooManyWaiting } from "./problem.ts";
import type { Connection, Routing, Waiter } from "./route.ts";

export interface Item {
  /** To continue after; left out for an item that nothing continues after. */
  readonly id?: string;
  readonly event: string;
  readonly data: unknown;
}

/** What a stream sends. */
export interface Feed {
  /** Yields when there may be something new, and ends with the request. */
  readonly wake: AsyncGenerator<void>;
  /** Reads what there is after what was read last, also where the last reading was left in the middle. Returns "end" if there will be no more. */
  read(): AsyncGenerator<Item, "end" | undefined>;
}

const COMMENT_MS = 15_000;
const COMMENT = ": \n\n";
const CHUNK = 256 * 1024;
const encoder = new TextEncoder();

/** Sends the items, until there are no more. Throws what the first reading fails with: later, a client only sees that the stream broke off, and opens it again. */
export async function sendEvents(
  { clock, unread }: Pick<Routing, "clock" | "unread">,
  { abortSignal, connection, enter, reader }: Waiter,
  feed: Feed,
): Promise<Response> {
  const leave = enter();
  if (leave === undefined) throw tooManyWaiting();
  let first: Chunk;
  try {
    first = await unread.turn(reader, () => chunkOf(feed.read()));
  } catch (error) {
    leave();
    throw error;
  }
  const chunks = chunksOf(feed, <T>(read: () => Promise<T>) => unread.turn(reader, read), first.is === "end");
  let next: Promise<IteratorResult<Uint8Array>> | undefined;
  let isOver = false;
  let release: (() => void) | undefined;
  // What is not needed any more is forgotten: a chunk would live on in it.
  const taken = (): void => {
    release?.();
    release = undefined;
  };
  const end = (): void => {
    if (isOver) return;
    isOver = true;
    abortSignal.removeEventListener("abort", end);
    leave();
    chunks.return(undefined).catch(() => {});
  };
  abortSignal.addEventListener("abort", end);
  if (abortSignal.aborted) end();
  const drop = (controller: ReadableStreamDefaultController): void => {
    end();
    taken();
    if (connection === undefined) controller.error(new Error("the client does not read its events"));
    else connection.destroy();
  };
  const give = (controller: ReadableStreamDefaultController, chunk: Uint8Array): void => {
    release = unread.hold(reader, chunk.byteLength, () => drop(controller));
    controller.enqueue(chunk);
  };
  const body = new ReadableStream<Uint8Array>(
    {
      start(controller) {
        // The client learns immediately that it is connected.
        controller.enqueue(encoder.encode(COMMENT));
        if (first.text !== "") give(controller, encoder.encode(first.text));
        first = NOTHING;
      },
      async pull(controller) {
        await drained(connection);
        taken();
        next ??= chunks.next();
        // What fails later, after the client is gone, has no one to tell.
        next.catch(() => {});
        const { promise: quiet, resolve } = Promise.withResolvers<"quiet">();
        const cancel = clock.after(COMMENT_MS, () => resolve("quiet"));
        const stop = (): void => resolve("quiet");
        abortSignal.addEventListener("abort", stop);
        try {
          const came = abortSignal.aborted ? "quiet" : await Promise.race([next, quiet]);
          if (abortSignal.aborted) {
            end();
            controller.close();
          } else if (came === "quiet") controller.enqueue(encoder.encode(COMMENT));
          else {
            next = undefined;
            if (came.done === true) {
              end();
              controller.close();
            } else give(controller, came.value);
          }
        } catch (error) {
          end();
          throw error;
        } finally {
          cancel();
          abortSignal.removeEventListener("abort", stop);
        }
      },
      cancel() {
        end();
        taken();
      },
    },
    // Nothing is read before it is asked for.
    { highWaterMark: 0 },
  );
  return new Response(body, {
    headers: { "content-type": "text/event-stream", "cache-control": "no-store", "x-accel-buffering": "no" },
  });
}

/** A part of a reading as text, and whether it is the whole of it, a part, or the last of all. */
interface Chunk {
  readonly text: string;
  readonly is: "whole" | "part" | "end";
}

const NOTHING: Chunk = { text: "", is: "part" };

/** What the feed has after the first reading, as bytes. Between two chunks no reading is left open, because it would hold a page. */
async function* chunksOf(
  { wake, read }: Feed,
  turn: <T>(read: () => Promise<T>) => Promise<T>,
  hasEnded: boolean,
): AsyncGenerator<Uint8Array, undefined> {
  if (hasEnded) return undefined;
  for await (const _ of wake) {
    for (;;) {
      const { text, is } = await turn(() => chunkOf(read()));
      if (text !== "") yield encoder.encode(text);
      if (is === "end") return undefined;
      if (is === "whole") break;
    }
  }
  return undefined;
}

/** As much of a reading as one chunk has. */
async function chunkOf(reading: ReturnType<Feed["read"]>): Promise<Chunk> {
  let text = "";
  try {
    while (text.length < CHUNK) {
      const one = await reading.next();
      if (one.done === true) return { text, is: one.value ?? "whole" };
      text += textOf(one.value);
    }
  } catch (error) {
    // Closing the handle ends what it was followed by.
    if (error instanceof ClosedError) return { text, is: "end" };
    // What was read before is sent first; the next reading fails again.
    if (text === "") throw error;
  } finally {
    await reading.return(undefined);
  }
  return { text, is: "part" };
}

/** Waits until what was written is with the operating system. A server may ask for the first chunks before it writes any. */
async function drained(connection: Connection | undefined): Promise<void> {
  if (connection?.writableNeedDrain !== true) return;
  const { promise, resolve } = Promise.withResolvers<void>();
  connection.on("drain", resolve).on("close", resolve);
  await promise;
  connection.off("drain", resolve).off("close", resolve);
}

/** Data is JSON, which has no line ends. */
const textOf = ({ id, event, data }: Item): string =>
  `${id === undefined ? "" : `id: ${id}\n`}event: ${event}\ndata: ${JSON.stringify(data ?? null)}\n\n`;

/** Whether the client wants events rather than a page. */
export const wantsEvents = (accept = ""): boolean =>
  accept.split(",").some((range) => range.split(";")[0]?.trim().toLowerCase() === "text/event-stream");

/** The version after which a client continues; undefined for one that begins. */
export function lastEventId(header: string | undefined): number | undefined {
  if (header === undefined || header === "") return undefined;
  if (!/^\d{1,15}$/.test(header))
    throw refuse("invalid_request", "Last-Event-ID must be the id of an event that was sent.");
  return Number(header);
}
