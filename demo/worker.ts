/**
 * A worker process: claims orders, takes its time over each, charges it, and writes down elsewhere what it was told.
 *
 * The ledger is a text file outside the database. A line is added only after the commit was acknowledged, so that whatever
 * stands there must be in the database for ever, whenever this process is killed.
 *
 * It goes on working when its lease is lost and tries to commit all the same, as a program would that noticed nothing:
 * what stops it is the fence.
 *
 * Run by crew.ts: `worker.ts <database> <name> <ledger>`.
 */

import { appendFileSync } from "node:fs";
import { setTimeout as sleep } from "node:timers/promises";
import { FencedError, open } from "../src/index.ts";
import type { Held } from "../src/kernel/claim/claim.ts";
import { Worker } from "../src/kernel/claim/worker.ts";
import { hearParent, type ToWorker, tellParent } from "./messages.ts";
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
hearParent<ToWorker>((message) => {
  if (message.is === "freeze") freezeSoon = true;
  else void stop();
});
tellParent({ is: "ready" });

async function work(held: Held): Promise<void> {
  const order = held.at.key;
  take(order);
  try {
    await startOrder(held, by);
    if (held.tries > 1) tellParent({ is: "taken over", order });
    if (freezeSoon) freeze();
    await sleep(100 + 300 * Math.random());
    await chargeOrder(held, balance, by);
    note("charged", held);
  } catch (error) {
    if (!(error instanceof FencedError)) throw error;
    note("refused", held);
    tellParent({ is: "refused", order });
  } finally {
    letGo(order);
  }
}

function note(what: "charged" | "refused", held: Held): void {
  appendFileSync(ledger, `${what} ${held.at.key} ${held.fence}\n`);
}

function take(order: string): void {
  inHand.add(order);
  tellParent({ is: "in hand", orders: [...inHand] });
}

function letGo(order: string): void {
  inHand.delete(order);
  tellParent({ is: "in hand", orders: [...inHand] });
}

/**
 * Stops this process as SIGSTOP does, for it is SIGSTOP. It stops itself because from here it cannot happen in the middle
 * of a transaction, where it would keep SQLite's one write lock, and everybody would stand still with it.
 */
function freeze(): void {
  freezeSoon = false;
  tellParent({ is: "freezing" }, () => process.kill(process.pid, "SIGSTOP"));
}

async function stop(): Promise<void> {
  await worker.stop();
  await pawl.close();
  process.exit();
}
