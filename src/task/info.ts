/**
 * Tasks, their attempts and their notifications as callers see them.
 */

import type { Row } from "../kernel/contract.ts";
import { PawlError } from "../kernel/errors.ts";
import type { Kernel } from "../kernel/kernel.ts";
import { RunUnreadableError } from "../workflow/errors.ts";
import { decodeRun } from "../workflow/history/read-run.ts";
import { parseFact, parseOperation, type RunStatus, type RunValue, runAt, statusOf } from "../workflow/stored.ts";
import { inputOf } from "./definition.ts";
import { outcomeOf, type TaskError, type TaskOutcome } from "./outcome.ts";
import { ATTEMPT, type DeliveryInput, type StoredAttempt, type TaskInput } from "./stored.ts";

/** A task as it is now. */
export interface TaskInfo {
  readonly id: string;
  readonly status: RunStatus;
  readonly targetUrl: string;
  readonly method: string;
  readonly tags: readonly string[];
  /** Also of a task that was sent again since. */
  readonly createdAt: Date;
  /** When it begins, if that is later than its creation. */
  readonly scheduledAt: Date | null;
  readonly endedAt: Date | null;
  readonly waitsForSignal: boolean;
  readonly onCompleteUrl: string | null;
  /** The same for every caller; null while it has none. */
  readonly outcome: TaskOutcome | null;
}

/** One attempt at the call. */
export interface TaskAttempt {
  /** 1 for the first. One whose worker died is made again under its number. */
  readonly number: number;
  /** Higher than that of every earlier attempt. */
  readonly fence: number;
  readonly startedAt: Date;
  readonly durationMs: number;
  /** Null if no response came. */
  readonly status: number | null;
  readonly headers: Readonly<Record<string, string>>;
  /** As text, up to the first 16 KiB. */
  readonly body: string;
  readonly isCut: boolean;
  /** Why there was no whole response. */
  readonly error: TaskError | null;
}

/** One notification of `onCompleteUrl`. */
export interface TaskDelivery {
  /** Its `webhook-id`: the same for all attempts. */
  readonly id: string;
  readonly url: string;
  /** "completed" when it was accepted, "failed" when it was given up, and otherwise under way. */
  readonly status: RunStatus;
  readonly attempts: number;
  readonly lastStatus: number | null;
  readonly lastError: TaskError | null;
  readonly createdAt: Date;
  readonly deliveredAt: Date | null;
}

/** The input of a run: the first fact of its history. */
export async function readInput(kernel: Kernel, row: Row, { from }: RunValue): Promise<unknown> {
  const [started] = await kernel.entries(runAt(row.key), from - 1, 1);
  if (started === undefined) return undefined;
  return (kernel.decodeFresh(row, started.data) as { readonly input: unknown }).input;
}

export async function readTaskInput(kernel: Kernel, row: Row, value: RunValue): Promise<TaskInput> {
  const input = await readInput(kernel, row, value);
  try {
    return inputOf(input);
  } catch (error) {
    // Started by its name by an older version, which did not check it.
    if (error instanceof PawlError) throw new RunUnreadableError(row.key, error.message);
    throw error;
  }
}

export async function showTask(kernel: Kernel, row: Row): Promise<TaskInfo> {
  const value = decodeRun(kernel, row);
  return taskInfo(row.key, statusOf(row), value, await readTaskInput(kernel, row, value));
}

export const taskInfo = (id: string, status: RunStatus, value: RunValue, input: TaskInput): TaskInfo => ({
  id,
  status,
  targetUrl: input.url,
  method: input.method ?? "POST",
  tags: value.tags ?? [],
  createdAt: new Date(input.createdAtMs ?? value.startedAtMs),
  scheduledAt: value.scheduledAtMs === undefined ? null : new Date(value.scheduledAtMs),
  endedAt: value.endedAtMs === undefined ? null : new Date(value.endedAtMs),
  waitsForSignal: input.signal !== undefined,
  onCompleteUrl: input.onCompleteUrl ?? null,
  outcome: outcomeOf(status, value),
});

/** Every attempt in the history of a run, also those before it was sent again. */
export async function readAttempts(kernel: Kernel, row: Row, after: number): Promise<readonly StoredAttempt[]> {
  const attempts: StoredAttempt[] = [];
  for await (const { name, data } of kernel.entriesAfter(runAt(row.key), after)) {
    const { word, id } = parseFact(name);
    if (word !== "step" || parseOperation(id).name !== ATTEMPT) continue;
    const outcome = kernel.decodeFresh(row, data) as { readonly ok?: StoredAttempt };
    if (outcome.ok !== undefined) attempts.push(outcome.ok);
  }
  return attempts;
}

export function showAttempt(attempt: StoredAttempt): TaskAttempt {
  const { number, fence, atMs, durationMs, status, headers, body, isCut, error } = attempt;
  return {
    number,
    fence,
    startedAt: new Date(atMs),
    durationMs,
    status: status ?? null,
    headers: headers ?? {},
    body: body ?? "",
    isCut: isCut ?? false,
    error: error ?? null,
  };
}

export async function showDelivery(kernel: Kernel, row: Row): Promise<TaskDelivery> {
  const value = decodeRun(kernel, row);
  const { key, url } = (await readInput(kernel, row, value)) as DeliveryInput;
  const attempts = await readAttempts(kernel, row, value.from - 1);
  const last = attempts.at(-1);
  const status = statusOf(row);
  return {
    id: key,
    url,
    status,
    attempts: attempts.length,
    lastStatus: last?.status ?? null,
    lastError: last?.error ?? null,
    createdAt: new Date(value.startedAtMs),
    deliveredAt: status === "completed" && value.endedAtMs !== undefined ? new Date(value.endedAtMs) : null,
  };
}
