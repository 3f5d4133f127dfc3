/**
 * A million records that come due, made through the kernel: does claiming stay as fast, and memory as small?
 *
 * Method: a process of its own makes the records with 500 callers, half of them due, their times and so their places in
 * the file drawn at random. When a tenth and when a hundredth of the whole are there, and at the end, it claims 100 due ones
 * and lets them rest until tomorrow, several times. Then it makes many due records of a kind that nobody asks for, and claims
 * once more. While records are made it samples the heap after a collection of garbage.
 */

import { fork } from "node:child_process";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { claimDue } from "../src/kernel/claim/claim.ts";
import { address } from "../src/kernel/decision.ts";
import { openOurs } from "./ours.ts";
import { orderedKey } from "./plan.ts";
import { measureOf, median, type Result, resultOf } from "./result.ts";
import { collectGarbage, removeDatabase, type Setting } from "./rounds.ts";

interface Order {
  readonly path: string;
  readonly recordCount: number;
  /** Claiming is timed when so many records are there. */
  readonly stages: readonly number[];
  readonly foreignCount: number;
  readonly claims: number;
  /** How often the heap is looked at while the records are made; a divisor of their number. */
  readonly samples: number;
}

interface ClaimTimes {
  readonly claimMs: readonly number[];
  readonly restMs: readonly number[];
}

interface Answer {
  readonly stages: readonly ClaimTimes[];
  readonly beside: ClaimTimes;
  readonly heapMiB: readonly number[];
  readonly rssMiB: readonly number[];
  readonly madePerSecond: readonly number[];
}

const CALLERS = 500;
const CLAIMED_AT_ONCE = 100;
const WARM_UP_CLAIMS = 5;
const DAY_MS = 24 * 60 * 60 * 1000;
/** What counts as flat: noise and colder caches, but nothing that grows with the number of records. */
const FLAT = 1.5;
const FLAT_MEMORY = 1.25;

export async function million(setting: Setting): Promise<readonly Result[]> {
  const path = join(setting.folder, "million.db");
  const order: Order = setting.quick
    ? { path, recordCount: 20_000, stages: [2_000, 6_000, 20_000], foreignCount: 4_000, claims: 4, samples: 20 }
    : {
        path,
        recordCount: 1_000_000,
        stages: [10_000, 100_000, 1_000_000],
        foreignCount: 200_000,
        claims: 20,
        samples: 100,
      };
  const answer = await inChild(order);
  removeDatabase(path);
  const [few, some, all] = order.stages.map((count, index) => {
    const times = answer.stages[index];
    return measureOf(`among ${count.toLocaleString("en")}`, times?.claimMs ?? []);
  });
  if (few === undefined || some === undefined || all === undefined) throw new Error("a stage was not measured");
  const beside = measureOf(`beside ${order.foreignCount.toLocaleString("en")} of another kind`, answer.beside.claimMs);
  const tenth = order.samples / 10;
  return [
    resultOf({
      id: "g1",
      title: `claiming 100 of ${order.recordCount.toLocaleString("en")} records`,
      unit: "ms",
      base: few,
      ours: all,
      target: { is: "at most", ratio: FLAT },
      details: {
        [few.name]: few.median,
        [some.name]: some.median,
        [all.name]: all.median,
        ...restTimes(order, answer),
      },
    }),
    resultOf({
      id: "g2",
      title: "claiming beside due records nobody wants",
      unit: "ms",
      base: all,
      ours: beside,
      target: { is: "at most", ratio: FLAT },
    }),
    resultOf({
      id: "g3",
      title: `memory while ${order.recordCount.toLocaleString("en")} are made`,
      unit: "MiB",
      base: measureOf("heap, first tenth", answer.heapMiB.slice(0, tenth)),
      ours: measureOf("heap, after it", answer.heapMiB.slice(tenth)),
      target: { is: "at most", ratio: FLAT_MEMORY },
      details: {
        "records made in a second, first tenth": median(answer.madePerSecond.slice(0, tenth)),
        "records made in a second, last tenth": median(answer.madePerSecond.slice(-tenth)),
        "resident MiB, most": Math.max(...answer.rssMiB),
      },
    }),
  ];
}

function restTimes({ stages }: Order, answer: Answer): Record<string, number> {
  return Object.fromEntries(
    stages.map((count, index) => [
      `resting 100 among ${count.toLocaleString("en")}`,
      median(answer.stages[index]?.restMs ?? []),
    ]),
  );
}

function inChild(order: Order): Promise<Answer> {
  return new Promise((resolve, reject) => {
    const child = fork(fileURLToPath(import.meta.url), { execArgv: process.execArgv });
    child.on("message", (answer: Answer) => resolve(answer));
    child.on("error", reject);
    child.on("exit", (code) => reject(new Error(`the process that makes the records ended with ${code}`)));
    child.send(order);
  });
}

// ---------------------------------------------------------------------------------------------- in the other process

async function work(order: Order): Promise<Answer> {
  const { kernel } = await openOurs(order.path);
  const stages: ClaimTimes[] = [];
  const heapMiB: number[] = [];
  const rssMiB: number[] = [];
  const madePerSecond: number[] = [];
  const share = order.recordCount / order.samples;
  for (let made = 0; made < order.recordCount; ) {
    const stage = order.stages[stages.length] ?? order.recordCount;
    const upTo = Math.min(stage, (Math.floor(made / share) + 1) * share);
    const startedMs = performance.now();
    await make(made, upTo, "job");
    const ms = performance.now() - startedMs;
    made = upTo;
    if (made % share === 0) {
      madePerSecond.push((share / ms) * 1000);
      collectGarbage();
      const { heapUsed, rss } = process.memoryUsage();
      heapMiB.push(heapUsed / 2 ** 20);
      rssMiB.push(rss / 2 ** 20);
    }
    if (made === stage) stages.push(await claimAndRest());
  }
  await make(order.recordCount, order.recordCount + order.foreignCount, "nobody's");
  const beside = await claimAndRest();
  await kernel.close();
  return { stages, beside, heapMiB, rssMiB, madePerSecond };

  async function make(from: number, to: number, kind: string): Promise<void> {
    let next = from;
    const call = async (): Promise<void> => {
      while (next < to) {
        const at = address("job", orderedKey(next++));
        const dueInMs = (kind === "job" ? Math.random() * 2 - 1 : -1) * DAY_MS;
        await kernel.transact(
          (tx) => tx.record(at).write({ value: { job: at.key }, kind, dueMs: Math.floor(tx.nowMs + dueInMs) }),
          [at],
        );
      }
    };
    await Promise.all(Array.from({ length: CALLERS }, call));
  }

  async function claimAndRest(): Promise<ClaimTimes> {
    const claimMs: number[] = [];
    const restMs: number[] = [];
    for (let turn = 0; turn < WARM_UP_CLAIMS + order.claims; turn++) {
      const startedMs = performance.now();
      const claim = { kinds: ["job"], by: "bench", leaseMs: 60_000, limit: CLAIMED_AT_ONCE };
      const { held } = await claimDue(kernel, claim);
      const claimedMs = performance.now();
      if (held.length !== CLAIMED_AT_ONCE) throw new Error(`${held.length} records were due`);
      await Promise.all(held.map((one) => one.rest((tx) => tx.nowMs + 2 * DAY_MS)));
      if (turn < WARM_UP_CLAIMS) continue;
      claimMs.push(claimedMs - startedMs);
      restMs.push(performance.now() - claimedMs);
    }
    return { claimMs, restMs };
  }
}

if (import.meta.main) {
  process.once("message", (order: Order) => void answer(order));
  // Whoever started this process has what it wanted, or is gone.
  process.once("disconnect", () => process.exit());
}

async function answer(order: Order): Promise<void> {
  const done = await work(order);
  process.send?.(done, () => process.disconnect());
}
