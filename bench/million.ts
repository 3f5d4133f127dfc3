/**
 * A million records that come due, made through the kernel: does claiming stay as fast, and memory as small?
 *
 * Method: a process of its own makes the records with 500 callers, three of four due. One kind comes due in the order in which
 * its records were made, as most work does; the other in random order, so that each claimed record is on a page of its own, most
 * of them cold. When a hundredth and when a tenth of the whole are there, and at the end, it claims 100 due ones of each kind and
 * lets them rest until tomorrow, several times. Then it creates many due records of a kind that is not claimed, and claims once
 * more. While records are made it samples the heap after a collection of garbage.
 */

import { fork } from "node:child_process";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { claimDue } from "../src/kernel/claim/claim.ts";
import { address } from "../src/kernel/contract.ts";
import { removeDatabase } from "./ground.ts";
import { openOurs } from "./ours.ts";
import { orderedKey } from "./plan.ts";
import { type Measure, measureOf, median, type Result, resultOf } from "./result.ts";
import type { Setting } from "./rounds.ts";
import { heapMiB } from "./usage.ts";

interface Order {
  readonly path: string;
  readonly recordCount: number;
  /** Claiming is timed when this many records exist. */
  readonly stages: readonly number[];
  readonly foreignCount: number;
  readonly claims: number;
  /** Claims before those that are timed. */
  readonly warmUps: number;
  /** How often the heap is looked at while the records are made; a divisor of their number. */
  readonly samples: number;
}

interface ClaimTimes {
  readonly claimMs: readonly number[];
  readonly restMs: readonly number[];
}

/** Records of these kinds are made in turns, and claimed apart. */
const KINDS = ["in order", "scattered"] as const;
type Kind = (typeof KINDS)[number];

interface Answer {
  readonly stages: readonly Readonly<Record<Kind, ClaimTimes>>[];
  readonly beside: ClaimTimes;
  readonly heapMiB: readonly number[];
  readonly rssMiB: readonly number[];
  readonly madePerSecond: readonly number[];
}

const CALLERS = 500;
const CLAIMED_AT_ONCE = 100;
const DAY_MS = 24 * 60 * 60 * 1000;
/** What counts as flat: noise and colder caches, but nothing that grows with the number of records. */
const FLAT = 1.5;
const FLAT_MEMORY = 1.25;

export async function million(setting: Setting): Promise<readonly Result[]> {
  const path = join(setting.folder, "million.db");
  const order: Order = setting.quick
    ? {
        path,
        recordCount: 20_000,
        stages: [4_000, 10_000, 20_000],
        foreignCount: 4_000,
        claims: 4,
        warmUps: 5,
        samples: 20,
      }
    : {
        path,
        recordCount: 1_000_000,
        stages: [10_000, 100_000, 1_000_000],
        foreignCount: 200_000,
        claims: 20,
        warmUps: 15,
        samples: 100,
      };
  const answer = await inChild(order);
  removeDatabase(path);
  const ordered = stagesOf(order, answer, "in order");
  const beside = measureOf(`beside ${count(order.foreignCount)} of another kind`, answer.beside.claimMs);
  const tenth = order.samples / 10;
  return [
    resultOf({
      id: "g1",
      title: `claiming 100 of ${count(order.recordCount)}, due in order`,
      unit: "ms",
      base: ordered.few,
      ours: ordered.all,
      target: { is: "at most", ratio: FLAT },
      details: ordered.details,
    }),
    scatteredResult(order, answer),
    resultOf({
      id: "g3",
      title: "claiming beside due records nobody wants",
      unit: "ms",
      base: ordered.all,
      ours: beside,
      target: { is: "at most", ratio: FLAT },
    }),
    resultOf({
      id: "g4",
      title: `memory while ${count(order.recordCount)} are made`,
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

function scatteredResult(order: Order, answer: Answer): Result {
  const { few, all, details } = stagesOf(order, answer, "scattered");
  const title = `claiming 100 of ${count(order.recordCount)}, due in random order`;
  return resultOf({
    id: "g2",
    title,
    unit: "ms",
    base: few,
    ours: all,
    target: { is: "at most", ratio: FLAT },
    details,
  });
}

/** Claiming of a kind at the first and the last stage, and all stages as details. */
function stagesOf(
  order: Order,
  answer: Answer,
  kind: Kind,
): { few: Measure; all: Measure; details: Result["details"] } {
  const claims = order.stages.map((total, index) =>
    measureOf(`among ${count(total)}`, answer.stages[index]?.[kind].claimMs ?? []),
  );
  const rests = order.stages.map((total, index) => ({
    name: `resting 100 among ${count(total)}`,
    median: median(answer.stages[index]?.[kind].restMs ?? []),
  }));
  const [few, all] = [claims[0], claims.at(-1)];
  if (few === undefined || all === undefined) throw new Error("a stage was not measured");
  return { few, all, details: Object.fromEntries([...claims, ...rests].map(({ name, median }) => [name, median])) };
}

function count(total: number): string {
  return total.toLocaleString("en");
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
  const stages: Record<Kind, ClaimTimes>[] = [];
  const heaps: number[] = [];
  const rssMiB: number[] = [];
  const madePerSecond: number[] = [];
  const share = order.recordCount / order.samples;
  for (let made = 0; made < order.recordCount; ) {
    const stage = order.stages[stages.length] ?? order.recordCount;
    const upTo = Math.min(stage, (Math.floor(made / share) + 1) * share);
    const startedMs = performance.now();
    await make(made, upTo);
    const ms = performance.now() - startedMs;
    made = upTo;
    if (made % share === 0) {
      madePerSecond.push((share / ms) * 1000);
      heaps.push(heapMiB());
      rssMiB.push(process.memoryUsage().rss / 2 ** 20);
    }
    if (made === stage)
      stages.push({ "in order": await claimAndRest("in order"), scattered: await claimAndRest("scattered") });
  }
  await make(order.recordCount, order.recordCount + order.foreignCount, "nobody's");
  const beside = await claimAndRest("in order");
  await kernel.close();
  return { stages, beside, heapMiB: heaps, rssMiB, madePerSecond };

  async function make(from: number, to: number, ofKind?: string): Promise<void> {
    let next = from;
    const call = async (): Promise<void> => {
      while (next < to) {
        const index = next++;
        const at = address("job", orderedKey(index));
        const kind = ofKind ?? (index % 2 === 0 ? KINDS[0] : KINDS[1]);
        const dueInMs = dueIn(index, kind);
        await kernel.transact(
          (tx) => tx.record(at).write({ value: { job: at.key }, kind, dueMs: tx.nowMs + dueInMs }),
          [at],
        );
      }
    };
    await Promise.all(Array.from({ length: CALLERS }, call));
  }

  async function claimAndRest(kind: Kind): Promise<ClaimTimes> {
    const claimMs: number[] = [];
    const restMs: number[] = [];
    for (let turn = 0; turn < order.warmUps + order.claims; turn++) {
      const startedMs = performance.now();
      const claim = { kinds: [kind], by: "bench", leaseMs: 60_000, limit: CLAIMED_AT_ONCE };
      const { held } = await claimDue(kernel, claim);
      const claimedMs = performance.now();
      if (held.length !== CLAIMED_AT_ONCE) throw new Error(`${held.length} records were due`);
      await Promise.all(held.map((one) => one.rest((tx) => tx.nowMs + 2 * DAY_MS)));
      if (turn < order.warmUps) continue;
      claimMs.push(claimedMs - startedMs);
      restMs.push(performance.now() - claimedMs);
    }
    return { claimMs, restMs };
  }
}

/** Three of four are due, some longer than others. */
function dueIn(index: number, kind: string): number {
  if (index % 8 >= 6) return DAY_MS;
  return kind === "scattered" ? -Math.ceil(Math.random() * DAY_MS) : index - DAY_MS;
}

if (import.meta.main) {
  process.once("message", (order: Order) => void answer(order));
  // The parent has its result, or is gone.
  process.once("disconnect", () => process.exit());
}

async function answer(order: Order): Promise<void> {
  const done = await work(order);
  process.send?.(done, () => process.disconnect());
}
