/**
 * One worker takes over a run from another, and abandons it in the middle of the replay; a third one finishes it.
 *
 * The run was retried, so its locks are looked for after a replay: a run that had ended released them. It holds the lock "kept". It acquired
 * "brief" and released it again, with more facts between the two than one page of the history has. The replay is held up after the first
 * page, where the code holds "brief"; in the second page it has released it.
 */

import { type RunEvent, type RunListener, type Worker, workflow } from "../../src/index.ts";
import type { Row } from "../../src/kernel/contract.ts";
import { drained, gate, storeError } from "../kernel/kit.ts";
import { noteCommits, outcomeOf, type Peer, Processes, whoOf } from "./kit.ts";

const LEASE_MS = 30_000;
/** As many facts as one page of a history has. */
const PAGE = 500;
const RUN = "one";

interface Replaying {
  readonly processes: Processes;
  readonly bob: Peer;
  readonly worker: Worker;
  /** The read that is held up fails, and so do all after it. */
  failReads(): void;
}

/** How a worker abandons a run while it reads the history. */
const ways = {
  "its lease ended": async ({ processes, bob }: Replaying) => {
    const back = gate();
    // No renewal reaches the store in time.
    bob.cutOff(back.opened);
    await processes.advance(LEASE_MS + 1000);
    back.open();
    await processes.advance(1);
  },
  "its worker was stopped": async ({ processes, worker }: Replaying) => {
    void worker.stop({ timeout: "1s" });
    await processes.advance(2000);
  },
  "it could not read the rest": async ({ processes, worker, failReads }: Replaying) => {
    void worker.stop();
    failReads();
    await processes.advance(5000);
  },
} as const;

export type Way = keyof typeof ways;

export const WAYS = Object.keys(ways) as readonly Way[];

/** Who holds a lock, and who waits for it. */
interface Line {
  readonly holders: readonly (string | null)[];
  readonly waiters: readonly (string | null)[];
}

export interface Result {
  /** What the worker that abandoned it reported. */
  readonly reported: readonly RunEvent["type"][];
  /** How many times it wrote the record of "brief", or a place in its queue. */
  readonly wroteBrief: number;
  /** After it abandoned the run, and received the rest of the history. */
  readonly brief: Line;
  readonly kept: Line;
  /** What the run returned, or failed with, or that it still waits long after. */
  readonly outcome: unknown;
  /** The locks at the end. */
  readonly left: readonly Line[];
  /** The processes in which the step after the release began. */
  readonly began: readonly string[];
}

/** Runs it. With `isTaken`, another process holds "brief" during the take-over, so that a request for it is queued. */
export async function runAbandoned(way: Way, isTaken: boolean): Promise<Result> {
  // The decisions of five hundred steps are not run twice each.
  const processes = new Processes({ checksPurity: false });
  const [ann, bob, cleo, dora] = [processes.process(), processes.process(), processes.process(), processes.process()];
  const lineOf = async (name: string): Promise<Line> => {
    const { holders, waiters } = await dora.pawl.mutex(name).inspect();
    return { holders: whoOf(holders), waiters: whoOf(waiters) };
  };
  const began: string[] = [];
  const mayEnd = gate();
  let isBroken = true;
  const keeper = (by: string, pause: Promise<void>) =>
    workflow("keeper", async (ctx) => {
      await ctx.mutex("kept").acquire();
      if (isBroken) throw new TypeError("broken");
      const brief = await ctx.mutex("brief").acquire();
      await Promise.all(Array.from({ length: PAGE }, (_, n) => ctx.step(`part ${n}`, () => n)));
      await brief.release();
      await ctx.step("long", () => {
        began.push(by);
        return pause;
      });
      return ctx.lock("brief", () => ctx.step("last", () => "done"));
    });

  ann.pawl.work([keeper("ann", gate().opened)], { lease: LEASE_MS, on: () => {} });
  const run = await ann.pawl.start("keeper", undefined, { id: RUN });
  await until(processes, async () => (await run.status()).status === "failed");
  isBroken = false;
  await run.retry();
  await until(processes, () => began.length === 1);
  ann.die();

  const taken = isTaken ? await dora.pawl.mutex("brief").acquire({ by: "dora" }) : undefined;
  const rest = holdUpRest(bob);
  const reported: RunEvent["type"][] = [];
  let wroteBrief = 0;
  noteCommits(bob.store, ({ puts }) => {
    wroteBrief += puts.filter(({ row }) => isOfBrief(row)).length;
  });
  const on: RunListener = ({ type }) => void reported.push(type);
  const worker = bob.pawl.work([keeper("bob", mayEnd.opened)], { lease: LEASE_MS, concurrency: 1, on });
  await until(processes, () => rest.isAskedFor());
  await ways[way]({ processes, bob, worker, failReads: rest.fail });
  rest.open();
  await processes.advance(1000);
  const [brief, kept] = [await lineOf("brief"), await lineOf("kept")];
  const seen = { reported: [...reported], wroteBrief, brief, kept };
  bob.die();

  await taken?.release();
  cleo.pawl.work([keeper("cleo", mayEnd.opened)], { lease: LEASE_MS, on: () => {} });
  mayEnd.open();
  const { state, value, error } = await afterwards(processes, dora.pawl.run("keeper", RUN).result());
  const outcome = state === "pending" ? "it still waits" : state === "acquired" ? value : String(error);
  return { ...seen, outcome, left: [await lineOf("brief"), await lineOf("kept")], began };
}

/** The outcome when everything that could happen has happened. */
async function afterwards(processes: Processes, result: Promise<unknown>): Promise<ReturnType<typeof outcomeOf>> {
  const outcome = outcomeOf(result);
  await processes.advance(20 * LEASE_MS);
  return outcome;
}

/** The lock "brief" itself, or a place in its queue. */
const isOfBrief = ({ space, key }: Row): boolean =>
  (space === "lock/mutex" && key === "brief") || space === "ticket/mutex/brief";

/** Lets a process read the first page of a history, and holds up the read of the second. */
function holdUpRest({ store }: Peer): { isAskedFor(): boolean; open(): void; fail(): void } {
  const held = gate();
  let isAskedFor = false;
  let fails = false;
  const entries = store.entries.bind(store);
  store.entries = async (key, after, limit) => {
    if (key.space === "run" && after >= PAGE) {
      isAskedFor = true;
      await held.opened;
      if (fails) throw storeError("store_unreachable", "retry");
    }
    return entries(key, after, limit);
  };
  return {
    isAskedFor: () => isAskedFor,
    open: held.open,
    fail() {
      fails = true;
      held.open();
    },
  };
}

async function until(processes: Processes, isSo: () => boolean | Promise<boolean>): Promise<void> {
  for (let seconds = 0; seconds < 120; seconds++) {
    // A replay takes a turn of the event loop for each fact.
    for (let turns = 0; turns < 20; turns++) {
      if (await isSo()) return;
      await drained();
    }
    await processes.advance(1000);
  }
  throw new Error("the expected state was not reached in two minutes");
}
