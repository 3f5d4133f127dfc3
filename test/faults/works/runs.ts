/**
 * Runs: workflows with every kind of step, executed by all workers, while clients start, signal, cancel and wait for them.
 *
 * An order charges (a plain step), books (`step.tx`, a row in a table of the user's), sleeps, picks and weighs concurrently, prints (at
 * most once; some orders can ask whether it happened), receives two signals, calls a child, and files. Each effect is a line in the ledger,
 * which no fault affects, and returns a unique value, so that it is visible everywhere which value was kept. Each effect also reports which
 * values the code had received when it began: those were guaranteed to be durable.
 *
 * Clients choose the ids of runs and signals, and repeat calls that were not acknowledged under the same id. Workers stop gracefully from
 * time to time, and keep code warm or not. A run that is parked because it is unknown whether it printed stays parked until faults are
 * over; then an operator looks it up in the ledger and resolves it.
 *
 * Checked: an acknowledged start has its run (G1, G2); values that code received are in the history, and a step that was recorded does not
 * begin again (G14); a row of `step.tx` exists exactly once if its step is recorded, and otherwise not (G14, G29); an at-most-once step
 * began once, and once more for each time that an operator said it had not happened (G14); a signal is received once, and in order (G2);
 * all waiters got the same result, which is the stored one (G15); histories have no gap; and all of them end (G25).
 *
 * Out of scope: a process that was suspended for longer than its lease may begin one effect when it resumes, before it learns that. No
 * library can prevent it; so a begin right after a suspension proves nothing, and everything else does.
 */

import { type Context, PawlError, StoreError, signal, type Workflow, workflow } from "../../../src/index.ts";
import type { Pawl } from "../../../src/pawl.ts";
import { ENDED, type RunStatus } from "../../../src/workflow/stored.ts";
import type { Bench } from "../bench.ts";
import type { Note } from "../ledger.ts";
import { checkRuns, type RunState, type RunsState } from "./check-runs.ts";
import { LEASE_MS } from "./claims.ts";
import {
  type Begun,
  type ClientResult,
  type Done,
  type Order,
  payloadOf,
  type Reconciled,
  type Result,
  type Saw,
  SIGNALS,
  type Wish,
} from "./orders.ts";
import { hasRoom, OPEN } from "./room.ts";
import type { Work } from "./work.ts";

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

/** There are runs of other kinds of work, too. */
const WORKFLOWS = ["order", "parcel"];

const go = signal<string>("go");

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
    for (const workflow of WORKFLOWS)
      if ((await pawl.runs.list({ workflow, status: OPEN, limit: 1 })).runs.length > 0) return false;
    return true;
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
  for (const workflow of WORKFLOWS)
    for (let after: string | null | undefined; after !== null; ) {
      const page = await pawl.runs.list({ workflow, status: OPEN, limit: 1000, after });
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

/** Waits for runs that another client started. */
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
async function act(pawl: Pawl, wish: Wish, order: Workflows["order"] | "order"): Promise<ClientResult> {
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

const ENDINGS: Readonly<Record<string, RunStatus>> = {
  run_canceled: "canceled",
  run_failed: "failed",
  run_timed_out: "timed_out",
};
const REFUSALS = /^(run_not_found|run_ended|run_conflict|run_parked|result_timeout)$/;

function refusalOf(error: unknown): ClientResult {
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
      const ended: ClientResult = !isOver
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
