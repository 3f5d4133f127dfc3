/**
 * Programs: the body of a workflow as plain data, so that it can be drawn, run, shrunk and printed.
 *
 * A case is everything that one simulated world runs: some workflows, the runs of them, and what clients do to those. Names are unique in a case
 * except where a mistake wants them not to be, so that the ledger can tell whose effect it sees.
 */

/** What a step's function does wrong. */
export const STEP_MISTAKES = [
  /** A callback calls `heartbeat` after the function has returned. */
  "late heartbeat",
  /** A callback of an attempt that timed out calls `heartbeat`. */
  "late heartbeat of a timed-out attempt",
  /** `abortSignal` is first read after the attempt's timeout. */
  "late abortSignal",
  /** `ctx.step` inside the function. */
  "nested step",
  /** `ctx.sleep` inside the function, after a while. */
  "nested sleep",
  /** It returns what cannot be stored. */
  "unstorable",
] as const;

export type StepMistake = (typeof STEP_MISTAKES)[number];

export interface StepNode {
  readonly op: "step";
  readonly name: string;
  readonly kind: "plain" | "tx" | "once";
  readonly id?: string | undefined;
  /** How long an attempt takes. */
  readonly ms: number;
  /** How many attempts fail: the first ones, all of them, or those before somebody mends it and retries the run. */
  readonly fails?: number | "always" | "outage" | undefined;
  readonly attempts?: number | undefined;
  readonly delayMs?: number | undefined;
  readonly timeoutMs?: number | undefined;
  readonly totalTimeoutMs?: number | undefined;
  readonly heartbeatMs?: number | undefined;
  /** It calls `heartbeat` with its progress while it works. */
  readonly beats?: boolean | undefined;
  readonly rate?: string | undefined;
  readonly semaphore?: string | undefined;
  readonly reconciles?: boolean | undefined;
  readonly mistake?: StepMistake | undefined;
  /** Its function takes a lock of plain code, which clients use as well. */
  readonly locks?: boolean | undefined;
}

export interface SleepNode {
  readonly op: "sleep";
  readonly ms: number;
  readonly until?: boolean | undefined;
}

export interface WaitNode {
  readonly op: "wait";
  readonly signals: readonly string[];
  readonly timeoutMs?: number | undefined;
}

export interface ChildNode {
  readonly op: "child";
  readonly verb: "call" | "start";
  /** Which of the case's workflows. */
  readonly workflow: number;
  readonly input: number;
  readonly id?: string | undefined;
  readonly whenParentEnds?: "cancel" | "leave" | undefined;
}

export interface SlotNode {
  readonly op: "slot";
  readonly verb: "get" | "set" | "trySet" | "update" | "delete";
  readonly name: string;
  readonly scope: "run" | "workflow" | "global";
}

export interface LockNode {
  readonly op: "lock";
  readonly kind: "lock" | "mutex" | "semaphore" | "read" | "write";
  /** `with`, `acquire` and `release`, or `tryAcquire` and `release`. */
  readonly verb: "with" | "acquire" | "try";
  readonly name: string;
  readonly timeoutMs?: number | undefined;
  readonly body: readonly Node[];
}

export interface RateNode {
  readonly op: "rate";
  readonly name: string;
  readonly timeoutMs?: number | undefined;
}

export interface GroupNode {
  readonly op: "group";
  readonly how: "Promise.all" | "Promise.race" | "Promise.allSettled" | "ctx.all" | "ctx.race" | "ctx.allSettled";
  /** Each branch is a single operation, or several in an async function. */
  readonly of: readonly (readonly Node[])[];
}

export interface LoopNode {
  readonly op: "loop";
  readonly times: number;
  readonly body: readonly Node[];
}

export interface TryNode {
  readonly op: "try";
  readonly body: readonly Node[];
  readonly catch?: readonly Node[] | undefined;
  readonly finally?: readonly Node[] | undefined;
}

/** Plain code that throws: always, or until somebody mends it. */
export interface ThrowNode {
  readonly op: "throw";
  readonly name: string;
  readonly outage: boolean;
}

/** Asked for now and awaited later, in the order given, or never. */
export interface LaterNode {
  readonly op: "later";
  readonly of: readonly (Leaf | LockNode)[];
  readonly between: readonly Node[];
  /** Places in `of`. */
  readonly awaited: readonly number[];
}

/** A loop of `Promise.race` over a signal and a sleep, until the signal comes. */
export interface RemindNode {
  readonly op: "remind";
  readonly signal: string;
  readonly everyMs: number;
  /** After each round that the signal did not come in, it sends a reminder, which takes so long. */
  readonly mailMs?: number | undefined;
}

/** Waits for something that is no operation of `ctx`. */
export interface ForeignNode {
  readonly op: "foreign";
  readonly ms: number | "never";
  /** In a race with a sleep of this length. */
  readonly racedMs?: number | undefined;
}

/** The code keeps `ctx` and uses it after the run has ended. */
export interface AfterEndNode {
  readonly op: "afterEnd";
  readonly ms: number;
}

/** Very many operations in one turn. */
export interface FanNode {
  readonly op: "fan";
  readonly of: "slots" | "locks" | "children";
  readonly count: number;
  readonly name: string;
  /** Of which workflow the children are; they end with their parent. */
  readonly workflow?: number | undefined;
}

export interface ShieldNode {
  readonly op: "shield";
  readonly body: readonly Node[];
}

/** What is one operation of `ctx`, and so can be kept without being awaited. */
export type Leaf = StepNode | SleepNode | WaitNode | ChildNode | SlotNode | RateNode;

export type Node =
  | Leaf
  | LockNode
  | GroupNode
  | LoopNode
  | TryNode
  | ThrowNode
  | LaterNode
  | RemindNode
  | ForeignNode
  | AfterEndNode
  | FanNode
  | ShieldNode;

export interface WorkflowPlan {
  readonly name: string;
  readonly style: "async" | "generator";
  readonly timeoutMs?: number | undefined;
  readonly body: readonly Node[];
}

export interface RunPlan {
  readonly id: string;
  readonly workflow: number;
  readonly startMs: number;
  readonly cancelMs?: number | undefined;
  /** The cancellation is `{ force: true }`. */
  readonly force?: boolean | undefined;
  /** How often a failed run is retried. */
  readonly retries: number;
  /** Who retries it thinks better of it immediately, and cancels it. */
  readonly cancelsRetry?: boolean | undefined;
  /** Started again under its id once it has ended. */
  readonly restarts: boolean;
  /** Started under a lock of plain code, by a process that works on it. */
  readonly underLock?: boolean | undefined;
}

export interface SignalPlan {
  readonly run: string;
  readonly name: string;
  readonly atMs: number;
  /** Which of several signals of one name it is. */
  readonly number: number;
}

export interface Case {
  readonly workflows: readonly WorkflowPlan[];
  readonly runs: readonly RunPlan[];
  readonly signals: readonly SignalPlan[];
  readonly faults: boolean;
  /** One of the workers has other code, which contradicts the history of every run that has begun. */
  readonly stranger?: boolean | undefined;
}

export const isLeaf = (node: Node): node is Leaf =>
  node.op === "step" ||
  node.op === "sleep" ||
  node.op === "wait" ||
  node.op === "child" ||
  node.op === "slot" ||
  node.op === "rate";

/** The lists of nodes inside a node. */
export function bodiesOf(node: Node): readonly (readonly Node[])[] {
  switch (node.op) {
    case "lock":
    case "loop":
    case "shield":
      return [node.body];
    case "group":
      return node.of;
    case "try":
      return [node.body, node.catch ?? [], node.finally ?? []];
    case "later":
      return [node.of, node.between];
    default:
      return [];
  }
}

/** Every node, the outer ones first. */
export function* walk(body: readonly Node[]): Generator<Node> {
  for (const node of body) {
    yield node;
    for (const inner of bodiesOf(node)) yield* walk(inner);
  }
}

/** The workflows that runs of the case are of, or that those may start. */
export function usedWorkflows({ workflows, runs }: Pick<Case, "workflows" | "runs">): ReadonlySet<number> {
  const used = new Set(runs.map(({ workflow }) => workflow));
  // A set can grow while it is looked through.
  for (const at of used)
    for (const node of walk(workflows[at]?.body ?? []))
      if ("workflow" in node && node.workflow !== undefined) used.add(node.workflow);
  return used;
}

/** Every node that a run may come to. */
export function* nodesOf(plan: Pick<Case, "workflows" | "runs">): Generator<Node> {
  for (const at of usedWorkflows(plan)) yield* walk(plan.workflows[at]?.body ?? []);
}

/** How often each node may be reached in one execution of the body. */
export function* walkCounted(body: readonly Node[], times = 1): Generator<readonly [Node, number]> {
  for (const node of body) {
    yield [node, times];
    for (const inner of bodiesOf(node)) yield* walkCounted(inner, node.op === "loop" ? times * node.times : times);
  }
}
