/**
 * A race for the outcome of a task, over HTTP: what its callers do, and what each must be told.
 */

import { type Client, isPawlError } from "../../src/http/client/index.ts";
import type { TaskOutcome } from "../../src/index.ts";

export type Act = "completed" | "failed" | "cancel" | "wait";
/** One for each caller. Some say the same. */
export const ACTS: readonly Act[] = ["completed", "completed", "failed", "cancel", "cancel", "wait"];

/** For comparing outcomes. */
export const outcomeText = (outcome: TaskOutcome): string => JSON.stringify({ ...outcome, at: outcome.at.getTime() });

/**
 * Signals with the token, cancels or looks; returns the outcome that the caller was told, if there is one. Checks that the response says who was
 * first: an act that was accepted is the outcome, and a late signal gets 410 after the timeout and 409 after the others, never 404.
 */
export async function settle(
  { tasks }: Client,
  id: string,
  token: string | null,
  act: Act,
  check: (isSo: boolean, message: string) => void,
): Promise<TaskOutcome | null> {
  if (act === "wait") return (await tasks.get(id, { wait: 1_000 })).outcome;
  if (act === "cancel") {
    const { canceled, outcome } = await tasks.cancel(id);
    check(canceled === (outcome.by === "cancel"), `a cancellation returns ${canceled}, and ${outcome.by} was first`);
    return outcome;
  }
  try {
    const { outcome } = await tasks.signal(token ?? "", { status: act, value: act });
    const { by, status, value } = outcome;
    const isMine = by === "signal" && status === act && value === act;
    check(isMine, `${act} was accepted, and the task is ${status} by ${by}`);
    return outcome;
  } catch (error) {
    if (!isPawlError(error, "task_settled") && !isPawlError(error, "task_timed_out")) throw error;
    const { outcome } = error.data;
    const { by, status } = outcome;
    const expected = by === "timeout" ? "410 task_timed_out" : "409 task_settled";
    const got = `${error.status} ${error.code}`;
    check(got === expected, `a late signal gets ${got}, and ${by} was first`);
    check(by !== "signal" || status !== act, `${act} settled the task, and is refused when it is repeated`);
    return outcome;
  }
}
