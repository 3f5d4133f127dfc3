/**
 * `pawl.work`: this process takes part in the work on some workflows.
 *
 * Runs are claimed like any due record, and those that this process starts are leased to it by the very commit that starts them. The code of
 * runs that rest is kept warm, up to a number of them, so that going on replays nothing; the others are replayed from their history.
 * When a wake-up reaches a run that is held here, by a signal, a child or a cancellation, it looks into its inbox.
 *
 * Promises: nothing belongs to this process but leases, so any peer goes on when it dies (G25); a run of a workflow that nobody here knows is
 * left to those who do.
 */

import {
  checkCount,
  checkDuration,
  checkFunction,
  checkLease,
  checkList,
  checkOptions,
  type Duration,
  optionNames,
} from "../kernel/check.ts";
import { Held } from "../kernel/claim/claim.ts";
import { startWorker, type Worker } from "../kernel/claim/worker.ts";
import type { Address, Put, Row } from "../kernel/contract.ts";
import { ClosedError, InvalidArgumentError, LeaseUncertainError, StoreError } from "../kernel/errors.ts";
import type { Kernel } from "../kernel/kernel.ts";
import { callQuietly, type Log } from "../kernel/log.ts";
import { pause, type Watchdog } from "../kernel/ports.ts";
import { lockChores } from "../lock/lock.ts";
import { LOCK_QUEUE } from "../lock/records.ts";
import type { RateLimit, RateLimitOptions, RateLimits } from "../rate/rate.ts";
import { endParked, isToBeEnded } from "./cascade.ts";
import type { Coroutine } from "./coroutine.ts";
import { type AnyWorkflow, type Definition, definitionOf } from "./definition.ts";
import { type Doing, recordDoing } from "./doing.ts";
import { RunUnreadableError } from "./errors.ts";
import type { RunEvent, RunListener } from "./events.ts";
import { discard, type Engine, Execution } from "./execution.ts";
import { LOGGED, RunLines } from "./lines.ts";
import { needsFences, runHooks } from "./locks.ts";
import { tellWaiters } from "./records.ts";
import { isForever, keptMsOf, type RetentionPolicy } from "./retention.ts";
import { RetentionLoop } from "./retire.ts";
import { queueOf, RUNS, type RunValue, runAt, WAITERS, WAITERS_QUEUE, wakeRun, workflowOfQueue } from "./run.ts";
import { parkUnreadable, readRun } from "./unreadable.ts";
import { ENDED } from "./words.ts";

export interface WorkOptions {
  /** How many runs are worked on at a time; 100 unless said otherwise. Those that sleep or wait do not count. */
  readonly concurrency?: number | undefined;
  /** How long a run stays this process's if nothing is heard of it; 30 s unless said otherwise. */
  readonly lease?: Duration | undefined;
  /** How many resting runs keep their code in memory; 1,000 unless said otherwise. */
  readonly warm?: number | undefined;
  /** Code that blocks the process for so long is named, and the process ended, so that peers go on; 60 s unless said otherwise. */
  readonly watchdog?: Duration | false | undefined;
  /**
   * A run whose history the code contradicts is released to workers with other code, as during a deploy. It is parked when that has gone
   * on for this long. Default: 10 minutes.
   */
  readonly parkContradictedAfter?: Duration | undefined;
  /** Receives everything that happens in this worker's runs. What it throws, or its promise rejects with, is ignored. */
  readonly on?: RunListener | undefined;
}

const WORK_OPTIONS = optionNames<WorkOptions>({
  concurrency: true,
  lease: true,
  warm: true,
  watchdog: true,
  parkContradictedAfter: true,
  on: true,
});
const STOP_OPTIONS = optionNames<{ timeout?: unknown }>({ timeout: true });

/** A run's code at rest. */
interface Warm {
  readonly coroutine: Coroutine;
  readonly incarnation: number;
  readonly skips: number;
}

/** Other processes' commits make this one look at the runs it holds, no more often than this. */
const LOOK_MS = 50;
/** A store that is unreachable is asked again after this long, for code that goes on by itself. */
const ROUSE_MS = 1000;

/** How long a run that the code contradicts is left to others, and how many such are remembered. */
const SHUNNED_MS = { first: 2000, longest: 60_000 };
const SHUNNED_MOST = 10_000;
/** So many declarations of permits are remembered. */
const DECLARED_MOST = 10_000;

/** A part of this process that works on runs, until `stop`. */
export class RunWorker implements Engine {
  readonly kernel: Kernel;
  readonly leaseMs: number;
  readonly contradictionMs: number;
  readonly #rates: RateLimits;
  /** What this process has declared: saying the same again must not undo what another said since. */
  readonly #declared = new Map<string, number>();
  readonly #by: string;
  readonly #concurrency: number;
  readonly #warmLimit: number;
  readonly #definitions = new Map<string, Definition>();
  readonly #maxTries = new Map<string, number>();
  readonly #on: RunListener | undefined;
  readonly #lines: RunLines | undefined;
  readonly #worker: Worker;
  readonly #retention: RetentionPolicy;
  readonly #retentionLoop: RetentionLoop;
  readonly #executions = new Map<string, Execution>();
  readonly #warm = new Map<string, Warm>();
  /** Runs that the code here contradicts, and until when they are left to others. */
  readonly #shunned = new Map<string, { readonly untilMs: number; readonly forMs: number }>();
  /** What runs were started with that this process is to begin itself. */
  readonly #inputs = new Map<Held, { readonly input: unknown }>();
  readonly #unlisten: () => void;
  readonly #watchdog: Watchdog | undefined;
  #isStopping = false;
  #isLooking = false;
  #adopted = 0;

  /** @internal */
  constructor(
    kernel: Kernel,
    rates: RateLimits,
    workflows: readonly AnyWorkflow[],
    options: WorkOptions = {},
    log?: Log | undefined,
    retention: RetentionPolicy = {},
  ) {
    checkOptions(options, WORK_OPTIONS);
    this.kernel = kernel;
    this.#retention = retention;
    // A listener of the user's own replaces the lines that are there by default.
    const isLogged = log !== undefined && (options.on === undefined || !log.isDefault);
    this.#lines = isLogged ? new RunLines(log, () => kernel.ports.clock.nowMs()) : undefined;
    this.#rates = rates;
    checkList(workflows, "what to work on");
    if (options.on !== undefined) checkFunction(options.on, "the listener (on)");
    for (const workflow of workflows) {
      const definition = definitionOf(workflow);
      if (definition === undefined)
        throw new InvalidArgumentError("what to work on", "must be workflows, as workflow() gives them");
      if (this.#definitions.has(definition.name))
        throw new InvalidArgumentError("what to work on", `must not have two workflows named "${definition.name}"`);
      this.#definitions.set(definition.name, definition);
      this.#maxTries.set(queueOf(definition.name), definition.maxTries);
    }
    if (this.#definitions.size === 0)
      throw new InvalidArgumentError("what to work on", "must be at least one workflow");
    this.leaseMs = checkLease(options.lease ?? 30_000, "the lease");
    this.contradictionMs = checkDuration(options.parkContradictedAfter ?? "10 minutes", "parkContradictedAfter");
    this.#concurrency = checkCount(options.concurrency ?? 100, "the concurrency");
    this.#warmLimit = options.warm === 0 ? 0 : checkCount(options.warm ?? 1000, "the warm runs", 10_000_000);
    this.#on = options.on;
    this.#by = kernel.ports.chance.uuid();
    const limit = options.watchdog ?? "60s";
    this.#watchdog =
      limit === false ? undefined : kernel.ports.watchdog?.(checkDuration(limit, "the watchdog's limit"));
    this.#worker = startWorker(kernel, {
      kinds: [...this.#definitions.keys()].map(queueOf).concat(LOCK_QUEUE, WAITERS_QUEUE),
      chores: new Map([
        ...lockChores(kernel, runHooks),
        [WAITERS, (at: Address) => kernel.transact((tx) => tellWaiters(tx, at.key), [at])],
      ]),
      by: this.#by,
      leaseMs: this.leaseMs,
      concurrency: this.#concurrency,
      status: "running",
      isShunned: ({ key }) => this.#isShunned(key),
      maxTries: (kind) => this.#maxTries.get(kind) ?? Number.POSITIVE_INFINITY,
      work: (held) => this.#work(held),
      lost: (held, reason) => {
        // It may be worked on here anew by now.
        const execution = this.#executions.get(held.at.key);
        if (execution?.fence === held.fence) execution.abandon(reason);
      },
      renewing: (held) => {
        const doing = this.doing(held.at.key, held.fence);
        return doing === undefined ? undefined : (record) => recordDoing(record, doing);
      },
      failed: (error) => {
        if (!(error instanceof ClosedError)) this.told({ type: "run.trouble", workflow: "", run: "", error });
      },
    });
    this.#retentionLoop = new RetentionLoop(kernel, {
      workflows: [...this.#definitions.values()]
        .filter((definition) => !isForever(definition.retention, retention))
        .map(({ name }) => name),
      keptMs: (workflow, status) => this.keptMs(workflow, status),
      failed: (error) => this.told({ type: "run.trouble", workflow: "", run: "", error }),
    });
    const stopListening = kernel.listen((puts) => this.#heard(puts));
    const stopSuspecting = kernel.onRestart(() => this.#suspectAll());
    this.#unlisten = () => {
      stopListening();
      stopSuspecting();
    };
  }

  /** The code here contradicts the run's history: it is left to others for a while, longer each time. */
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

  get isStopping(): boolean {
    return this.#isStopping;
  }

  /** The name that its leases have: `worker` of a run's status. */
  get id(): string {
    return this.#by;
  }

  /** What a run is doing that is worked on here under this claim. @internal */
  doing(run: string, fence: number): Doing | undefined {
    const execution = this.#executions.get(run);
    return execution?.fence === fence ? execution.doing() : undefined;
  }

  /** Takes no more, lets steps that run finish, and gives the runs to others. After `timeout`, steps are told to stop. */
  async stop(options?: { readonly timeout?: Duration | undefined }): Promise<void> {
    checkOptions(options, STOP_OPTIONS);
    const timeoutMs = options?.timeout === undefined ? undefined : checkDuration(options.timeout, "the timeout");
    this.#isStopping = true;
    const { clock } = this.kernel.ports;
    const stopped = Promise.all([this.#worker.stop(), this.#retentionLoop.stop()]);
    for (const execution of this.#executions.values()) execution.stopSoon();
    const cancel =
      timeoutMs === undefined
        ? () => {}
        : clock.after(timeoutMs, () => {
            const reason = new Error("the worker shuts down");
            for (const execution of this.#executions.values()) execution.shutDown(reason);
            // Those that do not obey are left to their leases.
            void pause(clock, 100).then(() => {
              for (const execution of this.#executions.values()) execution.abandon(reason);
            });
          });
    await stopped;
    cancel();
    this.#unlisten();
    this.#watchdog?.stop();
    for (const id of [...this.#warm.keys()]) this.#evict(id);
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.stop();
  }

  limit(name: string, options: RateLimitOptions): RateLimit {
    return this.#rates.limit(name, options);
  }

  /** Refuses what could not be stored, before the code has asked for it. @internal */
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

  ending(held: Held): void {
    this.#worker.leaving(held);
  }

  running(run: string): void {
    this.#watchdog?.running(run);
  }

  hears(type: RunEvent["type"]): boolean {
    return this.#on !== undefined || (this.#lines !== undefined && LOGGED.has(type));
  }

  get around(): RunListener["around"] {
    return this.#on?.around;
  }

  told(event: RunEvent): void {
    this.#lines?.told(event);
    if (this.#on !== undefined) callQuietly(() => this.#on?.(event));
  }

  /** How a run of this workflow may be leased to this process by the commit that starts it; undefined if there is no room. @internal */
  lease(workflow: string): { readonly by: string; readonly leaseMs: number } | undefined {
    if (this.#isStopping || !this.#definitions.has(workflow)) return undefined;
    if (this.#worker.workingCount + this.#adopted >= this.#concurrency) return undefined;
    return { by: this.#by, leaseMs: this.leaseMs };
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
    this.#worker.adopt(held, safeUntilMs);
  }

  async #work(held: Held): Promise<void> {
    const row = this.kernel.held(held.at);
    if (row === undefined || row.value === null) return;
    const id = held.at.key;
    const { value, unreadable } = readRun(this.kernel, row);
    if (value === undefined) return this.#leaveUnreadable(held, row, unreadable);
    const definition = this.#definitions.get(value.workflow);
    if (definition === undefined) return;
    if (isToBeEnded(value)) {
      await endParked(this.kernel, held, row, value);
      this.told({ type: "run.ended", workflow: value.workflow, run: id, status: "canceled" });
      return;
    }
    const adopted = this.#inputs.get(held);
    this.#inputs.delete(held);
    const isNew = adopted ?? inputOf(row, value);
    // A lease that began with the start may be a little longer than others.
    const claimedAtMs = adopted === undefined ? (row.dueMs ?? 0) - this.leaseMs : value.startedAtMs;
    // Code that was given fences knows only those, and they are worth nothing after a take-over.
    const isFresh = isNew !== undefined || needsFences(value, held.tries);
    const warm = this.#takeWarm(id, isFresh ? undefined : row.head, value);
    const execution = new Execution(this, definition, held, row, value, claimedAtMs, warm);
    // Whoever worked on it here before has lost it without having heard.
    this.#executions.get(id)?.abandon(new LeaseUncertainError());
    this.#executions.set(id, execution);
    const ending = await execution.work(isNew);
    // It may be worked on here anew by now.
    if (this.#executions.get(id) === execution) this.#executions.delete(id);
    if (ending === "rested") this.#keepWarm(id, execution);
  }

  /** Another worker may be able to read it: it is tried as often as its workflow allows, and then parked. */
  async #leaveUnreadable(held: Held, row: Row, reason: string): Promise<void> {
    const workflow = workflowOfQueue(row.kind);
    const run = held.at.key;
    if (held.tries < (this.#definitions.get(workflow)?.maxTries ?? 1)) throw new RunUnreadableError(run, reason);
    await parkUnreadable(held);
    this.told({ type: "run.parked", workflow, run, message: `its record cannot be read: ${reason}` });
  }

  /** The code that was kept, if it is where the history ends; other code of the run is not used again. */
  #takeWarm(id: string, head: number | undefined, value: RunValue): Coroutine | undefined {
    const warm = this.#warm.get(id);
    if (warm === undefined) return undefined;
    const { coroutine, incarnation, skips } = warm;
    const isSame = incarnation === value.incarnation && skips === (value.skips?.length ?? 0);
    if (!isSame || coroutine.head !== head) {
      this.#evict(id);
      // Of a run that ended and was started anew, only callbacks are left that may still ask for something.
      if (incarnation !== value.incarnation) coroutine.refuseNew();
      return undefined;
    }
    this.#warm.delete(id);
    coroutine.roused = undefined;
    return coroutine;
  }

  #keepWarm(id: string, execution: Execution): void {
    const { coroutine, value } = execution;
    if (this.#warmLimit === 0 || this.#isStopping) {
      execution.discard();
      return;
    }
    this.#listenTo(id, execution);
    this.#warm.set(id, { coroutine, incarnation: value.incarnation, skips: value.skips?.length ?? 0 });
    if (this.#warm.size > this.#warmLimit) this.#evict(this.#warm.keys().next().value as string);
  }

  /** Code that awaited something foreign beside its operations goes on by itself: somebody must work on its run. */
  #listenTo(id: string, execution: Execution): void {
    const { coroutine } = execution;
    coroutine.roused = () => {
      coroutine.roused = undefined;
      const { bodies } = this.kernel.ports;
      const rouse = (): void => void this.#rouse(id, execution);
      // It is called from the code of the run, where nothing may be written.
      if (bodies === undefined) rouse();
      else bodies.run({ run: id, step: "" }, rouse);
    };
  }

  /** The code of a run at rest goes on by itself: the run is woken. If it has ended elsewhere, what the code asks for is refused. */
  async #rouse(id: string, execution: Execution): Promise<void> {
    const { coroutine } = execution;
    while (this.#warm.get(id)?.coroutine === coroutine)
      try {
        const hasEnded = await this.kernel.transact(
          (tx) => {
            const isOver = ENDED.has(tx.record(runAt(id)).status ?? "");
            if (!isOver) wakeRun(tx, id);
            return isOver;
          },
          [runAt(id)],
        );
        if (this.#warm.get(id)?.coroutine !== coroutine) return;
        // Another may take it, and the code here goes on again when that has ended it.
        if (!hasEnded) return this.#listenTo(id, execution);
        this.#warm.delete(id);
        execution.discard();
        coroutine.refuseNew();
        return;
      } catch (error) {
        if (!(error instanceof StoreError)) return;
        await pause(this.kernel.ports.clock, ROUSE_MS);
      }
  }

  /** The code is not used again. */
  #evict(id: string): void {
    const warm = this.#warm.get(id);
    if (warm === undefined) return;
    this.#warm.delete(id);
    warm.coroutine.roused = undefined;
    discard(warm.coroutine, () => {});
  }

  /** The store may have lost commits: code at rest may have seen them, and is replayed. */
  #suspectAll(): void {
    for (const id of [...this.#warm.keys()]) this.#evict(id);
    for (const execution of this.#executions.values()) execution.suspect();
  }

  #heard(puts: readonly Put[] | undefined): void {
    if (this.#executions.size === 0) return;
    if (puts === undefined) return void this.#lookAtAll();
    for (const { row } of puts) {
      if (row.space !== RUNS) continue;
      const execution = this.#executions.get(row.key);
      if (execution !== undefined && row.wakes > execution.wakes) execution.look();
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
      const rows = await this.kernel.read(executions.map(({ runId }) => runAt(runId)));
      rows.forEach((row, index) => {
        const execution = executions[index];
        if (row !== null && execution !== undefined && row.wakes > execution.wakes) execution.look();
      });
    } catch {
      // The next bell, or the end of the wait, tells.
    }
  }
}

/** What a run that has not begun is to begin with, where its record tells. */
function inputOf(row: Row, value: RunValue): { readonly input: unknown } | undefined {
  return row.head === value.from && "input" in value ? { input: value.input } : undefined;
}
