/**
 * The interpreter: turns a program into the body of a workflow.
 *
 * It is written once, as a generator over the operations of `ctx`, and driven in either style: an async function that awaits, or a generator that
 * the engine drives. The same interpreter runs on the real `ctx` and on the model's. What a body returns is made of words that do not depend
 * on timing, versions or fences, so that two executions of the same program can be compared.
 */

import { type AnyWorkflow, type Context, signal, workflow } from "../../src/index.ts";
import { Operation } from "../../src/workflow/execution/operation.ts";
import type { Features } from "./features.ts";
import type { Ledger } from "./ledger.ts";
import type {
  ChildNode,
  FanNode,
  ForeignNode,
  GroupNode,
  Leaf,
  LockNode,
  Node,
  ShieldNode,
  WorkflowPlan,
} from "./program.ts";
import { askStep } from "./steps.ts";

/** What an execution is made of: words and lists of them. */
export type Value = string | number | boolean | null | readonly Value[] | { readonly [name: string]: Value };

/** What the programs use of `ctx`. */
export type Ctx = Pick<
  Context,
  | "runId"
  | "now"
  | "step"
  | "sleep"
  | "sleepUntil"
  | "waitForAny"
  | "waitForSignal"
  | "call"
  | "start"
  | "slot"
  | "lock"
  | "mutex"
  | "semaphore"
  | "rwlock"
  | "rateLimit"
  | "all"
  | "race"
  | "allSettled"
> & { readonly shield?: <T>(body: (ctx: Ctx) => PromiseLike<T>) => PromiseLike<T> };

/** Where a program runs. */
export interface Place {
  readonly ledger: Ledger;
  readonly features: Features;
  /** The process's own timers: foreign to the run. */
  readonly sleep: (ms: number) => Promise<void>;
  readonly note: Note;
  /** The case's workflows, as this process knows them. */
  readonly workflows: () => readonly AnyWorkflow[];
  readonly hasEnded: (run: string) => boolean;
  /** Whether another worker has taken the run over, and the one that runs this code does not know. Default: no. */
  readonly isUnheard?: ((run: string) => boolean) | undefined;
  /** Takes the lock of plain code that clients use, and releases it. */
  readonly lockOutside: () => Promise<void>;
  /** Whether the code of this process is another, which contradicts the history of the run. Default: no. */
  readonly contradicts?: ((run: string) => boolean) | undefined;
  /** Tells the model that a step's function asks for something. */
  readonly inStep?: (<T>(run: string, ask: () => T) => T) | undefined;
  /** Told of every race, and of what is awaited together, where the first failure wins: the model knows then which ones were close. */
  readonly raced?: ((branches: readonly PromiseLike<unknown>[], wins: "first" | "first failure") => void) | undefined;
}

export interface Note {
  /** A step's function was called. Returns what to call when it is over. */
  begun(run: string, name: string, kind: "plain" | "tx" | "once", step: StepInfo): () => void;
}

export interface StepInfo {
  readonly key: string;
  readonly attempt: number;
}

/** What code says of an error, the same for one that was thrown and one that came from the store. */
export function codeOf(error: unknown): string {
  if (typeof error !== "object" || error === null) return String(error);
  const { code, name, message } = error as { code?: unknown; name?: unknown; message?: unknown };
  if (typeof code === "string") return code;
  if (name === "RunCanceledError") return "run_canceled";
  if (name === "RunTimedOutError") return "run_timed_out";
  return String(message);
}

/** What an operation came to, in words. */
export function show(raw: unknown): Value {
  if (raw === undefined || raw === null) return "void";
  if (typeof raw === "string" || typeof raw === "number" || typeof raw === "boolean") return raw;
  if (Array.isArray(raw)) return raw.map(show);
  if (typeof raw !== "object") return typeof raw;
  if ("status" in raw && "value" in raw) return ["fulfilled", show(raw.value)];
  if ("status" in raw && "reason" in raw) return ["rejected", codeOf(raw.reason)];
  if ("signal" in raw && typeof raw.signal === "string") return `signal ${raw.signal}`;
  if ("reason" in raw && raw.reason === "timeout") return "no signal";
  if ("waitedMs" in raw) return "turn";
  if ("version" in raw || "deleted" in raw || "currentVersion" in raw) return "slot";
  if ("of" in raw && "input" in raw && "body" in raw) return raw as Value;
  return "slot";
}

type Code = Generator<PromiseLike<unknown>, Value, unknown>;

/** Runs it as an async function would. */
async function drive(code: Code): Promise<Value> {
  let next = code.next();
  while (next.done !== true) {
    let value: unknown;
    try {
      value = await next.value;
    } catch (error) {
      next = code.throw(error);
      continue;
    }
    next = code.next(value);
  }
  return next.value;
}

const ignore = (): void => {};

export function workflowOf(plan: WorkflowPlan, place: Place): AnyWorkflow {
  const options = { name: plan.name, ...(plan.timeoutMs === undefined ? {} : { timeout: plan.timeoutMs }) };
  return workflow(options, bodyOf(plan, place)) as AnyWorkflow;
}

/** The function of a workflow. */
export function bodyOf(
  plan: WorkflowPlan,
  place: Place,
): (ctx: Context, input: unknown) => Promise<Value> | Generator<Operation<unknown>, Value, unknown> {
  return (ctx, input) => {
    if (place.contradicts?.(ctx.runId) === true) {
      place.ledger.reach("code that contradicts the history");
      return ctx.waitForSignal(signal("of another version")).then(show);
    }
    const slots = new Map<string, number>();
    place.ledger.slots.set(ctx.runId, slots);
    const code = new Interpreter(ctx, place, plan.style, { slots, isLeft: false }).body(plan, input);
    return plan.style === "async" ? drive(code) : (code as Generator<Operation<unknown>, Value, unknown>);
  };
}

/** What all parts of the code share, from its beginning on. */
interface Life {
  /** How often it has asked for each slot. */
  readonly slots: Map<string, number>;
  /** It was told that its run has ended, or is worked on elsewhere: what it asks for has no effect. */
  isLeft: boolean;
}

class Interpreter {
  readonly #ctx: Ctx;
  readonly #place: Place;
  readonly #style: "async" | "generator";
  readonly #life: Life;
  /** After this the function returns. */
  #last: Node | undefined;

  constructor(ctx: Ctx, place: Place, style: "async" | "generator", life: Life) {
    this.#ctx = ctx;
    this.#place = place;
    this.#style = style;
    this.#life = life;
  }

  *body(plan: WorkflowPlan, input: unknown): Code {
    this.#last = plan.body.findLast(({ op }) => op !== "afterEnd");
    try {
      return { of: plan.name, input: show(input), body: yield* this.#sequence(plan.body) };
    } finally {
      for (const node of plan.body) if (node.op === "afterEnd") this.#useLater(node.ms);
    }
  }

  *#sequence(body: readonly Node[]): Generator<PromiseLike<unknown>, readonly Value[], unknown> {
    const values: Value[] = [];
    for (const node of body) values.push(yield* this.#node(node));
    return values;
  }

  *#wait(operation: PromiseLike<unknown>): Generator<PromiseLike<unknown>, unknown, unknown> {
    return this.#style === "generator" && operation instanceof Operation ? yield* operation : yield operation;
  }

  #reach(what: string): void {
    this.#place.ledger.reach(what);
  }

  *#node(node: Node): Code {
    switch (node.op) {
      case "lock":
        return yield* this.#lock(node);
      case "group":
        return yield* this.#group(node);
      case "loop": {
        this.#reach("loop");
        const values: Value[] = [];
        for (let i = 0; i < node.times; i++) values.push(yield* this.#sequence(node.body));
        return values;
      }
      case "try":
        return yield* this.#try(node);
      case "throw":
        if (node.outage && this.#place.ledger.isMended) return "mended";
        this.#reach(node.outage ? "throw until it is mended" : "throw");
        throw new TypeError(`threw ${node.name}`);
      case "later": {
        const operations = node.of.map((one) => this.#ask(one));
        if (node.awaited.length < node.of.length) this.#reach("mistake: not awaited");
        if (node.awaited.some((at, index) => at !== index)) this.#reach("mistake: awaited in another order");
        if (node === this.#last && node.between.length + node.awaited.length === 0) this.#leave(node.of);
        const between = yield* this.#sequence(node.between);
        const values: Value[] = [];
        for (const at of node.awaited) {
          this.#reach("mistake: awaited late");
          values.push(show(yield* this.#wait(operations[at] as PromiseLike<unknown>)));
        }
        return [between, values];
      }
      case "remind":
        for (let round = 1; round < 500; round++) {
          const racing = [this.#ctx.waitForSignal(signal(node.signal)), this.#ctx.sleep(node.everyMs)];
          this.#place.raced?.(racing, "first");
          const received = yield* this.#wait(Promise.race(racing));
          this.#reach(received === undefined ? "remind: another round" : "remind: received");
          if (received !== undefined) return "reminded";
          if (node.mailMs !== undefined) yield* this.#wait(this.#ctx.sleep(node.mailMs));
        }
        throw new Error("reminded in vain");
      case "foreign":
        yield* this.#foreign(node);
        return "foreign";
      case "afterEnd":
        return "after end";
      case "fan":
        yield* this.#wait(Promise.all(this.#fan(node)));
        return `fan ${node.count}`;
      case "shield": {
        const shielded = this.#shield(node);
        return shielded === undefined ? yield* this.#sequence(node.body) : show(yield* this.#wait(shielded));
      }
      default:
        return show(yield* this.#wait(this.#ask(node)));
    }
  }

  #shield({ body }: ShieldNode): PromiseLike<unknown> | undefined {
    const { shield } = this.#ctx;
    if (shield === undefined) return undefined;
    this.#reach("ctx.shield");
    return shield.call(this.#ctx, (ctx) => drive(this.#on(ctx).#sequenceCode(body)));
  }

  *#sequenceCode(body: readonly Node[]): Code {
    return yield* this.#sequence(body);
  }

  #on(ctx: Ctx): Interpreter {
    return new Interpreter(ctx, this.#place, this.#style, this.#life);
  }

  *#foreign({ ms, racedMs }: ForeignNode): Generator<PromiseLike<unknown>, void, unknown> {
    this.#reach(`mistake: foreign promise${ms === "never" ? " that never settles" : ""}`);
    const foreign = ms === "never" ? new Promise(ignore) : this.#place.sleep(ms);
    if (racedMs !== undefined) this.#reach("mistake: foreign promise in a race");
    yield racedMs === undefined ? foreign : Promise.race([this.#ctx.sleep(racedMs), foreign]);
  }

  /** The function returns now, and these are not awaited. */
  #leave(nodes: readonly (Leaf | LockNode)[]): void {
    // Of two steps of one name, the second is refused.
    for (const node of nodes)
      if (node.op !== "step" || nodes.filter((one) => one.op === "step" && one.name === node.name).length === 1)
        this.#place.ledger.unawaited.push({ run: this.#ctx.runId, shown: shownInWarnings(node) });
  }

  /** Asks for one operation, and does not touch what it gives. */
  #ask(node: Leaf | LockNode): PromiseLike<unknown> {
    const ctx = this.#ctx;
    switch (node.op) {
      case "step":
        if (!this.#life.isLeft) this.#place.ledger.asked.add(`${ctx.runId} ${node.name}`);
        return askStep(node, ctx, this.#place);
      case "sleep":
        this.#reach(node.until === true ? "ctx.sleepUntil" : "ctx.sleep");
        return node.until === true ? ctx.sleepUntil(ctx.now().getTime() + node.ms) : ctx.sleep(node.ms);
      case "wait": {
        const timeout = node.timeoutMs === undefined ? {} : { timeout: node.timeoutMs };
        const signals = node.signals.map((name) => signal(name));
        this.#reach(
          `${signals.length > 1 ? "ctx.waitForAny" : "ctx.waitForSignal"}${node.timeoutMs === undefined ? "" : " with timeout"}`,
        );
        const [only] = signals;
        return signals.length === 1 && only !== undefined
          ? ctx.waitForSignal(only, timeout)
          : ctx.waitForAny(signals, timeout);
      }
      case "child":
        return this.#child(node);
      case "slot": {
        const slot = ctx.slot<number>(node.name, { scope: node.scope, initial: 0 });
        if (!this.#life.isLeft) this.#life.slots.set(node.name, (this.#life.slots.get(node.name) ?? 0) + 1);
        this.#reach(`ctx.slot ${node.verb}`);
        if (node.name.includes("#")) this.#reach("mistake: a name with #");
        switch (node.verb) {
          case "get":
            return slot.get();
          case "set":
            return slot.set(1);
          case "trySet":
            return slot.trySet(2, { expectedVersion: 0 });
          case "update":
            return slot.update((count) => (count ?? 0) + 1);
          case "delete":
            return slot.delete();
        }
        break;
      }
      case "rate":
        this.#reach("ctx.rateLimit");
        return ctx
          .rateLimit(node.name, { max: 1, per: 3_000 })
          .acquire(node.timeoutMs === undefined ? {} : { timeout: node.timeoutMs });
      case "lock":
        return this.#under(node);
    }
    throw new Error("no such operation");
  }

  #child(node: ChildNode): PromiseLike<unknown> {
    const child = this.#place.workflows()[node.workflow] as AnyWorkflow as Parameters<Ctx["call"]>[0];
    const { id, whenParentEnds } = node;
    const options = {
      ...(id === undefined ? {} : { id }),
      ...(whenParentEnds === undefined ? {} : { whenParentEnds }),
    };
    this.#reach(`ctx.${node.verb}${id === undefined ? "" : " with an id"}`);
    if (whenParentEnds !== undefined) this.#reach(`whenParentEnds ${whenParentEnds}`);
    return node.verb === "call"
      ? this.#ctx.call(child, node.input, options)
      : this.#ctx.start(child, node.input, options);
  }

  #lockOf({ kind, name }: LockNode): ReturnType<Ctx["mutex"]> {
    switch (kind) {
      case "semaphore":
        return this.#ctx.semaphore(name, { permits: 2 });
      case "read":
        return this.#ctx.rwlock(name).read;
      case "write":
        return this.#ctx.rwlock(name).write;
      default:
        return this.#ctx.mutex(name);
    }
  }

  /** The operation that runs its body under the lock. */
  #under(node: LockNode): PromiseLike<unknown> {
    this.#reach(`lock: ${node.kind} with`);
    const options = node.timeoutMs === undefined ? {} : { timeout: node.timeoutMs };
    const body = (): Code => this.#sequenceCode(node.body);
    const code = this.#style === "async" ? () => drive(body()) : (body as () => Generator<Operation<unknown>, Value>);
    return node.kind === "lock"
      ? this.#ctx.lock<Value>(node.name, code, options)
      : this.#lockOf(node).with<Value>(code, options);
  }

  *#lock(node: LockNode): Code {
    if (node.verb === "with") return show(yield* this.#wait(this.#under(node)));
    this.#reach(`lock: ${node.kind} ${node.verb}`);
    const lock = this.#lockOf(node);
    if (node.verb === "acquire") {
      const options = node.timeoutMs === undefined ? {} : { timeout: node.timeoutMs };
      const hold = (yield* this.#wait(lock.acquire(options))) as Awaited<ReturnType<typeof lock.acquire>>;
      const values = yield* this.#sequence(node.body);
      yield* this.#wait(hold.release());
      return values;
    }
    const tried = (yield* this.#wait(lock.tryAcquire())) as Awaited<ReturnType<typeof lock.tryAcquire>>;
    if (!tried.ok) return "busy";
    const values = yield* this.#sequence(node.body);
    yield* this.#wait(tried.hold.release());
    return values;
  }

  *#group(node: GroupNode): Code {
    const { ctx } = { ctx: this.#ctx };
    this.#reach(node.how);
    const isCanceling = node.how === "ctx.race" && this.#place.features.raceCancels;
    const branches = node.of.map((branch): PromiseLike<unknown> => {
      const [only] = branch;
      if (branch.length === 1 && only !== undefined && isSingle(only)) return this.#ask(only);
      const shielded = branch.length === 1 && only?.op === "shield" ? this.#shield(only) : undefined;
      if (shielded !== undefined) return shielded;
      if (isCanceling) {
        const inner = (inside: Ctx): Promise<Value> => drive(this.#on(inside).#sequenceCode(branch));
        return inner as unknown as PromiseLike<unknown>;
      }
      const running = drive(this.#sequenceCode(branch));
      // Its failure is the program's own, however the others come out.
      running.catch(ignore);
      return running;
    });
    switch (node.how) {
      case "Promise.all":
        this.#place.raced?.(branches, "first failure");
        return show(yield* this.#wait(Promise.all(branches)));
      case "Promise.allSettled":
        return show(yield* this.#wait(Promise.allSettled(branches)));
      case "ctx.all":
        this.#place.raced?.(branches, "first failure");
        return show(yield* this.#wait(ctx.all(branches)));
      case "ctx.allSettled":
        return show(yield* this.#wait(ctx.allSettled(branches)));
      case "Promise.race":
        this.#place.raced?.(branches, "first");
        return show(yield* this.#wait(Promise.race(branches)));
      case "ctx.race":
        if (!isCanceling) this.#place.raced?.(branches, "first");
        return show(yield* this.#wait(ctx.race(branches)));
    }
  }

  *#try(node: Extract<Node, { op: "try" }>): Code {
    this.#reach(node.finally === undefined ? "try/catch" : "try/finally");
    const [cleanup] = node.finally ?? [];
    if (cleanup?.op === "step") this.#place.ledger.entered.push({ run: this.#ctx.runId, cleanup: cleanup.name });
    try {
      return ["ok", yield* this.#sequence(node.body)];
    } catch (error) {
      if (node.catch === undefined) throw error;
      if (codeOf(error) === "used_after_end") this.#life.isLeft = true;
      return ["caught", codeOf(error), yield* this.#sequence(node.catch)];
    } finally {
      if (node.finally !== undefined) yield* this.#sequence(node.finally);
    }
  }

  #fan(node: FanNode): readonly PromiseLike<unknown>[] {
    this.#reach(`fan: ${node.of}`);
    const ctx = this.#ctx;
    return Array.from({ length: node.count }, (_, at) => {
      if (node.of === "slots") return ctx.slot<number>(`${node.name}-${at}`).set(at);
      if (node.of === "locks") return ctx.mutex(`${ctx.runId}-${node.name}-${at}`).acquire();
      const child = this.#place.workflows()[node.workflow ?? 0] as AnyWorkflow as Parameters<Ctx["start"]>[0];
      return ctx.start(child, at, { whenParentEnds: "cancel" });
    });
  }

  /** The code kept `ctx`, and uses it when the run has ended. */
  #useLater(ms: number): void {
    const { ledger, hasEnded, isUnheard, sleep } = this.#place;
    const { runId } = this.#ctx;
    const use = async (): Promise<void> => {
      await sleep(ms);
      if (!hasEnded(runId)) return;
      this.#reach("mistake: used after the end");
      const late = { run: runId, threw: undefined as string | undefined, isUnheard: isUnheard?.(runId) === true };
      ledger.lateUses.push(late);
      try {
        await this.#ctx.sleep(1_000);
      } catch (error) {
        late.threw = codeOf(error);
      }
    };
    use().catch(ignore);
  }
}

/** How a warning begins to name it. */
function shownInWarnings(node: Leaf | LockNode): string {
  switch (node.op) {
    case "step":
      return `step "${node.name}`;
    case "slot":
      return `slot "${node.name.replaceAll("#", "##")}`;
    case "rate":
      return `rate limit "${node.name}"`;
    case "lock":
      // With its kind before the name.
      return `"${node.name}"`;
    case "wait":
      return 'signal "';
    default:
      return `${node.op} "`;
  }
}

const isSingle = (node: Node): node is Leaf | LockNode =>
  ["step", "sleep", "wait", "child", "slot", "rate"].includes(node.op) || (node.op === "lock" && node.verb === "with");
