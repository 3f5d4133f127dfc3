/**
 * Workflows whose histories are kept for ever, and how each was lived. Between them they have every word that a history can have.
 *
 * The code of a story is not changed once a release has kept its history: what it did is what a later release must do with it. What is new gets a
 * story of its own.
 */

import {
  type AnyWorkflow,
  aggregate,
  type Context,
  event,
  signal,
  type Workflow,
  workflow,
} from "../../../src/index.ts";
import type { TestPawl } from "../../../src/testing/index.ts";

export interface Story {
  readonly code: AnyWorkflow & Workflow<never, unknown>;
  /** Others that take part. */
  readonly others?: readonly AnyWorkflow[];
  /** Lives it, and answers the run's id. `restart` stops the worker at once, in the middle of its steps, and starts another. */
  live(pawl: TestPawl, restart: () => Promise<void>): Promise<string>;
}

const go = signal<{ by: string }>("go");
const never = signal("never");

const child = workflow("child", async (ctx: Context, n: number) => ctx.step("double", () => 2 * n));
const failing = workflow("failing child", async (): Promise<never> => {
  throw new RangeError("too far");
});

const steps = workflow("steps", async (ctx: Context, input: { readonly names: readonly string[] }) => {
  const flaky = ctx.step(
    "flaky",
    ({ heartbeat, attempt }) => {
      heartbeat({ attempts: attempt });
      if (attempt === 1) throw new Error("not yet");
      return new Date(Date.UTC(2030, 0, 1));
    },
    { retry: { delay: "10s", jitter: 0 } },
  );
  const all = await Promise.all(input.names.map((name) => ctx.step("named", () => name.length, { id: name })));
  const printed = await ctx.step.atMostOnce("print", () => "printed");
  const failed = await ctx
    .step("fails", () => Promise.reject(new TypeError("no")), { retry: { attempts: 1 } })
    .then(undefined, (error) => String(error));
  const again = [];
  for (let i = 0; i < 3; i++) again.push(await ctx.step("again", () => i));
  return { all, printed, failed, again, flaky: await flaky };
});

const waits = workflow("waits", async (ctx: Context, n: bigint) => {
  const seen: unknown[] = [ctx.runId, ctx.scheduledAt, ctx.now(), ctx.random(), ctx.uuid(), n];
  await ctx.sleep("1 day");
  seen.push(ctx.now());
  seen.push(await ctx.waitForSignal(never, { timeout: "1 hour" }));
  seen.push(await ctx.waitForSignal(go));
  seen.push(await Promise.race([ctx.sleep("3 days"), ctx.waitForAny([never, go])]));
  seen.push(await ctx.slot<number>("count", { scope: "global", initial: 5 }).update((count) => count + 1));
  seen.push(await ctx.rateLimit("mail", { max: 1, per: "1 minute" }).acquire());
  seen.push(await ctx.rateLimit("mail", { max: 1, per: "1 minute" }).acquire());
  seen.push(ctx.now(), ctx.random(), ctx.uuid());
  return seen;
});

/** A child whose id is the run's own is refused. */
const refused = workflow("refused", async (ctx) => ctx.call(child, 1, { id: ctx.runId }).catch(() => "caught"));

const family = workflow("family", async (ctx: Context) => {
  const left = await ctx.start(child, 1, { id: "left" });
  const results = await Promise.allSettled([ctx.call(child, 20), ctx.call(failing)]);
  return [left, ...results.map((one) => (one.status === "fulfilled" ? one.value : String(one.reason)))];
});

const generator = workflow("generator", function* (ctx: Context, n: number) {
  const first = yield* ctx.step("first", () => n + 1);
  yield* ctx.sleep("1 hour");
  const both = yield* ctx.all([ctx.step("a", () => first), ctx.step("b", () => first * 2)]);
  return { both, at: ctx.now() };
});

const holder = workflow("holder", async (ctx: Context) => {
  await ctx.lock("account", () => ctx.sleep("1 hour"));
});

/** Fences are left out of what it gives: they are new at each replay. */
const locks = workflow("locks", async (ctx: Context) => {
  const account = ctx.mutex("account");
  const seen: unknown[] = [];
  seen.push(await account.acquire({ timeout: "1 minute" }).then(undefined, (error) => (error as Error).name));
  const entered = await account.enqueue();
  if (!entered.granted) {
    seen.push(entered.place.position);
    const hold = await entered.place.acquire();
    seen.push(await ctx.step("under the lock", () => "done"));
    seen.push(await hold.release());
  }
  seen.push(await ctx.semaphore("seats", { permits: 2 }).with(() => ctx.step("seated", () => "seated")));
  return seen;
});

const stopped = workflow("stopped", async (ctx: Context) => {
  try {
    await ctx.sleep("400 days");
  } finally {
    await ctx.step("clean up", () => "clean");
  }
});

const late = workflow({ name: "late", timeout: "1 minute" }, async (ctx: Context) => {
  await ctx.sleep("400 days");
});

let isBroken = true;
const mended = workflow("mended", async (ctx: Context) => {
  const first = await ctx.step("first", () => 1);
  return (
    (await ctx.step("second", () => (isBroken ? Promise.reject(new Error("broken")) : 2), { retry: { attempts: 1 } })) +
    first
  );
});

function fragile(n: number): number {
  if (isBroken) throw new Error("down");
  return n;
}

/** More failures, each beside a success, than the run's record holds. */
const outage = workflow("outage", async (ctx: Context) => {
  const steps = Array.from({ length: 210 }, (_, n) =>
    ctx.step("call", async () => (n % 2 === 0 ? fragile(n) : n), { id: String(n), retry: { attempts: 1 } }),
  );
  const outcomes = await Promise.allSettled(steps);
  for (const outcome of outcomes) if (outcome.status === "rejected") throw outcome.reason;
  return outcomes.length;
});

const doubtful = workflow("doubtful", async (ctx: Context) => {
  const reconcile = () => ({ unknown: true }) as const;
  return ctx.step.atMostOnce("charge", () => charge(), { reconcile });
});
let charge: () => Promise<string> = async () => "charged";

const Noted = event<{ readonly n: number }>("Noted");
const sum = aggregate("sum", {
  initial: 0,
  on: [[Noted, (all, { n }) => all + n]],
  commands: {
    note: (all, n: number, { emit, refuse }) => {
      if (all + n > 3) refuse("too_much", { all });
      emit(Noted({ n }));
      return all + n;
    },
  },
});

const streams = workflow("streams", async (ctx) => {
  const before = await ctx.stream("notes").head();
  const appended = await ctx.stream("notes").append([Noted({ n: 1 })], { expectedVersion: 0 });
  const conflict = await ctx.stream("notes").tryAppend([Noted({ n: 1 })], { expectedVersion: 0 });
  const { output } = await ctx.aggregate(sum, "notes").execute("note", 2);
  const refused = await ctx
    .aggregate(sum, "notes")
    .execute("note", 1)
    .catch((error: { code: string }) => error.code);
  const { state } = await ctx.aggregate(sum, "notes").state();
  return { before, version: appended.version, conflict, output, refused, state };
});

export const STORIES: Readonly<Record<string, Story>> = {
  steps: {
    code: steps,
    live: async (pawl) => ended(await pawl.start(steps, { names: ["ann", "bo"] }, { id: "golden" })),
  },
  waits: {
    code: waits,
    live: async (pawl) => {
      const run = await pawl.start(waits, 2n ** 70n, { id: "golden", delay: "1 minute" });
      await run.signal(go, { by: "ann" }, { id: "one" });
      await pawl.clock.advance("2 days");
      await run.signal(go, { by: "bo" });
      return ended(run);
    },
  },
  family: {
    code: family,
    others: [child, failing],
    live: async (pawl) => ended(await pawl.start(family, undefined, { id: "golden" })),
  },
  refused: {
    code: refused,
    others: [child],
    live: async (pawl) => ended(await pawl.start(refused, undefined, { id: "golden" })),
  },
  generator: { code: generator, live: async (pawl) => ended(await pawl.start(generator, 3, { id: "golden" })) },
  locks: {
    code: locks,
    others: [holder],
    live: async (pawl) => {
      const other = await pawl.start(holder);
      await other.until("waiting");
      return ended(await pawl.start(locks, undefined, { id: "golden" }));
    },
  },
  streams: {
    code: streams,
    live: async (pawl) => ended(await pawl.start(streams, undefined, { id: "golden" })),
  },
  stopped: {
    code: stopped,
    live: async (pawl) => {
      const run = await pawl.start(stopped, undefined, { id: "golden" });
      await run.until("waiting");
      await run.cancel({ reason: "enough" });
      return ended(run);
    },
  },
  late: { code: late, live: async (pawl) => ended(await pawl.start(late, undefined, { id: "golden" })) },
  mended: {
    code: mended,
    live: async (pawl) => {
      isBroken = true;
      const run = await pawl.start(mended, undefined, { id: "golden" });
      await ended(run);
      isBroken = false;
      await run.retry();
      return ended(run);
    },
  },
  outage: {
    code: outage,
    live: async (pawl) => {
      isBroken = true;
      const run = await pawl.start(outage, undefined, { id: "golden" });
      await ended(run);
      isBroken = false;
      await run.retry();
      return ended(run);
    },
  },
  doubtful: {
    code: doubtful,
    live: async (pawl, restart) => {
      charge = () => new Promise(() => {});
      const run = await pawl.start(doubtful, undefined, { id: "golden" });
      await run.until("running");
      await restart();
      await run.until("parked");
      charge = async () => "charged";
      await run.resolveStep("charge", { done: false });
      return ended(run);
    },
  },
};

async function ended(run: { readonly id: string; result(): Promise<unknown> }): Promise<string> {
  await run.result().catch(() => {});
  return run.id;
}
