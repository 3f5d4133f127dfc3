/**
 * Shrinks a case that fails: as long as a smaller one breaks the same rule, that one is taken.
 *
 * A smaller program makes other calls, so faults strike elsewhere. Each candidate is therefore tried under a few seeds of the world.
 */

import type { Case, Node, StepNode, WorkflowPlan } from "./program.ts";
import { bodiesOf, walk } from "./program.ts";

/** Tries a case; returns the seed of the world under which it fails in the same way, if it does. */
export type Fails = (plan: Case) => Promise<number | undefined>;

export interface Shrunk {
  readonly plan: Case;
  readonly seed: number;
}

/** How many candidates are tried, and for how long. */
const CANDIDATES = 400;
const LONGEST_MS = 60_000;

export async function shrink(found: Shrunk, fails: Fails): Promise<Shrunk> {
  let { plan, seed } = found;
  let left = CANDIDATES;
  const startedMs = performance.now();
  for (let isSmaller = true; isSmaller && left > 0; ) {
    isSmaller = false;
    for (const candidate of smaller(plan)) {
      left -= 1;
      if (left <= 0 || performance.now() - startedMs > LONGEST_MS) return { plan, seed };
      const failing = await fails(candidate);
      if (failing === undefined) continue;
      plan = candidate;
      seed = failing;
      isSmaller = true;
      break;
    }
  }
  return { plan, seed };
}

/** Cases with one thing less, the boldest cuts first. */
function* smaller(plan: Case): Generator<Case> {
  if (plan.faults) yield { ...plan, faults: false };
  if (plan.stranger === true) yield { ...plan, stranger: undefined };
  for (const run of plan.runs)
    if (plan.runs.length > 1)
      yield {
        ...plan,
        runs: plan.runs.filter((one) => one !== run),
        signals: plan.signals.filter((one) => one.run !== run.id),
      };
  for (const [at, run] of plan.runs.entries()) {
    const put = (changed: typeof run): Case => ({ ...plan, runs: plan.runs.with(at, changed) });
    if (run.cancelMs !== undefined) yield put({ ...run, cancelMs: undefined, force: undefined });
    if (run.retries > 0) yield put({ ...run, retries: 0 });
    if (run.cancelsRetry === true) yield put({ ...run, cancelsRetry: undefined });
    if (run.restarts) yield put({ ...run, restarts: false });
    if (run.underLock === true) yield put({ ...run, underLock: undefined });
    if (run.startMs > 0) yield put({ ...run, startMs: 0 });
  }
  for (const [at, workflow] of plan.workflows.entries()) {
    const put = (changed: WorkflowPlan): Case => ({ ...plan, workflows: plan.workflows.with(at, changed) });
    if (workflow.timeoutMs !== undefined) yield put({ ...workflow, timeoutMs: undefined });
    for (const body of smallerBodies(workflow.body)) yield put({ ...workflow, body });
    if (workflow.style === "generator") yield put({ ...workflow, style: "async" });
  }
  // Signals for waits that are gone.
  const waited = new Set<string>();
  for (const { body } of plan.workflows)
    for (const node of walk(body)) {
      if (node.op === "wait") for (const name of node.signals) waited.add(name);
      if (node.op === "remind") waited.add(node.signal);
    }
  const signals = plan.signals.filter(({ name }) => waited.has(name));
  if (signals.length < plan.signals.length) yield { ...plan, signals };
}

function* smallerBodies(body: readonly Node[]): Generator<readonly Node[]> {
  if (body.length > 3) {
    yield body.slice(0, body.length / 2);
    yield body.slice(body.length / 2);
  }
  for (const at of body.keys()) yield body.toSpliced(at, 1);
  for (const [at, node] of body.entries()) {
    for (const inner of bodiesOf(node)) if (inner.length > 0) yield body.toSpliced(at, 1, ...inner);
    for (const changed of smallerNodes(node)) yield body.with(at, changed);
  }
}

function* smallerNodes(node: Node): Generator<Node> {
  switch (node.op) {
    case "step":
      yield* smallerSteps(node);
      return;
    case "group":
      for (const at of node.of.keys()) if (node.of.length > 1) yield { ...node, of: node.of.toSpliced(at, 1) };
      for (const [at, branch] of node.of.entries())
        for (const changed of smallerBodies(branch))
          if (changed.length > 0) yield { ...node, of: node.of.with(at, changed) };
      return;
    case "loop":
      if (node.times > 1) yield { ...node, times: node.times - 1 };
      for (const body of smallerBodies(node.body)) yield { ...node, body };
      return;
    case "lock":
      if (node.timeoutMs !== undefined) yield { ...node, timeoutMs: undefined };
      for (const body of smallerBodies(node.body)) yield { ...node, body };
      return;
    case "shield":
      for (const body of smallerBodies(node.body)) yield { ...node, body };
      return;
    case "try":
      for (const body of smallerBodies(node.body)) yield { ...node, body };
      for (const body of smallerBodies(node.catch ?? [])) yield { ...node, catch: body };
      for (const body of smallerBodies(node.finally ?? [])) if (body.length > 0) yield { ...node, finally: body };
      if (node.finally !== undefined && node.catch !== undefined) yield { ...node, catch: undefined };
      return;
    case "later":
      for (const at of node.of.keys()) {
        const awaited = node.awaited.filter((one) => one !== at).map((one) => (one > at ? one - 1 : one));
        if (node.of.length > 1) yield { ...node, of: node.of.toSpliced(at, 1), awaited };
        for (const changed of smallerNodes(node.of[at] as Node))
          yield { ...node, of: node.of.with(at, changed as (typeof node.of)[number]) };
      }
      for (const at of node.awaited) yield { ...node, awaited: node.awaited.filter((one) => one !== at) };
      for (const between of smallerBodies(node.between)) yield { ...node, between };
      return;
    case "wait":
      if (node.signals.length > 1) yield { ...node, signals: node.signals.slice(0, 1) };
      return;
    case "child":
      if (node.whenParentEnds !== undefined) yield { ...node, whenParentEnds: undefined };
      if (node.id !== undefined) yield { ...node, id: undefined };
      return;
    case "remind":
      if (node.mailMs !== undefined) yield { ...node, mailMs: undefined };
      return;
    case "fan":
      if (node.count > 1) yield { ...node, count: Math.floor(node.count / 2) };
      return;
    default:
  }
}

const OPTIONS = [
  "id",
  "rate",
  "semaphore",
  "heartbeatMs",
  "beats",
  "totalTimeoutMs",
  "timeoutMs",
  "delayMs",
  "attempts",
  "reconciles",
  "fails",
  "mistake",
  "locks",
] as const;

function* smallerSteps(node: StepNode): Generator<StepNode> {
  for (const option of OPTIONS) if (node[option] !== undefined) yield { ...node, [option]: undefined };
  if (node.ms > 0) yield { ...node, ms: 0 };
  if (node.kind !== "plain") yield { ...node, kind: "plain" };
}
