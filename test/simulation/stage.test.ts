// Goal: each check that all scenarios of workflows share can fail.
// Method: a calm world with one run, in which something is wrong on purpose: the code, the ledger, what people were told, or what the
// store shows. Without a lie, everything passes.

import { describe, expect, test } from "vitest";
import { type Context, workflow } from "../../src/index.ts";
import { type SimulateOptions, simulate, type World } from "../../src/testing/index.ts";
import { type Place, Stage } from "./scenarios/workflows-stage.ts";

interface Lie {
  readonly rule: string;
  readonly says: string;
  readonly options?: SimulateOptions;
  /** What the run does in the end. */
  readonly code?: (ctx: Context, place: Place, stage: Stage) => unknown;
  /** Before the processes run. */
  readonly before?: (world: World, stage: Stage) => void;
  /** After they ran, and before the check. */
  readonly after?: (world: World, stage: Stage) => void | Promise<void>;
}

const never = (): Promise<never> => new Promise(() => {});

const isStranger = (place: Place): boolean => place.by() === "stranger";

/** Changes the commit that has this fact as if it had been made at another time. */
function redate(world: World, fact: string, nowMs: number): void {
  const { commits } = world.database;
  const index = commits.findIndex(({ puts }) =>
    puts.some(({ entries }) => entries.some(({ name }) => name.startsWith(fact))),
  );
  const commit = commits[index];
  if (commit !== undefined) commits[index] = { ...commit, nowMs };
}

const first = (stage: Stage): Stage["begun"][number] => {
  const [begun] = stage.begun;
  if (begun === undefined) throw new Error("no step was begun");
  return begun;
};

const lies: readonly Lie[] = [
  {
    rule: "a run whose end is noticed long after healing",
    says: "ms after healing",
    options: { faultsMs: 1 },
    before: (world, stage) =>
      world.process("late", async (process) => {
        await process.sleep(100_000);
        await stage.outcome(process, "one", "r");
      }),
  },
  {
    rule: "a run of which two callers got different results",
    says: "of r some were told",
    after: (_, stage) => void stage.told.get("r")?.add("something else"),
  },
  {
    rule: "a step that has another key the second time",
    says: "was begun under two keys",
    after: (_, stage) => void stage.begun.push({ ...first(stage), key: "another" }),
  },
  {
    rule: "two steps of one key",
    says: "two steps had the same key",
    after: (_, stage) => void stage.begun.push({ ...first(stage), step: "another" }),
  },
  {
    rule: "a step that is begun by a worker that claimed the run after its record",
    says: "was begun by a worker that claimed it after its record",
    after: (world, stage) => void stage.begun.push({ ...first(stage), at: world.database.moment }),
  },
  {
    rule: "a step that runs at most once and ran twice",
    says: "was begun 2 times, with 0 noes",
    after: (_, stage) => {
      stage.begun.push(first(stage));
      stage.checkAtMostOnce("act");
    },
  },
  {
    rule: "a step that was begun twice in one claim",
    says: "was begun 3 times in 2 claims",
    after: (_, stage) => {
      stage.begun.push(first(stage), first(stage));
      stage.checkOncePerClaim("act");
    },
  },
  {
    rule: "a step that was begun before the one before it was recorded",
    says: "was begun before step earlier was recorded",
    after: (_, stage) => stage.checkAfter("act", "earlier"),
  },
  {
    rule: "a timer that fired early",
    says: '"woke 1" was written',
    after: (world) => redate(world, "woke", 0),
  },
  {
    rule: "a run that did not end",
    says: "other is pending in the end",
    after: async (world) => {
      await world.open().start("one", undefined, { id: "other", delay: "1 day" });
    },
  },
  {
    rule: "a history with a gap",
    says: "r: its history has a gap",
    after: (world) => {
      const { memory } = world.database;
      const connect = memory.connect.bind(memory);
      memory.connect = (namespace) => {
        const store = connect(namespace);
        const entries = store.entries.bind(store);
        store.entries = async (...asked) => (await entries(...asked)).filter(({ version }) => version !== 2);
        return store;
      };
    },
  },
  {
    rule: "a run that ends otherwise at replay",
    says: "and at replay",
    code: (_, place) => isStranger(place),
  },
  {
    rule: "a run that waits at replay",
    says: "at replay, r had run.rested",
    code: (ctx, place) => (isStranger(place) ? ctx.sleep(1) : null),
  },
  {
    rule: "a run that contradicts its history",
    says: "at replay, r had run.trouble",
    code: (ctx, place) => ctx.step(isStranger(place) ? "other" : "last", () => 1),
  },
  {
    rule: "a run that does something at replay",
    says: 'at replay {"run":"r","step":"again"',
    code: (ctx, place, stage) =>
      isStranger(place) ? ctx.step("again", (step) => stage.act(place, "r", "again", step).catch(() => null)) : null,
  },
  {
    rule: "a run in trouble that is not the store's",
    says: "run r was in trouble: RunStuckError",
    code: never,
  },
  {
    rule: "a run that is parked for an unknown reason",
    says: 'odd parked: run "odd" awaits something',
    before: (world) =>
      // A worker of which the stage hears nothing.
      world.process("silent", async ({ pawl, sleep }) => {
        pawl.work([workflow({ name: "odd", tries: 1 }, never)]);
        await pawl.start("odd", undefined, { id: "odd" });
        await sleep(60_000);
      }),
  },
];

/** One run that does something, sleeps, and is taken up anew. */
async function play(world: World, lie: Partial<Lie>): Promise<void> {
  const one = (place: Place) =>
    workflow("one", async (ctx: Context) => {
      await ctx.step("act", (step) => stage.act(place, ctx.runId, "act", step));
      await ctx.sleep(1_000);
      return lie.code?.(ctx, place, stage);
    });
  const stage = new Stage(world, (place) => [one(place)]);
  stage.worker("w");
  stage.person("person");
  lie.before?.(world, stage);
  world.process("client", async (process) => {
    await process.sleep(1);
    await process.pawl.start("one", undefined, { id: "r" });
    await stage.outcome(process, "one", "r");
  });
  await world.finish();
  await lie.after?.(world, stage);
  await stage.check(10_000);
}

describe("what is wrong is found", () => {
  test.each(lies)("$rule", async (lie) => {
    const played = simulate(lie.rule, { calm: true, seeds: 1, ...lie.options }, (world) => play(world, lie));
    await expect(played).rejects.toThrow(lie.says);
  });
});

test("what is right passes", async () => {
  await simulate("no lie", { calm: true, seeds: 3 }, (world) => play(world, {}));
});
