/**
 * What is measured of a contender for event streams.
 *
 * `calls`: 100 callers, each of which waits for one call before the next, to streams of their own with ten events each, or all to one stream.
 * `drained`: events that are there, and a handler that begins with them; until the last one is handled.
 *
 * Guarantees: each call that counts has left an event, and each event was handled; otherwise the benchmark ends with an error.
 */

import { charge } from "./peer.ts";
import { outOf, type StreamSession } from "./stream-peer.ts";

const EVENTS_PER_STREAM = 10;

/** Successful calls per second. A call that is under way when the time is over is waited for, and does not count. */
export async function calls(
  session: StreamSession,
  verb: "append" | "command",
  name: string,
  { callers, forMs, isHot }: { readonly callers: number; readonly forMs: number; readonly isHot: boolean },
): Promise<number> {
  const startedMs = performance.now();
  const counts = new Map<string, number>();
  let done = 0;
  const call = async (caller: number): Promise<void> => {
    for (let turn = 0; performance.now() - startedMs < forMs; turn++) {
      const stream = isHot ? name : `${name}-${caller}-${Math.floor(turn / EVENTS_PER_STREAM)}`;
      await session[verb](stream, charge(turn % EVENTS_PER_STREAM));
      counts.set(stream, (counts.get(stream) ?? 0) + 1);
      if (performance.now() - startedMs < forMs) done += 1;
    }
  };
  await Promise.all(Array.from({ length: callers }, (_, caller) => call(caller)));
  for (const [stream, count] of [...counts].slice(0, 20)) {
    const found = await session.count(stream);
    if (found !== count) throw new Error(`stream ${stream} has ${found} events after ${count} calls`);
  }
  return (done / forMs) * 1000;
}

interface Draining {
  readonly streams: number;
  readonly events: number;
  readonly forMs: number;
  /** Each handler appends an event to another stream. */
  readonly emits: boolean;
}

/** Events handled per second, from the start of the worker to the call of the last handler; what was handled until `forMs` counts if that is over. */
export async function drained(
  session: StreamSession,
  name: string,
  { streams, events, forMs, emits }: Draining,
): Promise<number> {
  const charges = Array.from({ length: events }, (_, turn) => charge(turn % EVENTS_PER_STREAM));
  const prefix = `${name}-`;
  for (let index = 0; index < streams; index++) await session.fill(`${prefix}${index}`, charges);
  const handled = new Set<string>();
  const total = streams * events;
  let endMs = Number.NaN;
  const { promise: isOver, resolve } = Promise.withResolvers<void>();
  const startedMs = performance.now();
  // One that is handled twice, which some of them allow, counts once.
  const reacting = await session.react((stream, version) => {
    if (!stream.startsWith(prefix) || !Number.isNaN(endMs)) return;
    handled.add(`${stream} ${version}`);
    if (handled.size < total) return;
    endMs = performance.now();
    resolve();
  }, emits);
  const timer = setTimeout(resolve, forMs);
  await isOver;
  clearTimeout(timer);
  const [countMs, found] = [performance.now(), handled.size];
  await reacting.stop();
  if (Number.isNaN(endMs)) return (found / (countMs - startedMs)) * 1000;
  for (let index = 0; emits && index < Math.min(streams, 10); index++) {
    const emitted = await session.count(outOf(`${prefix}${index}`));
    if (emitted < events) throw new Error(`${events} events of a stream were handled, and ${emitted} were emitted`);
  }
  return (total / (endMs - startedMs)) * 1000;
}
