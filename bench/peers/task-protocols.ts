/**
 * What is measured of a contender for tasks: how many it can take, how many it can call, both at once, and how soon a lone one is called.
 *
 * Guarantees: every task that was created is called; a contender that leaves one out is waited for in vain, and that ends with an error.
 */

import { setTimeout as sleep } from "node:timers/promises";
import { median } from "../result.ts";
import type { TaskSession } from "./task-peer.ts";
import type { Receiver } from "./task-receiver.ts";

export interface TaskSizes {
  readonly callers: number;
  readonly forMs: number;
  /** How many tasks there are at least before calls are measured. */
  readonly backlog: number;
  readonly lone: number;
}

const GIVE_UP_MS = 120_000;

let made = 0;
const newKey = (): string => `task-${++made}`;

/** Creations in a second while nothing works, and then calls in a second while nothing is created. */
export async function createdThenDelivered(
  session: TaskSession,
  receiver: Receiver,
  { callers, forMs, backlog }: TaskSizes,
): Promise<{ readonly created: number; readonly delivered: number }> {
  await receiver.clear();
  const { count, ms } = await create(session, callers, forMs);
  let all = count;
  while (all < backlog) all += (await create(session, callers, 0)).count;
  const startedMs = performance.now();
  await session.work();
  await within(receiver.reached(all), session);
  const drainedMs = performance.now() - startedMs;
  await session.stop();
  return { created: (count / ms) * 1000, delivered: (all / drainedMs) * 1000 };
}

/** Tasks in a second, from the first creation to the last call, while both go on. */
export async function together(session: TaskSession, receiver: Receiver, sizes: TaskSizes): Promise<number> {
  await receiver.clear();
  await session.work();
  const startedMs = performance.now();
  const { count } = await create(session, sizes.callers, sizes.forMs);
  await within(receiver.reached(count), session);
  const ms = performance.now() - startedMs;
  await session.stop();
  return (count / ms) * 1000;
}

/** The median of how many milliseconds pass from a creation to the call, one after another. */
export async function lone(session: TaskSession, receiver: Receiver, { lone: count }: TaskSizes): Promise<number> {
  await session.work();
  const latenciesMs: number[] = [];
  for (let index = 0; index < count; index++) {
    await receiver.clear();
    const startedMs = performance.now();
    const reached = receiver.reached(1);
    await session.create(newKey());
    await within(reached, session);
    latenciesMs.push(performance.now() - startedMs);
    // So that it is idle each time.
    await sleep(20);
  }
  await session.stop();
  return median(latenciesMs);
}

async function create(
  session: TaskSession,
  callers: number,
  forMs: number,
): Promise<{ readonly count: number; readonly ms: number }> {
  const startedMs = performance.now();
  let count = 0;
  const call = async (): Promise<void> => {
    do {
      await session.create(newKey());
      count += 1;
    } while (performance.now() - startedMs < forMs);
  };
  await Promise.all(Array.from({ length: callers }, call));
  return { count, ms: performance.now() - startedMs };
}

async function within(reached: Promise<number>, session: TaskSession): Promise<void> {
  const over = new AbortController();
  const late = sleep(GIVE_UP_MS, "late", { signal: over.signal }).catch(() => "over");
  const outcome = await Promise.race([reached, late]);
  over.abort();
  if (outcome !== "late") return;
  await session.close();
  throw new Error(`not all tasks were called within ${GIVE_UP_MS / 1000} s`);
}
