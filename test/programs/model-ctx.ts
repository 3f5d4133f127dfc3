/**
 * `ctx` of the model: every operation in the simplest way that keeps its promise.
 */

import { type Ctx, codeOf } from "./interpret.ts";
import { ModelError, ModelOperation, type ModelRun, type Scope } from "./model-run.ts";
import { CLOSE_MS } from "./model-world.ts";

export interface Children {
  /** Whether `ctx.race` cancels its losers. */
  readonly cancelsLosers: boolean;
  /** The run of this id: a new one, or one that is the same. */
  start(id: string, workflow: string, input: unknown): ModelRun;
}

interface StepOptions {
  readonly id?: string | undefined;
  readonly retry?: { readonly attempts: number; readonly delay: number } | undefined;
  readonly timeout?: number | undefined;
  readonly totalTimeout?: number | undefined;
  readonly heartbeat?: number | undefined;
  readonly rateLimit?: { readonly name: string } | undefined;
  readonly semaphore?: { readonly name: string } | undefined;
  readonly hasTransaction?: boolean | undefined;
}

type StepBody = (step: object) => Promise<unknown>;

const STEP_RATE_MS = 4_000;
const RATE_MS = 3_000;

const OPEN: Scope = { isShielded: false, isOver: false, isDropped: false };

export function modelCtx(run: ModelRun, children: Children, scope: Scope = OPEN): Ctx {
  return new ModelCtx(run, children, scope) as unknown as Ctx;
}

class ModelCtx {
  readonly #run: ModelRun;
  readonly #children: Children;
  readonly #scope: Scope;
  readonly step: unknown;

  constructor(run: ModelRun, children: Children, scope: Scope) {
    this.#run = run;
    this.#children = children;
    this.#scope = scope;
    const plain = (name: string, body: StepBody, options: StepOptions): ModelOperation =>
      this.#step(name, body, options);
    const sql = { query: async () => ({ rows: [], rowCount: 1 }) };
    this.step = Object.assign(plain, {
      tx: (name: string, body: (sql: object, step: object) => Promise<unknown>, options: StepOptions) =>
        this.#step(name, (step) => body(sql, step), { ...options, hasTransaction: true }),
      atMostOnce: (name: string, body: StepBody, options: StepOptions) =>
        this.#step(name, body, { ...options, retry: { attempts: 1, delay: 0 } }),
    });
  }

  get #cancelsLosers(): boolean {
    return this.#children.cancelsLosers;
  }

  get runId(): string {
    return this.#run.id;
  }

  now(): Date {
    return new Date(this.#run.world.nowMs);
  }

  // Steps.

  #step(name: string, body: StepBody, options: StepOptions): ModelOperation {
    const run = this.#run;
    const operation = run.ask("step", this.#scope);
    if (operation.settledMs !== undefined) return operation;
    const counted = `${name}#=${options.id ?? ""}`;
    const last = run.lastSteps.get(counted);
    run.lastSteps.set(counted, operation);
    if (last?.isObserved === false) {
      last.repeatedMs = run.world.nowMs;
      if (run.world.nowMs - (last.settledMs ?? Number.NEGATIVE_INFINITY) < CLOSE_MS)
        run.world.doubt("a step that nobody awaited ended close to another of its name");
    }
    if (run.underWay.has(counted)) {
      if (options.semaphore !== undefined) this.#run.world.doubt("two steps of one name that need a permit");
      operation.refuse(new ModelError("step_in_flight"));
      return operation;
    }
    run.underWay.set(counted, operation);
    const leave = (): void => {
      if (run.underWay.get(counted) === operation) run.underWay.delete(counted);
    };
    operation.dropped = leave;
    operation.needsPermit = options.semaphore !== undefined;
    const count = (run.counts.get(counted) ?? 0) + 1;
    run.counts.set(counted, count);
    void this.#attempts(operation, `${run.id} ${counted} ${count}`, body, options).then(leave);
    return operation;
  }

  async #attempts(operation: ModelOperation, key: string, body: StepBody, options: StepOptions): Promise<void> {
    const { world } = this.#run;
    const { attempts, delay } = options.retry ?? { attempts: 1, delay: 0 };
    let canceled: { error: unknown } | undefined;
    let isRunning = false;
    /** When its next attempt begins, if that is known. */
    let nextMs = Number.POSITIVE_INFINITY;
    operation.interrupt = (error) => {
      canceled = { error };
      // The attempt may begin, and even be the last, before the worker learns of the cancellation.
      if (!isRunning && nextMs - world.nowMs < CLOSE_MS) world.doubt("an attempt was due close to the cancellation");
      if (!isRunning) operation.reject(error);
    };
    const leave = await this.#permit(options.semaphore?.name);
    const startedMs = world.nowMs;
    if (options.rateLimit !== undefined && options.totalTimeout !== undefined)
      world.doubt("a turn that may be later than the totalTimeout allows");
    for (let attempt = 1; operation.settledMs === undefined; attempt++) {
      if (options.rateLimit !== undefined) {
        const turnMs = world.reserve(this.#run, options.rateLimit.name, STEP_RATE_MS);
        nextMs = world.nowMs + turnMs;
        await world.sleep(turnMs);
      }
      if (operation.settledMs !== undefined) break;
      if (attempt > 1 && options.totalTimeout !== undefined) world.doubt("a totalTimeout with several attempts");
      isRunning = true;
      const outcome = await this.#attempt(key, attempt, body, options);
      isRunning = false;
      if (canceled !== undefined) operation.reject(canceled.error);
      else if ("ok" in outcome) operation.resolve(outcome.ok);
      else {
        const isOver = options.totalTimeout !== undefined && world.nowMs + delay - startedMs >= options.totalTimeout;
        if (isOver) world.doubt("a totalTimeout ended the attempts");
        if (attempt >= attempts || isOver || isFinal(outcome.error)) operation.reject(outcome.error);
        else {
          nextMs = world.nowMs + delay;
          await world.sleep(delay);
        }
      }
    }
    // Its next attempt, or its end, may have come before the other branch of the race.
    const { isDropped, settledMs = world.nowMs } = operation;
    if (isDropped && world.nowMs - settledMs < CLOSE_MS) world.doubt("two branches of a race settled close together");
    leave();
  }

  async #permit(name: string | undefined): Promise<() => void> {
    if (name === undefined) return () => {};
    return new Promise((resolve) => {
      const place = this.#run.world
        .line(`semaphore ${name}`)
        .enter(this.#run, "shared", 1, () => queueMicrotask(() => resolve(place.leave)));
      this.#run.atEnd.push(place.leave);
    });
  }

  async #attempt(
    key: string,
    attempt: number,
    body: StepBody,
    options: StepOptions,
  ): Promise<{ ok: unknown } | { error: unknown }> {
    const { world } = this.#run;
    const limit = Promise.withResolvers<{ error: unknown }>();
    const late = (): void => limit.resolve({ error: new ModelError("step_timeout") });
    const abort = { aborted: false };
    let cancelBeat = (): void => {};
    const beat = (): void => {
      cancelBeat();
      if (options.heartbeat !== undefined) cancelBeat = world.after(options.heartbeat, late);
    };
    beat();
    const cancel = [options.timeout, options.totalTimeout].map((ms) =>
      ms === undefined ? () => {} : world.after(ms, late),
    );
    const step = { key, attempt, abortSignal: abort, heartbeat: beat, progress: undefined };
    const close = options.hasTransaction === true ? world.openTransaction() : () => {};
    this.#run.isInStep = true;
    const running = body(step);
    this.#run.isInStep = false;
    const startedMs = world.nowMs;
    const outcome = running.then(
      (ok) => (typeof ok === "function" ? { error: new ModelError("invalid_value") } : { ok }),
      (error: unknown) => ({
        error: codeOf(error) === String((error as Error).message) ? new Error(codeOf(error)) : error,
      }),
    );
    const settled = await Promise.race([outcome, limit.promise]);
    close();
    abort.aborted = true;
    for (const stop of cancel) stop();
    cancelBeat();
    for (const ms of [options.timeout, options.totalTimeout])
      if (ms !== undefined && Math.abs(startedMs + ms - world.nowMs) < 200 && "ok" in settled)
        world.doubt("a step ended close to its timeout");
    return settled;
  }

  // Waits.

  sleep(ms: number): ModelOperation {
    const operation = this.#run.ask("wait", this.#scope);
    this.#resolveAfter(operation, ms, undefined);
    return operation;
  }

  #resolveAfter(operation: ModelOperation, ms: number, value: unknown): void {
    const { world } = this.#run;
    operation.dueMs = world.nowMs + ms;
    world.after(ms, () => operation.resolve(value));
  }

  sleepUntil(ms: number): ModelOperation {
    return this.sleep(Math.max(0, ms - this.#run.world.nowMs));
  }

  waitForSignal(signal: { readonly name: string }, options: { readonly timeout?: number } = {}): ModelOperation {
    return this.waitForAny([signal], options);
  }

  waitForAny(
    signals: readonly { readonly name: string }[],
    { timeout }: { readonly timeout?: number } = {},
  ): ModelOperation {
    const run = this.#run;
    const operation = run.ask("wait", this.#scope);
    if (operation.settledMs !== undefined) return operation;
    const names = signals.map(({ name }) => name);
    const receive = (signal: string): void => operation.resolve({ ok: true, signal, value: undefined });
    const early = run.take(names);
    if (early !== undefined) {
      // The oldest message comes first, whichever of them was asked for first.
      if (run.lastEarlyTurn === operation.turn.world)
        run.world.doubt("several waits of one turn for signals that had come");
      run.lastEarlyTurn = operation.turn.world;
      receive(early);
    } else {
      run.waits.push({ operation, names, receive });
      if (timeout !== undefined) this.#resolveAfter(operation, timeout, { ok: false, reason: "timeout" });
    }
    return operation;
  }

  // Children.

  call(
    workflow: { readonly name: string },
    input: unknown,
    options: { readonly id?: string; readonly whenParentEnds?: string } = {},
  ): ModelOperation {
    const operation = this.#run.ask("wait", this.#scope);
    const child = this.#child(operation, workflow, input, options, "cancel");
    operation.dropped = () => {
      if (options.whenParentEnds !== "leave") child?.cancel("run_canceled");
    };
    if (child?.outcome !== undefined) settle(operation, child.outcome);
    else child?.whenEnded.push((outcome) => settle(operation, outcome));
    return operation;
  }

  start(
    workflow: { readonly name: string },
    input: unknown,
    options: { readonly id?: string; readonly whenParentEnds?: string } = {},
  ): ModelOperation {
    const operation = this.#run.ask("start", this.#scope);
    const child = this.#child(operation, workflow, input, options, "leave");
    if (child !== undefined) operation.resolve(child.id);
    return operation;
  }

  #child(
    operation: ModelOperation,
    workflow: { readonly name: string },
    input: unknown,
    { id, whenParentEnds }: { readonly id?: string; readonly whenParentEnds?: string },
    otherwise: "cancel" | "leave",
  ): ModelRun | undefined {
    if (operation.settledMs !== undefined) return undefined;
    const run = this.#run;
    const count = (run.counts.get(`child ${workflow.name}`) ?? 0) + 1;
    run.counts.set(`child ${workflow.name}`, count);
    try {
      const child = this.#children.start(
        id ?? `${run.id}/${workflow.name}${count === 1 ? "" : `#${count}`}`,
        workflow.name,
        input,
      );
      if ((whenParentEnds ?? otherwise) === "cancel") {
        if (id !== undefined) run.world.doubt("a parent may cancel a child that others share");
        run.atEnd.push(() => child.cancel("run_canceled"));
      }
      return child;
    } catch (error) {
      operation.reject(error);
      return undefined;
    }
  }

  // What is shared.

  slot(): object {
    const done = (): ModelOperation => {
      const operation = this.#run.ask("slot", this.#scope);
      operation.resolve({ version: 1 });
      return operation;
    };
    return { get: done, set: done, trySet: done, update: done, delete: done };
  }

  rateLimit(name: string): object {
    return {
      acquire: ({ timeout }: { readonly timeout?: number } = {}) => {
        const operation = this.#run.ask("rate", this.#scope);
        if (operation.settledMs !== undefined) return operation;
        if (timeout !== undefined) this.#run.world.doubt("a turn with a timeout");
        this.#resolveAfter(operation, this.#run.world.reserve(this.#run, name, RATE_MS), { waitedMs: 0 });
        return operation;
      },
    };
  }

  mutex(name: string): object {
    return this.#lock(`mutex ${name}`, "exclusive", 1);
  }

  semaphore(name: string): object {
    return this.#lock(`semaphore ${name}`, "shared", 2);
  }

  rwlock(name: string): object {
    return {
      read: this.#lock(`rwlock ${name}`, "shared", Number.POSITIVE_INFINITY),
      write: this.#lock(`rwlock ${name}`, "exclusive", 1),
    };
  }

  lock(name: string, code: () => Promise<unknown>, options?: { readonly timeout?: number }): PromiseLike<unknown> {
    return (
      this.mutex(name) as { with: (code: () => Promise<unknown>, options?: object) => PromiseLike<unknown> }
    ).with(code, options);
  }

  #lock(name: string, mode: "shared" | "exclusive", permits: number): object {
    const { world } = this.#run;
    const acquire = ({ timeout }: { readonly timeout?: number } = {}): ModelOperation => {
      const operation = this.#run.ask("wait", this.#scope);
      if (operation.settledMs !== undefined) return operation;
      if (this.#run.wanted.has(name)) world.doubt("a run that asks for a lock twice may wait for itself");
      this.#run.wanted.add(name);
      const release = (): Promise<object> => {
        place.leave();
        this.#run.held.delete(operation);
        return Promise.resolve({ released: true });
      };
      const place = world.line(name).enter(this.#run, mode, permits, () =>
        queueMicrotask(() => {
          this.#run.held.set(operation, world.nowMs);
          operation.resolve({ fence: 1, release });
        }),
      );
      operation.dropped = () => place.leave();
      operation.interrupt = (error) => {
        if (!place.isHeld()) place.leave();
        operation.reject(error);
      };
      this.#run.atEnd.push(() => place.leave());
      if (timeout !== undefined) {
        if (!place.isHeld()) world.doubt("a wait for a lock with a timeout");
        world.after(timeout, () => {
          if (!place.isHeld()) operation.interrupt?.(new ModelError("lock_timeout"));
        });
      }
      return operation;
    };
    return {
      acquire,
      tryAcquire: async () => {
        world.doubt("a lock that is only tried");
        return { ok: false };
      },
      with: (code: () => Promise<unknown>, options?: { readonly timeout?: number }) =>
        this.#with(acquire(options), code),
    };
  }

  /** The body runs while the lock is held. */
  #with(hold: ModelOperation, code: () => unknown): PromiseLike<unknown> {
    const run = async (): Promise<unknown> => {
      const { release } = (await hold) as { release: () => Promise<unknown> };
      try {
        return await driven(code());
      } finally {
        await release();
      }
    };
    const running = run();
    running.catch(() => {});
    return running;
  }

  // Several.

  all(operations: readonly PromiseLike<unknown>[]): Promise<unknown> {
    return quiet(Promise.all(operations));
  }

  allSettled(operations: readonly PromiseLike<unknown>[]): Promise<unknown> {
    return Promise.allSettled(operations);
  }

  race(branches: readonly (PromiseLike<unknown> | ((ctx: Ctx) => PromiseLike<unknown>))[]): Promise<unknown> {
    if (branches.some((branch) => typeof branch === "function")) this.#run.world.doubt("ctx.race with functions");
    const running = branches.map((branch) =>
      typeof branch === "function" ? branch(modelCtx(this.#run, this.#children, this.#scope)) : branch,
    );
    if (this.#cancelsLosers) {
      const { world } = this.#run;
      const over = (): void => {
        const settled = running.filter((branch) => branch instanceof ModelOperation && branch.settledMs !== undefined);
        if (settled.length > 1) world.doubt("two branches of a race settled close together");
        for (const branch of running)
          if (branch instanceof ModelOperation) {
            // Its permit takes a commit, and the other branch may be first.
            if (branch.needsPermit) world.doubt("a step of a race that needs a permit");
            // It begins after a commit, and what else is there is told before.
            if (branch.kind === "step" && world.nowMs - branch.askedMs < CLOSE_MS)
              world.doubt("a race was over before its step may have begun");
            if (branch.settledMs === undefined && (branch.dueMs ?? Number.POSITIVE_INFINITY) - world.nowMs < CLOSE_MS)
              world.doubt("two branches of a race settled close together");
            this.#run.drop(branch);
          } else world.doubt("a loser of ctx.race that is no single operation");
      };
      Promise.race(running).then(over, over);
    }
    return quiet(Promise.race(running));
  }

  shield(body: (ctx: Ctx) => PromiseLike<unknown>): PromiseLike<unknown> {
    const scope: Scope = { isShielded: true, isOver: false, isDropped: false };
    const work = async (): Promise<unknown> => {
      try {
        return await body(modelCtx(this.#run, this.#children, scope));
      } finally {
        scope.isOver = true;
      }
    };
    // In other shielded code, it is that which a cancellation waits for.
    return quiet(this.#scope.isShielded ? work() : this.#run.shielded(work));
  }
}

/** What cannot be stored fails the step at once: its effect is not done again. Nor is a mistake of the code tried again. */
const isFinal = (error: unknown): boolean => ["invalid_value", "nested_operation"].includes(codeOf(error));

function quiet<T>(promise: Promise<T>): Promise<T> {
  promise.catch(() => {});
  return promise;
}

function settle(operation: ModelOperation, outcome: { readonly ok: unknown } | { readonly error: unknown }): void {
  if ("ok" in outcome) operation.resolve(outcome.ok);
  else operation.reject(outcome.error);
}

/** What a body gives: a promise, or a generator to run. */
export async function driven(given: unknown): Promise<unknown> {
  if (typeof given !== "object" || given === null || !("next" in given)) return given;
  const code = given as Generator<PromiseLike<unknown>, unknown, unknown>;
  let next = code.next();
  while (next.done !== true)
    try {
      next = code.next(await next.value);
    } catch (error) {
      next = code.throw(error);
    }
  return next.value;
}

export { CLOSE_MS };
