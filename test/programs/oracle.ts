/**
 * The oracle: what Pawl promises of any program, checked against the ledger and the commits. It knows the promises, not the code.
 *
 * Rules that are about the time of day hold only without faults. What the outcome has to be is in `outcome.ts`.
 */

import { ProgramDatabase } from "./database.ts";
import { type Facts, nameOf, readFacts } from "./facts.ts";
import type { Begun } from "./ledger.ts";
import type { Case, Node, StepNode } from "./program.ts";
import { bodiesOf, isLeaf, nodesOf, walk } from "./program.ts";
import type { Execution, Finding } from "./stage.ts";

/** How late something may be, in the world's time, where nothing fails. */
const SLACK_MS = 500;

type Rule = (execution: Execution, facts: Facts) => string | undefined;

const RULES: Readonly<Record<string, Rule>> = {
  "a recorded step never runs again": recorded,
  "no attempt is repeated where nothing fails": repeated,
  "a failure that was handled stays": handled,
  "a retry gives a step all of its attempts again": attemptsAgain,
  "a failed child is retried with its parent": childRetried,
  "step.tx takes effect exactly once": txOnce,
  "an at-most-once step is not repeated on a guess": atMostOnce,
  "cleanup runs": cleanup,
  "code that is canceled goes on when what it interrupted is over": interrupted,
  "shielded code comes to its end": shielded,
  "use after the end throws": usedAfterEnd,
  "the abortSignal of an attempt that is over is aborted": lateAbort,
  "totalTimeout spans all attempts": totalTimeout,
  "a step's rateLimit counts every attempt": rate,
  "nothing that was asked for disappears": disappears,
  "children end with their parent": orphaned,
  "a run holds and waits for what its code asked for": surplus,
  "misuse is reported": unreported,
};

export const RULE_NAMES = Object.keys(RULES);

export function judge(execution: Execution): Finding | undefined {
  if (execution.finding !== undefined) return execution.finding;
  const facts = readFacts(execution.world);
  for (const [rule, check] of Object.entries(RULES)) {
    const message = check(execution, facts);
    if (message !== undefined) return { rule, message };
  }
  return undefined;
}

const stepsOf = (plan: Case): ReadonlyMap<string, StepNode> =>
  new Map([...nodesOf(plan)].flatMap((node) => (node.op === "step" ? [[node.name, node] as const] : [])));

function recorded({ ledger, plan }: Execution, { runs }: Facts): string | undefined {
  for (const begun of ledger.begun) {
    const history = runs.get(begun.run);
    const wrong = history?.records.find((record) => {
      if (record.key !== begun.key || record.at >= begun.at.commits) return false;
      // A failure may be forgotten by a retry, also by the one that the same commit made of a child.
      if (!record.isOk && history.retries.some((at) => at >= record.at && at < begun.at.commits)) return false;
      if (!plan.faults || record.by === begun.by) return true;
      const claims = history.claims.get(begun.by) ?? [];
      return claims.some((at) => at > record.at && at < begun.at.commits);
    });
    if (wrong !== undefined)
      return `${begun.run}: ${shown(begun)} was begun although "step ${wrong.id}" was recorded ${wrong.isOk ? "as done" : "as failed"}`;
  }
  return keysFit(ledger.begun, runs);
}

/**
 * Without faults, no process stops in the middle of an attempt: only a retry of the run has a reason to begin it again. A transaction that is
 * rolled back because of others is another reason.
 */
function repeated({ ledger, plan, world }: Execution, { runs }: Facts): string | undefined {
  if (world.database instanceof ProgramDatabase && world.database.moved > 0) return undefined;
  // Code that awaits something foreign is somewhere else when it is replayed.
  if (plan.faults || [...nodesOf(plan)].some(({ op }) => op === "foreign")) return undefined;
  const steps = stepsOf(plan);
  const last = new Map<string, Begun>();
  for (const begun of ledger.begun) {
    if (begun.kind === "tx") continue;
    const attempt = `${begun.key} ${begun.attempt}`;
    const before = last.get(attempt);
    last.set(attempt, begun);
    if (begun.attempt > 1 && steps.get(begun.name)?.mistake === "unstorable")
      return `${begun.run}: ${shown(begun)} was begun although what the one before gave cannot be stored`;
    if (before === undefined) continue;
    const retries = runs.get(begun.run)?.retries ?? [];
    if (!retries.some((at) => at >= before.at.commits && at < begun.at.commits))
      return `${begun.run}: ${shown(begun)} was begun before, ${shown(before)}, and nothing failed`;
  }
  return undefined;
}

/** A step that failed alone in a `try`, after which the step of its `catch` began, is not done again, whoever retries the run. */
function handled({ ledger, plan }: Execution, { runs }: Facts): string | undefined {
  if (plan.faults) return undefined;
  for (const node of nodesOf(plan)) {
    if (node.op !== "try") continue;
    const [failing, more] = node.body;
    const [next] = node.catch ?? [];
    if (failing?.op !== "step" || failing.kind !== "plain" || more !== undefined || next?.op !== "step") continue;
    for (const begun of ledger.begun) {
      if (begun.name !== failing.name) continue;
      const failed = runs.get(begun.run)?.records.find(({ key, isOk }) => key === begun.key && !isOk);
      const went = ledger
        .attempts(begun.run, next.name)
        .some(({ at }) => failed !== undefined && at.commits > failed.at && at.commits <= begun.at.commits);
      if (went)
        return `${begun.run}: ${shown(begun)} was begun although its failure was handled: ${next.name} had begun`;
    }
  }
  return undefined;
}

/** What is done again because its failure was forgotten is tried as often as the first time. */
function attemptsAgain({ ledger, plan }: Execution, { runs }: Facts): string | undefined {
  if (plan.faults) return undefined;
  const steps = stepsOf(plan);
  const hasOthers = ({ key }: Begun): boolean => ledger.begun.some((other) => other.kind === "tx" && other.key !== key);
  const last = new Map<string, Begun>();
  for (const begun of ledger.begun) {
    const before = last.get(begun.key);
    last.set(begun.key, begun);
    const { records = [], retries = [] } = runs.get(begun.run) ?? {};
    const failed = records.findLast(({ key, isOk, at }) => key === begun.key && !isOk && at < begun.at.commits);
    // One that a replay began again has no record in between.
    if (before === undefined || failed === undefined || failed.at < before.at.commits) continue;
    const isRetried = retries.some((at) => at >= failed.at && at < begun.at.commits);
    // An attempt may have timed out before it began, while another step had the only transaction.
    if (begun.kind === "tx" && steps.get(begun.name)?.timeoutMs !== undefined && hasOthers(begun)) continue;
    if (isRetried && begun.attempt > 1) return `${begun.run}: ${shown(begun)} is the first one after a retry`;
  }
  return undefined;
}

/** A child whose failure is the last that its parent heard of before that failed, too, is retried by the same commit. */
function childRetried({ plan, runs: listed }: Execution, { runs }: Facts): string | undefined {
  const bodies = new Map(plan.workflows.map(({ name, body }) => [name, body]));
  for (const [run, { facts, children, retries }] of runs)
    for (const retry of retries) {
      const [last, end] = facts.filter(({ at }) => at < retry).slice(-2);
      if (end?.name !== "failed" || last?.name.startsWith("ended ") !== true) continue;
      const operation = last.name.slice("ended ".length);
      const child = children.findLast(({ id, at }) => id === operation && at < retry)?.run ?? "";
      // One with an id of its own may have other parents.
      if (!child.startsWith(`${run}/`)) continue;
      const { facts: known = [], retries: own = [] } = runs.get(child) ?? {};
      const before = known.filter(({ at }) => at < retry);
      // One that was canceled may have cleaned up, and has ended for good.
      if (before.at(-1)?.name !== "failed" || before.some(({ name }) => name === "canceled")) continue;
      const body = bodies.get(listed.find(({ id }) => id === run)?.workflow ?? "") ?? [];
      const called = plan.workflows.findIndex(
        ({ name }) => last.name === `ended ${name}` || last.name.startsWith(`ended ${name}#`),
      );
      const isFirst = !retries.some((at) => at < retry);
      if (own.includes(retry) || mayHandleUnseen(body, called, isFirst)) continue;
      return `${run} was retried, and ${child}, through which it failed, was not`;
    }
  return undefined;
}

/**
 * Whether the code may begin a wait after the failure of such a child, by which that counts as handled, and end before the wait is in the history:
 * a branch that loses a race because of it and goes on, or a `catch` or `finally` that does not await what it asks for. What it remembers from before
 * an earlier retry is not in the history again.
 */
function mayHandleUnseen(body: readonly Node[], child: number, isFirst: boolean): boolean {
  const calls = (part: readonly Node[]): boolean =>
    [...walk(part)].some((node) => node.op === "child" && node.workflow === child);
  return [...walk(body)].some((node) => {
    if (node.op === "group" && node.how === "ctx.race")
      return node.of.some((one) => calls(one) && node.of.some((other) => other !== one && mayGoOn(other)));
    return (
      node.op === "try" &&
      calls(node.body) &&
      [...walk([...(node.catch ?? []), ...(node.finally ?? [])])].some((one) => !isFirst || isLeftBehind(one))
    );
  });
}

const mayGoOn = (branch: readonly Node[]): boolean => branch.length > 1 || !branch.every(isLeaf);

const isLeftBehind = (node: Node): boolean => node.op === "later" && node.awaited.length < node.of.length;

/** The keys are computed here as the code computes them; if that were wrong, nothing would be checked. */
function keysFit(begun: readonly Begun[], runs: Facts["runs"]): string | undefined {
  for (const [run, { records }] of runs)
    for (const { id, key, isOk } of records) {
      // A step that was canceled before it began has a record and no attempt.
      if (!isOk) continue;
      const own = begun.filter((one) => one.run === run && one.name === nameOf(id));
      if (own.length > 0 && !own.some((one) => one.key === key)) return `${run}: no attempt of "${id}" had its key`;
    }
  return undefined;
}

const shown = ({ name, attempt, atMs, by }: Begun): string =>
  `attempt ${attempt} of ${name} (at ${Math.round(atMs)} ms, by ${by.slice(0, 4)})`;

function txOnce({ plan, ledger }: Execution, { runs, effects }: Facts): string | undefined {
  for (const [key, count] of effects) if (count !== 1) return `${key} took effect ${count} times`;
  const steps = stepsOf(plan);
  for (const [run, { records }] of runs) {
    const keys = new Set(
      records.filter(({ id, isOk }) => isOk && steps.get(nameOf(id))?.kind === "tx").map(({ key }) => key),
    );
    for (const key of keys) {
      const known = ledger.begun.find((begun) => begun.key === key);
      if (known !== undefined && !effects.has(`${run}/${known.name}/${key}`))
        return `${run}: ${known.name} is recorded, and has no effect`;
    }
    const inRun = [...effects.keys()].filter(
      (key) => key.startsWith(`${run}/s`) && key.split("/").length === run.split("/").length + 2,
    );
    for (const key of inRun)
      if (!keys.has(key.slice(key.lastIndexOf("/") + 1))) return `${key} took effect, and is not recorded`;
  }
  return undefined;
}

function atMostOnce({ ledger }: Execution, { runs }: Facts): string | undefined {
  const counts = new Map<string, Begun[]>();
  for (const begun of ledger.begun)
    if (begun.kind === "once") counts.set(begun.key, [...(counts.get(begun.key) ?? []), begun]);
  for (const [key, attempts] of counts) {
    const [first] = attempts;
    const failures =
      runs.get(first?.run ?? "")?.records.filter((record) => record.key === key && !record.isOk).length ?? 0;
    const allowed = 1 + (ledger.noes.get(key) ?? 0) + failures;
    if (attempts.length > allowed && first !== undefined)
      return `${first.run}: ${first.name} was begun ${attempts.length} times, ${allowed} at most`;
  }
  return undefined;
}

/** Whoever entered a `try` that the run waits for gets to the step in its `finally`, unless its run was ended by force. */
function cleanup({ ledger, plan, parked, warnings }: Execution, { runs }: Facts): string | undefined {
  if (plan.runs.some(({ force }) => force === true) || mayStray(plan)) return undefined;
  const firm = new Map(plan.workflows.flatMap(({ body }) => [...firmCleanups(body)]));
  for (const { run, cleanup: name } of ledger.entered) {
    const body = firm.get(name);
    // One that is canceled while it is parked ends without its code.
    const wasParked = parked.has(run) || runs.get(run)?.facts.some((fact) => fact.name === "parked") === true;
    // A store's clock that jumps may leave no time for it.
    const isLate =
      plan.faults && warnings.some((one) => one.run === run && one.message.includes("the workflow's grace"));
    if (wasParked || isLate || body === undefined) continue;
    // What came before may have been lost with the process; once a step in it has begun, it was not.
    if (plan.faults && !body.some((step) => ledger.attempts(run, step).length > 0)) continue;
    // A cancellation that finds the cleanup pending reaches that. Where its process was lost in the attempt, the ledger may not have it.
    const isRecorded = plan.faults && runs.get(run)?.records.some(({ id }) => nameOf(id) === name) === true;
    if (ledger.attempts(run, name).length === 0 && !isRecorded)
      return `${run}: the code entered a try, and step ${name} of its finally never ran`;
  }
  return plan.faults ? undefined : racingCleanup(ledger, plan, runs);
}

/** A race that is canceled while the work of each branch is under way waits for the cleanup of all of them. */
function racingCleanup(ledger: Execution["ledger"], plan: Case, runs: Facts["runs"]): string | undefined {
  const bodies = plan.workflows.map(({ body }) => body);
  for (const node of bodies.flatMap((body) => [...straight(body)])) {
    if (node.op !== "group" || node.how !== "ctx.race") continue;
    const branches = node.of.flatMap(([only, ...more]) => {
      if (only?.op !== "try" || only.catch !== undefined || more.length > 0) return [];
      const [work, second] = only.body;
      const last = only.finally?.at(-1);
      return work?.op === "step" && second === undefined && last?.op === "step"
        ? [[work.name, last.name] as const]
        : [];
    });
    if (branches.length < node.of.length) continue;
    for (const [run, { facts, records }] of runs) {
      const canceled = facts.find((fact) => fact.name === "canceled")?.at ?? -1;
      const isPending = branches.every(
        ([work]) =>
          ledger.attempts(run, work).some(({ at }) => at.commits <= canceled) &&
          !records.some(({ id, at }) => nameOf(id) === work && at <= canceled),
      );
      const missing = branches.find(([, last]) => ledger.attempts(run, last).length === 0);
      if (isPending && missing !== undefined)
        return `${run} was canceled in a race, and step ${missing[1]} of a branch's finally never ran`;
    }
  }
  return undefined;
}

/** What the code comes to one after another: not in branches, which others may leave behind, and not shielded. */
function* straight(body: readonly Node[]): Generator<Node> {
  for (const node of body) {
    yield node;
    if (node.op === "group" || node.op === "shield") continue;
    for (const inner of node.op === "later" ? [node.between] : bodiesOf(node)) yield* straight(inner);
  }
}

/** The step of a `finally` begins when the steps of its `try`, which the cancellation found under way, are over. */
function interrupted({ ledger, plan }: Execution): string | undefined {
  if (plan.faults || plan.runs.some(({ force }) => force === true) || mayStray(plan)) return undefined;
  for (const node of plan.workflows.flatMap(({ body }) => [...straight(body)])) {
    const [last] = node.op === "try" ? (node.finally ?? []) : [];
    if (node.op !== "try" || last?.op !== "step") continue;
    const awaited = node.body.flatMap((one) => (one.op === "step" && !mayExpire(one) ? [one.name] : []));
    for (const { run, atMs } of ledger.begun.filter(({ name }) => name === last.name))
      for (const name of awaited)
        if (ledger.attempts(run, name).some((one) => one.atMs < atMs && (one.overMs ?? atMs + 1) > atMs))
          return `${run}: step ${last.name} of a finally began while step ${name} of its try was under way`;
  }
  return undefined;
}

export const mayExpire = ({ timeoutMs, totalTimeoutMs, heartbeatMs }: StepNode): boolean =>
  timeoutMs !== undefined || totalTimeoutMs !== undefined || heartbeatMs !== undefined;

const mayFail = (step: StepNode): boolean =>
  step.fails !== undefined || step.mistake !== undefined || step.locks === true || mayExpire(step);

/** Neither a cancellation nor a race that is lost keeps shielded code from its next step. */
function shielded({ ledger, plan, parked }: Execution, { runs }: Facts): string | undefined {
  if (plan.faults || plan.runs.some(({ force }) => force === true) || mayStray(plan)) return undefined;
  for (const node of nodesOf(plan)) {
    if (node.op !== "shield") continue;
    for (const [at, next] of node.body.entries()) {
      const before = node.body[at - 1];
      if (before?.op !== "step" || mayFail(before)) continue;
      if (next.op !== "step" || next.semaphore !== undefined || next.rate !== undefined) continue;
      for (const run of runs.keys())
        if (
          !parked.has(run) &&
          ledger.attempts(run, before.name).length > 0 &&
          ledger.attempts(run, next.name).length === 0
        )
          return `${run}: step ${next.name} of shielded code never ran, and step ${before.name} before it did`;
    }
  }
  return undefined;
}

/** The steps in `finally` that the run cannot end without, not in a branch that others may leave behind, each with the steps before it. */
function* firmCleanups(body: readonly Node[]): Generator<[string, readonly string[]]> {
  for (const node of body) {
    if (node.op === "group" && !node.how.endsWith("allSettled")) continue;
    if (node.op === "try" && node.finally?.[0]?.op === "step" && ![...walk(node.body)].some(isUnsure))
      yield [node.finally[0].name, [...walk(node.body)].flatMap((one) => (one.op === "step" ? [one.name] : []))];
    for (const inner of node.op === "later" ? [node.between] : bodiesOf(node)) yield* firmCleanups(inner);
  }
}

/** Where nothing of `ctx` is pending, the cancellation is thrown by the next operation, which may be the cleanup. */
const isUnsure = (node: Node): boolean => node.op === "foreign";

/** Code that awaits something foreign beside an operation may continue when the run is somewhere else, and be refused. */
export const mayStray = (plan: Case): boolean =>
  [...nodesOf(plan)].some((node) => node.op === "foreign" && node.racedMs !== undefined);

function usedAfterEnd({ ledger }: Execution): string | undefined {
  const wrong = ledger.lateUses.find(
    ({ threw, isUnheard }) => threw !== "used_after_end" && !(isUnheard && threw === undefined),
  );
  return wrong === undefined
    ? undefined
    : `${wrong.run}: ctx.sleep after the end of the run ${wrong.threw === undefined ? "never settled" : `threw ${wrong.threw}`}`;
}

function lateAbort({ ledger, plan }: Execution): string | undefined {
  if (plan.faults) return undefined;
  const wrong = ledger.lateAborts.find(({ isAborted }) => !isAborted);
  return wrong === undefined
    ? undefined
    : `${wrong.run}: abortSignal of ${wrong.name}, first read after the attempt's timeout, is not aborted`;
}

function totalTimeout({ ledger, plan, retried, restarted }: Execution): string | undefined {
  if (plan.faults || retried.size > 0 || restarted.size > 0) return undefined;
  const steps = stepsOf(plan);
  const first = new Map<string, number>();
  for (const begun of ledger.begun) {
    const totalMs = steps.get(begun.name)?.totalTimeoutMs;
    if (totalMs === undefined) continue;
    const sinceMs = begun.atMs - (first.get(begun.key) ?? begun.atMs);
    first.set(begun.key, first.get(begun.key) ?? begun.atMs);
    if (sinceMs > totalMs + SLACK_MS)
      return `${begun.run}: ${shown(begun)} began ${Math.round(sinceMs)} ms after the first, with a totalTimeout of ${totalMs} ms`;
  }
  return undefined;
}

function rate({ ledger, plan, parked }: Execution): string | undefined {
  // A run that was parked uses the turn that it had late, and the next one in time.
  if (plan.faults || parked.size > 0) return undefined;
  const steps = stepsOf(plan);
  const last = new Map<string, Begun>();
  for (const begun of ledger.begun) {
    const name = steps.get(begun.name)?.rate;
    if (name === undefined) continue;
    const before = last.get(name);
    const mayBeLate = [before, begun].some((one) => one !== undefined && mayHaveQueued(one, ledger.begun));
    if (before !== undefined && begun.atMs - before.atMs < 4_000 - SLACK_MS && !mayBeLate)
      return `${begun.run}: ${shown(begun)} began ${Math.round(begun.atMs - before.atMs)} ms after ${shown(before)}, under a limit of one in 4000 ms`;
    last.set(name, begun);
  }
  return undefined;
}

/** Whether a transaction, or an intent, may have waited for a transaction of its process to end, so that the step used the turn that it had late. */
const mayHaveQueued = (late: Begun, begun: readonly Begun[]): boolean =>
  late.kind !== "plain" &&
  begun.some(
    ({ kind, by, atMs, overMs = late.atMs }) =>
      kind === "tx" && by === late.by && atMs < late.atMs && overMs >= late.atMs - SLACK_MS,
  );

/** In a run that completed and was never told to stop, every step that was asked for was begun, and every slot's change was made. */
function disappears(
  { ledger, plan, told, canceled, runs, retried, restarted, contradicted }: Execution,
  facts: Facts,
): string | undefined {
  const nodes = [...nodesOf(plan)];
  if (nodes.some((node) => node.op === "group" && node.how === "ctx.race") || mayStray(plan)) return undefined;
  // What comes after something else in a branch that nobody awaits is asked for when the function may have returned.
  const unawaited = nodes.flatMap((node) => {
    if (node.op === "lock") return [...walk(node.body)];
    // A failure that was lost with its process may be a success the next time.
    if (node.op === "try" && plan.faults) return [...walk(node.catch ?? [])];
    return node.op === "group" && !node.how.endsWith("allSettled")
      ? node.of.flatMap((branch) => (branch.length === 1 && branch.every(isLeaf) ? [] : [...walk(branch)]))
      : [];
  });
  // Its turn in a rate limit may be later than its time allows.
  const untimely = nodes.filter(
    (node) => node.op === "step" && node.rate !== undefined && node.totalTimeoutMs !== undefined,
  );
  const doubtful = new Set([...unawaited, ...untimely].flatMap((node) => (node.op === "step" ? [node.name] : [])));
  const doubtfulSlots = new Set(unawaited.flatMap((node) => (node.op === "slot" ? [node.name] : [])));
  for (const { id, workflow } of plan.runs) {
    if (told.get(id)?.status !== "completed" || canceled.has(id) || plan.workflows[workflow]?.timeoutMs !== undefined)
      continue;
    if (runs.find((run) => run.id === id) === undefined) return `${id} is not listed`;
    // A replay that went another way asked for something else, and was given up.
    if (contradicted.has(id)) continue;
    for (const asked of ledger.asked) {
      const [run, name = ""] = asked.split(" ");
      if (run === id && !doubtful.has(name) && ledger.attempts(id, name).length === 0)
        return `${id} completed, and step ${name}, which it asked for, never ran`;
    }
    if (plan.faults || retried.has(id) || restarted.has(id)) continue;
    for (const [name, times] of ledger.slots.get(id) ?? []) {
      if (doubtfulSlots.has(name)) continue;
      const done = facts.runs.get(id)?.facts.filter((fact) => slotOf(fact.name) === name).length ?? 0;
      if (done < times)
        return `${id} completed, and of ${times} times that it asked for slot ${name}, ${done} happened`;
    }
  }
  return undefined;
}

/** The slot that a fact is about; a "#" of its name's own is doubled. */
const slotOf = (fact: string): string | undefined =>
  fact.startsWith("slot ")
    ? fact
        .slice("slot ".length)
        .replace(/(?<!#)(##)*#\d+$/, "$1")
        .replaceAll("##", "#")
    : undefined;

function orphaned(_: Execution, { runs }: Facts): string | undefined {
  for (const [run, { orphans }] of runs)
    for (const child of orphans) return `${run} has ended, and ${child}, which ends with it, was not told to stop`;
  return undefined;
}

function surplus(_: Execution, { runs }: Facts): string | undefined {
  for (const [run, { surplus: locks }] of runs)
    for (const { lock } of locks)
      return `${run} holds lock ${lock}, or stands in its line, although its code has released it or does not wait for it`;
  return undefined;
}

/** Where nothing fails, what is left behind at the return and what is used late is said in a warning. */
function unreported({ plan, ledger, warnings, runs }: Execution): string | undefined {
  if (plan.faults || [...nodesOf(plan)].some(({ op }) => op === "foreign")) return undefined;
  const isReported = (run: string, ...words: readonly string[]): boolean =>
    warnings.some((warning) => warning.run === run && words.every((word) => warning.message.includes(word)));
  for (const { run, name } of ledger.lateBeats)
    if (!isReported(run, "heartbeat()", `step "${name}`))
      return `${run}: heartbeat() was called after the attempt of step ${name} was over, and nobody was told`;
  for (const { run, shown } of ledger.unawaited) {
    // One that was canceled before it asked has been refused what it asked for.
    const status = runs.find(({ id }) => id === run)?.status;
    if (status !== "completed" && status !== "failed") continue;
    if (!isReported(run, "without awaiting", shown))
      return `${run} returned without awaiting ${shown}…, and nobody was told`;
  }
  return undefined;
}
