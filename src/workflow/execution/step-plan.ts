/**
 * The plan of a step: its name, its function and its options as the code gave them to `ctx.step`, checked before anything is started.
 */

import { checkDuration, checkFunction, checkId, checkOptions, optionNames } from "../../kernel/check.ts";
import { InvalidIdError } from "../../kernel/errors.ts";
import { checkRetry, type Retry } from "../../kernel/retry.ts";
import { checkPermits, lockRefs } from "../../lock/options.ts";
import type { AtMostOnceOptions, StepOptions, StepRateLimit, StepSemaphore } from "../definitions/context-types.ts";
import type { StepMode, StepPlan } from "../definitions/plans.ts";
import type { Turns } from "./engine.ts";

const STEP_OPTIONS = optionNames<StepOptions>({
  id: true,
  retry: true,
  timeout: true,
  totalTimeout: true,
  heartbeat: true,
  rateLimit: true,
  semaphore: true,
});

const STEP_RATE_LIMIT = optionNames<StepRateLimit>({
  name: true,
  key: true,
  max: true,
  per: true,
  burst: true,
  strict: true,
});

const STEP_SEMAPHORE = optionNames<StepSemaphore>({ name: true, permits: true });

const AT_MOST_ONCE_OPTIONS = optionNames<AtMostOnceOptions<unknown>>({
  id: true,
  timeout: true,
  totalTimeout: true,
  heartbeat: true,
  rateLimit: true,
  semaphore: true,
  reconcile: true,
});

/** The plan of a step without options. */
export function planPlainly(mode: StepMode, retry: Retry): StepPlan {
  checkFunction(mode.run, "what the step does");
  return { ...PLAIN, mode, retry };
}

/** The plan of a step with options, the id that the code gave, and the semaphore that it is done under. */
export function planStep(
  mode: StepMode,
  options: StepOptions,
  base: Retry,
  rates: Turns,
): { readonly plan: StepPlan; readonly id: string | undefined; readonly semaphore: StepSemaphore | undefined } {
  checkFunction(mode.run, "what the step does");
  checkOptions(options, mode.is === "once" ? AT_MOST_ONCE_OPTIONS : STEP_OPTIONS);
  if (mode.is === "once" && mode.reconcile !== undefined) checkFunction(mode.reconcile, "reconcile");
  const { id, retry, timeout, totalTimeout, heartbeat, rateLimit, semaphore } = options;
  checkOptions(rateLimit, STEP_RATE_LIMIT, "the rateLimit");
  checkOptions(semaphore, STEP_SEMAPHORE, "the semaphore");
  const plan: StepPlan = {
    kind: "step",
    mode,
    retry: checkRetry(retry, base),
    timeoutMs: timeout === undefined ? null : checkDuration(timeout, "the step's timeout"),
    totalTimeoutMs: totalTimeout === undefined ? null : checkDuration(totalTimeout, "the step's total timeout"),
    heartbeatMs: heartbeat === undefined ? null : checkDuration(heartbeat, "the step's heartbeat"),
    turn: rateLimit === undefined ? undefined : turnOf(rateLimit, rates),
    rateLimit: rateLimit?.name,
  };
  const stepId = id === undefined ? undefined : checkId(id, "the step's id");
  if (semaphore !== undefined) checkSemaphore(semaphore);
  return { plan, id: stepId, semaphore };
}

function turnOf({ name, key, ...options }: StepRateLimit, rates: Turns): NonNullable<StepPlan["turn"]> {
  const limit = rates.limit(name, options);
  limit.checkWish?.({ key });
  return (tx) => limit.reserveIn(tx, { key });
}

const PLAIN = { kind: "step", timeoutMs: null, totalTimeoutMs: null, heartbeatMs: null } as const;

function checkSemaphore({ name, permits }: StepSemaphore): void {
  lockRefs("semaphore", name);
  checkPermits(permits);
}

/** Names of steps that were fine once need not be looked at again. */
const stepNames = new Set<string>();

export function checkStepName(name: unknown): string {
  if (typeof name === "string" && stepNames.has(name)) return name;
  const checked = checkId(name, "the step's name");
  if (checked.includes("#")) throw new InvalidIdError("the step's name", 'must not have a "#": give an id instead');
  if (stepNames.size < 10_000) stepNames.add(checked);
  return checked;
}
