/**
 * Steps of programs: the operation that a node asks for, and the function that runs, with its mistakes.
 */

import type { StepHandle } from "../../src/workflow/definitions/plans.ts";
import type { Ctx, Place } from "./interpret.ts";
import type { StepNode } from "./program.ts";

const ignore = (): void => {};

export const stepValue = ({ name }: StepNode): string => `did ${name}`;

/** Asks for the step. */
export function askStep(node: StepNode, ctx: Ctx, place: Place): PromiseLike<unknown> {
  const { ledger } = place;
  ledger.reach(`ctx.step ${node.kind}`);
  for (const option of ["id", "attempts", "timeoutMs", "totalTimeoutMs", "heartbeatMs", "rate", "semaphore"] as const)
    if (node[option] !== undefined) ledger.reach(`step option: ${option.replace("Ms", "")}`);
  if (node.name.includes("#") || node.id?.includes("#") === true) ledger.reach("mistake: a name with #");
  const options = {
    id: node.id,
    retry: { attempts: node.attempts ?? 3, delay: node.delayMs ?? 200, factor: 1, jitter: 0 },
    timeout: node.timeoutMs,
    totalTimeout: node.totalTimeoutMs,
    heartbeat: node.heartbeatMs,
    rateLimit: node.rate === undefined ? undefined : { name: node.rate, max: 1, per: 4_000 },
    semaphore: node.semaphore === undefined ? undefined : { name: node.semaphore, permits: 1 },
  };
  const run = (step: StepHandle): Promise<unknown> => act(node, ctx, place, step);
  if (node.kind === "plain") return ctx.step(node.name, run, options);
  if (node.kind === "tx")
    return ctx.step.tx(
      node.name,
      async (sql, step) => {
        const value = await act(node, ctx, place, step);
        await sql.query("insert", [`${ctx.runId}/${node.name}/${step.key}`]);
        return value;
      },
      options,
    );
  const { retry: _retry, ...once } = options;
  const reconcile = ({ key }: { readonly key: string }) => {
    ledger.reach("reconcile");
    return ledger.answer(key, stepValue(node));
  };
  return ctx.step.atMostOnce(node.name, run, node.reconciles === true ? { ...once, reconcile } : once);
}

/** The step's function. */
async function act(node: StepNode, ctx: Ctx, place: Place, step: StepHandle): Promise<unknown> {
  const over = place.note.begun(ctx.runId, node.name, node.kind, { key: step.key, attempt: step.attempt });
  try {
    return await work(node, ctx, place, step);
  } finally {
    over();
  }
}

/** What it does. */
async function work(node: StepNode, ctx: Ctx, place: Place, step: StepHandle): Promise<unknown> {
  const { ledger, sleep } = place;
  const { name, mistake } = node;
  const { runId } = ctx;
  // Kept, because what the handle says later is not to be trusted.
  const { attempt } = step;
  const beatLate = (progress: unknown): void => {
    ledger.lateBeats.push({ run: runId, name });
    step.heartbeat(progress);
  };
  if (attempt > 1) ledger.reach("a further attempt");
  if (mistake !== undefined) ledger.reach(`mistake: ${mistake}`);
  // Only the first attempt is slow where what comes late is the point.
  const isSlow = mistake === undefined || mistake === "late heartbeat" || attempt === 1;
  if (node.locks === true) {
    ledger.reach("a step takes a lock of plain code");
    await place.lockOutside();
  }
  if (mistake === "nested step") await ctx.step(`${name}-nested`, () => "nested");
  if (mistake === "nested sleep") {
    await sleep(300);
    await (place.inStep === undefined ? ctx.sleep(1_000) : place.inStep(runId, () => ctx.sleep(1_000)));
  }
  if (node.beats === true) step.heartbeat({ at: 0 });
  if (node.ms > 0 && isSlow)
    if (node.beats === true && node.heartbeatMs !== undefined)
      for (let leftMs = node.ms; leftMs > 0; leftMs -= node.heartbeatMs / 2) {
        await sleep(Math.min(leftMs, node.heartbeatMs / 2));
        step.heartbeat({ leftMs });
      }
    else await sleep(node.ms);
  if (mistake === "late heartbeat")
    for (const ms of [20, 2_500])
      sleep(ms)
        .then(() => beatLate({ late: ms }), ignore)
        .catch(ignore);
  if (mistake === "late heartbeat of a timed-out attempt" && attempt === 1) beatLate({ late: true });
  if (mistake === "late abortSignal" && attempt === 1)
    ledger.lateAborts.push({ run: runId, name, isAborted: step.abortSignal.aborted });
  if (mistake === "unstorable") return () => "a function";
  const { fails } = node;
  if (fails === "always" || (typeof fails === "number" && attempt <= fails)) throw new Error(`boom ${name}`);
  if (fails === "outage" && !ledger.isMended) throw new Error(`boom ${name}`);
  return stepValue(node);
}
