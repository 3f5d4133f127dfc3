/**
 * Draws cases: random programs over everything that `ctx` offers, with the mistakes that people make, and what clients do to their runs.
 *
 * Some nodes are patterns: combinations that random choice alone would hardly ever find, such as a limit on a step that is awaited late.
 */

import { Random } from "../../src/testing/sim/random.ts";
import type { Features } from "./features.ts";
import type {
  Case,
  ChildNode,
  Leaf,
  LockNode,
  Node,
  RunPlan,
  SignalPlan,
  SlotNode,
  StepNode,
  WorkflowPlan,
} from "./program.ts";
import { nodesOf, STEP_MISTAKES, walk, walkCounted } from "./program.ts";

/** How deep bodies are nested. */
const DEPTH = 3;

/** A step that is tried for longer than whatever it races with. */
const SLOW: Partial<StepNode> = { attempts: 8, delayMs: 2_000 };

/** The same seed is the same case. */
export function drawCase(seed: number, features: Features): Case {
  return new Draw(new Random(seed ^ 0x5eed), features).case();
}

class Draw {
  readonly #random: Random;
  readonly #features: Features;
  #names = 0;
  /** Workflows that the body which is being drawn may call. */
  #children: readonly number[] = [];
  #isRoot = false;
  /** Whether bodies are short: of those the model is more often sure. */
  #isSmall = false;
  /** What every root does somewhere, the same in each. */
  #inRoots: readonly Node[] = [];

  constructor(random: Random, features: Features) {
    this.#random = random;
    this.#features = features;
  }

  case(): Case {
    const random = this.#random;
    this.#isSmall = random.chance(0.35);
    const faults = random.chance(this.#isSmall ? 0.2 : 0.5);
    const childCount = random.below(3);
    const rootCount = random.chance(this.#isSmall ? 0.15 : 0.3) ? 2 : 1;
    const workflows: WorkflowPlan[] = [];
    for (let at = 0; at < childCount; at++) {
      this.#children = random.chance(0.3) ? workflows.map((_, index) => index) : [];
      workflows.push(this.#workflow(`child-${at}`, DEPTH - 1));
    }
    this.#children = workflows.map((_, index) => index);
    this.#isRoot = true;
    // Two parents of one child.
    if (childCount > 0 && rootCount > 1 && random.chance(0.3)) this.#inRoots = [this.#sharedChild("shared-2")];
    // A parent that is parked while its child lives.
    if (random.chance(0.02)) {
      // Or a child that is parked when its parent ends.
      const isParent = random.chance(0.7);
      const sleep: Node = { op: "sleep", ms: isParent ? this.#ms(900, 1_800) : this.#ms(60, 130) };
      const never: Node = { op: "foreign", ms: "never" };
      const child = workflows.push({ name: "child-long", style: "async", body: [isParent ? sleep : never] }) - 1;
      const start: Node = { op: "child", verb: "start", workflow: child, input: 1, whenParentEnds: "cancel" };
      this.#inRoots = [start, isParent ? never : sleep];
    }
    // More children than one commit can start or cancel.
    if (random.chance(0.003)) {
      const body: Node[] = random.chance(0.5) ? [] : [{ op: "sleep", ms: this.#ms(60, 120) }];
      const workflow = workflows.push({ name: "child-many", style: "async", body }) - 1;
      this.#inRoots = [{ op: "fan", of: "children", count: 1_030, name: this.#name("fan"), workflow }];
    }
    // Code that a run sets going knows nothing of the lock under which the run was started.
    const underLock = random.chance(0.05);
    const locking: StepNode = { op: "step", name: this.#name("s"), kind: "plain", ms: 0, locks: true };
    if (underLock) this.#inRoots = [...this.#inRoots, locking];
    const runs: RunPlan[] = [];
    const signals: SignalPlan[] = [];
    for (let at = 0; at < rootCount; at++) {
      const workflow = this.#workflow(`root-${at}`, DEPTH);
      workflows.push(workflow);
      const run = this.#run(`run-${at}`, workflows.length - 1, workflows);
      runs.push(underLock ? { ...run, underLock } : run);
      signals.push(...this.#signals(run.id, workflow));
    }
    const plan = { workflows, runs, signals, faults, ...(random.chance(0.06) ? { stranger: true } : {}) };
    // Drawn last, so that all other cases stay as they are.
    return faults && random.chance(0.04) ? this.#withLongHistory(plan) : plan;
  }

  /**
   * The first run has most of its history under a lock that it released since then, and is replayed now and then: a worker may give it up in the
   * middle of that. It was retried, so a replay that has not seen the release would look for the lock again.
   */
  #withLongHistory(plan: Case): Case {
    const [first] = plan.runs;
    if (first === undefined) return plan;
    const many: Node = { op: "fan", of: "slots", count: 100, name: this.#name("fan") };
    const body: readonly Node[] = [
      this.#failing({ fails: "outage" }),
      { ...this.#lock([many]), verb: "with" },
      { op: "loop", times: 8, body: [{ op: "sleep", ms: this.#ms(8, 14) }] },
    ];
    return {
      ...plan,
      workflows: plan.workflows.map((workflow, at) => (at === first.workflow ? { ...workflow, body } : workflow)),
      runs: plan.runs.map((run) => (run === first ? { ...run, retries: Math.max(1, run.retries) } : run)),
      signals: plan.signals.filter(({ run }) => run !== first.id),
    };
  }

  #workflow(name: string, depth: number): WorkflowPlan {
    const random = this.#random;
    const most = this.#isSmall ? 2 : this.#isRoot ? 5 : 3;
    const body = this.#body(this.#isSmall ? depth - 1 : depth, 1 + random.below(most));
    // At the top only: beside other branches, code that awaits something foreign goes another way at replay.
    if (this.#isRoot && random.chance(0.05)) {
      const ms = random.chance(0.3) ? "never" : 700;
      const raced = random.chance(0.3) ? { racedMs: this.#ms(20, 40) } : {};
      body.splice(random.below(body.length + 1), 0, { op: "foreign", ms, ...raced });
    }
    if (this.#isRoot) body.splice(random.below(body.length + 1), 0, ...this.#inRoots);
    // It fails until somebody mends it; whoever retries the parent retries it, too.
    if (!this.#isRoot && random.chance(0.15)) body.push(this.#failing({ fails: "outage" }));
    if (this.#isRoot && random.chance(0.2)) body.splice(random.below(body.length + 1), 0, this.#pattern());
    // Left behind at the return.
    if (random.chance(0.08)) {
      const leaf = this.#children.length > 0 && random.chance(0.3) ? this.#child() : this.#leaf();
      body.push({ op: "later", of: [random.chance(0.3) ? this.#slot() : leaf], between: [], awaited: [] });
    }
    if (this.#isRoot && random.chance(0.08)) body.push({ op: "afterEnd", ms: 90_000 });
    return {
      name,
      style: random.chance(0.7) ? "async" : "generator",
      ...(random.chance(0.1) ? { timeoutMs: this.#ms(5, 60) } : {}),
      body,
    };
  }

  #run(id: string, workflow: number, workflows: readonly WorkflowPlan[]): RunPlan {
    const random = this.#random;
    const nodes = [...nodesOf({ workflows, runs: [{ id, workflow, startMs: 0, retries: 0, restarts: false }] })];
    const hasOutage = nodes.some(
      (node) => (node.op === "step" && node.fails === "outage") || (node.op === "throw" && node.outage),
    );
    const hasCleanup = nodes.some((node) => node.op === "shield" || (node.op === "try" && node.finally !== undefined));
    const body = workflows[workflow]?.body ?? [];
    const isRetried = hasOutage || random.chance(0.1);
    return {
      id,
      workflow,
      startMs: random.below(3) * 700,
      ...(random.chance(hasCleanup ? 0.35 : 0.15) ? { cancelMs: this.#ms(1, 40) } : {}),
      ...(this.#features.force && random.chance(0.03) ? { cancelMs: this.#ms(1, 40), force: true } : {}),
      retries: isRetried ? 1 + random.below(2) : 0,
      ...(isRetried && random.chance(0.08) ? { cancelsRetry: true } : {}),
      // Signals are sent once, so a second life must not wait for them without end.
      restarts:
        random.chance(0.15) &&
        ![...walk(body)].some((node) => node.op === "remind" || (node.op === "wait" && node.timeoutMs === undefined)),
    };
  }

  /** As many as the program may ever wait for, but one for each loop that waits until the signal comes. */
  #signals(run: string, { body }: WorkflowPlan): SignalPlan[] {
    const random = this.#random;
    const signals: SignalPlan[] = [];
    const counts = new Map<string, number>();
    const send = (name: string, atMs: number): void => {
      const number = counts.get(name) ?? 0;
      counts.set(name, number + 1);
      signals.push({ run, name, number, atMs });
    };
    // A wait that ends by itself may take what another waits for without end, so those get as many as all of them could take.
    const needed = new Set<string>();
    for (const node of walk(body))
      if (node.op === "wait" && node.timeoutMs === undefined) for (const name of node.signals) needed.add(name);
    for (const [node, times] of walkCounted(body)) {
      if (node.op === "remind") for (let i = 1; i <= times; i++) send(node.signal, i * node.everyMs * 2.5);
      if (node.op === "wait")
        for (let i = 0; i < times; i++)
          for (const name of node.signals) if (needed.has(name) || random.chance(0.6)) send(name, random.below(60_000));
    }
    return signals;
  }

  // What programs are made of.

  #name(prefix: string): string {
    this.#names += 1;
    return `${prefix}${this.#names}`;
  }

  /** Spread out, so that two things seldom happen at the same moment by accident. */
  #ms(fromS: number, toS: number): number {
    return Math.round((fromS + this.#random.unit() * (toS - fromS)) * 1_000);
  }

  #body(depth: number, length: number): Node[] {
    const body: Node[] = [];
    for (let i = 0; i < length; i++) body.push(this.#node(depth));
    return body;
  }

  #node(depth: number): Node {
    const random = this.#random;
    if (depth <= 0 || random.chance(0.45)) return this.#leaf();
    const inner = (): Node[] => this.#body(depth - 1, 1 + random.below(2));
    switch (random.below(this.#features.shield ? 13 : 12)) {
      case 0:
      case 1:
      case 2:
        return this.#group(depth);
      case 3:
        return { op: "loop", times: 2 + random.below(2), body: inner() };
      case 4:
        return { op: "try", body: inner(), catch: random.chance(0.5) ? inner() : [] };
      case 5:
      case 6:
        return { op: "try", body: inner(), finally: [this.#cleanup()], ...(random.chance(0.3) ? { catch: [] } : {}) };
      case 7:
        return this.#lock(inner());
      case 8:
      case 9:
        return this.#later(depth);
      case 10:
        return this.#pattern();
      case 11:
        return random.chance(0.3)
          ? { op: "throw", name: this.#name("t"), outage: random.chance(0.7) }
          : this.#lock(inner());
      default:
        return { op: "shield", body: inner() };
    }
  }

  /** A step that always succeeds. */
  #cleanup(): StepNode {
    return { op: "step", name: this.#name("cleanup"), kind: "plain", ms: 0 };
  }

  #leaf(): Leaf {
    const random = this.#random;
    switch (random.below(12)) {
      case 0:
      case 1:
        return { op: "sleep", ms: this.#ms(1, 30), ...(random.chance(0.2) ? { until: true } : {}) };
      case 2:
        return this.#wait();
      case 3:
        return this.#children.length > 0 ? this.#child() : this.#step();
      case 4:
        return this.#slot();
      case 5:
        return { op: "rate", name: `rate-${random.below(2)}`, ...(random.chance(0.1) ? { timeoutMs: 1_000 } : {}) };
      default:
        return this.#step();
    }
  }

  #wait(): Leaf {
    const random = this.#random;
    const name = (): string => `signal-${random.below(3)}`;
    // No client knows the ids of children, so those must not wait without end.
    const hasTimeout = !this.#isRoot || random.chance(0.5);
    const timeout = hasTimeout ? { timeoutMs: this.#ms(2, 40) } : {};
    const signals = random.chance(0.25) ? ["signal-0", "signal-1"] : [name()];
    return { op: "wait", signals, ...timeout };
  }

  #step(): StepNode {
    const random = this.#random;
    const kind = random.pick(["plain", "plain", "plain", "tx", "once"] as const);
    const name = this.#name("s");
    const isTx = kind === "tx";
    const step: { -readonly [K in keyof StepNode]: StepNode[K] } = {
      op: "step",
      name,
      kind,
      ms: isTx || random.chance(0.6) ? 0 : this.#ms(1, 8),
    };
    if (random.chance(0.15)) step.id = `id-${random.below(3)}`;
    if (random.chance(0.3)) step.fails = random.pick([1, 1, 2, "always", "outage"] as const);
    if (random.chance(0.3)) step.attempts = 1 + random.below(4);
    if (random.chance(0.2)) step.delayMs = random.pick([100, 2_000, 7_000]);
    if (random.chance(0.1)) step.rate = `step-rate-${random.below(2)}`;
    if (random.chance(0.1)) step.semaphore = `permits-${random.below(2)}`;
    if (kind === "once") {
      if (random.chance(0.6)) step.reconciles = true;
      return step;
    }
    // Some take longer than they may.
    if (isTx) return random.chance(0.08) ? { ...step, ms: 4_000, timeoutMs: 2_000, attempts: 2 } : step;
    if (random.chance(0.15)) step.timeoutMs = random.pick([2_000, 20_000]);
    if (random.chance(0.1)) step.totalTimeoutMs = random.pick([3_000, 30_000]);
    if (random.chance(0.1)) {
      step.heartbeatMs = 2_000;
      step.beats = random.chance(0.8);
    }
    return random.chance(0.15) ? this.#mistaken(step) : step;
  }

  #mistaken(step: StepNode): StepNode {
    const mistake = this.#random.pick(STEP_MISTAKES);
    const { op, name, id } = step;
    const plain: StepNode = { op, name, kind: "plain", ms: 0, mistake, ...(id === undefined ? {} : { id }) };
    if (mistake === "late heartbeat of a timed-out attempt" || mistake === "late abortSignal")
      return { ...plain, ms: 6_000, timeoutMs: 2_000, attempts: 3, delayMs: 500, heartbeatMs: 3_000 };
    if (mistake === "late heartbeat" && this.#random.chance(0.7)) return { ...plain, heartbeatMs: 3_000 };
    return mistake === "nested step" || mistake === "nested sleep" ? { ...plain, attempts: 1 } : plain;
  }

  #child(): ChildNode {
    const random = this.#random;
    const verb = random.chance(0.7) ? "call" : "start";
    const hasId = random.chance(0.35);
    return {
      op: "child",
      verb,
      workflow: random.pick(this.#children),
      input: random.below(2),
      ...(hasId ? { id: `shared-${random.below(2)}` } : {}),
      ...(random.chance(0.2) ? { whenParentEnds: random.pick(["cancel", "leave"] as const) } : {}),
    };
  }

  #slot(): SlotNode {
    const random = this.#random;
    return {
      op: "slot",
      verb: random.pick(["get", "set", "trySet", "update", "update", "delete"] as const),
      name: random.chance(0.15) ? "room#2" : `room${random.chance(0.3) ? `-${random.below(3)}` : ""}`,
      scope: random.pick(["run", "run", "workflow", "global"] as const),
    };
  }

  #lock(body: readonly Node[]): LockNode {
    const random = this.#random;
    const kind = random.pick(["lock", "mutex", "semaphore", "read", "write"] as const);
    return {
      op: "lock",
      kind,
      verb: kind === "lock" ? "with" : random.pick(["with", "acquire", "try"] as const),
      name: `${kind === "semaphore" ? "sem" : kind === "read" || kind === "write" ? "rw" : "mutex"}-${random.below(2)}`,
      ...(random.chance(0.15) ? { timeoutMs: this.#ms(1, 20) } : {}),
      body,
    };
  }

  #group(depth: number): Node {
    const random = this.#random;
    const how = random.pick([
      "Promise.all",
      "Promise.all",
      "Promise.race",
      "Promise.allSettled",
      "ctx.all",
      "ctx.race",
      "ctx.race",
      "ctx.allSettled",
    ] as const);
    const of = Array.from({ length: 2 + random.below(2) }, () =>
      random.chance(0.7) ? [this.#leaf()] : this.#body(depth - 1, 1 + random.below(2)),
    );
    return { op: "group", how, of };
  }

  #later(depth: number): Node {
    const random = this.#random;
    const of = Array.from({ length: 1 + random.below(3) }, () =>
      random.chance(0.15) ? this.#lock([this.#step()]) : this.#leaf(),
    );
    const of2 = of.map((one) => (one.op === "lock" ? { ...one, verb: "with" as const } : one));
    const awaited = of2.map((_, at) => at).filter(() => random.chance(0.5));
    if (random.chance(0.4)) awaited.reverse();
    // The same name twice is under way at once.
    const [first] = of2;
    if (first !== undefined && random.chance(0.08)) of2.push(first);
    return { op: "later", of: of2, between: random.chance(0.6) ? this.#body(depth - 1, 1) : [], awaited };
  }

  // Combinations that people write, and that random choice seldom finds.

  #failing(more: Partial<StepNode>): StepNode {
    return { op: "step", name: this.#name("s"), kind: "plain", ms: 0, fails: "always", attempts: 1, ...more };
  }

  #sharedChild(id: string): ChildNode {
    const random = this.#random;
    return { op: "child", verb: "call", workflow: random.pick(this.#children), input: random.below(2), id };
  }

  #pattern(): Node {
    const random = this.#random;
    const failing = (more: Partial<StepNode>): StepNode => this.#failing(more);
    switch (random.below(14)) {
      case 0: {
        if (!this.#isRoot) return this.#cleanup();
        const everyMs = this.#ms(8, 12);
        // The approval may come while the reminder is sent.
        const mail = random.chance(0.5) ? { mailMs: 2 * everyMs } : {};
        return { op: "remind", signal: this.#name("approval"), everyMs, ...mail };
      }
      case 1: {
        // A rejection that is awaited later, behind a limit.
        const limit = random.chance(0.5) ? { semaphore: "permits-0" } : { rate: "step-rate-0" };
        return {
          op: "try",
          body: [{ op: "later", of: [failing(limit)], between: [{ op: "sleep", ms: this.#ms(8, 15) }], awaited: [0] }],
          catch: [],
        };
      }
      case 2:
        return {
          op: "try",
          body: [
            {
              op: "later",
              of: [{ ...this.#lock([failing({})]), verb: "with" }],
              between: [{ op: "sleep", ms: this.#ms(8, 15) }],
              awaited: [0],
            },
          ],
          catch: [],
        };
      case 3: {
        // Two that fail in one outage.
        const fails = { fails: "outage" } as const;
        if (random.chance(0.5))
          return {
            op: "later",
            of: [failing(fails), failing(fails)],
            between: [{ op: "sleep", ms: this.#ms(4, 9) }],
            awaited: [0, 1],
          };
        return { op: "group", how: "Promise.all", of: [[failing(fails)], [failing(fails)]] };
      }
      case 4:
        return {
          op: "try",
          body: [failing({ attempts: 20, delayMs: random.pick([2_000, 10_000]), totalTimeoutMs: 25_000 })],
          catch: [],
        };
      case 5:
        return {
          op: "try",
          body: [failing({ attempts: 3, delayMs: 100, rate: "step-rate-1" })],
          catch: [],
        };
      case 6: {
        // One id for what numbering makes of another.
        const name = this.#name("s");
        const step = (id: string): StepNode => ({ op: "step", name, kind: "plain", ms: 0, id });
        const both: Node = { op: "later", of: [step("x#2"), step("x")], between: [], awaited: [0, 1] };
        return { op: "try", body: [step("x"), both], catch: [] };
      }
      case 7:
      case 8: {
        // One id twice in one parent: for the same, or for something else.
        if (this.#children.length === 0) return this.#cleanup();
        const first = this.#sharedChild(`shared-${random.below(2)}`);
        const second = random.chance(0.5) ? first : this.#sharedChild(first.id ?? "");
        const both: Node[] = random.chance(0.5)
          ? [first, second]
          : [{ op: "group", how: "Promise.all", of: [[first], [second]] }];
        return { op: "try", body: both, catch: [] };
      }
      case 9: {
        // What loses is told to stop.
        const loser = this.#children.length > 0 && random.chance(0.5) ? this.#child() : failing(SLOW);
        return { op: "group", how: "ctx.race", of: [[{ op: "sleep", ms: this.#ms(2, 6) }], [loser]] };
      }
      case 10: {
        // Work that takes a while, with cleanup: as it is, shielded, or in the branches of a race.
        const work = (): StepNode => ({ op: "step", name: this.#name("s"), kind: "plain", ms: this.#ms(5, 15) });
        const cleaned = (body: readonly Node[]): Node => ({ op: "try", body, finally: [this.#cleanup()] });
        if (!this.#features.shield || random.chance(0.25)) return cleaned([work()]);
        const shield = (): Node => ({ op: "shield", body: [work(), this.#step()] });
        if (random.chance(0.25)) return cleaned([shield()]);
        const branch = (): Node => ({
          op: "try",
          body: [work()],
          finally: [{ op: "sleep", ms: this.#ms(3, 6) }, this.#cleanup()],
        });
        const branches = random.chance(0.6)
          ? [[branch()], [branch()]]
          : [[shield()], [{ op: "sleep", ms: this.#ms(2, 6) } as const]];
        return { op: "group", how: "ctx.race", of: branches };
      }
      case 11: {
        // A lock that was released before the outage, and is wanted again after it.
        const lock: LockNode = { ...this.#lock([this.#cleanup()]), verb: "with" };
        return { op: "loop", times: 2, body: [lock, failing({ fails: "outage" })] };
      }
      case 12: {
        // A failure that is handled, before one that ends the run.
        const handled: Node = { op: "try", body: [failing({})], catch: [this.#cleanup()] };
        return { op: "loop", times: 1, body: [handled, failing({ fails: "outage" })] };
      }
      default:
        return this.#isRoot && random.chance(0.06)
          ? { op: "fan", of: random.pick(["slots", "locks"] as const), count: 1_030, name: this.#name("fan") }
          : { op: "fan", of: random.pick(["slots", "locks"] as const), count: 20, name: this.#name("fan") };
    }
  }
}
