/**
 * A worker process: claims orders, spends some time on each, charges it, and records each outcome outside of the database.
 *
 * The ledger is a text file outside of the database. A line is added only after the commit was acknowledged, so every charge
 * in it must be in the database forever, whenever this process is killed.
 *
 * The worker continues when its lease is lost and still tries to commit, like a program that has not noticed it:
 * the fence stops it.
 *
 * Run by crew.ts: `worker.ts <database> <name> <ledger>`.
 */

import { appendFileSync } from "node:fs";
import { setTimeout as sleep } from "node:timers/promises";
import { FencedError, open } from "../src/index.ts";
import type { Held } from "../src/kernel/claim/claim.ts";
import { Worker } from "../src/kernel/claim/worker.ts";
import { onParentMessage, sendToParent, type ToWorker } from "./messages.ts";
import { balanceOf, chargeOrder, LEASE_MS, ORDER_KIND, startOrder } from "./shop.ts";

const [database = "", name = "", ledger = ""] = process.argv.slice(2);
const by = `${name} (pid ${process.pid})`;
const pawl = await open(database);
const balance = balanceOf(pawl);
const inHand = new Set<string>();
let freezeSoon = false;

const worker = new Worker(pawl.kernel, {
  kinds: [ORDER_KIND],
  by,
  leaseMs: LEASE_MS,
  concurrency: 4,
  pollMs: 1_000,
  work,
  failed: (error) => {
    throw error;
  },
});
onParentMessage<ToWorker>((message) => {
  if (message.is === "freeze") freezeSoon = true;
  else void stop();
});
sendToParent({ is: "ready" });

async function work(held: Held): Promise<void> {
  const order = held.at.key;
  take(order);
  try {
    await startOrder(held, by);
    if (held.tries > 1) sendToParent({ is: "taken over", order });
    if (freezeSoon) freeze();
    await sleep(100 + 300 * Math.random());
    await chargeOrder(held, balance, by);
    note("charged", held);
  } catch (error) {
    if (!(error instanceof FencedError)) throw error;
    note("refused", held);
    sendToParent({ is: "refused", order });
  } finally {
    letGo(order);
  }
}

function note(what: "charged" | "refused", held: Held): void {
  appendFileSync(ledger, `${what} ${held.at.key} ${held.fence}\n`);
}

function take(order: string): void {
  inHand.add(order);
  sendToParent({ is: "in hand", orders: [...inHand] });
}

function letGo(order: string): void {
  inHand.delete(order);
  sendToParent({ is: "in hand", orders: [...inHand] });
}

/**
 * Sends SIGSTOP to this process. The process does it itself, because here it cannot be in the middle
 * of a transaction, in which it would hold SQLite's only write lock and block all other processes.
 */
function freeze(): void {
  freezeSoon = false;
  sendToParent({ is: "freezing" }, () => process.kill(process.pid, "SIGSTOP"));
}

async function stop(): Promise<void> {
  await worker.stop();
  await pawl.close();
  process.exit();
}
