/**
 * Goal: a thousand runs that request one mutex hold it strictly one at a time and in the order in which they came; and passing it on is one commit
 * and one wake-up, which costs the same with ten waiters and with ten thousand.
 * Method: every commit is examined where it reaches the store: who holds the lock, who entered the queue and in which order, how many rows were
 * read and written for it, and how many bytes.
 */

import { describe, expect, test } from "vitest";
import { type Hold, type Lock, type Pawl, type Run, signal, workflow } from "../../src/index.ts";
import type { Put, Store } from "../../src/kernel/contract.ts";
import { enter } from "../../src/lock/line.ts";
import { type LockRef, lockAt, type Ticket } from "../../src/lock/stored.ts";
import { nodePorts, wallMs } from "../../src/node/ports.ts";
import { pawlOn } from "../../src/pawl.ts";
import { MemoryDatabase } from "../../src/stores/memory/memory.ts";
import { runHooks } from "../../src/workflow/locks/locks.ts";
import { drained } from "../kernel/kit.ts";
import { CommitChecker, type Noted, noteCommits } from "./kit.ts";

/** A handle in memory that reports everything that it writes. */
function openNoted(noted: (commit: Noted) => void, database = new MemoryDatabase(wallMs)): Pawl {
  const store: Store = database.connect("test");
  noteCommits(store, noted);
  const { clock, chance, bodies, holding } = nodePorts;
  return pawlOn(store, { clock, chance, bodies, holding }, { namespace: "test", patienceMs: 10_000 });
}

/** Those who entered the queue, in its order. */
class Line {
  readonly arrivals: string[] = [];
  #last: string | null = null;

  saw(puts: readonly Put[]): void {
    const news = new Map<string | null, string>();
    for (const { was, row } of puts)
      if (row.space.startsWith("ticket/") && was === null && row.value !== null)
        news.set((JSON.parse(row.value) as Ticket).prev, row.key);
    // Each new one names the one that was last when it came.
    while (news.size > 0) {
      const from = news.has(this.#last) ? this.#last : null;
      const next = news.get(from);
      if (next === undefined) throw new Error("the queue is broken");
      news.delete(from);
      this.arrivals.push(next);
      this.#last = next;
    }
  }
}

describe("a thousand runs that request one mutex", () => {
  test("hold it one at a time, in the order in which they came", async () => {
    const checker = new CommitChecker();
    const line = new Line();
    const database = new MemoryDatabase(wallMs);
    const handles = [1, 2].map(() =>
      openNoted(({ puts }) => {
        checker.saw(puts);
        line.saw(puts);
      }, database),
    );
    const visits: string[] = [];
    let inside = 0;
    const visitor = workflow("visitor", async (ctx) =>
      ctx.lock("m", ({ fence }) =>
        ctx.step("visit", async () => {
          inside += 1;
          expect(inside).toBe(1);
          visits.push(ctx.runId);
          await drained();
          inside -= 1;
          return fence;
        }),
      ),
    );
    for (const pawl of handles) pawl.work([visitor], { concurrency: 2000 });
    const starts = Array.from({ length: 1000 }, (_, n) => {
      const pawl = handles[n % 2];
      if (pawl === undefined) throw new Error("there are two");
      return pawl.start(visitor, undefined, { id: `v${n}` });
    });
    const runs = await Promise.all(starts);
    const fences = await Promise.all(runs.map((run) => run.result({ timeout: "50s" })));
    expect(visits.length).toBe(1000);
    expect(new Set(fences).size).toBe(1000);
    // The first is granted without waiting; from then on it is the order of the queue.
    const grants = checker.grants.get("mutex m") ?? [];
    expect(grants.length).toBe(1000);
    const waited = new Set(line.arrivals);
    expect(grants.filter((ticket) => waited.has(ticket))).toEqual(line.arrivals);
    expect(line.arrivals.length).toBeGreaterThan(900);
    // And they used it in that order.
    const byFence = runs.map(({ id }, n) => ({ id, fence: fences[n] ?? 0 })).sort((a, b) => a.fence - b.fence);
    expect(visits).toEqual(byFence.map(({ id }) => id));
    checker.check();
    for (const pawl of handles) await pawl.close();
  });
});

describe("a hand-off", () => {
  const LEASE_MS = 24 * 3_600_000;

  /** What something cost at the store. */
  interface Cost {
    readonly commits: number;
    /** The rows that were written, by what they are. */
    readonly rows: readonly string[];
    /** How many rows were looked at under locks. */
    readonly looked: number;
    readonly bytes: number;
    readonly wakes: number;
  }

  /** The stored number of waiters has more digits where more wait; everything else is counted as it is. */
  const bytesOf = ({ row, entries }: Put): number =>
    Buffer.byteLength(row.space.startsWith("lock/") ? (row.value ?? "").replace(/,\d+\]$/, ",0]") : (row.value ?? "")) +
    entries.reduce((sum, { data }) => sum + Buffer.byteLength(data), 0);

  const costOf = (commits: readonly Noted[]): Cost => {
    const puts = commits.flatMap((commit) => commit.puts);
    return {
      commits: commits.length,
      rows: puts.map(({ row }) => `${row.space.split("/")[0]}${row.value === null ? " removed" : ""}`).sort(),
      looked: commits.reduce((sum, { looked }) => sum + looked, 0),
      bytes: puts.reduce((sum, put) => sum + bytesOf(put), 0),
      wakes: puts.filter(({ was, row }) => row.wakes > (was?.wakes ?? 0)).length,
    };
  };

  const isOfLock = ({ puts }: Noted): boolean => puts.some(({ row }) => row.space.startsWith("lock/"));
  const ticket = (n: number): string => `00000000-0000-4000-8000-${String(n).padStart(12, "0")}`;
  const go = signal("go");

  interface Scene {
    readonly pawl: Pawl;
    readonly lock: Lock;
    readonly holder: Run;
    readonly hold: Hold;
    readonly middle: string;
  }

  interface Verb {
    readonly what: string;
    readonly kind?: LockRef["kind"];
    /** Who holds it, and who is first in the queue. */
    readonly from: "plain" | "run";
    readonly to: "plain" | "run";
    readonly act: (scene: Scene) => Promise<unknown>;
    readonly rows: readonly string[];
  }

  /** A lock that is held, with `count` waiters, and the cost of an action on it. */
  async function costWith(count: number, { kind = "mutex", from, to, act }: Verb): Promise<Cost> {
    let commits: Noted[] = [];
    const pawl = openNoted((commit) => commits.push(commit));
    const { kernel } = pawl;
    const ref: LockRef = { kind, name: "m" };
    const keeper = workflow("keeper", async (ctx) => {
      await ctx.mutex("m").acquire();
      await ctx.waitForSignal(go);
    });
    const worker = pawl.work([keeper]);
    const rest = async (id: string): Promise<Run> => {
      const run = await pawl.start(keeper, undefined, { id });
      while ((await run.status()).status !== "waiting") await drained();
      return run;
    };
    const lock =
      kind === "semaphore"
        ? pawl.semaphore("m", { permits: 1, lease: LEASE_MS })
        : pawl.mutex("m", { lease: LEASE_MS });
    const holder = from === "run" ? await rest("holder") : pawl.run(keeper, "holder");
    const hold = from === "plain" ? await lock.acquire() : await pawl.mutex("other").acquire();
    const first = to === "run" ? await rest("first") : undefined;
    // Runs at rest stay at rest, except the holder.
    if (from === "plain") await worker.stop();
    const request = {
      refs: [ref],
      mode: kind === "semaphore" ? "shared" : "exclusive",
      permits: kind === "semaphore" ? 1 : null,
      leaseMs: LEASE_MS,
      declares: false,
      queue: true,
    } as const;
    const enters = Array.from({ length: count - (first === undefined ? 0 : 1) }, (_, n) =>
      kernel.transact((tx) => enter(tx, runHooks, { ...request, ticket: ticket(n) }), [lockAt(ref)]),
    );
    await Promise.all(enters);
    expect((await lock.inspect({ limit: 1 })).waiting).toBe(count);
    commits = [];
    await act({ pawl, lock, holder, hold, middle: ticket(count / 2) });
    // A run that ends has other things to write before.
    const cost = costOf(from === "run" ? commits.filter(isOfLock) : commits);
    await worker.stop();
    await kernel.close();
    return cost;
  }

  const verbs: readonly Verb[] = [
    {
      what: "from plain code to plain code",
      from: "plain",
      to: "plain",
      act: ({ hold }) => hold.release(),
      rows: ["lock", "ticket removed"],
    },
    {
      what: "from plain code to a run",
      from: "plain",
      to: "run",
      act: ({ hold }) => hold.release(),
      rows: ["lock", "run", "ticket removed"],
    },
    {
      what: "from a run that ends to plain code",
      from: "run",
      to: "plain",
      act: async ({ holder }) => {
        await holder.signal(go);
        await holder.result();
      },
      rows: ["lock", "run", "ticket removed"],
    },
    {
      what: "of a permit",
      kind: "semaphore",
      from: "plain",
      to: "plain",
      act: ({ hold }) => hold.release(),
      rows: ["lock", "ticket removed"],
    },
    {
      what: "by force",
      from: "plain",
      to: "plain",
      act: ({ lock }) => lock.forceRelease({ by: "ann", reason: "stuck" }),
      rows: ["lock", "ticket removed"],
    },
    {
      what: "that is refused to a caller that does not wait",
      from: "plain",
      to: "plain",
      act: ({ lock }) => lock.tryAcquire(),
      rows: [],
    },
    {
      what: "that is avoided, because a waiter in the middle is removed,",
      from: "plain",
      to: "plain",
      act: ({ lock, middle }) => lock.removeWaiter(middle, { by: "ann", reason: "stuck" }),
      rows: ["lock", "ticket", "ticket", "ticket removed"],
    },
  ];

  test.each(verbs)(
    "$what is one commit, and costs the same with ten and with ten thousand waiters",
    {
      timeout: 60_000,
    },
    async (verb) => {
      const few = await costWith(10, verb);
      const many = await costWith(10_000, verb);
      const { rows, to } = verb;
      // One wake-up: that of the run whose turn it is. Plain code gets it from its ticket.
      expect(few).toMatchObject({ commits: 1, rows, wakes: to === "run" ? 1 : 0 });
      expect(many).toEqual(few);
      expect(few.bytes).toBeLessThan(1_000);
      expect(few.looked).toBeLessThanOrEqual(5);
    },
  );

  test("from a run that ends to a run is one commit that ends one and wakes the other", {
    timeout: 60_000,
  }, async () => {
    const verb: Verb = {
      what: "",
      from: "run",
      to: "run",
      act: async ({ holder, pawl }) => {
        await holder.signal(go);
        await holder.result();
        while ((await pawl.run("keeper", "first").status()).status !== "waiting") await drained();
      },
      rows: [],
    };
    const few = await costWith(10, verb);
    expect(few).toMatchObject({ commits: 1, rows: ["lock", "run", "run", "ticket removed"], wakes: 1 });
    expect(await costWith(10_000, verb)).toEqual(few);
  });
});
