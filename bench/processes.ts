/**
 * Several processes that write to one file at once: what they do together, beside what one does alone.
 *
 * SQLite lets one of them write at a time, so more processes cannot be faster than one; this shows what taking turns costs.
 * Each process has 100 callers and records of its own, and all are let go at the same moment.
 */

import { type ChildProcess, fork } from "node:child_process";
import { once } from "node:events";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { address } from "../src/kernel/contract.ts";
import { openOurs } from "./ours.ts";
import { steps } from "./plan.ts";
import { measureOf, type Result, resultOf } from "./result.ts";
import { removeDatabase, type Setting } from "./rounds.ts";

/** Sent to a process, which answers that it is ready; "go" then starts it, and it answers how many commits it made. */
interface Order {
  readonly path: string;
  readonly name: string;
  readonly ms: number;
}

const COUNTS = [1, 2, 4];
const ROUNDS = 3;

export async function processes(setting: Setting): Promise<readonly Result[]> {
  const ms = setting.quick ? 150 : 1500;
  const rates = COUNTS.map((): number[] => []);
  const shares = COUNTS.map((): number[] => []);
  for (let round = 0; round < (setting.quick ? 1 : setting.rounds(ROUNDS)); round++)
    for (const [index, count] of COUNTS.entries()) {
      const made = await together(join(setting.folder, "shared.db"), count, ms);
      rates[index]?.push((made.reduce((sum, one) => sum + one, 0) / ms) * 1000);
      shares[index]?.push(Math.min(...made) / Math.max(...made));
    }
  const [alone, ...more] = COUNTS.map((count, index) =>
    measureOf(count === 1 ? "one process" : `${count} processes together`, rates[index] ?? []),
  );
  if (alone === undefined) throw new Error("nothing was measured");
  return more.map((measure, index) =>
    resultOf({
      id: `h${index + 1}`,
      title: `${COUNTS[index + 1]} processes on one file`,
      unit: "commits/s",
      base: alone,
      ours: measure,
      target: null,
      details: { "the least share, of the largest": Math.min(...(shares[index + 1] ?? [])) },
    }),
  );
}

/** How many commits each of so many processes made in this time. */
async function together(path: string, count: number, ms: number): Promise<readonly number[]> {
  removeDatabase(path);
  const children = Array.from({ length: count }, () =>
    fork(fileURLToPath(import.meta.url), { execArgv: process.execArgv }),
  );
  try {
    await Promise.all(
      children.map((child, index) => {
        child.send({ path, name: `process-${index}`, ms } satisfies Order);
        return answerOf(child);
      }),
    );
    for (const child of children) child.send("go");
    return await Promise.all(children.map(answerOf));
  } finally {
    await Promise.all(children.map(end));
    removeDatabase(path);
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

async function work({ path, name, ms }: Order): Promise<void> {
  const { kernel } = await openOurs(path);
  const { callers, values, commitsPerRecord } = steps({ callers: 100, turns: 0 });
  let made = 0;
  let untilMs = 0;
  const call = async (caller: number): Promise<void> => {
    for (let turn = 0; performance.now() < untilMs; turn++) {
      const at = address("run", `${name}-${untilMs}-${Math.floor(turn / commitsPerRecord)}-${caller}`);
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
  // Whoever started this process has what it wanted, or is gone.
  process.once("disconnect", () => process.exit());
}
