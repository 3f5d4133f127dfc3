/**
 * Limits: runs under concurrency limits, some of which fail, are canceled or expire, and starts that are collected into batches.
 *
 * A run passes two limits, one of its tenant and one for all, enters (a step that is a line in the ledger), sleeps, and leaves (another one). What a
 * step returns is unique, so that the history says which line counts. When the line that was recorded for its entrance was written, the run was admitted
 * already, and when the one for its departure was written, it had not ended. So the times between them are parts of the times in which it held
 * its places, also where processes were stopped past their leases and woke up again: without any allowance, at no moment may there be more than the
 * limits say.
 *
 * Clients choose ids, and repeat starts and cancellations that were not acknowledged under the same ids. Starts are with the definition or by its name.
 *
 * Checked: never more than the limits say (G30), by the ledger and by what workers see in the records of the limits all the while; an acknowledged start
 * has its run, which ends (G1, G25); nothing is left behind that holds a place or waits (G30); each input of a batch is in exactly one run, which is the
 * one that its caller was told (G2).
 */

import { type Context, PawlError, StoreError, type Workflow, workflow } from "../../../src/index.ts";
import type { Pawl } from "../../../src/pawl.ts";
import { type LimitValue, limitAt, type PlaceRef } from "../../../src/workflow/flow/stored.ts";
import { ENDED, type RunValue, runAt } from "../../../src/workflow/stored.ts";
import { wrongPlaces } from "../../flow/checker.ts";
import type { Bench } from "../bench.ts";
import type { Note } from "../ledger.ts";
import { LEASE_MS } from "./claims.ts";
import { hasRoom, OPEN } from "./room.ts";
import type { Evidence, Work } from "./work.ts";

const NAME = "limits";
const CLIENTS = 3;
const TENANTS = ["t0", "t1", "t2"];
export const TENANT_MAX = 2;
export const ALL_MAX = 4;
const MOST_OPEN = 60;
const MAX_PAUSE_MS = 80;
const HEALS_WITHIN_MS = 3 * LEASE_MS + 5_000 + 8_000;
/** So many workers die here that a run may be claimed often before it gets further; it is no poison. */
const TRIES = 1000;
const RETRY = { attempts: 1000, delay: 10, maxDelay: 300 } as const;

interface Job {
  readonly tenant: string;
  readonly napMs: number;
  readonly fails: boolean;
}

export type Wish =
  | {
      readonly verb: "start";
      readonly run: string;
      readonly job: Job;
      readonly byName: boolean;
      readonly ttlMs: number | null;
    }
  | { readonly verb: "cancel"; readonly run: string }
  | { readonly verb: "collect"; readonly item: string };

/** A line in the ledger: a run enters or leaves, and the value that its step returns. */
export interface Passage {
  readonly run: string;
  readonly value: string;
}

export const limits: Work = {
  name: NAME,
  healsWithinMs: HEALS_WITHIN_MS,
  left: { count: async (pawl) => (await openRuns(pawl, 1000)).length, eachMs: 300 },

  async act(bench) {
    const made = workflows(bench);
    const clients = Array.from({ length: CLIENTS }, () => client(bench, made));
    await Promise.all([work(bench, made), ...clients, watch(bench)]);
  },

  again({ input }) {
    const wish = input as Wish;
    return { id: `${wish.verb} ${wish.verb === "collect" ? wish.item : wish.run}`, task: wish };
  },

  isCommit: ({ answer }) => answer === "yes",

  isHealed: async (pawl) => (await openRuns(pawl, 1)).length === 0,

  async judge(pawl, evidence) {
    const unknown = evidence.operations.filter(({ answer }) => answer === "unknown").length;
    const wrong = [...checkLimits(evidence, await look(pawl)), ...(await wrongPlaces(pawl.kernel))];
    if (!evidence.notes.some(({ what }) => what === "limit"))
      wrong.push("no worker has seen the records of the limits");
    return { wrong, unknown, happened: null };
  },
};

const STATUSES = [...OPEN, "queued"] as const;

async function openRuns(pawl: Pawl, limit: number) {
  const found = [];
  for (const workflow of ["narrow", "gather"])
    found.push(...(await pawl.runs.list({ workflow, status: STATUSES, limit })).runs);
  return found;
}

// ------------------------------------------------------------------------------------------------- what is worked on

interface Workflows {
  readonly narrow: Workflow<Job, string>;
  readonly gather: Workflow<string, readonly string[]>;
}

function workflows(bench: Bench): Workflows {
  const pass = (ctx: Context, what: "entered" | "left") =>
    ctx.step(
      what,
      async () => {
        const value = bench.mark();
        bench.note(NAME, what, { run: ctx.runId, value } satisfies Passage);
        if (bench.random.chance(0.3)) await bench.sleep(bench.random.unit() * 20);
        return value;
      },
      { retry: RETRY },
    );
  const narrow = workflow<Job, string>(
    {
      name: "narrow",
      tries: TRIES,
      concurrency: [{ name: "tenant", max: TENANT_MAX, key: ({ tenant }) => tenant }, { max: ALL_MAX }],
    },
    async (ctx, { napMs, fails }) => {
      try {
        await pass(ctx, "entered");
        await ctx.sleep(napMs);
        if (fails) throw new Error("as it was told to");
      } finally {
        await pass(ctx, "left");
      }
      return ctx.runId;
    },
  );
  const gather = workflow<string, readonly string[]>(
    { name: "gather", tries: TRIES, batch: { size: 4, maxWait: 300 } },
    async (_ctx, items) => items,
  );
  return { narrow, gather };
}

/** Takes part in the work; now and then it stops in good order, and another begins. */
async function work(bench: Bench, { narrow, gather }: Workflows): Promise<void> {
  const { pawl, random } = bench;
  while (!bench.isOver) {
    const worker = pawl.work([narrow, gather], {
      lease: LEASE_MS,
      concurrency: 10,
      on: ({ type, run, error, message }) => {
        if (type === "run.parked") bench.note(NAME, "parked", { run, reason: message });
        else if (type === "run.trouble" && !(error instanceof StoreError))
          bench.note(NAME, "trouble", { run, error: String(error) });
      },
    });
    const turns = 20 + random.below(200);
    for (let turn = 0; !bench.isOver && (turn < turns || bench.isHealing); turn++) await bench.sleep(50);
    await worker.stop(random.chance(0.5) ? { timeout: 100 } : undefined);
  }
}

/** Looks at the records of the limits, each of which is right at every moment. */
async function watch(bench: Bench): Promise<void> {
  const refs: readonly PlaceRef[] = [
    ["workflow:narrow"],
    ...TENANTS.map((tenant): PlaceRef => ["shared:tenant", tenant]),
  ];
  while (!bench.isOver) {
    await bench.sleep(20 + bench.random.unit() * 200);
    try {
      const { kernel } = bench.pawl;
      const rows = await kernel.read(refs.map(limitAt));
      for (const row of rows) {
        if (row?.value == null) continue;
        const { held } = kernel.decode(row, row.value) as LimitValue;
        bench.note(NAME, "limit", { limit: row.key, held, of: row.space === "limit" ? ALL_MAX : TENANT_MAX });
      }
    } catch (error) {
      if (!(error instanceof PawlError)) bench.accident(NAME, error);
    }
  }
}

// ------------------------------------------------------------------------------------------------- clients

async function client(bench: Bench, made: Workflows): Promise<void> {
  const { random } = bench;
  const room = hasRoom(bench, "narrow", MOST_OPEN, STATUSES);
  while (!bench.isOver) {
    const task = bench.take(NAME) as Wish | undefined;
    if (task === undefined && (bench.isHealing || !(await room()))) {
      await bench.sleep(20);
      continue;
    }
    const wish = task ?? draw(bench);
    const answer = await bench.attempt(NAME, wish, () => act(bench.pawl, wish, made));
    if (answer.is === "yes" && wish.verb === "start" && random.chance(0.15)) {
      await bench.sleep(random.unit() * 300);
      const cancel: Wish = { verb: "cancel", run: wish.run };
      await bench.attempt(NAME, cancel, () => act(bench.pawl, cancel, made));
    }
    await bench.sleep(random.unit() * MAX_PAUSE_MS);
  }
}

function draw(bench: Bench): Wish {
  const { random } = bench;
  if (random.chance(0.3)) return { verb: "collect", item: bench.mark() };
  const job = { tenant: random.pick(TENANTS), napMs: random.below(100), fails: random.chance(0.1) };
  const ttlMs = random.chance(0.1) ? 200 + random.below(2_000) : null;
  return { verb: "start", run: `narrow ${bench.mark()}`, job, byName: random.chance(0.3), ttlMs };
}

async function act(pawl: Pawl, wish: Wish, { narrow, gather }: Workflows): Promise<{ readonly run: string }> {
  if (wish.verb === "collect") return { run: (await pawl.start(gather, wish.item, { id: wish.item })).id };
  if (wish.verb === "cancel") {
    await pawl.run("narrow", wish.run).cancel();
    return { run: wish.run };
  }
  const options = { id: wish.run, ...(wish.ttlMs === null ? {} : { ttl: wish.ttlMs }) };
  if (wish.byName) await pawl.start("narrow", wish.job, options);
  else await pawl.start(narrow, wish.job, options);
  return { run: wish.run };
}

// ------------------------------------------------------------------------------------------------- afterwards

/** A run of "narrow" as it is in the end: its status, and the values that its history has of its steps. */
export interface NarrowRun {
  readonly status: string;
  readonly tenant: string;
  readonly entered: string | null;
  readonly left: string | null;
  /** Where it is, if it has not ended. */
  readonly row?: string;
}

export interface LimitsState {
  readonly runs: ReadonlyMap<string, NarrowRun>;
  /** The inputs of each batch. */
  readonly batches: ReadonlyMap<string, readonly string[]>;
}

async function look(pawl: Pawl): Promise<LimitsState> {
  const runs = new Map<string, NarrowRun>();
  const batches = new Map<string, readonly string[]>();
  for (const workflow of ["narrow", "gather"])
    for (let after: string | null | undefined; after !== null; ) {
      const page = await pawl.runs.list({ workflow, limit: 500, after });
      for (const { id, status } of page.runs) {
        const history = await pawl.run(workflow, id).history();
        const first = history.find(({ name }) => name === "started")?.data as { input: unknown } | undefined;
        const valueIn = (name: string) =>
          (history.find((fact) => fact.name === name)?.data as { ok?: string } | undefined)?.ok ?? null;
        if (workflow === "gather") batches.set(id, (first?.input ?? []) as readonly string[]);
        else {
          const { tenant = "" } = (first?.input ?? {}) as Partial<Job>;
          const row = ENDED.has(status) ? {} : { row: await rowOf(pawl, id) };
          runs.set(id, { status, tenant, entered: valueIn("step entered"), left: valueIn("step left"), ...row });
        }
      }
      after = page.next;
    }
  return { runs, batches };
}

/** What is stored of a run that should have ended, for those who want to know why. */
async function rowOf(pawl: Pawl, id: string): Promise<string> {
  const nowMs = await pawl.kernel.transact((tx) => tx.nowMs, []);
  const [row] = await pawl.kernel.read([runAt(id)]);
  if (row?.value == null) return "";
  const { gate, trouble } = pawl.kernel.decode(row, row.value) as RunValue;
  const dueInMs = row.dueMs === null ? null : row.dueMs - nowMs;
  return JSON.stringify({ kind: row.kind, dueInMs, holder: row.holder, tries: row.tries, gate, trouble });
}

export function checkLimits({ operations, notes }: Evidence, { runs, batches }: LimitsState): string[] {
  const wrong: string[] = [];
  for (const { input, answer, output } of operations) {
    if (answer !== "yes") continue;
    const wish = input as Wish;
    if (wish.verb === "start" && !runs.has(wish.run)) wrong.push(`${wish.run} was acknowledged and is not there`);
    if (wish.verb !== "collect") continue;
    const { run } = output as { readonly run: string };
    const count = batches.get(run)?.filter((item) => item === wish.item).length ?? 0;
    if (count !== 1) wrong.push(`${wish.item} is ${count} times in ${run}, which its caller was told`);
  }
  const items = [...batches.values()].flat();
  if (new Set(items).size !== items.length) wrong.push("an input is in two batches");
  for (const [id, { status, row }] of runs)
    if (!ENDED.has(status)) wrong.push(`${id} is ${status} in the end${row === undefined ? "" : `: ${row}`}`);
  for (const { what, data } of notes) {
    if (what !== "limit") continue;
    const { limit, held, of } = data as { limit: string; held: number; of: number };
    if (held > of) wrong.push(`limit ${limit} had ${held} of ${of}`);
  }
  return [...wrong, ...checkIntervals(notes, runs)];
}

/** Between the lines that count, each run held its places. */
function checkIntervals(notes: readonly Note[], runs: LimitsState["runs"]): string[] {
  const wrong: string[] = [];
  const times = new Map<string, number>();
  for (const { what, at, data } of notes)
    if (what === "entered" || what === "left") times.set((data as Passage).value, at);
  const moments: { readonly at: number; readonly step: 1 | -1; readonly run: string; readonly tenant: string }[] = [];
  for (const [run, { tenant, entered, left }] of runs) {
    if (entered === null || left === null) continue;
    const [from, to] = [times.get(entered), times.get(left)];
    if (from === undefined || to === undefined || from > to) {
      wrong.push(`the ledger does not have when ${run} entered and left, or not in this order`);
      continue;
    }
    moments.push({ at: from, step: 1, run, tenant }, { at: to, step: -1, run, tenant });
  }
  const held = new Map<string, number>();
  for (const { at, step, run, tenant } of moments.toSorted((a, b) => a.at - b.at || a.step - b.step))
    for (const [limit, max] of [
      ["all", ALL_MAX],
      [tenant, TENANT_MAX],
    ] as const) {
      const count = (held.get(limit) ?? 0) + step;
      held.set(limit, count);
      if (count > max) wrong.push(`when ${run} entered at ${at}, ${count} of ${max} were under limit ${limit}`);
    }
  return wrong;
}
