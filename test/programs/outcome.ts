/**
 * Outcomes: without faults a case comes to what the model says, where the model is sure. With faults, each run comes to something that its program
 * allows.
 */

import { allows, codesOf } from "./allowed.ts";
import type { Features } from "./features.ts";
import { type Modeled, modelCase } from "./model.ts";
import { mayExpire, mayStray } from "./oracle.ts";
import type { Case, Node } from "./program.ts";
import { isLeaf, nodesOf, usedWorkflows, walk } from "./program.ts";
import type { Execution, Finding } from "./stage.ts";

export interface Judged {
  readonly finding: Finding | undefined;
  /** Why the model could not be asked, if it could not. */
  readonly unsure: string | undefined;
}

export async function judgeOutcome(execution: Execution, features: Features): Promise<Judged> {
  const allowed = disallowed(execution);
  if (allowed !== undefined)
    return { finding: { rule: "the outcome is one that the program allows", message: allowed }, unsure: undefined };
  const { plan, retried, restarted, parked } = execution;
  const unsure = whyUnsure(plan, execution);
  if (unsure !== undefined) return { finding: undefined, unsure };
  const model = await modelCase(plan, features, { isMended: retried.size > 0, transactions: execution.world.lanes });
  if (model.unsure !== undefined) return { finding: undefined, unsure: model.unsure };
  // Two that wait for each other are told so; the model only waits.
  if ([...model.told.values()].includes("waits")) return { finding: undefined, unsure: "the model waits for ever" };
  const isOnce = retried.size === 0 && restarted.size === 0 && parked.size === 0;
  const message = differs(execution, model) ?? (isOnce ? effectsDiffer(plan, execution, model) : undefined);
  return {
    finding: message === undefined ? undefined : { rule: "without faults the outcome is that of the model", message },
    unsure: undefined,
  };
}

/** What the model does not know. */
function whyUnsure(plan: Case, { retried, restarted, parked }: Execution): string | undefined {
  if (plan.faults) return "faults";
  if (parked.size > 0) return "a run was parked";
  if (plan.runs.some(({ force }) => force === true)) return "canceled by force";
  if (restarted.size > 0) return "restarted";
  if (mayStray(plan)) return "something foreign in a race";
  // A retry begins later than the model, and what is timed from outside comes at another place.
  const isTimed = isTimedIn(plan);
  // A run whose code is not kept rests until what is pending is due, and is replayed then: what it awaits is begun again, and ends later.
  const isBeside =
    [...nodesOf(plan)].some(({ op }) => op === "foreign") && [...nodesOf(plan)].some(({ op }) => op === "later");
  if (isBeside && isTimed) return "something foreign beside what waits, and something came at its time";
  if (retried.size > 0 && isTimed) return "something came at its time, before or after the retry";
  // One that ends with its parent may still be about to when that is retried, and is then waited for.
  const isStopping = [...nodesOf(plan)].some(
    (node) => (node.op === "later" || node.op === "group") && [...walk([node])].some(({ op }) => op === "child"),
  );
  if (retried.size > 0 && isStopping) return "a child may have been about to end when its parent was retried";
  const mayHandle = [...nodesOf(plan)].some((node) => handles(plan, node) && hasOutage(plan, [node]));
  const hasOnce = [...nodesOf(plan)].some(
    (node) => node.op === "step" && node.kind === "once" && node.fails !== undefined,
  );
  if (retried.size > 0 && hasOnce) return "a step that runs at most once was asked about after the retry";
  if (retried.size > 0 && (plan.runs.length > 1 || mayHandle))
    return "a failure may have been handled before the retry";
  const mayRaceAgain = [...nodesOf(plan)].some((node) => isRace(node) && mayFail(plan, [node]));
  if (retried.size > 0 && mayRaceAgain) return "what failed may race again with what is remembered";
  // The model never fails where the retry mended something, so its times are others.
  const hasTimes =
    plan.runs.some(({ cancelMs }) => cancelMs !== undefined) ||
    plan.workflows.some(({ timeoutMs }) => timeoutMs !== undefined);
  if (retried.size > 0 && hasTimes) return "a cancellation or a timeout beside a retry";
  // Even if it would be awaited later: what comes before that may throw.
  const isLeft = [...nodesOf(plan)].some((node) => node.op === "later" && node.of.some(({ op }) => op === "lock"));
  return isLeft ? "code under a lock may not be awaited" : undefined;
}

/** Whether something comes to a run from outside, or by its timeout, at a time of its own. */
const isTimedIn = (plan: Case): boolean =>
  plan.runs.some(({ cancelMs, cancelsRetry }) => cancelMs !== undefined || cancelsRetry === true) || hasTimeout(plan);

const hasTimeout = (plan: Case): boolean =>
  [...usedWorkflows(plan)].some((at) => plan.workflows[at]?.timeoutMs !== undefined);

/** Whether the code may ask for something else after a failure in it: then that counts as handled, even if it is thrown later. */
function handles(plan: Case, node: Node): boolean {
  if (node.op === "group") {
    // A branch may look at its failure later, when another one has begun more.
    const isLate = node.of.length > 1 && node.of.some((branch) => !branch.every(isLeaf) && hasOutage(plan, branch));
    return !node.how.endsWith(".all") || node.of.some((branch) => branch.length > 1) || isLate;
  }
  if (node.op === "later")
    return node.awaited.length < node.of.length || node.between.length > 1 || !node.between.every(isLeaf);
  return node.op === "try";
}

const isRace = (node: Node): boolean => node.op === "group" && node.how.endsWith("race");

/** Whether something may fail here. */
const mayFail = (plan: Case, body: readonly Node[]): boolean =>
  [...walk(body)].some((node) => {
    if (node.op === "step") return node.fails !== undefined || node.mistake !== undefined || mayExpire(node);
    if (node.op === "throw" || node.op === "later") return true;
    return node.op === "child" && mayFail(plan, plan.workflows[node.workflow]?.body ?? []);
  });

/** Whether something fails here only until it is mended. */
const hasOutage = (plan: Case, body: readonly Node[]): boolean =>
  [...walk(body)].some((node) => {
    if (node.op === "step") return node.fails === "outage";
    if (node.op === "throw") return node.outage;
    return node.op === "child" && hasOutage(plan, plan.workflows[node.workflow]?.body ?? []);
  });

function differs({ told }: Execution, model: Modeled): string | undefined {
  for (const [run, expected] of model.told) {
    const is = JSON.stringify(told.get(run));
    const should = JSON.stringify(expected);
    if (is !== should) return `${run} came to ${is}, and in the model to ${should}`;
  }
  return undefined;
}

/** The same steps ran, as often as in the model, and the same runs were started and ended in the same way. */
function effectsDiffer(plan: Case, { ledger, runs }: Execution, model: Modeled): string | undefined {
  const hasBranches = [...nodesOf(plan)].some(
    (node) => node.op === "group" && node.of.some(({ length }) => length > 1),
  );
  const count = (begun: Execution["ledger"]["begun"]): Map<string, number> => {
    const counts = new Map<string, number>();
    for (const { run, name } of begun) counts.set(`${run} ${name}`, (counts.get(`${run} ${name}`) ?? 0) + 1);
    return counts;
  };
  const is = count(ledger.begun);
  const should = count(model.ledger.begun);
  // A transaction that is rolled back because of others is tried again.
  const isTx = new Set(ledger.begun.flatMap(({ run, name, kind }) => (kind === "tx" ? [`${run} ${name}`] : [])));
  // A branch that nobody awaits any more goes on until the run has ended.
  const mayBeMore = (what: string): boolean => hasBranches || isTx.has(what);
  // Between a cancellation, or a timeout, and the moment at which the code learns of it, there may be another attempt, or one fewer.
  const failing = isTimedIn(plan)
    ? [...nodesOf(plan)].flatMap((node) => (node.op === "step" && node.fails !== undefined ? [` ${node.name}`] : []))
    : [];
  const isAmongAttempts = (what: string): boolean =>
    is.has(what) && should.has(what) && failing.some((name) => what.endsWith(name));
  for (const what of new Set([...is.keys(), ...should.keys()]))
    if (
      !isAmongAttempts(what) &&
      ((is.get(what) ?? 0) < (should.get(what) ?? 0) || (is.get(what) !== should.get(what) && !mayBeMore(what)))
    )
      return `step ${what} ran ${is.get(what) ?? 0} times, and in the model ${should.get(what) ?? 0} times`;
  for (const [id, { status }] of model.runs) {
    const found = runs.find((run) => run.id === id);
    if (found?.status !== status) return `${id} is ${found?.status ?? "missing"}, and in the model ${status}`;
  }
  // Nor is it told what a branch that goes on starts.
  for (const { id, status } of runs)
    if (!model.runs.has(id) && !hasBranches) return `${id} is ${status}, and in the model it was never started`;
  return undefined;
}

/** Each run came to something that its program can come to. */
function disallowed({ plan, told, canceled, parked }: Execution): string | undefined {
  for (const { id, workflow, force } of plan.runs) {
    const outcome = told.get(id);
    const program = plan.workflows[workflow];
    if (outcome === undefined || program === undefined) continue;
    if (outcome.status === "completed") {
      const wrong = allows(plan, program.body, (outcome.value as { readonly body?: unknown }).body);
      if (wrong !== undefined) return `${id} completed with ${JSON.stringify(outcome.value)}: ${wrong}`;
    } else if (outcome.status === "canceled") {
      if (!canceled.has(id) && !parked.has(id)) return `${id} is canceled, and no client canceled it`;
    } else if (outcome.status === "timed_out") {
      if (program.timeoutMs === undefined) return `${id} is timed out, and its workflow has no timeout`;
    } else {
      const codes = codesOf(plan, program.body);
      const isInterrupted = canceled.has(id) || program.timeoutMs !== undefined || force === true;
      if (!codes.has(outcome.code) && !(isInterrupted && ["run_canceled", "run_timed_out"].includes(outcome.code)))
        return `${id} failed with ${outcome.code}, which its program cannot throw`;
    }
  }
  return undefined;
}
