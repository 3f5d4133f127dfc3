/**
 * Several processes that write to one database concurrently: their sum, compared with one process alone.
 *
 * SQLite lets one of them write at a time, so more processes cannot be faster than one; there, this shows the cost of taking turns.
 * PostgreSQL lets them all write. Each process has 100 callers and records of its own, or all write to one hot record, and all
 * start at the same moment.
 */

import { type ChildProcess, fork } from "node:child_process";
import { once } from "node:events";
import { fileURLToPath } from "node:url";
import { address } from "../src/kernel/contract.ts";
import type { Case } from "./comparisons.ts";
import type { Ground, Place } from "./ground.ts";
import { openOurs } from "./ours.ts";
import { steps } from "./plan.ts";
import { measureOf, type Result, resultOf, type Target } from "./result.ts";
import type { Setting } from "./rounds.ts";

/** Sent to a process, which replies that it is ready; "go" then starts it, and it replies with its number of commits. */
interface Order {
  readonly place: Place;
  readonly name: string;
  readonly ms: number;
  /** All callers of all processes write to one record. */
  readonly isHot: boolean;
}

const COUNTS = [1, 2, 4];
const ROUNDS = 3;

export interface Processes {
  /** The results are this with 1, 2, … */
  readonly id: string;
  /** After the number of processes. */
  readonly title: string;
  readonly isHot: boolean;
  readonly target: Target | null;
}

export function processes(spec: Processes): Case {
  return { id: spec.id, title: `two and four ${spec.title}`, run: (setting) => measure(setting, spec) };
}

async function measure(setting: Setting, { id, title, isHot, target }: Processes): Promise<readonly Result[]> {
  const ms = setting.quick ? 150 : 1500;
  const rates = COUNTS.map((): number[] => []);
  const shares = COUNTS.map((): number[] => []);
  for (let round = 0; round < (setting.quick ? 1 : setting.rounds(ROUNDS)); round++)
    for (const [index, count] of COUNTS.entries()) {
      const made = await together(setting.ground, count, { ms, isHot });
      rates[index]?.push((made.reduce((sum, one) => sum + one, 0) / ms) * 1000);
      shares[index]?.push(Math.min(...made) / Math.max(...made));
    }
  const [alone, ...more] = COUNTS.map((count, index) =>
    measureOf(count === 1 ? "one process" : `${count} processes together`, rates[index] ?? []),
  );
  if (alone === undefined) throw new Error("nothing was measured");
  return more.map((measure, index) =>
    resultOf({
      id: `${id}${index + 1}`,
      title: `${COUNTS[index + 1]} ${title}`,
      unit: "commits/s",
      base: alone,
      ours: measure,
      target,
      details: { "the least share, of the largest": Math.min(...(shares[index + 1] ?? [])) },
    }),
  );
}

/** The number of commits of each process in this time. */
async function together(ground: Ground, count: number, order: Pick<Order, "ms" | "isHot">): Promise<readonly number[]> {
  const place = await ground.fresh();
  const children = Array.from({ length: count }, () =>
    fork(fileURLToPath(import.meta.url), { execArgv: process.execArgv }),
  );
  try {
    await Promise.all(
      children.map((child, index) => {
        child.send({ ...order, place, name: `process-${index}` } satisfies Order);
        return answerOf(child);
      }),
    );
    for (const child of children) child.send("go");
    return await Promise.all(children.map(answerOf));
  } finally {
    await Promise.all(children.map(end));
    await ground.remove(place);
  }
}

function answerOf(child: ChildProcess): Promise<number> {
  return new Promise((resolve, reject) => {
    const onExit = (code: number | null) => reject(new Error(`a writing process ended with ${code}`));
    child.once("exit", onExit);
    child.once("message", (answer: number) => {
      child.off("exit", onExit);
      resolve(answer);
    });
  });
}

async function end(child: ChildProcess): Promise<void> {
  if (child.exitCode !== null || child.signalCode !== null) return;
  if (child.connected) child.disconnect();
  await once(child, "exit");
}

// --------------------------------------------------------------------------------------------- in the other processes

async function work({ place, name, ms, isHot }: Order): Promise<void> {
  const { kernel } = await openOurs(place);
  const { callers, values, commitsPerRecord } = steps({ callers: 100, turns: 0 });
  let made = 0;
  let untilMs = 0;
  const call = async (caller: number): Promise<void> => {
    for (let turn = 0; performance.now() < untilMs; turn++) {
      const own = `${name}-${untilMs}-${Math.floor(turn / commitsPerRecord)}-${caller}`;
      const at = address("run", isHot ? "hot" : own);
      const value = values[turn % commitsPerRecord];
      await kernel.transact(
        (tx) => {
          const record = tx.record(at);
          record.write({ value });
          record.append("step", value);
        },
        [at],
      );
      made += 1;
    }
  };
  const goOn = async (forMs: number): Promise<number> => {
    made = 0;
    untilMs = performance.now() + forMs;
    await Promise.all(Array.from({ length: callers }, (_, caller) => call(caller)));
    return made;
  };
  await goOn(ms / 3);
  const go = once(process, "message");
  process.send?.(0);
  await go;
  process.send?.(await goOn(ms));
  await kernel.close();
}

if (import.meta.main) {
  process.once("message", (order: Order) => void work(order));
  // The parent has its result, or is gone.
  process.once("disconnect", () => process.exit());
}
