// Goal: the simulator itself does what its users rely on.

import { expect, test } from "vitest";
import { address } from "../../src/kernel/contract.ts";
import { History, isLinearizable, SimulationError, simulate } from "../../src/testing/index.ts";
import { register } from "./scenarios/register.ts";

test("a seed that breaks is named, with its faults, its trace and how to run it again", async () => {
  const broken = simulate("three in a row", { seeds: 50, crash: 0.3 }, async (world) => {
    let lives = 0;
    world.process("p", async ({ pawl }) => {
      lives += 1;
      await pawl.slot<number>("n", { initial: 0 }).update((n) => n + 1);
      world.check(lives < 3, "it started three times");
    });
    await world.finish();
  });
  const error = await broken.catch((caught: unknown) => caught);
  expect(error).toBeInstanceOf(SimulationError);
  const { message, seed } = error as SimulationError;
  expect(message).toContain(`"three in a row" broke under seed ${seed}: it started three times`);
  expect(message).toContain("crash 0.300");
  expect(message).toMatch(/p#\d+ commit: reply/);
  expect(message).toContain(`PAWL_SEED=${seed}`);
});

test("code that takes its time from the machine is found", async () => {
  const ambient = simulate("ambient", { seeds: 1 }, async (world) => {
    world.process("p", async ({ pawl }) => {
      await pawl.slot<number>("n").set(Date.now());
    });
    await world.finish();
  });
  await expect(ambient).rejects.toThrow(/Date\.now\(\) called .*simulator\.test\.ts/);
});

test("code that goes another way the second time is found", async () => {
  let runs = 0;
  const fickle = simulate("fickle", { seeds: 1, calm: true }, async (world) => {
    runs += 1;
    const times = runs;
    world.process("p", async ({ pawl }) => {
      for (let i = 0; i < times; i++) await pawl.slot<number>("n").set(i);
    });
    await world.finish();
  });
  await expect(fickle).rejects.toThrow("two executions of the seed differ");
});

test("a crash is silence: no finally runs", async () => {
  let cleanedUp = 0;
  const report = await simulate("silence", { seeds: 20, calm: true, crash: 0.2 }, async (world) => {
    let lives = 0;
    let ends = 0;
    world.process("p", async ({ pawl }) => {
      lives += 1;
      try {
        await pawl.slot<number>("n", { initial: 0 }).update((n) => n + 1);
      } finally {
        ends += 1;
      }
    });
    await world.finish();
    cleanedUp += ends;
    world.check(ends === 1, `${ends} of ${lives} lives cleaned up`);
  });
  expect(report.struck.crash).toBeGreaterThan(0);
  expect(cleanedUp).toBe(40);
});

test("what does not end after healing is named", async () => {
  const stuck = simulate("stuck", { seeds: 1 }, async (world) => {
    world.process("sleeper", () => new Promise(() => {}));
    await world.finish();
  });
  await expect(stuck).rejects.toThrow("these did not come to an end: sleeper");
});

test("calm means that nothing strikes", async () => {
  const report = await simulate("calm", { seeds: 20, calm: true }, async (world) => {
    world.process("p", async ({ pawl }) => void (await pawl.slot<number>("n").set(1)));
    await world.finish();
  });
  expect(Object.values(report.struck).every((count) => count === 0)).toBe(true);
});

test("a rewind takes back the last commits with their logs, and the world knows which", async () => {
  const at = address("test", "counter");
  let lost = 0;
  const options = { seeds: 50, calm: true, rewind: 0.1, reorder: 0.5 };
  const report = await simulate("rewinds", options, async (world) => {
    world.process("p", async ({ pawl }) => {
      for (let i = 0; i < 30; i++)
        await pawl.kernel.transact(
          (tx) => {
            const record = tx.record(at);
            record.write({ value: Number(record.value ?? 0) + 1 });
            record.append("counted", i);
          },
          [at],
        );
    });
    await world.finish();
    const { commits, rewinds, moment } = world.database;
    const { kernel } = world.open();
    const [row] = await kernel.read([at]);
    const entries = await kernel.entries(at, 0, 100);
    world.check(entries.length === commits.length, `${entries.length} entries, ${commits.length} commits`);
    world.check(row?.value === String(commits.length) && row.head === commits.length, `${row?.value}, ${row?.head}`);
    world.check(world.database.commitsAt(moment).length === commits.length, "now is not what it is");
    for (const [index, { to, lost: gone }] of rewinds.entries()) {
      const before = world.database.commitsAt({ rewinds: index, commits: Number.POSITIVE_INFINITY });
      world.check(
        before.length === to + gone.length && before.at(-1) === gone.at(-1),
        "a lost history is not as it was",
      );
      lost += gone.length;
    }
    const all = commits.length + rewinds.reduce((sum, rewind) => sum + rewind.lost.length, 0);
    world.check(all === 30, `${all} commits were made of 30`);
  });
  expect(report.struck.rewind).toBeGreaterThan(50);
  expect(lost).toBeGreaterThan(200);
});

test("no seed draws a rewind by itself", async () => {
  const report = await simulate("all faults", { seeds: 30 }, async (world) => {
    world.process("p", async ({ pawl }) => void (await pawl.slot<number>("n").set(1)));
    await world.finish();
  });
  expect(report.struck.rewind).toBe(0);
});

const histories = [
  {
    law: "an answer that nothing explains is refused",
    isFine: false,
    run(history: History<{ op: "get" } | { op: "set"; value: number }, unknown>) {
      history.end(history.begin({ op: "set", value: 1 }), { version: 1 });
      history.end(history.begin({ op: "get" }), { value: 0, version: 0 });
    },
  },
  {
    law: "what overlaps may come in either order",
    isFine: true,
    run(history: History<{ op: "get" } | { op: "set"; value: number }, unknown>) {
      const set = history.begin({ op: "set", value: 1 });
      history.end(history.begin({ op: "get" }), { value: 0, version: 0 });
      history.end(set, { version: 1 });
    },
  },
  {
    law: "an unknown one may have happened",
    isFine: true,
    run(history: History<{ op: "get" } | { op: "set"; value: number }, unknown>) {
      history.begin({ op: "set", value: 1 });
      history.end(history.begin({ op: "get" }), { value: 1, version: 1 });
    },
  },
  {
    law: "an unknown one may not have happened",
    isFine: true,
    run(history: History<{ op: "get" } | { op: "set"; value: number }, unknown>) {
      history.begin({ op: "set", value: 1 });
      history.end(history.begin({ op: "get" }), { value: 0, version: 0 });
    },
  },
  {
    law: "a refused one must not have happened",
    isFine: false,
    run(history: History<{ op: "get" } | { op: "set"; value: number }, unknown>) {
      history.refused(history.begin({ op: "set", value: 1 }));
      history.end(history.begin({ op: "get" }), { value: 1, version: 1 });
    },
  },
];

for (const { law, isFine, run } of histories)
  test(`linearizability: ${law}`, () => {
    const history = new History<{ op: "get" } | { op: "set"; value: number }, unknown>();
    run(history);
    expect(isLinearizable(history.operations, register)).toBe(isFine);
  });
