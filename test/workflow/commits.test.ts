/**
 * Goal: durability costs as few transactions as can be: N + 1 for a run of N plain steps, and what the table says for the rest.
 * Method: every transaction that the store is asked for is counted, batches and transactions with the user's SQL alike, on a handle that
 * does nothing else.
 */

import { afterAll, describe, expect, test } from "vitest";
import { type Context, type Pawl, type Run, signal, workflow } from "../../src/index.ts";
import { EVERY, onStores, PATIENCE, type Place, reaches, resultOf } from "./kit.ts";

const go = signal<number>("go");

const names = (count: number): string[] => Array.from({ length: count }, (_, n) => `step ${n}`);

interface Kind {
  readonly what: string;
  readonly commits: number;
  readonly body: (ctx: Context, place: Place) => Promise<unknown>;
  /** What is done from outside meanwhile; its own transactions count. */
  readonly meanwhile?: (run: Run, pawl: Pawl) => Promise<unknown>;
  readonly needsSql?: boolean;
}

const child = workflow("child", async () => 1);

const kinds: readonly Kind[] = [
  { what: "no step at all: the start, the end", commits: 2, body: async () => 1 },
  { what: "1 plain step", commits: 2, body: plain(1) },
  { what: "10 plain steps", commits: 11, body: plain(10) },
  { what: "100 plain steps", commits: 101, body: plain(100) },
  {
    what: "10 plain steps at once",
    commits: 2,
    body: (ctx) => Promise.all(names(10).map((name) => ctx.step(name, () => name))),
  },
  {
    what: "1 step at most once: its intent is one more",
    commits: 3,
    body: (ctx) => Promise.resolve(ctx.step.atMostOnce("a", () => 1)),
  },
  {
    what: "10 plain steps and 10 at most once in turn: the intent shares the commit of the result before it",
    commits: 21,
    body: async (ctx) => {
      for (const name of names(10)) {
        await ctx.step(name, () => 1);
        await ctx.step.atMostOnce(`once ${name}`, () => 1);
      }
    },
  },
  {
    what: "10 steps in the user's SQL, each its own transaction",
    commits: 12,
    needsSql: true,
    body: async (ctx) => {
      for (const name of names(10))
        await ctx.step.tx(name, async (sql) => (await sql.query("select 1 as one")).rowCount);
    },
  },
  {
    what: "1 sleep: the run rests, is claimed, and ends",
    commits: 4,
    body: (ctx) => Promise.resolve(ctx.sleep(5)),
  },
  {
    what: "1 signal that comes while it rests, with the sending of it",
    commits: 5,
    body: (ctx) => Promise.resolve(ctx.waitForSignal(go)),
    meanwhile: async (run) => {
      await reaches(run, "waiting");
      await run.signal(go, 1);
    },
  },
  {
    what: "10 slot updates in a row",
    commits: 12,
    body: async (ctx) => {
      const n = ctx.slot("n", { initial: 0 });
      for (const _ of names(10)) await n.update((value) => value + 1);
    },
  },
];

function plain(count: number): Kind["body"] {
  return async (ctx) => {
    for (const name of names(count)) await ctx.step(name, () => 1);
  };
}

const counted = new Map<string, Record<string, number>>();

onStores(EVERY, (place) => {
  describe("transactions of one run", () => {
    test.each(kinds.filter(({ needsSql }) => needsSql !== true || place.store !== "memory"))(
      "$what",
      async ({ what, commits, body, meanwhile }) => {
        const handle = await place.openHandle();
        const it = workflow("it", async (ctx) => body(ctx, place));
        handle.pawl.work([it, child]);
        const before = handle.commits();
        const run = await handle.pawl.start(it);
        await meanwhile?.(run, handle.pawl);
        await resultOf(run);
        // The server may notify of the end before the reply to the commit is here.
        await expect.poll(() => handle.commits() - before, PATIENCE).toBeGreaterThanOrEqual(commits);
        const count = handle.commits() - before;
        counted.set(what, { ...counted.get(what), [place.store]: count });
        expect(count).toBe(commits);
      },
    );

    test("a caller that is notified of a run's end finds its place free: the next run begins with its start", async () => {
      const handle = await place.openHandle();
      const it = workflow("it", async (ctx, n: number) => ctx.step("a", () => n));
      handle.pawl.work([it], { concurrency: 1 });
      const before = handle.commits();
      for (let n = 0; n < 10; n++) expect(await resultOf(await handle.pawl.start(it, n))).toBe(n);
      expect(handle.commits() - before).toBe(20);
    });
  });
});

afterAll(() => {
  console.log("Transactions that the store was asked for, by what the run does:");
  console.table(Object.fromEntries(counted));
});
