/**
 * Trips: runs whose history may lose its last facts, worked on by all workers.
 *
 * A trip has steps one after another and beside each other, naps so that another worker may take it up, waits a while for a signal, adds to a slot of its own and
 * calls a child. Each effect is a line in the ledger and gives a value that nothing else gives.
 *
 * Checked, where the store may lose commits: every run that is there has completed; its history has no gap, and the code replays it to the same
 * result, of values that happened; none was ever parked; a start that was acknowledged outside of the times in which commits were lost has
 * its run, and a result its value; a step that was recorded began again only if its record can be among what was lost (G14, G23, G25, G31).
 */

import {
  type Context,
  FencedError,
  PawlError,
  StoreError,
  signal,
  type Workflow,
  workflow,
} from "../../../src/index.ts";
import type { Pawl } from "../../../src/pawl.ts";
import { replayHistory, saveHistory } from "../../../src/testing/index.ts";
import { parseFact, type RunStatus } from "../../../src/workflow/stored.ts";
import type { Bench } from "../bench.ts";
import type { Operation } from "../ledger.ts";
import { LEASE_MS } from "./claims.ts";
import { entriesOf } from "./deposits.ts";
import { type Evidence, type Losses, overlaps, type Span, type Work } from "./work.ts";

const NAME = "trips";
const CLIENTS = 4;
const MAX_PAUSE_MS = 150;
const CONCURRENCY = 12;
/** Three leases, the slow poll that makes up for a lost wake-up, and the time to do what is left. */
const HEALS_WITHIN_MS = 3 * LEASE_MS + 5_000 + 10_000;
/** So long after commits were lost, code may still begin what it had decided on before it heard. */
const HEARS_WITHIN_NS = 2e9;
const OPEN: readonly RunStatus[] = ["pending", "running", "waiting"];
const IN_VAIN = /^(run_not_found|result_timeout|run_ended)$/;

const go = signal<string>("go");

export interface Trip {
  readonly steps: number;
  readonly napMs: number;
}

type Wish =
  | { readonly verb: "start"; readonly run: string; readonly trip: Trip }
  | { readonly verb: "signal"; readonly run: string }
  | { readonly verb: "result"; readonly run: string };

/** An effect begins, of a code that has these values in hand. */
interface Begun {
  readonly run: string;
  readonly step: string;
  readonly saw: Readonly<Record<string, string>>;
}

interface Done {
  readonly run: string;
  readonly step: string;
  readonly value: string;
}

export const trips: Work = {
  name: NAME,
  healsWithinMs: HEALS_WITHIN_MS,
  left: { count: async (pawl) => (await pawl.runs.list({ status: OPEN, limit: 1000 })).runs.length, eachMs: 100 },

  async act(bench) {
    const made = workflows((begun) => effect(bench, begun));
    await Promise.all([work(bench, made), ...Array.from({ length: CLIENTS }, () => client(bench, made))]);
  },

  again({ input }) {
    const wish = input as Wish;
    return wish.verb === "start" ? { id: wish.run, task: wish } : null;
  },

  isCommit: ({ answer, input }) => answer === "yes" && (input as Wish).verb !== "result",

  async isHealed(pawl) {
    return (await pawl.runs.list({ status: OPEN, limit: 1 })).runs.length === 0;
  },

  async judge(pawl, evidence) {
    const unknown = evidence.operations.filter(
      ({ answer, input }) => answer === "unknown" && (input as Wish).verb !== "result",
    );
    return { ...checkTrips(evidence, await look(pawl)), unknown: unknown.length, happened: null };
  },
};

// ------------------------------------------------------------------------------------------------- what is worked on

interface Workflows {
  readonly trip: Workflow<Trip, unknown>;
  readonly leg: Workflow<undefined, unknown>;
}

function workflows(act: (begun: Begun) => Promise<string>): Workflows {
  const step = (ctx: Context, name: string, saw: Begun["saw"]) =>
    ctx.step(name, () => act({ run: ctx.runId, step: name, saw: { ...saw } }));

  const leg = workflow("leg", async (ctx: Context) => {
    const saw: Record<string, string> = {};
    saw["a"] = await step(ctx, "a", saw);
    saw["b"] = await step(ctx, "b", saw);
    return saw;
  });

  const trip = workflow("trip", async (ctx: Context, { steps, napMs }: Trip) => {
    const saw: Record<string, string> = {};
    for (let i = 0; i < steps; i++) saw[`s${i}`] = await step(ctx, `s${i}`, saw);
    await ctx.sleep(napMs);
    const [left, right] = await Promise.all([step(ctx, "left", saw), step(ctx, "right", saw), ctx.sleep(napMs)]);
    Object.assign(saw, { left, right });
    const heard = await ctx.waitForSignal(go, { timeout: 300 });
    await ctx.slot<number>("miles", { initial: 0 }).update((miles) => miles + 1);
    const child = await ctx.call(leg);
    saw["last"] = await step(ctx, "last", saw);
    return { saw, heard: heard.ok ? heard.value : null, child };
  });
  return { trip, leg };
}

async function effect(bench: Bench, begun: Begun): Promise<string> {
  const { random } = bench;
  const { run, step } = begun;
  bench.note(NAME, "begun", begun);
  if (random.chance(0.5)) await bench.sleep(random.unit() * 60);
  const value = bench.mark();
  bench.note(NAME, "done", { run, step, value } satisfies Done);
  return value;
}

async function work(bench: Bench, { trip, leg }: Workflows): Promise<void> {
  const { pawl, random } = bench;
  const worker = pawl.work([trip, leg], {
    lease: LEASE_MS,
    concurrency: CONCURRENCY,
    warm: random.chance(0.2) ? 0 : 100,
    on: ({ type, run, error, message }) => {
      if (type === "run.parked") bench.note(NAME, "parked", { run, reason: message });
      else if (type === "run.lost") bench.note(NAME, "lost", { run, error: String(error) });
      else if (type === "run.trouble" && error instanceof FencedError) bench.note(NAME, "begins again", { run });
      else if (type === "run.trouble" && !(error instanceof StoreError))
        bench.note(NAME, "trouble", { run, error: String(error) });
    },
  });
  while (!bench.isOver) await bench.sleep(50);
  await worker.stop();
}

// ------------------------------------------------------------------------------------------------- clients

async function client(bench: Bench, { trip }: Workflows): Promise<void> {
  const { random } = bench;
  while (!bench.isOver) {
    const task = bench.take(NAME) as (Wish & { verb: "start" }) | undefined;
    if (task === undefined && bench.isHealing) {
      await bench.sleep(20);
      continue;
    }
    const start = task ?? {
      verb: "start" as const,
      run: bench.mark(),
      trip: { steps: 1 + random.below(5), napMs: random.below(300) },
    };
    const { run } = start;
    const handle = bench.pawl.run(trip, run);
    const started = await bench.attempt(NAME, start, async () => {
      await bench.pawl.start(trip, start.trip, { id: run });
      return {};
    });
    if (started.is === "yes") {
      await bench.sleep(random.unit() * MAX_PAUSE_MS);
      await bench.attempt(NAME, { verb: "signal", run } satisfies Wish, () => {
        return patient(() => handle.signal(go, `to ${run}`, { id: "one" }));
      });
      if (random.chance(0.7))
        await bench.attempt(NAME, { verb: "result", run } satisfies Wish, () =>
          patient(async () => ({ value: await handle.result({ timeout: 1_500 }) })),
        );
    }
    await bench.sleep(random.unit() * MAX_PAUSE_MS);
  }
}

/** What is no fault of anybody's, where runs and their ends may be lost, is an answer too. */
async function patient(act: () => Promise<unknown>): Promise<unknown> {
  try {
    return await act();
  } catch (error) {
    if (error instanceof PawlError && IN_VAIN.test(error.code)) return { refused: error.code };
    throw error;
  }
}

// ------------------------------------------------------------------------------------------------- the judgement

export interface TripState {
  readonly workflow: string;
  readonly status: string;
  readonly parkedReason: string | null;
  readonly result: unknown;
  readonly facts: readonly { readonly version: number; readonly name: string; readonly data: unknown }[];
  /** The outcome of a replay of its history: the result, or what was contradicted. */
  readonly replayed: { readonly value: unknown } | { readonly wrong: string };
}

export type TripsState = ReadonlyMap<string, TripState>;

async function look(pawl: Pawl): Promise<TripsState> {
  const found = new Map<string, TripState>();
  const made = workflows(() => Promise.reject(new Error("nothing is done at replay")));
  for (let after: string | null = null; ; ) {
    const page = await pawl.runs.list({ after, limit: 500, order: "id" });
    for (const { id, workflow: name, status, parkedReason = null } of page.runs) {
      const facts = await entriesOf(pawl.kernel, { space: "run", key: id, text: `run\n${id}` });
      const result = status === "completed" ? await pawl.run(name, id).result() : null;
      found.set(id, {
        workflow: name,
        status,
        parkedReason,
        result,
        facts,
        replayed: await replayed(pawl, name === "trip" ? made.trip : made.leg, id),
      });
    }
    if (page.next === null) return found;
    after = page.next;
  }
}

async function replayed(pawl: Pawl, code: Workflow<never, unknown>, id: string): Promise<TripState["replayed"]> {
  const got = await replayHistory(code, await saveHistory(pawl, id));
  if (!got.ok) return { wrong: got.contradiction.message };
  return got.status === "completed" ? { value: got.value } : { wrong: `it is ${got.status}` };
}

/** Holds what workers and clients said against the runs as they are in the end. */
export function checkTrips(evidence: Evidence, state: TripsState): Losses {
  const { operations, notes, doubts } = evidence;
  const lost = new Set<string>();
  const wrong = [...state].flatMap(([run, trip]) => checkTrip(run, trip));
  for (const { what, life, data } of notes)
    if (what === "parked" || what === "trouble") wrong.push(`${life} ${what}: ${JSON.stringify(data)}`);
  const isSafe = ({ startedAt, endedAt }: Operation) => !overlaps(doubts, startedAt, endedAt ?? startedAt);
  const started = new Set<string>();
  for (const operation of operations) {
    const { input, answer, output, life } = operation;
    const wish = input as Wish;
    if (wish.verb === "start") started.add(wish.run);
    if (answer !== "yes") continue;
    const trip = state.get(wish.run);
    if (wish.verb === "start" && trip === undefined) {
      if (isSafe(operation)) wrong.push(`${life} was told that ${wish.run} is started, and it is not there`);
      else lost.add(wish.run);
    }
    if (wish.verb !== "result" || !("value" in (output as object))) continue;
    const { value } = output as { value: unknown };
    if (isSafe(operation) && textOf(value) !== textOf(trip?.result))
      wrong.push(`${life} was told that ${wish.run} gave ${textOf(value)}, and it gave ${textOf(trip?.result)}`);
  }
  for (const [run, { workflow: name }] of state)
    if (name === "trip" && !started.has(run)) wrong.push(`${run} exists, and no client started it`);
  const happened = new Set(
    notes.filter(({ what }) => what === "done").map(({ data }) => Object.values(data as Done).join(" ")),
  );
  for (const [run, { facts }] of state)
    for (const { name, data } of facts) {
      const { word, id } = parseFact(name);
      const value = word === "step" ? (data as { ok?: string }).ok : undefined;
      if (word === "step" && !happened.has([run, id, value].join(" ")))
        wrong.push(`"${id}" of ${run} is recorded as ${value}, which never happened`);
    }
  wrong.push(...checkRepeats(evidence, doubts));
  return { wrong, lost: lost.size };
}

function checkTrip(
  run: string,
  { workflow: name, status, parkedReason, result, facts, replayed: again }: TripState,
): string[] {
  const wrong: string[] = [];
  const told = () => facts.map((fact) => `"${fact.name}"`).join(", ");
  if (status !== "completed") wrong.push(`${name} ${run} is ${status} (${parkedReason ?? ""}) after ${told()}`);
  for (const [i, { version }] of facts.entries())
    if (version !== i + 1) wrong.push(`the history of ${run} has fact ${version} where ${i + 1} belongs`);
  if ("wrong" in again) wrong.push(`at replay of ${told()}: ${again.wrong}`);
  else if (status === "completed" && textOf(again.value) !== textOf(result))
    wrong.push(`${run} gave ${textOf(result)}, and at replay it gives ${textOf(again.value)}`);
  return wrong;
}

/** Whose outcome was in somebody's hand is not begun again, unless that was while commits were lost. */
function checkRepeats({ notes }: Evidence, doubts: readonly Span[]): string[] {
  const wrong: string[] = [];
  const knownAt = new Map<string, number[]>();
  for (const { what, data, at, life } of notes) {
    if (what !== "begun") continue;
    const { run, step, saw } = data as Begun;
    for (const before of Object.keys(saw)) {
      const times = knownAt.get(`${run} ${before}`) ?? [];
      knownAt.set(`${run} ${before}`, times);
      times.push(at);
    }
    const mayBeLost = (known: number) =>
      doubts.some(({ from, to }) => from <= known && known <= to + HEARS_WITHIN_NS && from < at);
    for (const known of knownAt.get(`${run} ${step}`) ?? [])
      if (known < at && !mayBeLost(known))
        wrong.push(
          `${life} began "${step}" of ${run} ${((at - known) / 1e6).toFixed(0)} ms after its outcome was known`,
        );
  }
  return wrong;
}

/** The same for equal values, whatever the order of their keys. */
const textOf = (value: unknown): string =>
  JSON.stringify(value, (_, part: unknown) =>
    typeof part === "object" && part !== null && !Array.isArray(part)
      ? Object.fromEntries(Object.entries(part).sort(([a], [b]) => (a < b ? -1 : 1)))
      : part,
  ) ?? "nothing";
