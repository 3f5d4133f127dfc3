/**
 * A case in a process of its own: its heap then has only what the case needs, and the process may be killed.
 *
 * The file that asks is also the one that the process runs: `askChild` on this side, `answerParent` on the other.
 */

import { type ChildProcess, fork } from "node:child_process";
import { once } from "node:events";
import { fileURLToPath } from "node:url";

/** Runs the file at this URL in a process of its own, sends it the order, and returns its reply. */
export async function askChild<Order extends object, Answer>(url: string, order: Order): Promise<Answer> {
  const child = startChild(url, order);
  try {
    return await answerOf<Answer>(child);
  } finally {
    await endChild(child);
  }
}

export function startChild(url: string, order: object): ChildProcess {
  const child = fork(fileURLToPath(url), { execArgv: process.execArgv });
  child.send(order);
  return child;
}

/** The first message of the process. */
export function answerOf<Answer>(child: ChildProcess): Promise<Answer> {
  return new Promise((resolve, reject) => {
    child.once("message", (answer: Answer) => resolve(answer));
    child.once("error", reject);
    child.once("exit", (code) => reject(new Error(`a process of the benchmark ended with ${code}`)));
  });
}

/** Asks it to end, or kills it, and waits until it is gone. */
export async function endChild(child: ChildProcess, isKilled = false): Promise<void> {
  if (child.exitCode !== null || child.signalCode !== null) return;
  const gone = once(child, "exit");
  if (isKilled) child.kill("SIGKILL");
  else if (child.connected) child.disconnect();
  await gone;
}

/** In the other process: executes the one order that it gets, and replies with the result. */
export function answerParent<Order>(work: (order: Order) => Promise<unknown>): void {
  process.once("message", (order: Order) => void work(order).then((answer) => process.send?.(answer)));
  // The parent has its result, or is gone.
  process.once("disconnect", () => process.exit());
}
