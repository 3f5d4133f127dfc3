/**
 * Outgoing HTTP in a simulation: requests reach what the scenario has outside, with the faults of a network. What is outside never crashes.
 */

import type { HttpClient, HttpReply, HttpRequest } from "../../kernel/http.ts";
import type { Process } from "./process.ts";
import type { World } from "./world.ts";

/** What a scenario has outside. */
export interface Outside {
  /** A request arrives. */
  handle(request: HttpRequest): { readonly status: number; readonly body?: string };
  /** A process is about to send a request, which may not arrive. */
  sent?(request: HttpRequest): void;
}

/** An address that any task may call. */
const ADDRESS = "93.184.216.34";

const replyOf = ({ status, body = "" }: ReturnType<Outside["handle"]>): HttpReply => ({
  status,
  headers: {},
  body: Buffer.from(body),
  isCut: false,
});

export function simulatedHttp(world: World, process: Process): HttpClient {
  const { faults, random, scheduler } = world;
  const outside = (): Outside => {
    if (world.outside === undefined) throw new Error("the scenario has nothing outside");
    return world.outside;
  };
  return {
    async resolve() {
      await process.arrive("resolve");
      return [ADDRESS];
    },

    async send(request) {
      outside().sent?.(request);
      await process.arrive("send");
      request.abortSignal.throwIfAborted();
      if (faults.strikes("httpError")) return replyOf({ status: 503 });
      if (faults.strikes("httpLate")) {
        scheduler.after(random.below(60_000), () => void outside().handle(request));
        throw new Error("the connection was closed before the reply");
      }
      const reply = replyOf(outside().handle(request));
      if (faults.strikes("httpTimeout")) return new Promise<never>(() => {});
      await process.arrive("send: reply");
      return reply;
    },

    close() {},
  };
}
