/**
 * Server-sent events: live views that a client can resume.
 *
 * Each event has an id; a client that lost the connection sends the last one in `Last-Event-ID` and continues after it. A comment every 15 s keeps proxies
 * from closing the connection. The next item is asked for only when the client has taken the one before, so a slow client costs no memory. A stream
 * ends when the client is gone, the server closes or its API key has ended, and takes one of the places for waiting requests.
 */

import type { Clock } from "../../kernel/ports.ts";
import { type Problem, refuse, retryAfter } from "./problem.ts";
import type { Waiter } from "./route.ts";

export interface Item {
  /** To continue after; left out for an item that nothing continues after. */
  readonly id?: string;
  readonly event: string;
  readonly data: unknown;
}

const COMMENT_MS = 15_000;
const COMMENT = ": \n\n";

/** Sends the items, until there are no more. */
export function sendEvents(items: AsyncIterator<Item>, clock: Clock, { abortSignal, enter }: Waiter): Response {
  const leave = enter();
  if (leave === undefined) {
    void items.return?.();
    throw tooManyWaiting();
  }
  const encoder = new TextEncoder();
  let next: Promise<IteratorResult<Item>> | undefined;
  let isOver = false;
  const end = (): void => {
    if (isOver) return;
    isOver = true;
    leave();
    Promise.resolve(items.return?.()).catch(() => {});
  };
  const body = new ReadableStream<Uint8Array>({
    start(controller) {
      // The client learns immediately that it is connected.
      controller.enqueue(encoder.encode(COMMENT));
    },
    async pull(controller) {
      next ??= items.next();
      // What fails later, after the client is gone, has no one to tell.
      next.catch(() => {});
      const { promise: quiet, resolve } = Promise.withResolvers<"quiet">();
      const cancel = clock.after(COMMENT_MS, () => resolve("quiet"));
      const stop = (): void => resolve("quiet");
      abortSignal.addEventListener("abort", stop);
      try {
        const first = abortSignal.aborted ? "quiet" : await Promise.race([next, quiet]);
        if (abortSignal.aborted) {
          end();
          controller.close();
        } else if (first === "quiet") controller.enqueue(encoder.encode(COMMENT));
        else {
          next = undefined;
          if (first.done !== true) controller.enqueue(encoder.encode(textOf(first.value)));
          else {
            end();
            controller.close();
          }
        }
      } catch (error) {
        end();
        throw error;
      } finally {
        cancel();
        abortSignal.removeEventListener("abort", stop);
      }
    },
    cancel: end,
  });
  return new Response(body, {
    headers: { "content-type": "text/event-stream", "cache-control": "no-store", "x-accel-buffering": "no" },
  });
}

/** Data is JSON, which has no line ends. */
const textOf = ({ id, event, data }: Item): string =>
  `${id === undefined ? "" : `id: ${id}\n`}event: ${event}\ndata: ${JSON.stringify(data ?? null)}\n\n`;

/** The refusal of a request that would wait, where too many do. */
export const tooManyWaiting = (): Problem =>
  refuse("too_many_waiting", "As many requests wait for something as may: try again later.", {
    headers: retryAfter(1),
  });

/** Whether the client wants events rather than a page. */
export const wantsEvents = (accept: string | undefined): boolean => accept?.includes("text/event-stream") === true;
