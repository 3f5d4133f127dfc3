/**
 * What tasks share inside and outside of decisions: how a creation is prepared, and what this handle knows of its own work.
 */

import type { Queue, WorkPart, WorkSettings } from "../kernel/capability.ts";
import type { Tx } from "../kernel/decision.ts";
import { fingerprintOf } from "../kernel/fingerprint.ts";
import type { Kernel } from "../kernel/kernel.ts";
import type { Origin } from "../kernel/origin.ts";
import type { RingKeys } from "../kernel/seal/ring.ts";
import type { RunWorkOptions } from "../workflow/execution/work-options.ts";
import { decodeRun, runOf } from "../workflow/history/read-run.ts";
import type { Runs } from "../workflow/runs/runs.ts";
import { type Started, type StartRequest, startRun } from "../workflow/runs/start.ts";
import { type RunValue, runAt, statusOf } from "../workflow/stored.ts";
import { delivery, httpTask, type TaskSettings } from "./definition.ts";
import { TargetForbiddenError, TaskNotFoundError, TokenUnreadError } from "./errors.ts";
import { readTaskInput, type TaskInfo, taskInfo } from "./info.ts";
import type { CheckedTask } from "./options.ts";
import type { TaskOutcome } from "./outcome.ts";
import { createTask, lookAtOutbox, type NewTask, sweepMark } from "./records.ts";
import {
  type DeliveryInput,
  deliveryId,
  MARKS_QUEUE,
  OUTBOX_QUEUE,
  type Outbox,
  outboxAt,
  type TaskInput,
} from "./stored.ts";
import { hostOf, refusalOfUrl } from "./target.ts";
import { type SignalToken, Tokens } from "./token.ts";
import { workOnTasks } from "./worker.ts";

/** A creation, ready for its decision. */
export interface Prepared extends NewTask {
  readonly input: TaskInput;
  readonly token: SignalToken | undefined;
}

/** What a creation came to. */
export interface Made {
  readonly started: Started;
  readonly task: TaskInfo;
}

/** How many tokens are kept for decisions that run again. */
const MOST_READ = 100;

/** What all tasks of one handle share. @internal */
export class Core {
  readonly kernel: Kernel;
  readonly runs: Runs;
  readonly tokens: Tokens;
  readonly queues: readonly Queue[];
  /** What the parts of this process that work on tasks may do. */
  readonly #working = new Set<TaskSettings>();
  /** Tokens that decisions asked for, by task. */
  readonly #read = new Map<string, string>();
  /** Tokens of tasks that a decision itself creates, by task: no one can read them before its commit. */
  readonly #drawn = new WeakMap<Tx, Map<string, string>>();

  constructor(kernel: Kernel, runs: Runs, keys: RingKeys | undefined) {
    this.kernel = kernel;
    this.runs = runs;
    this.tokens = new Tokens(kernel, keys);
    this.queues = [
      { kind: MARKS_QUEUE, chore: (at) => kernel.transact((tx) => sweepMark(tx, at), [at]) },
      {
        kind: OUTBOX_QUEUE,
        isUrgent: true,
        chore: (at) => kernel.transact((tx) => this.#look(tx, at.key, true), [at, runAt(at.key)]),
      },
    ];
  }

  /** Puts this process to work on tasks. */
  work(settings: TaskSettings, shared: WorkSettings, { on, warm }: RunWorkOptions): WorkPart {
    const deps = {
      kernel: this.kernel,
      openToken: (tokenHash: string, sealed: SignalToken["sealed"]) => this.tokens.open(tokenHash, sealed),
    };
    // None of this code can block the process.
    const options: RunWorkOptions = { on, warm, watchdog: false };
    const part = workOnTasks(deps, settings, (definitions) => this.runs.work(definitions, shared, options));
    this.#working.add(settings);
    return {
      ready: part.ready,
      stop: async (timeoutMs) => {
        this.#working.delete(settings);
        await part.stop(timeoutMs);
      },
    };
  }

  /** Where this process makes the calls, one that would be refused is refused now. A name, except `localhost`, is resolved for each attempt. */
  checkAllowed(input: Pick<TaskInput, "url" | "onCompleteUrl">): void {
    if (this.#working.size === 0) return;
    for (const url of [input.url, ...(input.onCompleteUrl === undefined ? [] : [input.onCompleteUrl])]) {
      const target = new URL(url);
      const refusals = [...this.#working].map((settings) => refusalOfUrl(target, settings));
      const [refusal] = refusals;
      if (refusal !== undefined && refusals.every((one) => one !== undefined))
        throw new TargetForbiddenError(hostOf(target), refusal);
    }
  }

  /** Draws what only this task has: its id, the key of its attempts, and its token. */
  prepare(checked: CheckedTask, uuid: () => string, newId: (() => string) | undefined, origin?: Origin): Prepared {
    const { id, idempotencyKey, input: request, start, waitsForSignal } = checked;
    const token = waitsForSignal ? this.tokens.draw(uuid) : undefined;
    const key = `msg_${uuid().replaceAll("-", "")}`;
    const input: TaskInput = {
      ...request,
      key,
      ...(token === undefined ? {} : { signal: { hash: token.hash, sealed: token.sealed } }),
    };
    const { onCompleteUrl } = input;
    const made = this.runs.starter.requestFor(httpTask, input, { id, ...start }, newId);
    const fingerprint = fingerprintOf({ request, id, start });
    return {
      start: {
        ...made,
        fingerprint,
        origin,
        tokenHash: token?.hash,
        ...(onCompleteUrl === undefined ? {} : { wakesAtEnd: [outboxAt(made.id).space, made.id] }),
      },
      fingerprint,
      idempotencyKey,
      outbox: onCompleteUrl === undefined ? undefined : { url: onCompleteUrl, key },
      input,
      token,
    };
  }

  /** Creates a task in a decision. `start` is how its run is started. */
  create(tx: Tx, prepared: Prepared, start: () => Started = () => startRun(tx, prepared.start)): Made {
    const started = createTask(tx, prepared, start);
    if (started.isNew && prepared.token !== undefined) this.#drawnBy(tx).set(started.id, prepared.token.token);
    const run = tx.record(started.isNew ? startedRun(prepared.start) : runAt(started.id));
    return { started, task: taskInfo(started.id, statusOf(run), runOf(run), prepared.input) };
  }

  /** A dead task in a decision that starts its run again. */
  restarted(tx: Tx, id: string, input: TaskInput, start: () => Started): Made {
    // Its end may not have been notified yet, and cannot be read any more afterwards.
    if (input.onCompleteUrl !== undefined) this.#look(tx, id, false);
    const started = start();
    const run = tx.record(runAt(id));
    return { started, task: taskInfo(id, statusOf(run), runOf(run), input) };
  }

  /**
   * The token of a task that a decision has found. Unless the decision created the task, it is in the run's log, which a decision cannot read: then this
   * throws, `mend` reads it, and the decision runs again.
   */
  knownToken(tx: Tx, id: string): string {
    const token = this.#drawn.get(tx)?.get(id) ?? this.#read.get(id);
    if (token === undefined) throw new TokenUnreadError(id);
    return token;
  }

  #drawnBy(tx: Tx): Map<string, string> {
    const drawn = this.#drawn.get(tx) ?? new Map<string, string>();
    this.#drawn.set(tx, drawn);
    return drawn;
  }

  async mend(error: unknown): Promise<boolean> {
    if (!(error instanceof TokenUnreadError)) return false;
    const { task } = error.data;
    const token = await this.tokenOf(task);
    if (this.#read.size >= MOST_READ) this.#read.clear();
    this.#read.set(task, token);
    return true;
  }

  /** The token that a task was created with. */
  async tokenOf(id: string): Promise<string> {
    const [row] = await this.kernel.read([runAt(id)]);
    if (row === undefined || row === null || row.value === null) throw new TaskNotFoundError(id);
    const { signal } = await readTaskInput(this.kernel, row, decodeRun(this.kernel, row));
    if (signal === undefined) throw new TaskNotFoundError(id);
    return this.tokens.open(signal.hash, signal.sealed);
  }

  #look(tx: Tx, id: string, isDue: boolean): void {
    lookAtOutbox(tx, outboxAt(id), isDue, (outbox, value, outcome) => this.#notify(tx, id, outbox, value, outcome));
  }

  /** Starts the run that notifies of an end; the record of the notifications says that it did, so there is one. */
  #notify(tx: Tx, task: string, { url, key }: Outbox, value: RunValue, outcome: TaskOutcome): void {
    const { status, at, ...rest } = outcome;
    const data = { id: task, status, at: at.toISOString(), ...rest };
    const body = JSON.stringify({ type: `task.${status}`, timestamp: at.toISOString(), data }, withoutBigInts);
    const input: DeliveryInput = { task, url, key: `${key}_${value.incarnation}`, body };
    const newId = (): string => deliveryId(task, value.incarnation, tx.uuid());
    startRun(tx, this.runs.starter.requestFor(delivery, input, {}, newId));
  }
}

/** What JSON cannot hold must not keep a notification from being sent. */
const withoutBigInts = (_key: string, value: unknown): unknown => (typeof value === "bigint" ? String(value) : value);

const startedRun = ({ id, isMade }: StartRequest) => (isMade === true ? { ...runAt(id), isNew: true } : runAt(id));
