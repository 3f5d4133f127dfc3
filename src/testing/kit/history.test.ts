// Goal: a saved history shows whether the current code can replay it, and how far it gets.

import { expect, test } from "vitest";
import { type AnyWorkflow, type Context, open, signal, type Workflow, workflow } from "../../index.ts";
import { replayHistory, saveHistory } from "./history.ts";
import { openTest } from "./pawl.ts";

const go = signal<{ by: string }>("go");

const story = async (ctx: Context, n: number) => {
  const first = await ctx.step("first", () => n + 1);
  await ctx.sleep("1 day");
  const { value } = await ctx.waitForSignal(go);
  const chance = ctx.random();
  const [a, b] = await Promise.all([ctx.step("a", () => first * 2), ctx.step("b", () => new Map([[value.by, 1]]))]);
  return { a, b, chance, at: ctx.now() };
};
const told = workflow("told", story);

async function lived(code: AnyWorkflow & Workflow<number, unknown>, ends = true) {
  await using pawl = openTest();
  pawl.work([code]);
  const run = await pawl.start(code, 1, { id: "lived" });
  await run.until("waiting");
  if (!ends) return { text: await saveHistory(pawl, run), value: undefined };
  await run.signal(go, { by: "ann" });
  const value = await run.result().catch((error: unknown) => error);
  return { text: await saveHistory(pawl, run.id), value };
}

test("the same code reaches the same end, with the same times and random numbers, and no step runs", async () => {
  const { text, value } = await lived(told);
  const again = workflow("told", async (ctx, n: number) => story(ctx, n));
  expect(await replayHistory(again, text)).toEqual({ ok: true, status: "completed", value });
});

test("a run that has not ended is replayed to where it waits", async () => {
  const { text } = await lived(told, false);
  expect(await replayHistory(told, text)).toEqual({ ok: true, status: "waiting", waitsFor: ["sleep 1"] });
});

test("the time that the code sees with a slot is the time of the fact", async () => {
  const slots = workflow("slots", async (ctx, n: number) => {
    await ctx.sleep("1 day");
    await ctx.waitForSignal(go);
    await ctx.slot<number>("n", { initial: n }).update((value) => value + 1);
    return ctx.now();
  });
  const { text, value } = await lived(slots);
  expect(value).toBeInstanceOf(Date);
  expect(await replayHistory(slots, text)).toEqual({ ok: true, status: "completed", value });
});

const changes: { change: string; body: (ctx: Context, n: number) => Promise<unknown>; says: RegExp | object }[] = [
  {
    change: "a step that has another name is a contradiction",
    body: async (ctx) => ctx.step("other", () => 1),
    says: /"step first".*waits for "step other"/s,
  },
  {
    change: "a step that is new in the middle is a contradiction",
    body: async (ctx) => {
      await ctx.step("first", () => 1);
      await ctx.step("new", () => 1);
      await ctx.sleep("1 day");
    },
    says: /"step new"/,
  },
  {
    change: "code that has ended before its history is a contradiction",
    body: async (ctx) => ctx.step("first", () => 1),
    says: /has ended by then/,
  },
  {
    change: "code that does more after the end of the history continues from there",
    body: async (ctx, n) => {
      await story(ctx, n);
      await ctx.step("more", () => 1);
    },
    says: { ok: true, status: "waiting", waitsFor: ["step more"] },
  },
  {
    change: "code that makes something else of the same facts differs in its result",
    body: async (ctx, n) => (await story(ctx, n)).a + 1,
    says: { ok: true, status: "completed", value: 5 },
  },
  {
    change: "code that throws ends in a failure",
    body: async (ctx, n) => {
      await story(ctx, n);
      throw new Error("oh no");
    },
    says: { ok: true, status: "failed", error: new Error("oh no") },
  },
];
test.each(changes)("$change", async ({ body, says }) => {
  const { text } = await lived(told);
  const replayed = await replayHistory(workflow("told", body), text);
  if (says instanceof RegExp) {
    expect(replayed.ok).toBe(false);
    if (!replayed.ok) expect(replayed.contradiction.message).toMatch(says);
  } else expect(replayed).toEqual(says);
});

test("the text has one line for each fact, and no stacks", async () => {
  const fails = workflow("fails", async (ctx, n: number) => {
    await ctx.waitForSignal(go);
    return ctx.step("fail", () => Promise.reject(new TypeError(`no ${n}`)), { retry: { attempts: 1 } });
  });
  const { text } = await lived(fails);
  const [, ...lines] = text.trimEnd().split("\n");
  expect(lines.slice(0, -1).map((line) => (JSON.parse(line.replace(/,$/, "")) as { name: string }).name)).toEqual([
    "started",
    "received go",
    "step fail",
    "failed",
  ]);
  expect(text).not.toContain("stack");
  expect(await replayHistory(fails, text)).toMatchObject({ ok: true, status: "failed", error: { message: "no 1" } });
});

test("a history of another store, of a run that was canceled, retried or started again, replays too", async () => {
  await using pawl = await open("memory:");
  let isBroken = true;
  const retried = workflow({ name: "retried", retry: { attempts: 1 } }, async (ctx, n: number) => {
    await ctx.step("fine", () => n);
    const got = await ctx.step("broken", () => {
      if (isBroken) throw new Error("broken");
      return n * 2;
    });
    return [got, ctx.incarnation];
  });
  pawl.work([retried]);
  const run = await pawl.start(retried, 4, { id: "r" });
  await expect(run.result()).rejects.toThrow("broken");
  isBroken = false;
  await run.retry();
  expect(await run.result()).toEqual([8, 1]);
  expect(await replayHistory(retried, await saveHistory(pawl, "r"))).toEqual({
    ok: true,
    status: "completed",
    value: [8, 1],
  });
  isBroken = true;
  const again = await pawl.start(retried, 5, { id: "r", ifExists: "restart" });
  await expect(again.result()).rejects.toThrow("broken");
  isBroken = false;
  await again.retry();
  expect(await again.result()).toEqual([10, 2]);
  expect(await replayHistory(retried, await saveHistory(pawl, "r"))).toMatchObject({ value: [10, 2] });
  const waits = workflow("waits", async (ctx) => ctx.sleep("1 day"));
  pawl.work([waits]);
  const canceled = await pawl.start(waits);
  await expect.poll(async () => (await canceled.status()).status).toBe("waiting");
  await canceled.cancel();
  await expect(canceled.result()).rejects.toThrow("canceled");
  expect(await replayHistory(waits, await saveHistory(pawl, canceled))).toMatchObject({ ok: true, status: "canceled" });
});

test("a text that is no history, or another workflow's, is refused", async () => {
  const { text } = await lived(told, false);
  await expect(replayHistory(told, "no")).rejects.toThrow("it is not JSON");
  await expect(replayHistory(told, "{}")).rejects.toThrow("must be text that saveHistory returned");
  await expect(replayHistory(workflow("else", story), text)).rejects.toThrow('it is of "told"');
  await using pawl = openTest();
  await expect(saveHistory(pawl, "nobody")).rejects.toThrow('there is no run "nobody"');
});
