/**
 * The stage: one simulated world that runs a case, with workers, clients, and an operator who looks after parked runs.
 *
 * What clients know survives their crashes, as if they kept it elsewhere. The execution is everything that the oracle looks at.
 */

import {
  type AnyWorkflow,
  HistoryContradictionError,
  PawlError,
  type Run,
  type RunInfo,
  type RunPage,
  RunParkedError,
  StoreError,
  signal as signalOf,
  type Workflow,
} from "../../src/index.ts";
import { hash } from "../../src/kernel/fingerprint.ts";
import type { FaultCounts } from "../../src/testing/sim/faults.ts";
import { FAULT_NAMES } from "../../src/testing/sim/faults.ts";
import type { Process } from "../../src/testing/sim/process.ts";
import { World } from "../../src/testing/sim/world.ts";
import { ENDED, parseFact, WORDS, type Word } from "../../src/workflow/stored.ts";
import { ProgramDatabase } from "./database.ts";
import { nameOf } from "./facts.ts";
import type { Features } from "./features.ts";
import { codeOf, type Place, show, type Value, workflowOf } from "./interpret.ts";
import { type Begun, Ledger } from "./ledger.ts";
import type { Case, Node, RunPlan } from "./program.ts";
import { nodesOf, walk } from "./program.ts";

/** A promise that was not kept. */
export interface Finding {
  /** Which rule it breaks. */
  readonly rule: string;
  readonly message: string;
}

/** How a run came out, as its client was told. */
export type Told =
  | { readonly status: "completed"; readonly value: Value }
  | { readonly status: "failed" | "canceled" | "timed_out"; readonly code: string };

export interface RunFact {
  readonly id: string;
  readonly workflow: string;
  readonly status: string;
  readonly parent: string | null;
}

export interface Execution {
  readonly plan: Case;
  readonly ledger: Ledger;
  readonly world: World;
  readonly told: ReadonlyMap<string, Told>;
  readonly runs: readonly RunFact[];
  readonly finding: Finding | undefined;
  /** What the operator did, and why a run was parked. */
  readonly parked: ReadonlyMap<string, string>;
  readonly warnings: readonly { readonly run: string; readonly message: string }[];
  /** How often clients did what to a run. */
  readonly retried: ReadonlyMap<string, number>;
  readonly canceled: ReadonlyMap<string, number>;
  readonly restarted: ReadonlySet<string>;
  /** Runs whose code, mended meanwhile, contradicted their history once: what it asked for then has no effect. */
  readonly contradicted: ReadonlySet<string>;
}

/** Everything must have ended by then, in the world's time: a clock that is wrong by an hour may put a sleep off by as much, or twice that. */
const LIMIT_MS = 150 * 60_000;
const FAULTS_MS = 120_000;
/** How many events a case may take, without fans of children. */
const STEPS = 150_000;
export const LEASE_MS = 10_000;

/** What is tried again. */
const AGAIN: ReadonlySet<string> = new Set(["run_not_found", "lock_lost", "lock_removed"]);

/** The lock of plain code. */
const OUTSIDE = "outside";

/** Why a run may be parked. */
const UNKNOWN = /^step "(.*)" may or may not have happened/;
const IN_VAIN = /claimed \d+ times without getting anywhere/;
/** Code that awaits something foreign is stuck, or somewhere else when it is replayed. */
const FOREIGN = /not an operation of ctx|no operation of ctx|the history says/;

export async function runCase(plan: Case, seed: number, features: Features, keepTrace = false): Promise<Execution> {
  const fixed: Partial<FaultCounts> = { mixedVersions: 0, httpError: 0, httpLate: 0, httpTimeout: 0 };
  if (!plan.faults) for (const fault of FAULT_NAMES) fixed[fault] = 0;
  const limits = { faultsMs: plan.faults ? FAULTS_MS : LIMIT_MS, healMs: LIMIT_MS * 2, steps: stepsOf(plan) };
  const world = new World(seed, { fixed, limits, keepTrace, database: (made) => new ProgramDatabase(made) });
  // Programs throw a lot, and stacks are what that costs.
  const { stackTraceLimit } = Error;
  Error.stackTraceLimit = 0;
  try {
    return await new Stage(plan, world, features).run();
  } finally {
    Error.stackTraceLimit = stackTraceLimit;
  }
}

/** A thousand children take about a third of `STEPS`, in each life of the run that starts them; a thousand locks, with new fences for each claim, may take more. */
function stepsOf({ runs, workflows }: Case): number {
  let fans = 0;
  for (const { workflow, retries, restarts } of runs)
    for (const node of walk(workflows[workflow]?.body ?? []))
      if (node.op === "fan" && node.of !== "slots") fans += 1 + retries + (restarts ? 1 : 0);
  return STEPS * (1 + fans);
}

class Stage {
  readonly #plan: Case;
  readonly #world: World;
  readonly #features: Features;
  readonly #ledger = new Ledger();
  readonly #told = new Map<string, Told>();
  readonly #parked = new Map<string, string>();
  readonly #warnings: { run: string; message: string }[] = [];
  readonly #retried = new Map<string, number>();
  readonly #canceled = new Map<string, number>();
  readonly #restarted = new Set<string>();
  readonly #contradicted = new Set<string>();
  /** Where workers noticed that they had lost a run, by worker and run: how many commits there were by then. */
  readonly #lost = new Map<string, number>();
  readonly #helped = new Map<string, number>();
  readonly #hasForeign: boolean;
  /** Its plain code may be mended between two replays, so that the second comes to another place. */
  readonly #isMended: boolean;
  #runs: readonly RunFact[] = [];
  #finding: Finding | undefined;

  constructor(plan: Case, world: World, features: Features) {
    this.#plan = plan;
    this.#world = world;
    this.#features = features;
    this.#hasForeign = [...nodesOf(plan)].some((node) => node.op === "foreign");
    this.#isMended = mayMeetOther(plan);
  }

  async run(): Promise<Execution> {
    const world = this.#world;
    const restore = this.#catchRejections();
    try {
      for (const name of ["w1", "w2"]) this.#worker(name, name === "w2" && this.#plan.stranger === true);
      this.#operator();
      for (const run of this.#plan.runs) {
        this.#client(run);
        if (run.cancelMs !== undefined) this.#canceler(run, run.cancelMs);
      }
      for (const run of new Set(this.#plan.signals.map((signal) => signal.run))) this.#sender(run);
      this.#janitor();
      await world.finish();
    } catch (error) {
      this.#find(
        error instanceof Error && error.message.includes("did not come to an end") ? "ends" : "stage",
        said(error),
      );
    } finally {
      restore();
    }
    return {
      plan: this.#plan,
      ledger: this.#ledger,
      world,
      told: this.#told,
      runs: this.#runs,
      finding: this.#finding,
      parked: this.#parked,
      warnings: this.#warnings,
      retried: this.#retried,
      canceled: this.#canceled,
      restarted: this.#restarted,
      contradicted: this.#contradicted,
    };
  }

  /** The first one counts: what comes after it may follow from it. */
  #find(rule: string, message: string): void {
    this.#finding ??= { rule, message };
    this.#world.fail(new Error(`${rule}: ${message}`));
  }

  /** Nothing that a program of ours does may leave a rejection to the process. */
  #catchRejections(): () => void {
    const others = process.listeners("unhandledRejection");
    process.removeAllListeners("unhandledRejection");
    const caught = (error: unknown): void => this.#find("unhandled rejection", said(error));
    process.on("unhandledRejection", caught);
    return () => {
      process.off("unhandledRejection", caught);
      for (const other of others) process.on("unhandledRejection", other);
    };
  }

  // Workers.

  #worker(name: string, isStranger: boolean): void {
    this.#world.process(
      name,
      async (process) => {
        for (;;) {
          const worker = this.#work(process, isStranger);
          await process.sleep(this.#plan.faults ? process.random() * 120_000 : LIMIT_MS * 10);
          this.#ledger.reach("worker stopped and started again");
          await worker.stop({ timeout: process.random() < 0.5 ? 2_000 : undefined });
        }
      },
      { service: true },
    );
  }

  /** The case's workflows as this process knows them; `by` tells which worker runs them. */
  #workflows(process: Process, by: () => string, isStranger = false): readonly AnyWorkflow[] {
    const ledger = this.#ledger;
    const place: Place = {
      ledger,
      features: this.#features,
      sleep: process.sleep,
      lockOutside: async () => {
        await this.#insist(process, () => process.pawl.lock(OUTSIDE, () => {}));
      },
      workflows: () => workflows,
      hasEnded: (run) => this.#hasEnded(run),
      isUnheard: (run) => this.#isUnheard(run, by()),
      contradicts: (run) => isStranger && this.#hasBegun(run),
      note: {
        begun: (run, name, kind, step) => {
          const at = this.#world.database.moment;
          const begun: Begun = { run, name, kind, ...step, by: by(), atMs: this.#world.nowMs, at };
          ledger.begun.push(begun);
          return () => {
            begun.overMs = this.#world.nowMs;
          };
        },
      },
    };
    const workflows = this.#plan.workflows.map((workflow) => workflowOf(workflow, place));
    return workflows;
  }

  #work(process: Process, isStranger = false): ReturnType<Process["pawl"]["work"]> {
    let by = "";
    const workflows = this.#workflows(process, () => by, isStranger);
    const warm = [0, 1, 1000][Math.floor(process.random() * 3)] ?? 0;
    const worker = process.pawl.work(workflows, {
      lease: LEASE_MS,
      concurrency: process.random() < 0.2 ? 1 : 10,
      warm,
      on: (event) => {
        if (event.type === "run.lost") this.#lost.set(`${by} ${event.run}`, this.#world.database.commits.length);
        this.#hear(process, event);
      },
    });
    by = worker.id;
    return worker;
  }

  /** Whether its history has anything that its code asked for; what is from before a retry is only remembered. */
  #hasBegun(run: string): boolean {
    let hasBegun = false;
    for (const { puts } of this.#world.database.commits)
      for (const { row, entries } of puts)
        if (row.space === "run" && row.key === run)
          for (const { name } of entries) {
            const { word } = parseFact(name);
            if (word === "started" || word === "retried") hasBegun = false;
            else if (WORDS[word as Word] !== null) hasBegun = true;
          }
    return hasBegun;
  }

  #hear(process: Process, event: { type: string; run: string; error?: unknown; message?: string }): void {
    const { type, run, error, message } = event;
    if (type === "run.resumed") this.#ledger.reach("a run resumed");
    if (type === "run.lost") this.#ledger.reach("a run lost by its worker");
    if (type === "run.warning") this.#warnings.push({ run, message: message ?? "" });
    if (type !== "run.trouble" || error instanceof StoreError) return;
    if (error instanceof PawlError && (error.code === "closed" || error.code === "fenced")) return;
    if (this.#hasForeign && error instanceof Error && FOREIGN.test(error.message)) return;
    if (this.#isMended && error instanceof HistoryContradictionError) this.#contradicted.add(run);
    const isExpected = this.#isMended || this.#plan.stranger === true;
    if (isExpected && error instanceof HistoryContradictionError) return;
    if (process.isAlive) this.#find("trouble", `run ${run} was in trouble: ${said(error)}`);
  }

  #hasEnded(run: string): boolean {
    const { commits } = this.#world.database;
    for (let at = commits.length - 1; at >= 0; at--)
      for (const { row } of commits[at]?.puts ?? [])
        if (row.space === "run" && row.key === run) return ENDED.has(row.status ?? "");
    return false;
  }

  /** Whether another worker took the run over while this one held it, and this one has not noticed: its process may have stood still. */
  #isUnheard(run: string, by: string): boolean {
    const { commits } = this.#world.database;
    const lostAt = this.#lost.get(`${by} ${run}`) ?? 0;
    return commits
      .slice(lostAt)
      .some(({ puts }) =>
        puts.some(
          ({ was, row }) =>
            row.space === "run" && row.key === run && was?.holder === by && row.holder !== null && row.holder !== by,
        ),
      );
  }

  // Clients.

  #workflowName(run: RunPlan): string {
    return this.#plan.workflows[run.workflow]?.name ?? "";
  }

  #client(run: RunPlan): void {
    const name = this.#workflowName(run);
    this.#world.process(`client of ${run.id}`, async (process) => {
      // By its definition, because a mere name knows of no timeout.
      const defined = this.#workflows(process, () => "")[run.workflow] as Workflow<number, unknown>;
      if (process.incarnation === 1) await process.sleep(run.startMs);
      if (run.underLock === true || process.random() < 0.3) this.#work(process);
      const start = (): Promise<unknown> => process.pawl.start(defined, 1, { id: run.id });
      await this.#insist(process, run.underLock === true ? () => process.pawl.lock(OUTSIDE, start) : start);
      if (run.underLock === true) this.#ledger.reach("started under a lock");
      const handle = process.pawl.run(name, run.id);
      for (;;) {
        const told = await this.#outcome(process, handle);
        const retried = this.#retried.get(run.id) ?? 0;
        if (told.status === "failed" && retried < run.retries) {
          this.#retried.set(run.id, retried + 1);
          this.#ledger.isMended = true;
          this.#ledger.reach("retry()");
          await this.#insist(process, () => handle.retry());
          if (run.cancelsRetry === true) {
            // Noted first: this client may be lost before it hears of it.
            this.#canceled.set(run.id, this.#world.nowMs);
            await this.#cancel(process, handle, { reason: "enough" });
          }
        } else if (run.restarts && !this.#restarted.has(run.id)) {
          await this.#insist(process, () => process.pawl.start(defined, 1, { id: run.id, ifExists: "restart" }));
          this.#restarted.add(run.id);
          this.#ledger.reach("restart");
        } else {
          this.#told.set(run.id, told);
          return;
        }
      }
    });
  }

  #canceler(run: RunPlan, cancelMs: number): void {
    const name = this.#workflowName(run);
    this.#world.process(`canceler of ${run.id}`, async (process) => {
      if (process.incarnation === 1) await process.sleep(run.startMs + cancelMs);
      const options = run.force === true ? { force: true } : { reason: "enough" };
      await this.#cancel(process, process.pawl.run(name, run.id), options);
    });
  }

  async #cancel(process: Process, run: Run, options: { readonly force?: boolean; readonly reason?: string }) {
    await this.#insist(process, async () => {
      const { status } = await run.cancel(options);
      if (options.force === true && !ENDED.has(status))
        this.#find("force ends a run", `${run.id} was canceled by force, and is ${status}`);
      if (ENDED.has(status) && status !== "canceled") return;
      this.#canceled.set(run.id, this.#world.nowMs);
      this.#ledger.reach(options.force === true ? "cancel by force" : "cancel");
    });
  }

  #sender(run: string): void {
    const plan = this.#plan.runs.find(({ id }) => id === run);
    if (plan === undefined) return;
    const signals = this.#plan.signals.filter((signal) => signal.run === run).sort((a, b) => a.atMs - b.atMs);
    const name = this.#workflowName(plan);
    this.#world.process(`sender to ${run}`, async (process) => {
      for (const { name: signal, number, atMs } of signals) {
        const waitMs = plan.startMs + atMs - this.#world.nowMs;
        if (waitMs > 0) await process.sleep(waitMs);
        const send = (): Promise<unknown> =>
          process.pawl.run(name, run).signal(signalOf(signal), undefined, { id: `${signal} ${number}` });
        // A run that failed may be retried, and wait for it then.
        while ((await this.#insist(process, send)) === "ended" && !this.#told.has(run)) await process.sleep(1_000);
        this.#ledger.reach("signal");
      }
    });
  }

  /** Tries again for as long as only the store is to blame, or the run is not there yet, or a lock was lost by standing still. */
  async #insist(process: Process, act: () => Promise<unknown>): Promise<"done" | "ended"> {
    for (;;)
      try {
        await act();
        return "done";
      } catch (error) {
        const code = codeOf(error);
        if (code === "run_ended" || code === "run_conflict") return "ended";
        if (!(error instanceof StoreError) && !AGAIN.has(code)) throw error;
        await process.sleep(200);
      }
  }

  /** Waits until the run has ended, however long that takes. */
  async #outcome(process: Process, run: Run): Promise<Told> {
    for (;;)
      try {
        return { status: "completed", value: show(await run.result({ timeout: 120_000 })) };
      } catch (error) {
        const code = codeOf(error);
        if (code === "run_failed") return { status: "failed", code: codeOf((error as Error).cause) };
        if (code === "run_canceled") return { status: "canceled", code };
        if (code === "run_timed_out") return { status: "timed_out", code };
        if (this.#world.nowMs > LIMIT_MS) await this.#hangs(run);
        if (error instanceof RunParkedError) await process.sleep(1_000);
        else if (error instanceof StoreError) await process.sleep(200);
        else if (code !== "result_timeout") throw error;
      }
  }

  async #hangs(run: Run): Promise<void> {
    const { status, parkedReason } = await run.status();
    // Code that awaits something foreign beside operations cannot be told from code that only waits: an operator has to.
    if (this.#hasForeign && status === "waiting") {
      this.#parked.set(run.id, "waits for something foreign");
      await run.cancel({ force: true });
      return;
    }
    const history = await run.history();
    const last = history.slice(-4).map(({ name }) => name);
    this.#find(
      "ends",
      `${run.id} is ${status} ${parkedReason ?? ""} after ${LIMIT_MS} ms; its history ends with ${last.join(", ")}`,
    );
  }

  /** Looks after parked runs. */
  #operator(): void {
    this.#world.process(
      "operator",
      async (process) => {
        for (;;) {
          await process.sleep(25_000);
          try {
            const { runs } = await process.pawl.runs.list({ status: "parked" });
            for (const { workflow, id, parkedReason } of runs)
              await this.#help(process.pawl.run(workflow, id), parkedReason ?? "");
          } catch (error) {
            if (!(error instanceof StoreError) && !["run_ended", "run_conflict"].includes(codeOf(error))) throw error;
          }
        }
      },
      { service: true },
    );
  }

  async #help(run: Run, reason: string): Promise<void> {
    const helped = (this.#helped.get(run.id) ?? 0) + 1;
    this.#helped.set(run.id, helped);
    this.#parked.set(run.id, reason);
    const [, step] = UNKNOWN.exec(reason) ?? [];
    // After a retry of a step that failed, it is the operator's to say whether it happened.
    if (step !== undefined && (this.#plan.faults || this.#hasTried(run.id, step))) {
      this.#ledger.reach("an operator resolved a step");
      await run.resolveStep(step, this.#resolution(run.id, step));
    } else if (IN_VAIN.test(reason) && this.#plan.faults) {
      this.#ledger.reach("an operator retried a run");
      await (helped < 6 ? run.retry() : run.cancel());
    } else if (this.#isMended && reason.startsWith("the history says")) {
      await run.cancel();
    } else if (this.#plan.stranger === true && this.#plan.faults && reason.startsWith("the history says")) {
      // The store's clock may have been set forward by more than contradictions are put up with.
      await run.retry();
    } else if (FOREIGN.test(reason) && this.#hasForeign) {
      this.#ledger.reach("parked because of a foreign promise");
      await run.cancel();
    } else this.#find("parked", `${run.id} is parked: ${reason}`);
  }

  #hasTried(run: string, step: string): boolean {
    const [name = step] = step.split("#");
    return this.#ledger.attempts(run, name).length > 0;
  }

  /** Looks outside for what has the key of this step, of the run as it is now. */
  #resolution(run: string, step: string): { readonly done: true; readonly value: unknown } | { readonly done: false } {
    const key = hash("simulated", run, String(this.#incarnationOf(run)), step);
    return this.#ledger.answer(key, `did ${nameOf(step)}`);
  }

  #incarnationOf(run: string): number {
    const { commits } = this.#world.database;
    for (let at = commits.length - 1; at >= 0; at--)
      for (const { row } of commits[at]?.puts ?? [])
        if (row.space === "run" && row.key === run)
          return (JSON.parse(row.value ?? "{}") as { incarnation?: number }).incarnation ?? 1;
    return 1;
  }

  /** Waits for all runs to end, those of children too. */
  #janitor(): void {
    this.#world.process("janitor", async (process) => {
      for (;;) {
        await process.sleep(20_000);
        if (this.#told.size < this.#plan.runs.length) continue;
        const runs = await this.#list(process);
        const living = runs.filter(({ status }) => !ENDED.has(status));
        if (living.length === 0) {
          this.#runs = runs;
          // Code that uses `ctx` too late gets the time to do so.
          if (this.#plan.workflows.some(({ body }) => body.some(({ op }) => op === "afterEnd")))
            await process.sleep(100_000);
          return;
        }
        if (this.#world.nowMs > LIMIT_MS) {
          const [first] = living;
          if (first !== undefined)
            await this.#insist(process, () => this.#hangs(process.pawl.run(first.workflow, first.id)));
        }
      }
    });
  }

  async #list(process: Process): Promise<readonly RunFact[]> {
    let facts: readonly RunFact[] = [];
    await this.#insist(process, async () => {
      const all: RunInfo[] = [];
      let after: string | null = null;
      do {
        const { runs, next }: RunPage = await process.pawl.runs.list({ limit: 1000, order: "oldest", after });
        all.push(...runs);
        after = next;
      } while (after !== null);
      facts = all.map(({ id, workflow, status, parent }) => ({ id, workflow, status, parent }));
    });
    return facts;
  }
}

/**
 * Whether plain code may be mended while the history of a run goes on: that of a child, or of a run beside the one that is retried. The history of a
 * run that is retried begins anew, and what it had before must be found again in whatever order.
 */
function mayMeetOther(plan: Case): boolean {
  const isMended = (node: Node): boolean => node.op === "throw" && node.outage;
  if (plan.faults || plan.runs.length > 1) return [...nodesOf(plan)].some(isMended);
  const roots = new Set(plan.runs.map(({ workflow }) => workflow));
  return plan.workflows.some(({ body }, at) => !roots.has(at) && [...walk(body)].some(isMended));
}

const said = (error: unknown): string =>
  error instanceof Error
    ? `${error.name}: ${error.message}${error.name === "TypeError" ? `\n${error.stack}` : ""}`
    : String(error);
