/**
 * Runs: workflows with every kind of step, worked on by all workers, while clients start, signal, cancel and wait for them.
 *
 * An order charges (a plain step), books (`step.tx`, a row in a table of the user's), sleeps, picks and weighs at once, prints (at
 * most once; some orders can ask whether it happened), hears two signals, calls a child, and files. Each effect is a line in the
 * ledger, which no fault touches, and gives a value that nothing else gives: so it shows everywhere whose value was kept. Each
 * effect also says which values the code had in hand when it began: those were promised to be durable.
 *
 * Clients give runs and signals ids of their own, and ask again under the same id whatever was not acknowledged. Workers stop
 * in good order now and then, and keep code warm or not. What is parked because nobody knows whether it printed stays so until faults
 * are over; then a person looks it up in the ledger and says so.
 *
 * Checked: an acknowledged start has its run (G1, G2); what code had in hand is in the history, and a step that was recorded does not
 * begin again (G14); a row of `step.tx` is there exactly once where its step is recorded, and nowhere else (G14, G29); what runs at most
 * once began once, and once more for each time that somebody said it had not happened (G14); a signal is received once, and in
 * order (G2); everybody who waited was told the same, which is what the store says in the end (G15); histories have no gap; and
 * all of them end (G25).
 *
 * Leaves out: a process that stood still past its lease may begin one effect when it goes on, before it hears. No library can keep it
 * from that; so a begin right after a stall is no proof of anything, and everything else is.
 */

import { type Context, PawlError, StoreError, signal, type Workflow, workflow } from "../../../src/index.ts";
import type { Pawl } from "../../../src/pawl.ts";
import { ENDED, parseFact, type RunStatus } from "../../../src/workflow/words.ts";
import type { Bench, Stall } from "../bench.ts";
import type { Note, Operation } from "../ledger.ts";
import { LEASE_MS } from "./claims.ts";
import { hasRoom, OPEN } from "./room.ts";
import { type Evidence, overlaps, type Work } from "./work.ts";

const NAME = "runs";
const CLIENTS = 6;
const MAX_WAITS = 4;
const CONCURRENCY = 10;
const MAX_PAUSE_MS = 60;
/** Clients that go on starting runs when the machine does not keep up would only measure that. */
const MOST_OPEN = 300;
/** Three leases, the slow poll that makes up for a lost wake-up, and the time to look up and do what is left. */
const HEALS_WITHIN_MS = 3 * LEASE_MS + 5_000 + 8_000;
const TABLE = "fault_rows";
const RETRY = { attempts: 1000, delay: 10, maxDelay: 300 } as const;
/** How soon after a stall a begin may still be one that had been decided on before it. */
const WAKING_NS = 500e6;

const go = signal<string>("go");
const SIGNALS = ["first", "second"] as const;

export interface Order {
  readonly napMs: number;
  /** Whether the printer can be asked what it printed. */
  readonly asks: boolean;
  /** How long it waits for each signal; null for as long as it takes. */
  readonly waitMs: number | null;
}

interface Result {
  readonly saw: Saw;
  /** What the two signals said; null for one that did not come in time. */
  readonly heard: readonly (string | null)[];
  readonly child: unknown;
  readonly chance: number;
}

/** Values of steps that the code had in hand, by step. */
export type Saw = Readonly<Record<string, string>>;

export type Wish =
  | { readonly verb: "start"; readonly run: string; readonly order: Order; readonly delayMs: number }
  | { readonly verb: "signal"; readonly run: string; readonly signal: string }
  | { readonly verb: "cancel"; readonly run: string }
  | { readonly verb: "result"; readonly run: string; readonly timeoutMs: number }
  | { readonly verb: "resolve"; readonly run: string; readonly step: string; readonly answer: Truth }
  | { readonly verb: "retry"; readonly run: string };

/** What a client heard: how a run ended, or one of the things that are no fault of anybody's. */
export type Heard =
  | { readonly ended: RunStatus; readonly value?: unknown; readonly reason?: string }
  | { readonly isNew: boolean }
  | { readonly status: RunStatus }
  | { readonly refused: string }
  | Record<string, never>;

/** An effect begins. */
export interface Begun {
  readonly run: string;
  readonly step: string;
  readonly key: string;
  readonly saw: Saw;
  readonly stall: Stall | null;
}

/** It happened, and this is what it gave. */
export interface Done {
  readonly run: string;
  readonly step: string;
  readonly value: string;
}

export type Truth = { readonly done: true; readonly value: string } | { readonly done: false };

/** What the printer said when it was asked. */
export interface Reconciled {
  readonly run: string;
  readonly step: string;
  readonly said: Truth | { readonly unknown: true };
}

export const runs: Work = {
  name: NAME,
  healsWithinMs: HEALS_WITHIN_MS,
  // The longer faults lasted, the more wait for a person.
  left: { count: countOpen, eachMs: 100 },

  async prepare(pawl) {
    // Without a unique key, so that a row that is there twice shows.
    await pawl.transact.sql((sql) => sql.query(`create table ${TABLE} (run text, step text, value text)`));
  },

  async act(bench) {
    const made = workflows(bench);
    const clients = Array.from({ length: CLIENTS }, () => client(bench, made));
    await Promise.all([work(bench, made), ...clients, watchOthers(bench), heal(bench)]);
  },

  again({ input }) {
    const wish = input as Wish;
    if (wish.verb === "start" || wish.verb === "cancel") return { id: `${wish.verb} ${wish.run}`, task: wish };
    if (wish.verb === "signal") return { id: `${wish.verb} ${wish.signal} ${wish.run}`, task: wish };
    return null;
  },

  answer(question, { notes, dead }) {
    const { run, step } = question as { run: string; step: string };
    const isIt = ({ data }: Note) => (data as Begun).run === run && (data as Begun).step === step;
    const done = notes.find((note) => note.what === "done" && isIt(note));
    if (done !== undefined) return { done: true, value: (done.data as Done).value };
    // Somebody who is alive has begun: it may happen yet.
    const isUnderWay = notes.some((note) => note.what === "begun" && isIt(note) && !dead.has(note.life));
    return isUnderWay ? { unknown: true } : { done: false };
  },

  isCommit({ answer, input, output }) {
    if (answer !== "yes") return false;
    const { verb } = input as Wish;
    return (
      verb === "start" || verb === "cancel" || (verb === "signal" && (output as { isNew?: boolean }).isNew === true)
    );
  },

  async isHealed(pawl) {
    return (await pawl.runs.list({ status: OPEN, limit: 1 })).runs.length === 0;
  },

  async judge(pawl, evidence) {
    const unknown = evidence.operations.filter(
      ({ answer, input }) => answer === "unknown" && (input as Wish).verb !== "result",
    );
    // Whether a start or a cancel was the one that counted cannot be told from their answers.
    return { wrong: checkRuns(evidence, await look(pawl)), unknown: unknown.length, happened: null };
  },
};

async function countOpen(pawl: Pawl): Promise<number> {
  let count = 0;
  for (let after: string | null | undefined; after !== null; ) {
    const page = await pawl.runs.list({ status: OPEN, limit: 1000, after });
    count += page.runs.length;
    after = page.next;
  }
  return count;
}

// ------------------------------------------------------------------------------------------------- what is worked on

interface Workflows {
  readonly order: Workflow<Order, Result>;
  readonly parcel: Workflow<{ readonly of: string }, string>;
}

/** The workflows, with the effects of this process. */
function workflows(bench: Bench): Workflows {
  const plain = (ctx: Context, step: string, saw: Saw) =>
    ctx.step(step, ({ key }) => effect(bench, { run: ctx.runId, step, key, saw: { ...saw } }, true), { retry: RETRY });
  const row = (ctx: Context, step: string, saw: Saw) =>
    ctx.step.tx(
      step,
      async (sql, { key }) => {
        begin(bench, { run: ctx.runId, step, key, saw: { ...saw } });
        const value = bench.mark();
        // Values as they are, because the two databases do not agree on how to mark their places; none has a quote in it.
        await sql.query(`insert into ${TABLE} (run, step, value) values ('${ctx.runId}', '${step}', '${value}')`);
        bench.note(NAME, "done", { run: ctx.runId, step, value } satisfies Done);
        return value;
      },
      { retry: RETRY },
    );

  const parcel = workflow("parcel", function* (ctx: Context, { of }: { readonly of: string }) {
    const saw: Record<string, string> = {};
    saw["pack"] = yield* plain(ctx, "pack", saw);
    saw["stow"] = yield* row(ctx, "stow", saw);
    return `${of} ${saw["pack"]} ${saw["stow"]}`;
  });

  const order = workflow("order", async (ctx: Context, { napMs, asks, waitMs }: Order): Promise<Result> => {
    const saw: Record<string, string> = {};
    const run = ctx.runId;
    try {
      saw["charge"] = await plain(ctx, "charge", saw);
      saw["book"] = await row(ctx, "book", saw);
      await ctx.sleep(napMs);
      const [pick, weigh] = await Promise.all([plain(ctx, "pick", saw), plain(ctx, "weigh", saw)]);
      Object.assign(saw, { pick, weigh });
      const print = ({ key }: { readonly key: string }) =>
        effect(bench, { run, step: "print", key, saw: { ...saw } }, false);
      const reconcile = async () => {
        const said = (await bench.ask(NAME, { run, step: "print" })) as Reconciled["said"];
        bench.note(NAME, "reconciled", { run, step: "print", said } satisfies Reconciled);
        return said;
      };
      saw["print"] = await ctx.step.atMostOnce("print", print, asks ? { reconcile } : {});
      const heard: (string | null)[] = [];
      for (const _ of SIGNALS) {
        const came = await ctx.waitForSignal(go, waitMs === null ? {} : { timeout: waitMs });
        heard.push(came.ok ? came.value : null);
      }
      const child = await ctx.call(parcel, { of: run });
      saw["file"] = await plain(ctx, "file", saw);
      return { saw, heard, child, chance: ctx.random() };
    } catch (error) {
      if (error instanceof PawlError && error.code === "run_canceled") await plain(ctx, "clean up", saw);
      throw error;
    }
  });
  return { order, parcel };
}

function begin(bench: Bench, begun: Omit<Begun, "stall">): void {
  bench.note(NAME, "begun", { ...begun, stall: bench.lastStall } satisfies Begun);
}

/** Something that happens outside, at one moment, with time before and after it for a fault to strike. */
async function effect(bench: Bench, begun: Omit<Begun, "stall">, mayFail: boolean): Promise<string> {
  const { random } = bench;
  const { run, step } = begun;
  begin(bench, begun);
  if (random.chance(0.5)) await bench.sleep(random.unit() * 30);
  if (mayFail && random.chance(0.05)) throw new Error("the outside is busy");
  const value = bench.mark();
  bench.note(NAME, "done", { run, step, value } satisfies Done);
  if (random.chance(0.5)) await bench.sleep(random.unit() * 30);
  return value;
}

/** Takes part in the work; now and then it stops in good order, and another begins. */
async function work(bench: Bench, { order, parcel }: Workflows): Promise<void> {
  const { pawl, random } = bench;
  while (!bench.isOver) {
    const worker = pawl.work([order, parcel], {
      lease: LEASE_MS,
      concurrency: CONCURRENCY,
      warm: random.chance(0.3) ? 0 : 100,
      on: ({ type, run, error, message }) => {
        if (type === "run.parked") bench.note(NAME, "parked", { run, reason: message });
        else if (type === "run.lost") bench.note(NAME, "lost", { run, error: String(error) });
        else if (type === "run.trouble" && !(error instanceof StoreError))
          bench.note(NAME, "trouble", { run, error: String(error) });
      },
    });
    const turns = 20 + random.below(200);
    for (let turn = 0; !bench.isOver && (turn < turns || bench.isHealing); turn++) await bench.sleep(50);
    await worker.stop(random.chance(0.5) ? { timeout: 100 } : undefined);
  }
}

// ------------------------------------------------------------------------------------------------- clients

async function client(bench: Bench, { order }: Workflows): Promise<void> {
  const { random } = bench;
  const room = hasRoom(bench, order.name, MOST_OPEN);
  while (!bench.isOver) {
    const task = bench.take(NAME) as Wish | undefined;
    if (task === undefined && (bench.isHealing || !(await room()))) {
      await bench.sleep(20);
      continue;
    }
    if (task !== undefined && task.verb !== "start") await ask(bench, task, order);
    else await conduct(bench, task ?? drawStart(bench), order);
    await bench.sleep(random.unit() * MAX_PAUSE_MS);
  }
}

function drawStart(bench: Bench): Wish & { readonly verb: "start" } {
  const { random } = bench;
  const waitMs = random.chance(0.6) ? null : random.below(300);
  const order: Order = { napMs: random.below(120), asks: random.chance(0.6), waitMs };
  return { verb: "start", run: bench.mark(), order, delayMs: random.chance(0.15) ? random.below(200) : 0 };
}

/** Starts a run, sends what it waits for, and waits for it. What is not acknowledged is asked again by `again`. */
async function conduct(bench: Bench, start: Wish & { readonly verb: "start" }, order: Workflows["order"]) {
  const { random } = bench;
  const { run } = start;
  if ((await ask(bench, start, order)) !== "yes") return;
  const isDoomed = random.chance(0.12);
  if (isDoomed) {
    await bench.sleep(random.unit() * 200);
    await ask(bench, { verb: "cancel", run }, order);
  }
  for (const signal of SIGNALS) {
    if (random.chance(0.5)) await bench.sleep(random.unit() * 100);
    // Once more for good measure, whatever was heard.
    for (let times = random.chance(0.2) ? 2 : 1; times > 0; times--)
      await ask(bench, { verb: "signal", run, signal }, order);
  }
  // For a few times as long: those that begin another run when the machine is slow only make it slower.
  for (let waits = 0; waits < MAX_WAITS && !bench.isHealing; waits++) {
    const wish: Wish = { verb: "result", run, timeoutMs: 200 + random.below(2_000) };
    const answer = await bench.attempt(NAME, wish, () => act(bench.pawl, wish, order));
    if (answer.is === "yes" && !("refused" in answer.output && answer.output.refused === "result_timeout")) return;
  }
}

/** Waits for runs that somebody else started. */
async function watchOthers(bench: Bench): Promise<void> {
  const { pawl, random } = bench;
  while (!bench.isOver) {
    await bench.sleep((0.5 + random.unit()) * 10 * MAX_PAUSE_MS);
    if (bench.isHealing) continue;
    try {
      const page = await pawl.runs.list({ workflow: "order", limit: 10 });
      if (page.runs.length === 0) continue;
      const { id } = random.pick(page.runs);
      await ask(bench, { verb: "result", run: id, timeoutMs: 200 + random.below(2_000) }, "order");
    } catch {
      // A list that cannot be had says nothing about runs.
    }
  }
}

async function ask(bench: Bench, wish: Wish, order: Workflows["order"] | "order"): Promise<"yes" | "no" | "unknown"> {
  return (await bench.attempt(NAME, wish, () => act(bench.pawl, wish, order))).is;
}

/** Losing a race is an answer here; only what the store could not do is none. */
async function act(pawl: Pawl, wish: Wish, order: Workflows["order"] | "order"): Promise<Heard> {
  const run = pawl.run("order", wish.run);
  try {
    switch (wish.verb) {
      case "start": {
        const delay = wish.delayMs === 0 ? {} : { delay: wish.delayMs };
        if (order === "order") await pawl.start(order, wish.order, { id: wish.run, ...delay });
        else await pawl.start(order, wish.order, { id: wish.run, ...delay });
        return {};
      }
      case "signal":
        return await run.signal(go, payloadOf(wish.run, wish.signal), { id: wish.signal });
      case "cancel":
        return await run.cancel({ reason: "enough" });
      case "result":
        return { ended: "completed", value: await run.result({ timeout: wish.timeoutMs }) };
      case "resolve":
        await run.resolveStep(wish.step, wish.answer);
        return {};
      case "retry":
        await run.retry();
        return {};
    }
  } catch (error) {
    return refusalOf(error);
  }
}

const payloadOf = (run: string, signal: string): string => `${run} ${signal}`;

const ENDINGS: Readonly<Record<string, RunStatus>> = {
  run_canceled: "canceled",
  run_failed: "failed",
  run_timed_out: "timed_out",
};
const REFUSALS = /^(run_not_found|run_ended|run_conflict|run_parked|result_timeout)$/;

function refusalOf(error: unknown): Heard {
  if (!(error instanceof PawlError)) throw error;
  const ended = ENDINGS[error.code];
  if (ended !== undefined) return { ended, reason: error.message };
  if (REFUSALS.test(error.code)) return { refused: error.code };
  throw error;
}

// ------------------------------------------------------------------------------------------------- afterwards

/** Once faults are over: every run gets the signals it may wait for, and what is parked is looked up and let go on. */
async function heal(bench: Bench): Promise<void> {
  const signaled = new Set<string>();
  while (!bench.isOver) {
    await bench.sleep(1_000);
    if (!bench.isHealing) continue;
    try {
      const { runs } = await bench.pawl.runs.list({
        status: OPEN,
        workflow: "order",
        limit: 1000,
      });
      const left = bench.random.chance(0.5) ? runs : runs.toReversed();
      await inParallel(left, async ({ id, parkedReason }) => {
        if (parkedReason !== null) await unpark(bench, id, parkedReason);
        if (signaled.has(id)) return;
        let isAll = true;
        for (const signal of SIGNALS)
          isAll = (await ask(bench, { verb: "signal", run: id, signal }, "order")) === "yes" && isAll;
        if (isAll) signaled.add(id);
      });
      const parcels = await bench.pawl.runs.list({ status: "parked", workflow: "parcel", limit: 1000 });
      for (const { id } of parcels.runs) await ask(bench, { verb: "retry", run: id }, "order");
    } catch {
      // The next turn tries again.
    }
  }
}

const UNSURE = /^step "(.*)" may or may not have happened/;
/** What a run may be parked for here: nobody knew, or workers died on it again and again. */
const EXPECTED_PARKING = /^step ".*" may or may not have happened|^it was claimed \d+ times without getting anywhere$/;

async function unpark(bench: Bench, run: string, reason: string): Promise<void> {
  const step = UNSURE.exec(reason)?.[1];
  if (step === undefined) {
    await ask(bench, { verb: "retry", run }, "order");
    return;
  }
  const truth = (await bench.ask(NAME, { run, step })) as Reconciled["said"];
  if ("done" in truth) await ask(bench, { verb: "resolve", run, step, answer: truth }, "order");
}

async function inParallel<T>(items: readonly T[], act: (item: T) => Promise<void>): Promise<void> {
  const left = items.values();
  const hands = Array.from({ length: 4 }, async () => {
    for (const item of left) await act(item);
  });
  await Promise.all(hands);
}

// ------------------------------------------------------------------------------------------------- the judgement

export interface RunState {
  readonly workflow: string;
  readonly status: RunStatus;
  readonly ended: Heard;
  readonly facts: readonly { readonly version: number; readonly name: string; readonly data: unknown }[];
}

export interface RunsState {
  readonly runs: ReadonlyMap<string, RunState>;
  readonly rows: readonly Done[];
}

async function look(pawl: Pawl): Promise<RunsState> {
  const found = new Map<string, RunState>();
  for (let after: string | null = null; ; ) {
    const page = await pawl.runs.list({ order: "id", after, limit: 1000 });
    const ours = page.runs.filter(({ workflow }) => workflow === "order" || workflow === "parcel");
    await inParallel(ours, async ({ id, workflow, status }) => {
      const run = pawl.run(workflow, id);
      const facts = [...(await run.history())];
      for (let more = facts; more.length === 1000; facts.push(...more))
        more = [...(await run.history({ after: facts.length }))];
      // One that has not ended is told apart by its status; nobody works on it any more.
      const isOver = ENDED.has(status);
      const ended: Heard = !isOver
        ? { refused: status }
        : await run.result({ timeout: 5_000 }).then((value) => ({ ended: "completed" as const, value }), refusalOf);
      found.set(id, { workflow, status, ended, facts });
    });
    if (page.next === null) break;
    after = page.next;
  }
  const { rows } = await pawl.transact.sql((sql) => sql.query<Done>(`select run, step, value from ${TABLE}`));
  return { runs: found, rows };
}

/** Holds what workers and clients said against the runs as they are in the end. */
export function checkRuns(evidence: Evidence, state: RunsState): string[] {
  const asked = evidence.operations.map((operation) => ({ ...operation, wish: operation.input as Wish }));
  const recorded = new Map([...state.runs].map(([id, run]) => [id, recordsOf(run)]));
  return [
    ...checkStarts(asked, evidence, state),
    ...checkEnds(asked, state),
    ...checkHistories(state),
    ...checkWhatWasSeen(evidence, recorded),
    ...checkRepeats(evidence, asked),
    ...checkRows(state, recorded),
    ...checkAtMostOnce(evidence, asked, state),
    ...checkSignals(evidence, asked, state),
    ...checkResults(evidence, asked, state, recorded),
  ];
}

type Asked = Operation & { readonly wish: Wish };

const notesOf = <T>({ notes }: Evidence, what: string): (T & { readonly at: number; readonly life: string })[] =>
  notes.filter((note) => note.what === what).map(({ data, at, life }) => ({ ...(data as T), at, life }));

/** Steps that the history has an outcome of, with their values where they succeeded. */
function recordsOf({ facts }: RunState): ReadonlyMap<string, string | undefined> {
  const records = new Map<string, string | undefined>();
  for (const { name, data } of facts) {
    const { word, id } = parseFact(name);
    if (word === "step") records.set(id, (data as { ok?: string }).ok);
  }
  return records;
}

type Records = ReadonlyMap<string, ReadonlyMap<string, string | undefined>>;

const isIn = ({ doubts }: Evidence, { startedAt, endedAt }: Operation): boolean =>
  overlaps(doubts, startedAt, endedAt ?? startedAt);

/** What was acknowledged is there, and nothing that nobody asked for. */
function checkStarts(asked: readonly Asked[], evidence: Evidence, { runs }: RunsState): string[] {
  const wrong: string[] = [];
  const starts = Map.groupBy(
    asked.filter(({ wish }) => wish.verb === "start"),
    ({ wish }) => wish.run,
  );
  for (const [run, all] of starts) {
    if (runs.has(run)) continue;
    // Whoever found it there only read it, and may have read what the standby never got.
    const wrote = all.some((one, i) => one.answer === "yes" && (i === 0 || !isIn(evidence, one)));
    if (wrote) wrong.push(`the start of ${run} was acknowledged, and it is lost`);
  }
  const children = new Set<unknown>();
  for (const { facts } of runs.values())
    for (const { name, data } of facts) if (name.startsWith("child ")) children.add((data as { run: string }).run);
  for (const [run, { workflow }] of runs) {
    const isAsked = workflow === "order" ? starts.has(run) : children.has(run);
    if (!isAsked) wrong.push(`${workflow} ${run} is there, and nobody started it`);
  }
  for (const run of children) if (!runs.has(String(run))) wrong.push(`the child ${run} is lost`);
  return wrong;
}

/** All of them ended, and as canceled only if somebody wanted that. */
function checkEnds(asked: readonly Asked[], { runs }: RunsState): string[] {
  const wrong: string[] = [];
  const canceled = new Set(asked.filter(({ wish }) => wish.verb === "cancel").map(({ wish }) => wish.run));
  for (const [run, { status, ended, facts }] of runs) {
    if (!ENDED.has(status))
      wrong.push(`${run} did not end: it is ${status}, after ${facts.map(({ name }) => `"${name}"`).join(", ")}`);
    else if (status === "failed" || status === "timed_out")
      wrong.push(`${run} ended as ${status}: ${"reason" in ended ? ended.reason : ""}`);
    else if (status === "canceled" && !canceled.has(run.split("/")[0] ?? ""))
      wrong.push(`${run} was canceled, and nobody asked for that`);
  }
  return wrong;
}

/** No gap, each outcome once, a reason for each parking, and nothing after the end. */
function checkHistories({ runs }: RunsState): string[] {
  const wrong: string[] = [];
  for (const [run, { facts, status }] of runs) {
    const once = new Set<string>();
    for (const [i, { version, name, data }] of facts.entries()) {
      if (version !== i + 1) wrong.push(`the history of ${run} has fact ${version} where ${i + 1} belongs`);
      if ((name === "started") !== (i === 0)) wrong.push(`the history of ${run} has "${name}" as fact ${version}`);
      const { word } = parseFact(name);
      const isOnce = /^(step|woke|received|expired|child|ended|canceled|completed|failed)$/.test(word);
      if (isOnce && once.has(name)) wrong.push(`the history of ${run} has "${name}" twice`);
      once.add(name);
      const reason = word === "parked" ? (data as { reason: string }).reason : "";
      if (word === "parked" && !EXPECTED_PARKING.test(reason)) wrong.push(`${run} was parked: ${reason}`);
    }
    const end = { completed: ["completed"], failed: ["failed"], canceled: ["failed", "canceled"] }[String(status)];
    const last = facts.at(-1)?.name ?? "";
    if (end !== undefined && !end.includes(last)) wrong.push(`${run} is ${status}, and its last fact is "${last}"`);
  }
  return wrong;
}

/** What code had in hand when an effect began is what the history says for ever; and every outcome is one that happened. */
function checkWhatWasSeen(evidence: Evidence, recorded: Records): string[] {
  const wrong: string[] = [];
  for (const { run, step, saw, life } of notesOf<Begun>(evidence, "begun")) {
    const records = recorded.get(run);
    if (records === undefined) wrong.push(`${life} began "${step}" of ${run}, which is not there`);
    else
      for (const [before, value] of Object.entries(saw)) {
        const kept = records.has(before) ? (records.get(before) ?? "failed") : "gone";
        if (kept !== value)
          wrong.push(`${life} began "${step}" of ${run} with ${value} from "${before}", which is ${kept}`);
      }
  }
  const happened = new Set(notesOf<Done>(evidence, "done").map(({ run, step, value }) => `${run}\n${step}\n${value}`));
  for (const [run, records] of recorded)
    for (const [step, value] of records)
      if (value !== undefined && !happened.has(`${run}\n${step}\n${value}`))
        wrong.push(`"${step}" of ${run} is recorded as ${value}, which never happened`);
  return wrong;
}

/** Once somebody had the outcome of a step in hand, or knew that its run had ended, nobody begins it. */
function checkRepeats(evidence: Evidence, asked: readonly Asked[]): string[] {
  const wrong: string[] = [];
  const begun = notesOf<Begun>(evidence, "begun");
  const knownAt = new Map<string, number>();
  const know = (what: string, at: number): void => {
    knownAt.set(what, Math.min(knownAt.get(what) ?? Number.POSITIVE_INFINITY, at));
  };
  for (const { run, saw, at } of begun) for (const step of Object.keys(saw)) know(`${run}\n${step}`, at);
  for (const operation of asked) {
    const { wish, answer, output, endedAt } = operation;
    if (wish.verb === "result" && answer === "yes" && "ended" in (output as Heard) && !isIn(evidence, operation))
      know(wish.run, endedAt ?? Number.POSITIVE_INFINITY);
  }
  for (const { run, step, at, life, stall } of begun) {
    const since = Math.min(
      knownAt.get(`${run}\n${step}`) ?? Number.POSITIVE_INFINITY,
      knownAt.get(run) ?? Number.POSITIVE_INFINITY,
    );
    if (at <= since) continue;
    if (stall !== null && stall.from < since && at - stall.to < WAKING_NS) continue;
    wrong.push(`${life} began "${step}" of ${run} ${((at - since) / 1e6).toFixed(1)} ms after its outcome was known`);
  }
  return wrong;
}

const TX_STEPS = new Set(["book", "stow"]);

/** The user's row and the step's record: both, once, with the same value; or neither. */
function checkRows({ rows }: RunsState, recorded: Records): string[] {
  const wrong: string[] = [];
  const found = Map.groupBy(rows, ({ run, step }) => `${run}\n${step}`);
  for (const [run, records] of recorded)
    for (const [step, value] of records) {
      if (!TX_STEPS.has(step)) continue;
      const values = (found.get(`${run}\n${step}`) ?? []).map((row) => row.value);
      found.delete(`${run}\n${step}`);
      const expected = value === undefined ? [] : [value];
      if (values.join() !== expected.join())
        wrong.push(`"${step}" of ${run} is recorded as ${value}, and its rows are [${values.join()}]`);
    }
  for (const all of found.values())
    for (const { run, step, value } of all) wrong.push(`"${step}" of ${run} has a row, ${value}, and no record`);
  return wrong;
}

/** Once, and once more for each time that somebody said it had not happened; never before its intent is written. */
function checkAtMostOnce(evidence: Evidence, asked: readonly Asked[], { runs }: RunsState): string[] {
  const wrong: string[] = [];
  const noes = new Map<string, number>();
  const no = (run: string): void => void noes.set(run, (noes.get(run) ?? 0) + 1);
  for (const { run, said } of notesOf<Reconciled>(evidence, "reconciled")) if ("done" in said && !said.done) no(run);
  for (const { wish, answer } of asked)
    if (wish.verb === "resolve" && answer !== "no" && !wish.answer.done) no(wish.run);
  const keys = new Map<string, string>();
  for (const [what, all] of Map.groupBy(notesOf<Begun>(evidence, "begun"), ({ run, step }) => `"${step}" of ${run}`)) {
    for (const { key } of all) {
      const other = keys.get(key) ?? what;
      if (other !== what) wrong.push(`${what} has the key of ${other}`);
      keys.set(key, what);
    }
    if (new Set(all.map(({ key }) => key)).size > 1) wrong.push(`${what} had several keys`);
    const [first] = all;
    if (first?.step !== "print") continue;
    const allowed = 1 + (noes.get(first.run) ?? 0);
    if (all.length > allowed) wrong.push(`${what} began ${all.length} times, and may ${allowed} times`);
    if (!runs.get(first.run)?.facts.some(({ name }) => name === "intent print"))
      wrong.push(`${what} began, and no intent of it is recorded`);
  }
  return wrong;
}

interface Received {
  readonly signal: string;
  readonly value: string;
}

const receivedBy = (run: RunState): string[] =>
  run.facts.filter(({ name }) => name.startsWith("received ")).map(({ data }) => (data as Received).value);

/** Each is kept once, received at most once and in the order they came; none is refused by a run that is there. */
function checkSignals(evidence: Evidence, asked: readonly Asked[], { runs }: RunsState): string[] {
  const wrong: string[] = [];
  const sent = Map.groupBy(
    asked.filter(({ wish }) => wish.verb === "signal"),
    ({ wish }) => wish.run,
  );
  const startedAt = new Map<string, number>();
  for (const operation of asked)
    if (operation.wish.verb === "start" && operation.answer === "yes" && !isIn(evidence, operation))
      startedAt.set(operation.wish.run, operation.endedAt ?? Number.POSITIVE_INFINITY);
  for (const [run, all] of sent) {
    for (const operation of all) {
      const { answer, output, life, wish } = operation;
      const refused = answer === "yes" && "refused" in (output as Heard) ? (output as { refused: string }).refused : "";
      if (refused === "" || isIn(evidence, operation)) continue;
      const isThere = operation.startedAt > (startedAt.get(run) ?? Number.POSITIVE_INFINITY);
      if (refused !== "run_ended" && isThere)
        wrong.push(`${life} was refused a signal to ${wish.run}, which is there: ${refused}`);
    }
    const isNew = ({ answer, output }: Asked) => answer === "yes" && (output as { isNew?: boolean }).isNew === true;
    for (const [name, some] of Map.groupBy(all, ({ wish }) => (wish.verb === "signal" ? wish.signal : "")))
      if (some.filter(isNew).length > 1) wrong.push(`the signal "${name}" to ${run} was new more than once`);
  }
  for (const [id, run] of runs) {
    if (run.workflow !== "order") continue;
    const received = receivedBy(run);
    if (new Set(received).size < received.length) wrong.push(`${id} received a signal twice: ${received.join(", ")}`);
    const of = (name: string) =>
      (sent.get(id) ?? []).filter(({ wish }) => wish.verb === "signal" && wish.signal === name);
    for (const value of received)
      if (!SIGNALS.some((name) => payloadOf(id, name) === value && of(name).length > 0))
        wrong.push(`${id} received "${value}", which nobody sent`);
    const [first, second] = SIGNALS;
    const firstAt = Math.min(
      ...of(first)
        .filter((one) => one.answer === "yes" && "isNew" in (one.output as Heard) && !isIn(evidence, one))
        .map(({ endedAt }) => endedAt ?? Number.POSITIVE_INFINITY),
    );
    const secondAt = Math.min(...of(second).map((one) => one.startedAt));
    const place = (name: string) => received.indexOf(payloadOf(id, name));
    if (firstAt < secondAt && place(second) >= 0 && (place(first) < 0 || place(first) > place(second)))
      wrong.push(`${id} received the signals in another order than they were sent: ${received.join(", ")}`);
  }
  return wrong;
}

/** Everybody is told the same, and it is what the history says. */
function checkResults(evidence: Evidence, asked: readonly Asked[], { runs }: RunsState, recorded: Records): string[] {
  const wrong: string[] = [];
  for (const operation of asked) {
    const { wish, answer, life } = operation;
    if (answer !== "yes" || isIn(evidence, operation)) continue;
    const output = operation.output as Heard;
    const run = runs.get(wish.run);
    if (wish.verb === "result" && "ended" in output && textOf(output) !== textOf(run?.ended))
      wrong.push(`${life} was told that ${wish.run} is ${textOf(output)}, and it is ${textOf(run?.ended)}`);
    const status = wish.verb === "cancel" && "status" in output ? output.status : "";
    if (ENDED.has(status) && status !== run?.status)
      wrong.push(`${life} was told that ${wish.run} is ${status}, and it is ${run?.status}`);
  }
  for (const [id, run] of runs) {
    if (run.workflow !== "order" || !("ended" in run.ended) || run.ended.ended !== "completed") continue;
    const { saw, heard, child } = run.ended.value as Result;
    for (const [step, value] of recorded.get(id) ?? [])
      if (saw[step] !== value) wrong.push(`${id} gave ${saw[step]} for "${step}", and its history says ${value}`);
    const received = heard.filter((value) => value !== null);
    if (received.join() !== receivedBy(run).join())
      wrong.push(`${id} gave [${received.join()}] as its signals, and received [${receivedBy(run).join()}]`);
    const told = runs.get(`${id}/parcel`)?.ended;
    if (told === undefined || !("ended" in told) || told.value !== child)
      wrong.push(`${id} was told ${JSON.stringify(child)} by its child, which gave ${textOf(told)}`);
  }
  return wrong;
}

/** The same for equal answers, whatever the order of their keys. */
const textOf = (heard: unknown): string =>
  JSON.stringify(heard, (_, value: unknown) =>
    typeof value === "object" && value !== null && !Array.isArray(value)
      ? Object.fromEntries(Object.entries(value).sort(([a], [b]) => (a < b ? -1 : 1)))
      : value,
  ) ?? "nothing";
