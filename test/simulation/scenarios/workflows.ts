// Goal: what workflows promise, under every fault: a recorded step never runs again, and one that runs at most once not on a guess
// (G14); signal, timeout and cancel that meet come to one outcome, and everybody is told the same (G15); signals count once, in
// their order (G2); children and parents hear of each other; histories have no gaps and replay to the same outcome (G23); whoever
// lost a run writes nothing (G6); poison ends by itself (G21); once faults stop, everything ends (G25).
// Method: several workers, with and without warm code, that crash, stand still and stop in good order; clients that start the same
// runs, send the same signals again after a lost reply, and wait for the outcome. In the end each run is replayed by a stranger.

import { type Context, signal, workflow } from "../../../src/index.ts";
import type { Process, World } from "../../../src/testing/index.ts";
import { until } from "./transfers.ts";
import { insist, isService, type Place, Stage } from "./workflows-stage.ts";

const RETRY = { attempts: 50, delay: 500, maxDelay: 8_000 } as const;

const caught = (error: unknown): string => {
  if (!isService(error)) throw error;
  return "it failed";
};

// ------------------------------------------------------------------------------------------------- steps of all kinds

const ORDERS = ["o1", "o2"];

/** Which step of an order comes after which. */
const FOLLOWS = [
  ["charge", "ship"],
  ["ship", "pack"],
  ["ship", "label"],
  ["pack", "gift"],
  ["label", "gift"],
  ["gift", "fast"],
  ["gift", "slow"],
] as const;

export const orders = {
  name: "a recorded step never runs again",
  async scenario(world: World): Promise<void> {
    const stage = new Stage(world, (place) => [order(stage, place)]);
    for (const name of ["w1", "w2"]) stage.worker(name);
    stage.person("person");
    for (const name of ["c1", "c2"])
      world.process(name, async (process) => {
        if (process.random() < 0.3) stage.work(process);
        for (const id of ORDERS) await until(async () => void (await start(process, "order", id, { id })), process);
        for (const id of ORDERS) await stage.outcome(process, "order", id);
      });
    await world.finish();
    await stage.check(120_000);
    for (const step of ["ship", "gift"]) stage.checkAtMostOnce(step);
    for (const [before, step] of FOLLOWS) stage.checkAfter(step, before);
    const { value: count } = await world.open().slot<number>("orders", { initial: 0 }).get();
    world.check(count === ORDERS.length, `${count} orders were counted`);
  },
};

const start = (process: Process, name: string, id: string, input: unknown) => process.pawl.start(name, input, { id });

const order = (stage: Stage, place: Place) =>
  workflow("order", async (ctx: Context, input: { readonly id: string }) => {
    const act = (name: string) => ctx.step(name, (step) => stage.act(place, ctx.runId, name, step), { retry: RETRY });
    // So that its end and that of the sleep beside it meet.
    const slowly = (name: string, step: { readonly key: string }): Promise<string> =>
      stage.act(place, ctx.runId, name, step, place.process.random() < 0.5 ? 1_000 : 0);
    const charged = await act("charge");
    const now = ctx.now().getTime();
    const ship = await ctx.step
      .atMostOnce("ship", (step) => stage.act(place, ctx.runId, "ship", step), {
        reconcile: async () => {
          await place.process.sleep(100);
          return stage.answer(ctx.runId, "ship");
        },
      })
      .catch(caught);
    const [pack, label] = await Promise.all([
      ctx.step("pack", (step) => slowly("pack", step), { retry: RETRY }),
      act("label"),
      ctx.sleep(1_000),
    ]);
    const gift = await ctx.step.atMostOnce("gift", (step) => stage.act(place, ctx.runId, "gift", step)).catch(caught);
    const first = await Promise.race([act("fast"), act("slow"), ctx.sleep(2_000).then(() => "neither")]);
    const { version } = await ctx.slot<number>("orders", { scope: "global", initial: 0 }).update((n) => n + 1);
    await act("note");
    return {
      input,
      charged,
      now,
      ship,
      pack,
      label,
      gift,
      first,
      counted: version > 0,
      chance: ctx.random(),
      id: ctx.uuid(),
    };
  });

// ------------------------------------------------------------------------------------------------- signal, timeout and cancel

const go = signal<string>("go");
const MEETINGS = ["m1", "m2"];

export const meetings = {
  name: "signal, timeout and cancel come to one outcome",
  async scenario(world: World): Promise<void> {
    const stage = new Stage(world, (place) => [meeting(stage, place)]);
    for (const name of ["w1", "w2"]) stage.worker(name);
    stage.person("person");
    const sent = new Map<string, string>();
    world.process("starter", async (process) => {
      if (process.random() < 0.3) stage.work(process);
      for (const id of MEETINGS) await until(async () => void (await start(process, "meeting", id, { id })), process);
      for (const id of MEETINGS) await stage.outcome(process, "meeting", id);
    });
    world.process("caller", async (process) => {
      for (const id of MEETINGS) {
        await known(process, id);
        await process.sleep(process.random() * 6_000);
        sent.set(id, await insist(process, () => process.pawl.run("meeting", id).signal(go, "hello", { id: "one" })));
      }
      for (const id of MEETINGS) await stage.outcome(process, "meeting", id);
    });
    world.process("canceler", async (process) => {
      for (const id of MEETINGS) {
        await known(process, id);
        if (process.random() < 0.3) continue;
        await process.sleep(process.random() * 6_000);
        await insist(process, () => process.pawl.run("meeting", id).cancel({ reason: "enough" }));
      }
      for (const id of MEETINGS) await stage.outcome(process, "meeting", id);
    });
    await world.finish();
    await stage.check(90_000);
    for (const id of MEETINGS) {
      const [outcome = ""] = stage.told.get(id) ?? [];
      // Canceled before it began is the only end at which it has not asked for the signal.
      if (outcome.startsWith("run_canceled")) continue;
      world.check(sent.get(id) === "yes", `${id} ended with ${outcome}, and its signal was refused`);
      world.check(/"hello"/.test(outcome), `${id} ended with ${outcome} and never heard its signal`);
    }
  },
};

/** Waits until the run has been started. */
async function known(process: Process, id: string): Promise<void> {
  for (;;) {
    let isKnown = false;
    await until(async () => {
      isKnown = (await process.pawl.runs.list({ prefix: id })).runs.length > 0;
    }, process);
    if (isKnown) return;
    await process.sleep(300);
  }
}

/** However the first wait ends, the signal is received exactly once: then, or by the wait after it. */
const meeting = (stage: Stage, place: Place) =>
  workflow("meeting", async (ctx: Context, input: { readonly id: string }) => {
    const heard: unknown[] = [];
    const act = (name: string) => ctx.step(name, (step) => stage.act(place, ctx.runId, name, step), { retry: RETRY });
    try {
      heard.push(await act("prepare"));
      const answer = await ctx.waitForSignal(go, { timeout: 3_000 });
      heard.push(answer);
      heard.push(await act("go on"));
    } catch (error) {
      heard.push(error instanceof Error ? error.message : error);
      heard.push(await act("clean up"));
    }
    if (!heard.some((one) => typeof one === "object" && one !== null && "ok" in one && one.ok === true))
      try {
        heard.push(await ctx.waitForSignal(go));
      } catch (error) {
        heard.push(error instanceof Error ? error.message : error);
        heard.push(await ctx.waitForSignal(go));
      }
    await act("leave").then(
      (value) => heard.push(value),
      (error: unknown) => heard.push(error instanceof Error ? error.message : error),
    );
    return { input, heard };
  });

// ------------------------------------------------------------------------------------------------- signals in their order

const letter = signal<string>("letter");
const card = signal<string>("card");
const SENDERS = ["s1", "s2"];
const LETTERS = 3;

export const letters = {
  name: "signals are received once, in their order",
  async scenario(world: World): Promise<void> {
    const stage = new Stage(world, (place) => [reader(stage, place)]);
    for (const name of ["w1", "w2"]) stage.worker(name);
    stage.person("person");
    for (const name of SENDERS)
      world.process(name, async (process) => {
        if (process.random() < 0.3) stage.work(process);
        const run = process.pawl.run("reader", "r");
        await until(async () => void (await start(process, "reader", "r", {})), process);
        for (let i = 0; i < LETTERS; i++) {
          const sent = await insist(process, () => run.signal(letter, `${name} ${i}`, { id: `${name} ${i}` }));
          world.check(sent === "yes", `letter ${name} ${i} was refused`);
          if (process.random() < 0.5) await process.sleep(process.random() * 3_000);
        }
        await insist(process, () => run.signal(card, name, { id: name }));
        await stage.outcome(process, "reader", "r");
      });
    await world.finish();
    await stage.check(90_000);
    const [outcome = ""] = stage.told.get("r") ?? [];
    const { read } = JSON.parse(outcome.replace("completed ", "")) as { read: readonly string[] };
    for (const name of SENDERS) {
      const own = read.filter((text) => text.startsWith(name));
      const should = Array.from({ length: LETTERS }, (_, i) => `${name} ${i}`);
      world.check(own.join() === should.join(), `of ${name} it read ${own.join(", ")}`);
    }
  },
};

const reader = (stage: Stage, place: Place) =>
  workflow("reader", async (ctx: Context) => {
    const read: string[] = [];
    const cards = Promise.all([ctx.waitForSignal(card), ctx.waitForSignal(card)]);
    while (read.length < SENDERS.length * LETTERS) {
      const received = await ctx.waitForSignal(letter, { timeout: 2_000 });
      if (received.ok) read.push(received.value);
      if (read.length % 2 === 1)
        await ctx.step("reply", (step) => stage.act(place, ctx.runId, step.key, step), { retry: RETRY });
    }
    return { read, cards: (await cards).map(({ value }) => value) };
  });

// ------------------------------------------------------------------------------------------------- parents and children

export const families = {
  name: "parents and children are notified of each other",
  // A row of a run that was lost was kept for ever, and its end was not looked for. A parked run that was taken over while it was ended was trouble.
  regressions: [73, 142],
  async scenario(world: World): Promise<void> {
    const stage = new Stage(world, (place) => [parent(stage, place), child(stage, place)]);
    for (const name of ["w1", "w2"]) stage.worker(name);
    stage.person("person");
    const PARENTS = ["p1", "p2"];
    for (const name of ["c1", "c2"])
      world.process(name, async (process) => {
        if (process.random() < 0.3) stage.work(process);
        for (const id of PARENTS) await until(async () => void (await start(process, "parent", id, {})), process);
        if (name === "c2" && process.random() < 0.7) {
          await process.sleep(process.random() * 6_000);
          await insist(process, () => process.pawl.run("parent", "p2").cancel());
        }
        for (const id of PARENTS) await stage.outcome(process, "parent", id);
        // Whatever the outcome of the parents, the children end.
        for (const id of PARENTS)
          for (const { id: run } of await childrenOf(process, id)) await stage.outcome(process, "child", run);
      });
    await world.finish();
    await stage.check(120_000);
    const [outcome] = stage.told.get("p1") ?? [];
    world.check(outcome?.startsWith("completed") === true, `p1 ended with ${outcome}`);
    const { value: count } = await world.open().slot<number>("born", { initial: 0 }).get();
    const begun = [...stage.told].filter(([id, [how]]) => id.startsWith("p1/") && how?.startsWith("completed"));
    world.check(count >= begun.length, `${begun.length} children ended, and ${count} were counted`);
  },
};

async function childrenOf(process: Process, parent: string) {
  let found: readonly { readonly id: string }[] = [];
  await until(async () => {
    found = (await process.pawl.runs.list({ prefix: `${parent}/`, order: "id" })).runs;
  }, process);
  return found;
}

const parent = (stage: Stage, place: Place) =>
  workflow("parent", async (ctx: Context) => {
    const one = child(stage, place);
    const all = await Promise.all([
      ctx.call(one, { name: "a", ms: 500 }),
      ctx.call(one, { name: "b", ms: 3_000 }),
      ctx.step("beside", (step) => stage.act(place, ctx.runId, "beside", step), { retry: RETRY }),
    ]);
    // The loser of the race lives on until its parent ends, and ends with it.
    const first = await Promise.race([
      ctx.call(one, { name: "c", ms: 200 }),
      ctx.call(one, { name: "d", ms: 600_000 }),
    ]);
    const left = await ctx.start(one, { name: "e", ms: 1_000 });
    const failed = await ctx
      .call(one, { name: "fails", ms: 0 })
      .catch((error: unknown) =>
        error instanceof Error && error.message === "as it was told" ? error.message : Promise.reject(error),
      );
    return { all, first, left, failed };
  });

const child = (stage: Stage, place: Place) =>
  workflow("child", async (ctx: Context, { name, ms }: { readonly name: string; readonly ms: number }) => {
    const done = await ctx.step("work", (step) => stage.act(place, ctx.runId, "work", step), { retry: RETRY });
    if (name === "fails") throw new Error("as it was told");
    await ctx.sleep(ms);
    await ctx.slot<number>("born", { scope: "global", initial: 0 }).update((n) => n + 1);
    return `${name}: ${done}`;
  });

// ------------------------------------------------------------------------------------------------- runs that are poison

const GOOD = ["good-1", "good-2", "good-3"];
const TRIES = 3;

/** The outcome of each kind of poison. */
const POISON = {
  "never settles": /^run_failed .*took longer than/,
  "waits for something foreign": /^parked: .*not an operation of ctx/,
  "crashes when it begins": /^parked: .*claimed \d+ times without getting anywhere/,
  "crashes in a step": /^parked: .*claimed \d+ times without getting anywhere/,
  "throws at once": /^run_failed .*as it does/,
  "throws what cannot be stored": /^run_failed .*something that cannot be stored/,
  "gives what cannot be stored": /^run_failed .*symbol/i,
  "has a step that gives what cannot be stored": /^completed "caught"$/,
} as const;

/** Whatever it does, its process may die under it each time, because of a fault or of other poison. */
const IN_VAIN = /^parked: it was claimed \d+ times without getting anywhere$/;

type Poison = keyof typeof POISON;

const KINDS = Object.keys(POISON) as readonly Poison[];

const isPoison = (name: string): name is Poison => Object.hasOwn(POISON, name);

export const poison = {
  name: "poison ends by itself, and harms no other run",
  async scenario(world: World): Promise<void> {
    const workflows = (place: Place) => [good(stage, place), poisonous(stage, place)];
    const stage = new Stage(world, workflows, {
      parks: (run) => (isPoison(run) ? /not an operation of ctx|without getting anywhere/ : undefined),
    });
    for (const name of ["w1", "w2"]) stage.worker(name);
    stage.person("person");
    for (const name of ["c1", "c2"])
      world.process(name, async (process) => {
        if (process.random() < 0.2) stage.work(process);
        const runs = [...GOOD.map((id) => ["good", id] as const), ...KINDS.map((id) => ["poisonous", id] as const)];
        // In an order of its own each time, so that anything may be beside anything.
        const order = runs.map((run) => ({ run, at: process.random() })).sort((a, b) => a.at - b.at);
        for (const { run } of order)
          await until(async () => void (await start(process, run[0], run[1], run[1])), process);
        for (const [workflow, id] of runs) await stage.outcome(process, workflow, id);
      });
    await world.finish();
    await stage.check(240_000);
    for (const id of GOOD) {
      const [outcome] = stage.told.get(id) ?? [];
      world.check(outcome === 'completed ["first done","second done"]', `${id} ended with ${outcome}`);
    }
    for (const id of KINDS) {
      const [outcome = ""] = stage.told.get(id) ?? [];
      world.check(POISON[id].test(outcome) || IN_VAIN.test(outcome), `what ${id} ended with ${outcome}`);
    }
    // A result that cannot be stored was computed; its caller does not retry.
    stage.checkOncePerClaim("unstorable");
  },
};

const good = (stage: Stage, place: Place) =>
  workflow("good", async (ctx: Context) => {
    const first = await ctx.step("first", (step) => stage.act(place, ctx.runId, "first", step), { retry: RETRY });
    await ctx.sleep(1_000);
    const second = await ctx.step("second", (step) => stage.act(place, ctx.runId, "second", step), { retry: RETRY });
    return [first, second];
  });

const never = (): Promise<never> => new Promise(() => {});

/** Without where it was made: that is another place each time that a seed runs. */
const told = (error: unknown): never => {
  throw new Error(error instanceof Error ? error.message : String(error));
};

const poisonous = (stage: Stage, place: Place) =>
  workflow<Poison, unknown>({ name: "poisonous", tries: TRIES }, async (ctx, kind) => {
    switch (kind) {
      case "never settles":
        return ctx.step("hang", never, { timeout: 4_000, retry: { attempts: 2, delay: 500 } }).catch(told);
      case "waits for something foreign":
        return never();
      case "crashes when it begins":
        place.crash();
        return never();
      case "crashes in a step":
        return ctx.step("crash", () => {
          place.crash();
          return never();
        });
      case "throws at once":
        throw new Error("as it does");
      case "throws what cannot be stored":
        throw Symbol("poison");
      case "gives what cannot be stored":
        return Symbol("poison");
      case "has a step that gives what cannot be stored":
        return ctx
          .step("unstorable", async (step) => {
            await stage.act(place, ctx.runId, "unstorable", step).catch(caught);
            return Symbol("poison");
          })
          .catch(() => "caught");
    }
  });
