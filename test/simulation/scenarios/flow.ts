// Goal: admission, under every fault: no limit ever has more runs than its maximum, no run waits in line that could be admitted, and none that ended holds a
// place (G30); runs in line begin in their order; every start that was accepted ends. Of starts that are collected, each input is in exactly one run, which
// is the one that its caller was told (G2).
// Method: several workers that crash, stand still and stop; clients that start the same runs again after a lost reply, cancel some, and let some expire. What
// is stored is checked after every commit. Batches and debounced starts get ids, and the inputs of all runs are compared with them in the end.

import { type Context, workflow } from "../../../src/index.ts";
import { keyText, type Row } from "../../../src/kernel/contract.ts";
import type { Process, World } from "../../../src/testing/index.ts";
import { storedIn, wrongIn } from "../../flow/checker.ts";
import { until } from "./transfers.ts";
import { insist, type Place, Stage } from "./workflows-stage.ts";

const RETRY = { attempts: 50, delay: 500, maxDelay: 8_000 } as const;
/** The tenant and the region of each: limits by one and by the other overlap, and some lines are long. */
const JOBS = { j0: "a x", j1: "a x", j2: "a x", j3: "a x", j4: "b x", j5: "b y", j6: "a y" } as const;
const IDS = Object.keys(JOBS) as (keyof typeof JOBS)[];

interface Job {
  readonly tenant: string;
  readonly region: string;
}

function jobOf(id: keyof typeof JOBS): Job {
  const [tenant = "", region = ""] = JOBS[id].split(" ");
  return { tenant, region };
}

export const admissions = {
  name: "limits are kept, and no run waits that could be admitted",
  async scenario(world: World): Promise<void> {
    const stage = new Stage(world, (place) => [job(stage, place)]);
    for (const name of ["w1", "w2"]) stage.worker(name);
    stage.person("person");
    for (const name of ["c1", "c2"])
      world.process(name, async (process) => {
        if (process.random() < 0.3) stage.work(process);
        for (const id of IDS) await until(async () => void (await start(process, id)), process);
        if (name === "c2" && process.random() < 0.7)
          for (const id of IDS.filter(() => process.random() < 0.4)) {
            await process.sleep(process.random() * 3_000);
            await insist(process, () => process.pawl.run("job", id).cancel());
          }
        for (const id of IDS) await stage.outcome(process, "job", id);
      });
    await world.finish();
    await stage.check(180_000);
    checkPlaces(world);
  },
};

/** By name, as a service without the code does, or with the definition; some may expire. */
async function start(process: Process, id: keyof typeof JOBS): Promise<void> {
  const isByName = Number(id.slice(1)) % 2 === 0;
  const options = { id, priority: id === "j6" ? 1 : 0, ...(id === "j3" ? { ttl: 1_000 } : {}) };
  if (isByName) await process.pawl.start("job", jobOf(id), options);
  else await process.pawl.start(definition, jobOf(id), options);
}

const OPTIONS = {
  name: "job",
  concurrency: [
    { max: 1, key: ({ tenant }: Job) => tenant, name: "tenant" },
    { max: 1, key: ({ region }: Job) => region, name: "region" },
  ],
};

/** For those who only start it. */
const definition = workflow<Job>(OPTIONS, async () => {});

const job = (stage: Stage, place: Place) =>
  workflow<Job>(OPTIONS, async (ctx: Context) => {
    const act = (name: string) => ctx.step(name, (step) => stage.act(place, ctx.runId, name, step), { retry: RETRY });
    const first = await act("first");
    await ctx.sleep(500);
    return [first, await act("second")];
  });

/** What is stored is right after every commit. */
function checkPlaces(world: World): void {
  const { kernel } = world.open();
  const rows = new Map<string, Row>();
  for (const [index, { puts }] of world.database.commits.entries()) {
    let isOfInterest = false;
    for (const { row } of puts) {
      rows.set(keyText(row), row);
      isOfInterest ||= row.space === "run" || row.space === "line" || row.space.startsWith("limit");
    }
    if (!isOfInterest) continue;
    const wrong = wrongIn(storedIn(kernel, rows.values()));
    world.check(wrong.length === 0, `after commit ${index}: ${wrong.join("; ")}`);
  }
}

// ------------------------------------------------------------------------------------------------- collected starts

const ITEMS = 4;

export const collections = {
  name: "each start that is collected is in one run",
  async scenario(world: World): Promise<void> {
    const batches = new Map<string, readonly string[]>();
    const stage = new Stage(world, (place) => [batch(stage, place, batches), index(stage, place)]);
    for (const name of ["w1", "w2"]) stage.worker(name);
    stage.person("person");
    /** The run that each caller was told. */
    const told = new Map<string, string>();
    for (const name of ["c1", "c2", "c3"])
      world.process(name, async (process) => {
        if (process.random() < 0.3) stage.work(process);
        // The third repeats what the first does.
        const own = name === "c3" ? "c1" : name;
        for (let n = 0; n < ITEMS; n++) {
          const item = `${own} ${n}`;
          await until(async () => {
            const { id } = await process.pawl.start(batchDefinition, item, { id: item });
            world.check((told.get(item) ?? id) === id, `of ${item} some were told ${told.get(item)} and others ${id}`);
            told.set(item, id);
          }, process);
          await until(async () => {
            const { id } = await process.pawl.start(indexDefinition, item, { id: item });
            told.set(`index ${item}`, id);
          }, process);
          if (process.random() < 0.5) await process.sleep(process.random() * 1_500);
        }
        for (const [item, id] of [...told])
          await stage.outcome(process, item.startsWith("index") ? "index" : "batch", id);
      });
    await world.finish();
    await stage.check(180_000);
    const taken = new Map<string, string>();
    for (const [run, items] of batches)
      for (const item of items) {
        world.check(!taken.has(item), `${item} is in ${taken.get(item)} and in ${run}`);
        world.check(told.get(item) === run, `${item} is in ${run}, and its caller was told ${told.get(item)}`);
        taken.set(item, run);
      }
    for (const item of told.keys()) if (!item.startsWith("index")) world.check(taken.has(item), `${item} is in no run`);
  },
};

const BATCH = { name: "batch", batch: { size: 3, maxWait: 1_000 } } as const;
const INDEX = { name: "index", debounce: { period: 800, maxWait: 3_000 } } as const;

const batchDefinition = workflow<string>(BATCH, async () => {});
const indexDefinition = workflow<string>(INDEX, async () => {});

const batch = (stage: Stage, place: Place, batches: Map<string, readonly string[]>) =>
  workflow<string>(BATCH, async (ctx, items) => {
    batches.set(ctx.runId, items);
    await ctx.step("insert", (step) => stage.act(place, ctx.runId, "insert", step), { retry: RETRY });
    return items.length;
  });

const index = (stage: Stage, place: Place) =>
  workflow<string>(INDEX, async (ctx) => {
    await ctx.step("index", (step) => stage.act(place, ctx.runId, "index", step), { retry: RETRY });
  });
