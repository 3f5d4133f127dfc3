// Goal: what ARCHITECTURE.md says about adding a capability is enough: the small one there works like those of the handle.
// Method: it is made from its file alone, put into a list, and used on a kernel in memory.

import { readFileSync } from "node:fs";
import { expect, test } from "vitest";
import { address } from "../../src/kernel/contract.ts";
import { InvalidArgumentError } from "../../src/kernel/errors.ts";
import { Log } from "../../src/kernel/log.ts";
import { Pawl } from "../../src/pawl.ts";
import { Tx } from "../../src/tx.ts";
import { Workers } from "../../src/worker.ts";
import { bench } from "../kernel/kit.ts";
import { Clerk, decideNext, type NumberTxVerbs, type NumberVerbs, numberCapability } from "./numbers.ts";

const DAY_MS = 24 * 60 * 60 * 1000;

/** A handle with one capability more, as a line in src/capabilities.ts would make it. */
function setUp() {
  const on = bench();
  const pawl = new Pawl(on.kernel);
  const capability = numberCapability(on.kernel);
  on.kernel.sweeper.add(capability.queues ?? []);
  const numbers = capability.verbs as NumberVerbs;
  const HandleTx = Tx.with([capability]) as unknown as new (
    ...given: ConstructorParameters<typeof Tx>
  ) => NumberTxVerbs;
  return { ...on, pawl, capability, numbers, HandleTx };
}

test.each([
  { rule: "a line begins with 1", last: undefined, next: 1 },
  { rule: "each number is one above the last", last: 41, next: 42 },
])("$rule", ({ last, next }) => {
  expect(decideNext(last)).toBe(next);
});

test("each number is given out once", async () => {
  const { numbers } = setUp();
  const taken = await Promise.all(Array.from({ length: 100 }, () => numbers.takeNumber("counter")));
  expect(taken.toSorted((a, b) => a - b)).toEqual(Array.from({ length: 100 }, (_, i) => i + 1));
});

test("it composes with others in one commit", async () => {
  const { kernel, numbers, HandleTx } = setUp();
  const both = kernel.transact((tx) => [new HandleTx(tx).takeNumber("a"), new HandleTx(tx).takeNumber("b")], []);
  expect(await both).toEqual([1, 1]);
  const refused = kernel.transact((tx) => {
    new HandleTx(tx).takeNumber("a");
    throw new Error("refused");
  }, []);
  await expect(refused).rejects.toThrow("refused");
  expect(await numbers.takeNumber("a")).toBe(2);
});

test("a clerk, given to `pawl.work`, calls the numbers in order, in one worker at a time", async () => {
  const { capability, numbers } = setUp();
  const called: number[] = [];
  const clerk = new Clerk("counter", async (number) => {
    await Promise.resolve();
    called.push(number);
  });
  const workers = new Workers([capability]);
  await using worker = workers.start("ann", [clerk]);
  await using other = workers.start("bob", [clerk], { concurrency: 1 });
  await Promise.all(Array.from({ length: 50 }, () => numbers.takeNumber("counter")));
  await expect.poll(() => called.length).toBe(50);
  await numbers.takeNumber("counter");
  await expect.poll(() => called).toEqual(Array.from({ length: 51 }, (_, i) => i + 1));
  expect([worker.id, other.id]).toEqual(["ann", "bob"]);
});

test.each([
  ["nothing", []],
  ["what no capability knows", [{ line: "counter" }]],
])("%s is refused by `pawl.work`", (_, definitions) => {
  const { capability } = setUp();
  expect(() => new Workers([capability]).start("ann", definitions)).toThrow(InvalidArgumentError);
});

test("what a clerk throws is logged, and its number is called again", async () => {
  const { clock, capability, numbers } = setUp();
  const lines: string[] = [];
  const logger = { warn: (line: string) => void lines.push(line), error: (line: string) => void lines.push(line) };
  const workers = new Workers([capability], new Log(logger, clock, false));
  const called: number[] = [];
  const clerk = new Clerk("counter", (number) => {
    called.push(number);
    if (called.length === 1) throw new Error("no voice");
  });
  workers.start("ann", [clerk]);
  await numbers.takeNumber("counter");
  await expect.poll(() => lines).toEqual(["pawl: the worker had trouble: no voice"]);
  await clock.advance(60_000);
  await expect.poll(() => called).toEqual([1, 1]);
  await workers.close();
  expect(workers.isBusy).toBe(false);
});

test("closing waits for a clerk at work, and after its time leaves the number to the lease", async () => {
  const { clock, kernel, capability, numbers } = setUp();
  const { promise: said, resolve: say } = Promise.withResolvers<void>();
  const workers = new Workers([capability]);
  let isCalling = false;
  workers.start("ann", [
    new Clerk("counter", () => {
      isCalling = true;
      return said;
    }),
  ]);
  await numbers.takeNumber("counter");
  await expect.poll(() => isCalling).toBe(true);
  let isClosed = false;
  const closing = workers.close().then(() => {
    isClosed = true;
  });
  await clock.advance(4000);
  expect(isClosed).toBe(false);
  await clock.advance(2000);
  await closing;
  const [row] = await kernel.read([address("clerks", "counter")]);
  expect(row?.holder).toBe("ann");
  say();
});

test("a worker of any capability does the urgent chores of all", async () => {
  const { capability, clock, kernel } = setUp();
  const done: string[] = [];
  kernel.sweeper.add([
    {
      kind: "alarm",
      isUrgent: true,
      chore: async ({ key }) => {
        done.push(key);
        await kernel.transact((tx) => tx.record(address("alarms", key)).remove(), []);
      },
    },
  ]);
  await using _ = new Workers([capability]).start("ann", [new Clerk("counter", () => {})]);
  await kernel.transact(
    (tx) => tx.record(address("alarms", "a")).write({ value: 1, kind: "alarm", dueMs: tx.nowMs + 1000 }),
    [],
  );
  // The sweep that follows the commit comes too early for it.
  await clock.advance(999);
  expect(done).toEqual([]);
  await clock.advance(1);
  await expect.poll(() => done).toEqual(["a"]);
});

test("two queues of one kind are refused, as one would replace the other", () => {
  const { kernel } = setUp();
  expect(() => kernel.sweeper.add([{ kind: "numbers", chore: async () => {} }])).toThrow(
    'two queues have the kind "numbers"',
  );
});

test("a line that is not used any more is swept, and one that is stays", async () => {
  const { clock, kernel, numbers } = setUp();
  for (const name of ["old", "used"]) await numbers.takeNumber(name);
  await clock.advance(DAY_MS - 1);
  await numbers.takeNumber("used");
  await clock.advance(1);
  expect(await kernel.sweeper.sweep(["numbers"], 10)).toEqual({ due: 1, removed: 1 });
  expect([await numbers.takeNumber("old"), await numbers.takeNumber("used")]).toEqual([1, 3]);
});

test("ARCHITECTURE.md names the files of this walk, and they are there", () => {
  const text = readFileSync("ARCHITECTURE.md", "utf8");
  const chapter = text.slice(text.indexOf("## How to add a capability"));
  for (const file of [
    "test/capability/numbers.ts",
    "src/capabilities.ts",
    "src/kernel/capability.ts",
    "src/index.ts",
  ]) {
    expect(chapter).toContain(file);
    expect(readFileSync(file, "utf8").length).toBeGreaterThan(0);
  }
});
