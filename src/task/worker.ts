/**
 * This process at work on tasks: the code of the two workflows, bound to its HTTP client, its secrets and the addresses that it may call.
 *
 * A task makes attempts, one step each, until the call has succeeded or the policy says that it has failed; between them it sleeps, as any run does. A
 * step's result is in the run's history before anything follows from it, so the attempts that are listed are those that were decided upon. An
 * attempt whose worker dies is made again, under the same number and a higher fence. A task that waits for a signal then rests for as long as it
 * may wait. Neither code knows of signals or cancellations: they end the run (`records.ts`), and the worker that holds it notices that it has lost it.
 */

import type { WorkPart } from "../kernel/capability.ts";
import { InvalidArgumentError, PawlError } from "../kernel/errors.ts";
import { hash } from "../kernel/fingerprint.ts";
import type { HttpClient } from "../kernel/http.ts";
import type { Kernel } from "../kernel/kernel.ts";
import { DecryptFailedError, KeyUnavailableError } from "../kernel/seal/errors.ts";
import type { Sealed } from "../kernel/seal/ring.ts";
import { type Body, type Definition, signal } from "../workflow/definitions/definition.ts";
import type { StepHandle } from "../workflow/definitions/plans.ts";
import { RunTimedOutError } from "../workflow/errors.ts";
import type { Context } from "../workflow/execution/context.ts";
import { type Attempt, NotHere } from "../workflow/execution/steps.ts";
import { withoutStack } from "../workflow/runs/end.ts";
import { type Call, type Caller, type Made, makeCall } from "./call.ts";
import { fenceOf, judge } from "./decide.ts";
import { definitionFor, inputOf, type TaskSettings } from "./definition.ts";
import { TaskFailedError } from "./errors.ts";
import type { Settled, TaskError, TaskResponse } from "./outcome.ts";
import { signed } from "./signing.ts";
import { ATTEMPT, DELIVERIES, type DeliveryInput, type StoredAttempt, TASKS, type TaskInput } from "./stored.ts";
import { maskOf } from "./token.ts";

const SETTLED = signal("pawl.task.settled");

const TIMEOUT_MS = 30_000;
/** A notification is tried for about a day. */
const DELIVERY_RETRY = { attempts: 20, delayMs: 5000, factor: 2, maxDelayMs: 2 * 3_600_000, jitter: 0.5 };

/** What tasks need of the handle. */
export interface TaskDeps {
  readonly kernel: Kernel;
  /** The token of a task that waits for a signal. */
  openToken(tokenHash: string, sealed: Sealed): string;
}

/** Begins to work on tasks: `work` puts the definitions to work. */
export function workOnTasks(
  { kernel, openToken }: TaskDeps,
  settings: TaskSettings,
  work: (definitions: readonly Definition[]) => WorkPart,
): WorkPart {
  const http = openClient(kernel);
  const { keys, allow, allowPorts, mostBytes, retention } = settings;
  const caller: Caller = { http, clock: kernel.ports.clock, allow, allowPorts, mostBytes };

  /** One attempt, with what every attempt carries: number `inRun` within this run; `number` also counts those before the task was sent again. */
  const attempt = async (step: StepHandle, wanted: Wanted, number: number, inRun: number): Promise<StoredAttempt> => {
    const { task, key, url, method, body, timeoutMs, token } = wanted;
    const { fence: claim, abortSignal } = step as Attempt;
    const nowMs = (): number => (step as Attempt).nowMs();
    const fence = fenceOf(claim, inRun);
    let made: Made;
    try {
      const secret = token?.();
      const headers = {
        ...wanted.headers,
        ...signed(keys, key, nowMs(), body ?? ""),
        "idempotency-key": key,
        "pawl-task-id": encodeURIComponent(task),
        "pawl-attempt": String(number),
        "pawl-fence": String(fence),
        ...(secret === undefined ? {} : { "pawl-signal-token": secret }),
      };
      made = await makeCall(caller, { url, method, headers, body, timeoutMs, nowMs }, abortSignal);
      if (secret !== undefined) made = masked(made, maskOf(secret));
    } catch (error) {
      if (abortSignal.aborted || !(error instanceof PawlError)) throw error;
      // Nothing was sent. A process with the key that sealed the token can send it.
      if (error instanceof KeyUnavailableError || error instanceof DecryptFailedError) throw new NotHere(error);
      made = { atMs: nowMs(), durationMs: 0, error: { code: error.code, message: error.message } };
    }
    return { number, fence, ...made };
  };

  /** Attempts until the call has succeeded; the last one, and how it failed. */
  async function call(
    ctx: Context,
    wanted: Wanted,
    policy: Pick<TaskInput, "retry" | "retryStatuses">,
    before: number,
  ): Promise<{ readonly last: StoredAttempt; readonly isDone: boolean }> {
    for (let inRun = 1; ; inRun++) {
      const last = await ctx.step(ATTEMPT, (step) => attempt(step, wanted, before + inRun, inRun));
      const judgement = judge(last, inRun, policy, () => ctx.random());
      if (judgement.is !== "retry") return { last, isDone: judgement.is === "done" };
      await ctx.sleep(judgement.delayMs);
    }
  }

  const task = async (ctx: Context, given: unknown): Promise<Settled> => {
    const input = inputOf(given);
    const { signal: token, maxWaitMs, before = 0 } = input;
    const wanted = {
      task: ctx.runId,
      key: input.key ?? `msg_${hash(ctx.runId)}`,
      url: input.url,
      method: input.method ?? "POST",
      headers: input.headers ?? {},
      body: input.body,
      timeoutMs: input.timeoutMs ?? TIMEOUT_MS,
      token: token === undefined ? undefined : () => openToken(token.hash, token.sealed),
    };
    const { last, isDone } = await call(ctx, wanted, input, before);
    if (!isDone) throw failed(ctx.runId, last);
    if (token === undefined || maxWaitMs === undefined) return { by: "response", value: responseOf(last) };
    // It never comes: what settles the task ends the run, and this code with it. `records.ts` reads in the run's record until when it waits.
    while ((await ctx.waitForSignal(SETTLED, { timeout: maxWaitMs })).ok);
    throw withoutStack(new RunTimedOutError(ctx.runId));
  };

  const deliver = async (ctx: Context, given: unknown): Promise<void> => {
    const { task, url, key, body } = given as DeliveryInput;
    const headers = { "content-type": "application/json" };
    const wanted = { task, key, url, method: "POST", headers, body, timeoutMs: TIMEOUT_MS };
    const { last, isDone } = await call(ctx, wanted, { retry: DELIVERY_RETRY, retryStatuses: DELIVERY_STATUSES }, 0);
    if (!isDone) throw failed(task, last);
  };

  const part = work([
    definitionFor(TASKS, task as Body<unknown, unknown>, retention),
    definitionFor(DELIVERIES, deliver as Body<unknown, unknown>, retention),
  ]);
  return {
    ready: part.ready,
    stop: async (timeoutMs) => {
      await part.stop(timeoutMs);
      http.close();
    },
  };
}

/** A notification is tried again after everything but a 410: an error of the receiver's is often a deploy. */
const DELIVERY_STATUSES: readonly number[] = Array.from({ length: 300 }, (_, i) => 300 + i);

interface Wanted extends Omit<Call, "nowMs"> {
  readonly task: string;
  readonly key: string;
  /** The signal token, which is secret, and so not opened before it is needed. */
  readonly token?: (() => string) | undefined;
}

/** Some targets return what they got. The history must not have the token in it, nor what else carries a response. */
function masked(made: Made, mask: (text: string) => string): Made {
  const { headers, body, error } = made;
  return {
    ...made,
    ...(headers === undefined
      ? {}
      : { headers: Object.fromEntries(Object.entries(headers).map(([name, value]) => [mask(name), mask(value)])) }),
    ...(body === undefined ? {} : { body: mask(body) }),
    ...(error === undefined ? {} : { error: { ...error, message: mask(error.message) } }),
  };
}

function openClient({ ports }: Kernel): HttpClient {
  if (ports.http === undefined)
    throw new InvalidArgumentError(
      "what to work on",
      'must not have httpTasks() here: a handle of openTest makes no calls; test tasks with open("memory:") and a receiver of your own',
    );
  return ports.http();
}

export function responseOf({ status = 0, headers = {}, body = "", isCut }: StoredAttempt): TaskResponse {
  return { status, headers, body, isCut: isCut === true };
}

function failed(task: string, last: StoredAttempt): TaskFailedError {
  const error: TaskError = last.error ?? { code: "http_status", message: `the target returned ${last.status}` };
  const settled: Settled = {
    by: "response",
    error,
    ...(last.status === undefined ? {} : { value: responseOf(last) }),
  };
  return withoutStack(new TaskFailedError(task, settled));
}
