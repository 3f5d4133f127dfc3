/**
 * What the scenarios of workflows share: workers, the outside with its ledger, people who wait for runs, and the checks that hold of
 * every run whatever it does.
 *
 * The ledger is outside of everything and never crashes: it knows which function of which step was begun, by which worker, and how
 * far the store was then. Beside the histories it tells whether a step ran that was recorded already.
 */

import {
  type AnyWorkflow,
  FencedError,
  PawlError,
  type Run,
  RunConflictError,
  RunEndedError,
  RunParkedError,
  StoreError,
} from "../../../src/index.ts";
import type { Found, Verdict } from "../../../src/kernel/contract.ts";
import type { Ports } from "../../../src/kernel/ports.ts";
import { type Pawl, pawlOn } from "../../../src/pawl.ts";
import { MemoryDatabase } from "../../../src/stores/memory/memory.ts";
import { checkCommits } from "../../../src/testing/checkers/commits.ts";
import { type Process, ServiceError, type World } from "../../../src/testing/index.ts";
import type { Moment } from "../../../src/testing/sim/database.ts";
import { ENDED, type RunValue, runAt } from "../../../src/workflow/stored.ts";
import { until } from "./transfers.ts";

export const LEASE_MS = 10_000;

/** Taken when the module loads, because a simulation replaces the global one. */
const realSetImmediate = setImmediate;

/** The function of a step was called. */
interface Begun {
  readonly run: string;
  readonly step: string;
  readonly key: string;
  /** The worker that called it. */
  readonly by: string;
  /** The commits that had been made by then. */
  readonly at: Moment;
}

/** What a run's code needs to know of the process it runs in. */
export interface Place {
  readonly process: Pick<Process, "call" | "sleep" | "random">;
  readonly by: () => string;
  /** Ends the process on the spot. */
  readonly crash: () => void;
}

export type Workflows = (place: Place) => readonly AnyWorkflow[];

/** What may become of runs that are meant to go wrong. */
export interface StageOptions {
  /** Why this run may stay parked; undefined for one that a person helps. */
  readonly parks?: ((run: string) => RegExp | undefined) | undefined;
}

export class Stage {
  readonly world: World;
  readonly begun: Begun[] = [];
  /** What the outside did, by run and step, as often as it did it. */
  readonly done = new Map<string, number>();
  /** How often a step was reported as not happened. */
  readonly noes = new Map<string, number>();
  /** By run: the outcomes that callers got. */
  readonly told = new Map<string, Set<string>>();
  readonly #workflows: Workflows;
  readonly #parks: (run: string) => RegExp | undefined;
  readonly #service;
  #lastToldMs = 0;

  constructor(world: World, workflows: Workflows, { parks = () => undefined }: StageOptions = {}) {
    this.world = world;
    this.#workflows = workflows;
    this.#parks = parks;
    this.#service = world.service("outside", ({ run, step }: { readonly run: string; readonly step: string }) => {
      const name = `${run} ${step}`;
      this.done.set(name, (this.done.get(name) ?? 0) + 1);
      return `${step} done`;
    });
  }

  /** A step's function: notes that it was begun, and calls the outside, after a while if it is slow. */
  async act(place: Place, run: string, step: string, { key }: { readonly key: string }, slowMs = 0): Promise<string> {
    this.begun.push({ run, step, key, by: place.by(), at: this.world.database.moment });
    if (slowMs > 0) await place.process.sleep(slowMs);
    return place.process.call(this.#service, { run, step });
  }

  /** What an operator would find out about a step: never "not happened" while a call may still be in progress. */
  answer(run: string, step: string): { readonly done: true; readonly value: string } | { readonly done: false } {
    if (this.done.has(`${run} ${step}`)) return { done: true, value: `${step} done` };
    this.noes.set(`${run} ${step}`, (this.noes.get(`${run} ${step}`) ?? 0) + 1);
    return { done: false };
  }

  /** A process that works for as long as the world lives; now and then it stops in good order and begins again. */
  worker(name: string): void {
    this.world.process(
      name,
      async (process) => {
        for (;;) {
          const worker = this.work(process);
          await process.sleep(process.random() * 600_000);
          await worker.stop({ timeout: process.random() < 0.5 ? 2_000 : undefined });
        }
      },
      { service: true },
    );
  }

  /** Puts a process to work. */
  work(process: Process): ReturnType<Pawl["work"]> {
    const warm = [0, 1, 1000][Math.floor(process.random() * 3)] ?? 0;
    let by = "";
    const crash = (): void => {
      if (process.isAlive) this.world.crash(process);
    };
    const workflows = this.#workflows({ process, by: () => by, crash });
    const worker = process.pawl.work(workflows, {
      lease: LEASE_MS,
      concurrency: process.random() < 0.2 ? 1 : 10,
      warm,
      on: ({ type, run, error, message }) => {
        if (type === "run.trouble" && !(error instanceof StoreError)) this.#strange(run, error);
        if (type === "run.parked" || type === "run.lost")
          this.world.note(`  ${process.name}: ${type} ${run} ${message ?? error}`);
      },
    });
    by = worker.id;
    return worker;
  }

  /** Nothing but the store fails in these runs, unless they are meant to. */
  #strange(run: string, error: unknown): void {
    if (error instanceof Error && this.#parks(run)?.test(error.message) === true) return;
    // A caller that finds commits lost begins again from the stored state.
    if (error instanceof FencedError && this.world.database.rewinds.length > 0) return;
    const said = error instanceof Error ? `${error.name}: ${error.message}` : String(error);
    // The world keeps the failure, although a worker's listener must not throw.
    this.world.check(error instanceof PawlError && error.code === "closed", `run ${run} was in trouble: ${said}`);
  }

  /** An operator who resolves parked runs. */
  person(name: string): void {
    this.world.process(
      name,
      async ({ pawl, sleep }) => {
        for (;;) {
          await sleep(3_000);
          try {
            const { runs } = await pawl.runs.list({ status: "parked" });
            for (const { workflow, id, parkedReason } of runs)
              if (this.#parks(id) === undefined) await this.#help(pawl.run(workflow, id), parkedReason ?? "");
          } catch (error) {
            if (!(error instanceof StoreError)) throw error;
          }
        }
      },
      { service: true },
    );
  }

  /** Waits for a run's result, as a caller does. */
  async outcome(process: Process, workflow: string, id: string): Promise<string> {
    for (;;) {
      const run = process.pawl.run(workflow, id);
      try {
        return this.#tell(id, `completed ${JSON.stringify(await run.result({ timeout: 60_000 }))}`);
      } catch (error) {
        if (error instanceof RunParkedError && this.#parks(id)?.test(error.message) === true)
          return this.#tell(id, `parked: ${error.data.reason}`);
        if (error instanceof RunParkedError) await process.sleep(1_000);
        else if (error instanceof StoreError) await process.sleep(200);
        else if (error instanceof PawlError && error.code !== "result_timeout")
          return this.#tell(id, `${error.code} ${error.message}`);
        else if (!(error instanceof PawlError)) throw error;
      }
    }
  }

  #tell(id: string, outcome: string): string {
    const told = this.told.get(id) ?? new Set();
    this.told.set(id, told.add(outcome));
    this.#lastToldMs = this.world.nowMs;
    return outcome;
  }

  async #help(run: Run, reason: string): Promise<void> {
    this.world.note(`a person looks at ${run.id}: ${reason}`);
    const [, step] = /^step "(.*)" may or may not have happened/.exec(reason) ?? [];
    this.world.check(step !== undefined || reason.includes("without getting anywhere"), `${run.id} parked: ${reason}`);
    try {
      if (step === undefined) await run.retry();
      else await run.resolveStep(step, this.answer(run.id, step));
    } catch (error) {
      // Another operator was faster, or the outcome is unknown: the next look shows it.
      const isLate = error instanceof RunConflictError || error instanceof RunEndedError;
      if (!isLate && !(error instanceof StoreError)) throw error;
    }
  }

  // ----------------------------------------------------------------------------------------------- the checks

  /** Everything that holds of every run; `budgetMs` is how long they may take by themselves once nothing fails. */
  async check(budgetMs: number): Promise<void> {
    const { world } = this;
    checkCommits(world);
    const healedAtMs = world.healedAtMs ?? 0;
    const lateMs = this.#lastToldMs - healedAtMs;
    world.check(lateMs <= 3 * LEASE_MS + budgetMs, `the last run was heard of ${lateMs} ms after healing`);
    for (const [id, told] of this.told)
      world.check(told.size === 1, `of ${id} some were told ${[...told].join(", and others ")}`);
    this.#checkSteps();
    this.#checkTimers();
    await this.#checkReplays();
  }

  /** No step's function was called by a worker that claimed the run after the step was recorded. */
  #checkSteps(): void {
    const { world } = this;
    const keys = new Map<string, string>();
    for (const { run, step, key } of this.begun) {
      const name = `${run} ${step}`;
      world.check((keys.get(name) ?? key) === key, `${name} was begun under two keys`);
      keys.set(name, key);
    }
    world.check(new Set(keys.values()).size === keys.size, "two steps had the same key");
    for (const { run, step, by, at } of this.begun) {
      let claimedAt = -1;
      let recordedAt = Number.POSITIVE_INFINITY;
      for (const [index, { puts }] of world.database.commitsAt(at).entries()) {
        for (const { was, row, entries } of puts) {
          if (row.space !== "run" || row.key !== run) continue;
          if (row.fence > (was?.fence ?? 0) && row.holder === by) claimedAt = index;
          if (entries.some(({ name }) => name === `step ${step}`)) recordedAt = Math.min(recordedAt, index);
        }
      }
      world.check(
        !(recordedAt < claimedAt),
        `${run}: step ${step} was begun by a worker that claimed it after its record`,
      );
    }
  }

  /** A step that runs at most once was begun once, and once more for each no. */
  checkAtMostOnce(step: string): void {
    for (const run of this.told.keys()) {
      const name = `${run} ${step}`;
      const times = this.begun.filter((begun) => begun.run === run && begun.step === step).length;
      const noes = this.noes.get(name) ?? 0;
      this.world.check(times <= 1 + noes, `${name} was begun ${times} times, with ${noes} noes`);
    }
  }

  /** No worker that claimed a run began the step a second time. */
  checkOncePerClaim(step: string): void {
    for (const run of new Set(this.begun.filter((begun) => begun.step === step).map((begun) => begun.run))) {
      const times = this.begun.filter((begun) => begun.run === run && begun.step === step).length;
      const puts = this.world.database.commits.flatMap((commit) => commit.puts);
      const claims = puts.filter(
        ({ was, row }) => row.space === "run" && row.key === run && row.fence > (was?.fence ?? 0),
      ).length;
      this.world.check(times <= claims, `${run}: step ${step} was begun ${times} times in ${claims} claims`);
    }
  }

  /** Whenever the step was begun, the one before it had its record. */
  checkAfter(step: string, before: string): void {
    for (const { run, at } of this.begun.filter((begun) => begun.step === step)) {
      const isRecorded = this.world.database
        .commitsAt(at)
        .some(({ puts }) =>
          puts.some(({ row, entries }) => row.key === run && entries.some(({ name }) => name === `step ${before}`)),
        );
      this.world.check(isRecorded, `${run}: step ${step} was begun before step ${before} was recorded`);
    }
  }

  /** If the store's clock only goes forward, no run wakes too early. */
  #checkTimers(): void {
    const { world } = this;
    if (world.faults.struck.storeClockJump > 0) return;
    const dueMs = new Map<string, number>();
    for (const { nowMs, puts } of world.database.commits)
      for (const { row, entries } of puts)
        for (const { name, data } of row.space === "run" ? entries : []) {
          const [word, id] = name.split(" ", 2);
          if (word === "sleep" || word === "wait") dueMs.set(`${row.key} ${id}`, (JSON.parse(data) as RunTimer).dueMs);
          if (word !== "woke" && word !== "expired") continue;
          const earlyMs = (dueMs.get(`${row.key} ${id}`) ?? 0) - nowMs;
          world.check(earlyMs <= 0, `${row.key}: "${name}" was written ${earlyMs} ms before its time`);
        }
  }

  /** Each run that ended is taken up once more by a peer that knows nothing of it: it ends in the same way, and does nothing. */
  async #checkReplays(): Promise<void> {
    const { world } = this;
    const ports: Ports = {
      clock: { nowMs: () => world.nowMs, after: () => () => {}, soon: (callback) => void realSetImmediate(callback) },
      chance: { random: () => 0.5, uuid: () => world.random.uuid() },
    };
    const options = { namespace: "simulated" };
    const pawl = pawlOn((await copyOf(world)).connect("simulated"), ports, options);
    const real = pawlOn(world.database.memory.connect("simulated"), ports, options);
    const stranger: Place = {
      process: {
        call: (_service, request) => {
          throw new Error(`it did ${JSON.stringify(request)} again`);
        },
        sleep: () => new Promise(() => {}),
        random: () => 0.5,
      },
      by: () => "stranger",
      crash: () => {
        throw new Error("it would crash at replay");
      },
    };
    const troubles: string[] = [];
    const worker = pawl.work(this.#workflows(stranger), {
      lease: 3_600_000,
      warm: 0,
      on: ({ type, error, message }) => {
        if (type === "run.trouble" || type === "run.parked" || type === "run.rested")
          troubles.push(`${type} ${error instanceof Error ? error.message : (message ?? "")}`);
      },
    });
    const begunBefore = this.begun.length;
    const { runs } = await real.runs.list({ limit: 1000, order: "oldest" });
    // One after another, so that no outcome is counted twice.
    for (const before of runs) {
      const { id, status, dueAt } = before;
      const run = pawl.run(before.workflow, id);
      const mayRemain = status === "parked" && this.#parks(id)?.test(before.parkedReason ?? "") === true;
      world.check(ENDED.has(status) || mayRemain, `${id} is ${status} in the end, and due ${dueAt?.getTime()}`);
      const entries = await real.kernel.entries(runAt(id), 0, 10_000);
      world.check(
        entries.every(({ version }, index) => version === index + 1),
        `${id}: its history has a gap`,
      );
      const last = entries.at(-1);
      // What was canceled or expired before it began has nothing to replay.
      if (last === undefined || status === "expired" || (last.name !== "completed" && last.name !== "failed")) continue;
      const was = await outcomeOf(pawl, id);
      await rewind(pawl, id, last.version);
      for (let turn = 0; turn < 200 && troubles.length === 0; turn++) {
        await new Promise((resolve) => void realSetImmediate(resolve));
        if (ENDED.has((await run.status()).status)) break;
      }
      const after = await run.status();
      const is = await outcomeOf(pawl, id);
      world.check(troubles.length === 0, `at replay, ${id} had ${troubles.join("; ")}`);
      world.check(
        is === was && after.status === before.status,
        `${id} is ${before.status} with ${was}, and at replay ${after.status} with ${is}`,
      );
      world.check(this.begun.length === begunBefore, `at replay ${JSON.stringify(this.begun.at(-1))} was begun`);
    }
    void worker;
  }
}

/** All that was committed, once more in a database of its own, so that a replay changes nothing of the world's. */
async function copyOf({ database }: World): Promise<MemoryDatabase> {
  let nowMs = 0;
  const copy = new MemoryDatabase(() => nowMs);
  const store = copy.connect("simulated");
  const { epoch } = await store.settle(0);
  for (const [sequence, { puts, ...commit }] of database.commits.entries()) {
    nowMs = commit.nowMs;
    const decide = ({ rows }: Found): Verdict => ({
      puts: puts.map((put, index) => ({ ...put, was: rows[index] ?? null })),
    });
    await store.commit({ lane: 0, epoch, sequence, lock: puts.map(({ row }) => row), needsClock: false, decide });
  }
  nowMs = database.nowMs();
  return copy;
}

interface RunTimer {
  readonly dueMs: number;
}

/** The outcome in the run's record. */
async function outcomeOf(pawl: Pawl, id: string): Promise<string> {
  const [row] = await pawl.kernel.read([runAt(id)]);
  if (row == null || row.value === null) return "nothing";
  // Where in the source an error was made is another place at replay.
  const noStack = (name: string, part: unknown): unknown => (name === "stack" ? undefined : part);
  return JSON.stringify((JSON.parse(row.value) as RunValue).outcome, noStack);
}

/** Makes a run that has ended one that is about to: its last fact, which is the end, does not count. */
async function rewind(pawl: Pawl, id: string, last: number): Promise<void> {
  await pawl.kernel.transact(
    (tx) => {
      const record = tx.record(runAt(id));
      const { outcome: _, ...value } = record.value as RunValue;
      const skips = [...(value.skips ?? []), [last, last] as const];
      record.write({ value: { ...value, skips }, status: "waiting", dueMs: tx.nowMs, holder: null, tries: 0 });
    },
    [runAt(id)],
  );
}

/** Sends something until it is there, or refused for good. */
export async function insist(process: Process, act: () => Promise<unknown>): Promise<"yes" | "no"> {
  try {
    await until(async () => void (await act()), process);
    return "yes";
  } catch (error) {
    if (error instanceof RunEndedError) return "no";
    throw error;
  }
}

export const isService = (error: unknown): boolean =>
  error instanceof Error && (error instanceof ServiceError || error.name === "ServiceError");
