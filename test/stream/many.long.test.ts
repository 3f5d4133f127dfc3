/**
 * Goal: ten thousand of everything that reactions have: targets, events of one target, and targets that one call of an operator changes. Nothing is left
 * out or done twice, and lists are complete.
 * Method: one process on SQLite. What handlers emit is counted; how long it takes is not.
 */

import { expect, test } from "vitest";
import { event, type Pawl, reaction, type TargetInfo } from "../../src/index.ts";
import { onStores } from "../workflow/kit.ts";
import { all, Deposited, deposits } from "./kit.ts";

const MANY = 10_000;
const OUTS = 50;
const TIMEOUT = { timeout: 600_000 };
/** Seldom, because it looks at all targets. */
const LONG = { timeout: 500_000, interval: 500 };

const Copied = event<{ readonly of: string }>("Copied");

const range = (length: number) => Array.from({ length }, (_, i) => i);
const streamOf = (n: number) => `s-${String(n).padStart(5, "0")}`;

/** Copies each event to one of some streams. */
const copy = reaction("copy", { on: [Deposited] }, (e, { emit }) => {
  emit(`out-${e.data.amount % OUTS}`, [Copied({ of: `${e.stream} ${e.version}` })]);
});

async function copies(pawl: Pawl): Promise<string[]> {
  const found: string[] = [];
  for (const n of range(OUTS))
    for await (const { data } of pawl.stream(`out-${n}`).read({ events: [Copied] })) found.push(data.of);
  return found;
}

/** All targets, page by page. */
async function targetsOf(pawl: Pawl, name: string): Promise<readonly TargetInfo[]> {
  const found: TargetInfo[] = [];
  for (let after: string | undefined; ; ) {
    const page = await pawl.reactions.targets(name, { limit: 1000, ...(after === undefined ? {} : { after }) });
    found.push(...page.targets);
    if (page.next === null) return found;
    after = page.next;
  }
}

async function handledAt(pawl: Pawl, name: string): Promise<number> {
  return (await targetsOf(pawl, name)).reduce((sum, { handled }) => sum + handled, 0);
}

async function appendMany(pawl: Pawl): Promise<void> {
  for (let from = 0; from < MANY; from += 500)
    await pawl.transact((tx) => {
      for (let n = from; n < from + 500; n++) tx.stream(streamOf(n)).append([Deposited({ amount: n })]);
    });
}

onStores(["SQLite"], (place) => {
  test("10,000 targets: each is handled once; a reset by a filter handles 10,000 of them again", TIMEOUT, async () => {
    const pawl = await place.open();
    await appendMany(pawl);
    const worker = pawl.work([copy]);
    await expect.poll(() => handledAt(pawl, "copy"), LONG).toBe(MANY);
    const once = range(MANY).map((n) => `${streamOf(n)} 1`);
    expect((await copies(pawl)).toSorted()).toEqual(once);
    const targets = await targetsOf(pawl, "copy");
    expect(targets.map(({ target }) => target)).toEqual(range(MANY).map(streamOf));
    expect(targets.filter(({ status, pending }) => status !== "idle" || pending > 0)).toEqual([]);

    // While no worker is there, so that what was changed can be seen.
    await worker.stop();
    expect(await pawl.reactions.reset("copy", { prefix: "s-", dryRun: true })).toBe(MANY);
    expect(await handledAt(pawl, "copy")).toBe(MANY);
    expect(await pawl.reactions.reset("copy", { prefix: "s-" })).toBe(MANY);
    expect(await handledAt(pawl, "copy")).toBe(0);
    expect(await pawl.reactions.pauseTargets("copy", { prefix: "s-0" })).toBe(MANY);
    expect(await pawl.reactions.resumeTargets("copy", { prefix: "s-00" })).toBe(1_000);
    pawl.work([copy]);
    await expect.poll(() => handledAt(pawl, "copy"), LONG).toBe(1_000);
    expect(await pawl.reactions.resumeTargets("copy", { status: "paused" })).toBe(9_000);
    await expect.poll(() => handledAt(pawl, "copy"), LONG).toBe(MANY);
    expect((await copies(pawl)).toSorted()).toEqual([...once, ...once].toSorted());
  });

  test("10,000 events of one target: each is handled once, in order, by workers that take turns", TIMEOUT, async () => {
    const [one, two] = [await place.open(), await place.open()];
    await one.stream("long").append(deposits(MANY / 2));
    const sum = reaction("sum", { on: [Deposited] }, (e, { emit }) => {
      emit("sums", [Copied({ of: String(e.version) })]);
    });
    one.work([sum]);
    two.work([sum]);
    await two.stream("long").append(deposits(MANY / 2));
    await expect.poll(() => handledAt(one, "sum"), LONG).toBe(MANY);
    const order = range(MANY).map((n) => n + 1);
    expect((await all(one.stream("sums").read({ events: [Copied] }))).map(({ data }) => Number(data.of))).toEqual(
      order,
    );
  });

  test("10,000 blocked targets: all continue after one call", TIMEOUT, async () => {
    const pawl = await place.open({ logger: false });
    await appendMany(pawl);
    let isDown = true;
    const mail = reaction("mail", { on: [Deposited], retry: { attempts: 1 } }, (e, { emit }) => {
      if (isDown) throw new Error("no paper");
      emit(`out-${e.data.amount % OUTS}`, [Copied({ of: `${e.stream} ${e.version}` })]);
    });
    pawl.work([mail]);
    const countBlocked = async () =>
      (await targetsOf(pawl, "mail")).filter(({ status }) => status === "blocked").length;
    await expect.poll(countBlocked, LONG).toBe(MANY);
    isDown = false;
    expect(await pawl.reactions.unblock("mail", {})).toBe(MANY);
    await expect.poll(() => handledAt(pawl, "mail"), LONG).toBe(MANY);
    expect((await copies(pawl)).toSorted()).toEqual(range(MANY).map((n) => `${streamOf(n)} 1`));
  });
});
