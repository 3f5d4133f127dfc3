/**
 * `pawl.work`: this process takes part in the work on some workflows.
 *
 * Runs are claimed like any due record, and those that this process starts are leased to it by the commit that starts them. The code of
 * runs that rest is kept warm (`warm.ts`); others are replayed from their history. When a wake-up reaches a run that is held here, by a
 * signal, a child or a cancellation, it looks into its inbox.
 *
 * Guarantees: this process owns nothing but leases, so any other worker continues its runs when it dies (G25); runs of workflows that it does
 * not know are left to other workers.
 */

import type { Queue, WorkPart, WorkSettings } from "../../kernel/capability.ts";
import { checkCount, checkDuration, checkFunction } from "../../kernel/check.ts";
import { Held } from "../../kernel/claim/claim.ts";
import { startWorker, type Worker } from "../../kernel/claim/worker.ts";
import type { Address, Put, Row } from "../../kernel/contract.ts";
import type { Draft } from "../../kernel/draft.ts";
import {
  ClosedError,
  CommitsLostError,
  FencedError,
  InvalidArgumentError,
  LeaseUncertainError,
} from "../../kernel/errors.ts";
import type { Kernel } from "../../kernel/kernel.ts";
import { callQuietly, type Log } from "../../kernel/log.ts";
import { pause, type Watchdog } from "../../kernel/ports.ts";
import { SweepLoop } from "../../kernel/sweep-loop.ts";
import type { RateLimit, RateLimitOptions, RateLimits } from "../../rate/rate.ts";
import type { Definition } from "../definitions/definition.ts";
import type { Flow } from "../definitions/flow.ts";
import { isForever, keptMsOf, type RetentionPolicy } from "../definitions/retention.ts";
import { RunUnreadableError } from "../errors.ts";
import type { RunEvent, RunListener } from "../events.ts";
import { expireIfDue } from "../flow/gate.ts";
import { type HandOver, HandOvers } from "../flow/hand-over.ts";
import { declareLimits } from "../flow/limits.ts";
import type { PausedWorkflows } from "../flow/paused.ts";
import { declarePools } from "../flow/pools.ts";
import { recordDoing } from "../history/doing.ts";
import { decodeRun, parkUnreadable, readRun, runOf } from "../history/read-run.ts";
import { needsFences } from "../locks/locks.ts";
import { endParked, isToBeEnded } from "../runs/cascade.ts";
import { retentionQueues } from "../runs/retire.ts";
import {
  type Doing,
  hasBegun,
  isNewQueue,
  newQueueOf,
  poolOfQueue,
  queuedQueueOf,
  queueOf,
  RUNS,
  type RunStatus,
  type RunValue,
  runAt,
  statusOf,
  workflowOfQueue,
} from "../stored.ts";
import type { Engine } from "./engine.ts";
import { Execution } from "./execution.ts";
import { needsGate, passAtClaim } from "./gate.ts";
import { LOGGED, logRunEvent } from "./run-log.ts";
import { WarmRuns } from "./warm.ts";
import { checkPerWorkflow, checkPools, type RunWorkOptions } from "./work-options.ts";

/** What a worker of runs shares with its handle. */
export interface RunWorkerSetup {
  readonly log?: Log | undefined;
  readonly retention?: RetentionPolicy | undefined;
  readonly paused: PausedWorkflows;
}

/** When a run was claimed that may have waited for a place since. */
interface Claimed {
  /** How many commits of other processes were known of then. */
  readonly commitsSeen: number;
  /** When that was, by the clock of this process. */
  readonly sinceMs: number;
}

/** Other processes' commits make this one look at the runs it holds, at most once in this time. */
const LOOK_MS = 50;

/** How long a run that the code contradicts is left to others, and how many such are remembered. */
const SHUNNED_MS = { first: 2000, longest: 60_000 };
const SHUNNED_MOST = 10_000;
/** At most this many declarations of permits are remembered. */
const DECLARED_MOST = 10_000;

/** A part of this process that works on runs, until `stop`. */
export class RunWorker implements Engine, WorkPart {
  readonly kernel: Kernel;
  readonly leaseMs: number;
  readonly contradictionMs: number;
  readonly #rates: RateLimits;
  /** What this process has declared: declaring the same again must not undo a later declaration of another process. */
  readonly #declared = new Map<string, number>();
  readonly #by: string;
  readonly #concurrency: number;
  readonly #definitions = new Map<string, Definition>();
  readonly #maxTries = new Map<string, number>();
  readonly #on: RunListener | undefined;
  readonly #log: Log | undefined;
  readonly #worker: Worker;
  readonly #retention: RetentionPolicy;
  readonly #sweepLoop: SweepLoop;
  readonly #paused: PausedWorkflows;
  /** How many runs of a workflow are worked on at most, and how many are. */
  readonly #perWorkflow: ReadonlyMap<string, number>;
  readonly #workingOn = new Map<string, number>();
  /** The pools that are taken of each workflow that has pools. */
  readonly #pools: ReadonlyMap<string, ReadonlySet<string>>;
  readonly #executions = new Map<string, Execution>();
  readonly #warm: WarmRuns;
  /** Runs that cannot go on here, as their history contradicts the code, and until when they are left to other workers. */
  readonly #shunned = new Map<string, { readonly untilMs: number; readonly forMs: number }>();
  /** What runs were started with that this process is to begin itself. */
  readonly #inputs = new WeakMap<Held, { readonly input: unknown }>();
  /** Runs whose work did not begin with the claim. */
  readonly #waiting = new WeakMap<Held, Claimed>();
  readonly #handOvers: HandOvers;
  /** How often other processes have committed something, as far as is known. */
  #foreignCommits = 0;
  readonly #unlisten: () => void;
  readonly #watchdog: Watchdog | undefined;
  #isStopping = false;
  #isLooking = false;
  #adopted = 0;

  /** @internal */
  constructor(
    kernel: Kernel,
    rates: RateLimits,
    definitions: readonly Definition[],
    { by, leaseMs, concurrency }: WorkSettings,
    options: RunWorkOptions,
    { log, retention = {}, paused }: RunWorkerSetup,
  ) {
    this.#paused = paused;
    this.kernel = kernel;
    this.#retention = retention;
    // A listener of the user replaces the default log.
    const isLogged = log !== undefined && (options.on === undefined || !log.isDefault);
    this.#log = isLogged ? log : undefined;
    this.#rates = rates;
    if (options.on !== undefined) checkFunction(options.on, "the listener (on)");
    for (const definition of definitions) {
      if (this.#definitions.has(definition.name))
        throw new InvalidArgumentError("what to work on", `must not have two workflows named "${definition.name}"`);
      this.#definitions.set(definition.name, definition);
      this.#maxTries.set(definition.name, definition.maxTries);
    }
    this.#perWorkflow = checkPerWorkflow(options.perWorkflow, this.#definitions);
    this.#pools = checkPools(options.pools, this.#definitions);
    this.leaseMs = leaseMs;
    this.contradictionMs = checkDuration(options.parkContradictedAfter ?? "10 minutes", "parkContradictedAfter");
    this.#concurrency = concurrency;
    const warmLimit = options.warm === 0 ? 0 : checkCount(options.warm ?? 1000, "the warm runs", 10_000_000);
    this.#warm = new WarmRuns(kernel, warmLimit);
    this.#on = options.on;
    this.#by = by;
    const limit = options.watchdog ?? "60s";
    this.#watchdog =
      limit === false ? undefined : kernel.ports.watchdog?.(checkDuration(limit, "the watchdog's limit"));
    this.#worker = startWorker(kernel, {
      // Those of no pool were started by processes that do not know the pools, or before there were any.
      kinds: [...this.#definitions.keys()].flatMap((name) =>
        [undefined, ...(this.#pools.get(name) ?? [])].flatMap((pool) => [queueOf(name, pool), newQueueOf(name, pool)]),
      ),
      kindAfter: (kind) => queueOf(workflowOfQueue(kind), poolOfQueue(kind)),
      roomFor: (kind) => this.#roomFor(kind),
      groupOf: workflowOfQueue,
      chores: [...kernel.sweeper.urgent, ...this.#expiries()],
      by: this.#by,
      leaseMs: this.leaseMs,
      concurrency: this.#concurrency,
      status: "running",
      isSkipped: ({ key }) => this.#isShunned(key),
      unbegun,
      // One of a workflow with a limit of its own does not wait here, because others could be claimed meanwhile.
      waits: this.#perWorkflow.size > 0 ? undefined : (held) => this.#waits(held),
      maxTries: (kind) => this.#maxTries.get(workflowOfQueue(kind)) ?? Number.POSITIVE_INFINITY,
      work: (held) => this.#workOrLose(held),
      lost: (held, reason) => {
        // It may be worked on here anew by now.
        const execution = this.#executions.get(held.at.key);
        if (execution?.run.fence === held.fence) execution.abandon(reason);
      },
      renewing: (held) => {
        const doing = this.doing(held.at.key, held.fence);
        return doing === undefined ? undefined : (record) => recordDoing(record, doing);
      },
      failed: (error) => {
        if (!(error instanceof ClosedError)) this.emit({ type: "run.trouble", workflow: "", run: "", error });
      },
    });
    this.#handOvers = this.#makeHandOvers();
    const queues = retentionQueues(kernel, {
      workflows: [...this.#definitions.values()]
        .filter((definition) => !isForever(definition.retention, retention))
        .map(({ name }) => name),
      keptMs: (workflow, status) => this.keptMs(workflow, status),
    });
    this.#sweepLoop = new SweepLoop(kernel, queues, (error) =>
      this.emit({ type: "run.trouble", workflow: "", run: "", error }),
    );
    void this.#declareLimits();
    for (const { name, flow } of definitions)
      if (flow?.pools !== undefined)
        void declarePools(kernel, name, flow.pools.names).catch((error: unknown) => {
          if (!(error instanceof ClosedError)) this.emit({ type: "run.trouble", workflow: name, run: "", error });
        });
    const stopListening = kernel.listen((puts) => this.#onCommits(puts));
    const stopSuspecting = kernel.onRestart(() => this.#suspectAll());
    // What was paused may be claimed.
    const stopPauses = paused.onChange(() => {
      this.#worker.releaseWaiting(({ at }) => paused.has(workflowOfQueue(kernel.held(at)?.kind ?? null)));
      this.#worker.wake();
    });
    this.#unlisten = () => {
      stopPauses();
      stopListening();
      stopSuspecting();
    };
  }

  /** The run cannot go on here: it is left to others for a while, longer each time. */
  shun(run: string): void {
    const { clock } = this.kernel.ports;
    const lastMs = this.#shunned.get(run)?.forMs ?? SHUNNED_MS.first / 2;
    const forMs = Math.min(2 * lastMs, SHUNNED_MS.longest);
    this.#shunned.delete(run);
    this.#shunned.set(run, { untilMs: clock.nowMs() + forMs, forMs });
    if (this.#shunned.size > SHUNNED_MOST) this.#shunned.delete(this.#shunned.keys().next().value as string);
  }

  #isShunned(run: string): boolean {
    const shunned = this.#shunned.get(run);
    return shunned !== undefined && this.kernel.ports.clock.nowMs() < shunned.untilMs;
  }

  /** The name that its leases have. */
  get id(): string {
    return this.#by;
  }

  get isStopping(): boolean {
    return this.#isStopping;
  }

  /** What a run is doing that is worked on here under this claim. @internal */
  doing(run: string, fence: number): Doing | undefined {
    const execution = this.#executions.get(run);
    return execution?.run.fence === fence ? execution.doing() : undefined;
  }

  /** Takes no more runs, lets running steps finish, and releases the runs. After `timeout`, steps are aborted. */
  async stop(timeoutMs: number | undefined): Promise<void> {
    this.#isStopping = true;
    const { clock } = this.kernel.ports;
    const stopped = Promise.all([this.#worker.stop(), this.#sweepLoop.stop()]);
    for (const execution of this.#executions.values()) execution.stopSoon();
    const cancel =
      timeoutMs === undefined
        ? () => {}
        : clock.after(timeoutMs, () => {
            const reason = new Error("the worker shuts down");
            for (const execution of this.#executions.values()) execution.shutDown(reason);
            // Those that do not stop are left to their leases.
            void pause(clock, 100).then(() => {
              for (const execution of this.#executions.values()) execution.abandon(reason);
            });
          });
    await stopped;
    cancel();
    this.#unlisten();
    this.#watchdog?.stop();
    this.#warm.evictAll();
  }

  limit(name: string, options: RateLimitOptions): RateLimit {
    return this.#rates.limit(name, options);
  }

  /** Refuses what could not be stored, before an operation is started with it. @internal */
  checkValue(value: unknown): void {
    this.kernel.encode(runAt("value"), value);
  }

  declares(name: string, permits: number): boolean {
    const isNew = this.#declared.get(name) !== permits;
    this.#declared.delete(name);
    this.#declared.set(name, permits);
    const [oldest] = this.#declared.keys();
    if (oldest !== undefined && this.#declared.size > DECLARED_MOST) this.#declared.delete(oldest);
    return isNew;
  }

  keptMs(workflow: string, status: string): number | null {
    return keptMsOf(this.#definitions.get(workflow)?.retention ?? {}, this.#retention, status);
  }

  ending(held: Held, value: RunValue): HandOver | undefined {
    return this.#worker.leaving(held, () => this.#handOvers.begin(value));
  }

  running(run: string): void {
    this.#watchdog?.running(run);
  }

  isWanted(type: RunEvent["type"]): boolean {
    return this.#on !== undefined || (this.#log !== undefined && LOGGED.has(type));
  }

  get around(): RunListener["around"] {
    return this.#on?.around;
  }

  emit(event: RunEvent): void {
    if (this.#log !== undefined) logRunEvent(this.#log, event);
    if (this.#on !== undefined) callQuietly(() => this.#on?.(event));
  }

  /** How a run of this workflow may be leased to this process by the commit that starts it; undefined if there is no room. @internal */
  lease(workflow: string, pool?: string): { readonly by: string; readonly leaseMs: number } | undefined {
    if (this.#isStopping || !this.#definitions.has(workflow) || this.#paused.has(workflow)) return undefined;
    if (pool !== undefined && !this.takes(workflow, pool)) return undefined;
    // One of a workflow with a limit of its own does not wait here, because others could be claimed meanwhile.
    if (!this.#worker.canAdopt(this.#adopted, !this.#perWorkflow.has(workflow))) return undefined;
    // Starts that are on their way are not told apart: each of them may be of this workflow.
    if (this.#placesFor(workflow) - this.#adopted <= 0) return undefined;
    return { by: this.#by, leaseMs: this.leaseMs };
  }

  /** Whether runs of this pool are worked on here. */
  takes(workflow: string, pool: string): boolean {
    return this.#pools.get(workflow)?.has(pool) === true;
  }

  /** When runs of this workflow begin, if it is worked on here. @internal */
  flowOf(workflow: string): Flow | undefined {
    return this.#definitions.get(workflow)?.flow;
  }

  /** How many runs of a queue may be claimed now. */
  #roomFor(kind: string): number {
    const workflow = workflowOfQueue(kind);
    if (isNewQueue(kind) && this.#paused.has(workflow)) return 0;
    return this.#placesFor(workflow);
  }

  #placesFor(workflow: string): number {
    const most = this.#perWorkflow.get(workflow);
    return most === undefined ? Number.POSITIVE_INFINITY : most - (this.#workingOn.get(workflow) ?? 0);
  }

  /** Runs that wait in line and were not admitted in time. */
  #expiries(): readonly Queue[] {
    const chore = (at: Address) => this.kernel.transact((tx) => expireIfDue(tx, tx.record(at)), [at]);
    return [...this.#definitions.keys()].map((name) => ({ kind: queuedQueueOf(name), chore }));
  }

  /** Limits that runs wait for may have had another `max` before this code was deployed. */
  async #declareLimits(): Promise<void> {
    try {
      for (const { flow } of this.#definitions.values())
        for (const { name, max } of flow?.limits ?? [])
          await declareLimits(this.kernel, name, max, () => this.#isStopping);
    } catch (error) {
      if (!(error instanceof ClosedError)) this.emit({ type: "run.trouble", workflow: "", run: "", error });
    }
  }

  /** A place is kept for a run that is about to be started. @internal */
  keepPlace(): void {
    this.#adopted += 1;
  }

  freePlace(): void {
    this.#adopted -= 1;
  }

  /** Begins a run that was just started, and leased to this process. @internal */
  adopt(id: string, input: unknown, safeUntilMs: number): void {
    const row = this.kernel.held(runAt(id));
    if (row === undefined) return;
    const held = new Held(this.kernel, row);
    this.#inputs.set(held, { input });
    this.#waits(held);
    this.#worker.adopt(held, safeUntilMs, !this.#perWorkflow.has(workflowOfQueue(row.kind)));
  }

  #waits(held: Held): void {
    this.#waiting.set(held, { commitsSeen: this.#foreignCommits, sinceMs: this.kernel.ports.clock.nowMs() });
  }

  #makeHandOvers(): HandOvers {
    const worker = this.#worker;
    return new HandOvers({
      by: this.#by,
      leaseMs: this.leaseMs,
      get mayHaveMore() {
        return worker.mayHaveMore;
      },
      reserve: () => worker.reserve(1) === 1,
      release: () => worker.release(1),
      takes: (run, { workflow, pool }, ending) => {
        if (!this.#definitions.has(workflow) || this.#paused.has(workflow) || this.#shunned.has(run)) return false;
        if (pool !== undefined && !this.takes(workflow, pool)) return false;
        // The run that ends is still counted.
        return this.#placesFor(workflow) + (workflow === ending ? 1 : 0) - this.#adopted > 0;
      },
      adopt: (row, safeUntilMs) => worker.adopt(new Held(this.kernel, row), safeUntilMs),
      nowMs: () => this.kernel.ports.clock.nowMs(),
    });
  }

  /** Also a run that is ended or parked without its code can be taken over meanwhile. */
  async #workOrLose(held: Held): Promise<void> {
    const kind = this.kernel.held(held.at)?.kind ?? null;
    try {
      await this.#work(held);
    } catch (error) {
      if (!(error instanceof FencedError) || error instanceof CommitsLostError) throw error;
      this.emit({ type: "run.lost", workflow: workflowOfQueue(kind), run: held.at.key, error });
    }
  }

  async #work(held: Held): Promise<void> {
    const waiting = this.#waiting.get(held);
    // It waited for a place, and another process may have sent it something meanwhile, or ended it.
    const isNews = waiting !== undefined && waiting.commitsSeen !== this.#foreignCommits;
    const wakes = isNews ? await wakesOf(held) : 0;
    if (wakes === undefined) return;
    const row = this.kernel.held(held.at);
    // This process has ended it meanwhile.
    if (waiting !== undefined && row?.holder !== held.holder) return;
    if (row === undefined || row.value === null) return;
    const { value, unreadable } = readRun(this.kernel, row);
    if (value === undefined) return this.#leaveUnreadable(held, row, unreadable);
    const definition = this.#definitions.get(value.workflow);
    if (definition === undefined) return;
    const { name } = definition;
    const working = this.#workingOn.get(name) ?? 0;
    this.#workingOn.set(name, working + 1);
    try {
      if (this.#inputs.has(held) || isToBeEnded(value) || !needsGate(definition, row, value))
        return await this.#workOn(held, row, value, definition, wakes);
      const passed = await passAtClaim(this, held, row, value, definition).catch((error: unknown) => {
        // Another worker has it, or it has ended.
        if (error instanceof FencedError) return { is: "lost" } as const;
        throw error;
      });
      const now = this.kernel.held(held.at);
      if (passed.is === "open" && now !== undefined)
        await this.#workOn(held, now, decodeRun(this.kernel, now), definition);
      else if (passed.is === "ended" && now !== undefined) this.#emitEnd(now);
      else if (passed.is === "parked")
        this.emit({ type: "run.parked", workflow: name, run: held.at.key, message: passed.message });
    } finally {
      const left = (this.#workingOn.get(name) ?? 1) - 1;
      if (left === 0) this.#workingOn.delete(name);
      else this.#workingOn.set(name, left);
      // Others of this workflow can be claimed now.
      if (this.#perWorkflow.has(name)) this.#worker.wake();
    }
  }

  /** A run has ended at the gate, without its code. */
  #emitEnd(row: Row): void {
    const { workflow, outcome } = decodeRun(this.kernel, row);
    const error = outcome !== undefined && "error" in outcome ? { error: outcome.error } : {};
    this.emit({ type: "run.ended", workflow, run: row.key, status: statusOf(row), ...error });
  }

  async #workOn(held: Held, row: Row, value: RunValue, definition: Definition, wakes = 0): Promise<void> {
    const id = held.at.key;
    if (isToBeEnded(value)) {
      await endParked(this.kernel, held, row, value);
      this.emit({ type: "run.ended", workflow: value.workflow, run: id, status: "canceled" });
      return;
    }
    const adopted = this.#inputs.get(held);
    this.#inputs.delete(held);
    const isNew = adopted ?? inputOf(row, value);
    // A lease that began with the start may be a little longer than others.
    const leasedAtMs = adopted === undefined ? (row.dueMs ?? 0) - this.leaseMs : value.startedAtMs;
    const nowMs = this.kernel.ports.clock.nowMs();
    const claimedAtMs = leasedAtMs + Math.max(0, nowMs - (this.#waiting.get(held)?.sinceMs ?? nowMs));
    // Code that has fences knows only those, and they are refused after a take-over.
    const isFresh = isNew !== undefined || needsFences(value, held.tries);
    const warm = this.#warm.take(id, isFresh ? undefined : row.head, value);
    const execution = new Execution(this, definition, held, row, value, claimedAtMs, warm);
    // An execution of it here has lost it without noticing.
    this.#executions.get(id)?.abandon(new LeaseUncertainError());
    this.#executions.set(id, execution);
    if (wakes > row.wakes) execution.look();
    const ending = await execution.work(isNew);
    // It may be worked on here anew by now.
    if (this.#executions.get(id) === execution) this.#executions.delete(id);
    if (ending !== "rested") return;
    if (this.#isStopping) execution.discard();
    else this.#warm.keep(id, execution);
  }

  /** Another worker may be able to read it: it is tried as often as its workflow allows, and then parked. */
  async #leaveUnreadable(held: Held, row: Row, reason: string): Promise<void> {
    const workflow = workflowOfQueue(row.kind);
    const run = held.at.key;
    if (held.tries < (this.#definitions.get(workflow)?.maxTries ?? 1)) throw new RunUnreadableError(run, reason);
    await parkUnreadable(held);
    this.emit({ type: "run.parked", workflow, run, message: `its record cannot be read: ${reason}` });
  }

  /** The store may have lost commits: code at rest may have seen them, and is replayed. */
  #suspectAll(): void {
    this.#warm.evictAll();
    for (const execution of this.#executions.values()) execution.run.suspect();
  }

  #onCommits(puts: readonly Put[] | undefined): void {
    if (puts === undefined) this.#foreignCommits += 1;
    if (this.#executions.size === 0) return;
    if (puts === undefined) return void this.#lookAtAll();
    for (const { row } of puts) {
      if (row.space !== RUNS) continue;
      const execution = this.#executions.get(row.key);
      if (execution !== undefined && row.wakes > execution.run.wakes) execution.look();
    }
  }

  /** Another process committed something: perhaps it was meant for a run that is held here. */
  async #lookAtAll(): Promise<void> {
    if (this.#isLooking) return;
    this.#isLooking = true;
    await pause(this.kernel.ports.clock, LOOK_MS);
    this.#isLooking = false;
    const executions = [...this.#executions.values()];
    try {
      const rows = await this.kernel.read(executions.map(({ run }) => run.at));
      rows.forEach((row, index) => {
        const execution = executions[index];
        if (row !== null && execution !== undefined && row.wakes > execution.run.wakes) execution.look();
      });
    } catch {
      // The next commit, or the end of the wait, leads to another look.
    }
  }
}

/** How often the run was woken; undefined if it is no longer held. */
async function wakesOf(held: Held): Promise<number | undefined> {
  try {
    return await held.look((record) => record.wakes);
  } catch (error) {
    if (error instanceof FencedError) return undefined;
    throw error;
  }
}

/** A run that was leased and has not begun is as it was started: in a paused workflow it waits. One that has places keeps them. */
function unbegun(record: Draft): void {
  const { gate, pool, workflow } = runOf(record);
  const { row } = record;
  if (row === null || gate?.places !== undefined || hasBegun(row, runOf(record))) return;
  record.write({ kind: newQueueOf(workflow, pool), status: "pending" satisfies RunStatus });
}

/** The input of a run that has not begun, where its record has it. */
function inputOf(row: Row, value: RunValue): { readonly input: unknown } | undefined {
  return row.head === value.from && "input" in value ? { input: value.input } : undefined;
}
