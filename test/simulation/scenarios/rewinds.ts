// Goal: when the store loses its last commits, as by the promotion of a standby that was behind or by a restore, nothing that is acknowledged
// afterwards is overwritten by what a process remembers from before; runs resume from the history that is there, and keep it whole
// (G31).
// Method: the store goes back by up to twelve commits, again and again, under processes that live on with the rows, claims and code they
// remember. The world knows which commits were lost. Every acknowledgement is compared with those that were not.

import { type Context, FencedError, PawlError, StoreError, signal, workflow } from "../../../src/index.ts";
import { startWorker } from "../../../src/kernel/claim/worker.ts";
import { address } from "../../../src/kernel/contract.ts";
import type { Tx } from "../../../src/kernel/decision.ts";
import type { Kernel } from "../../../src/kernel/kernel.ts";
import { checkCommits } from "../../../src/testing/checkers/commits.ts";
import type { Process, World } from "../../../src/testing/index.ts";
import type { Commit, Moment } from "../../../src/testing/sim/database.ts";
import { until } from "./transfers.ts";
import { type Place, Stage } from "./workflows-stage.ts";

/** How often a call to the store finds that commits were lost: often enough that a seed has several losses. */
const REWINDS = { rewind: 0.05, faultsMs: 60_000 };

// ------------------------------------------------------------------------------------------------- lists

const LISTS = ["a", "b", "c"];
const OPERATIONS = 10;

type List = readonly string[];

interface Acknowledged {
  readonly token: string;
  readonly lists: readonly string[];
  /** When it was asked for. */
  readonly asked: Moment;
}

/** Each process appends tokens of its own: to one list, to two in one commit, or once for each message. */
export const rewoundLists = {
  name: "what is acknowledged after a rewind is not overwritten",
  options: REWINDS,
  async scenario(world: World): Promise<void> {
    const acknowledged: Acknowledged[] = [];
    for (const name of ["p", "q", "r"]) {
      let made = 0;
      world.process(name, async (process) => {
        while (made < OPERATIONS) {
          made += 1;
          await append(world, process, `${name}${made}`, acknowledged);
          if (process.random() < 0.2) await process.sleep(process.random() * 2_000);
        }
      });
    }
    await world.finish();
    await checkLists(world, acknowledged);
    checkCommits(world);
  },
};

async function append(world: World, process: Process, token: string, acknowledged: Acknowledged[]): Promise<void> {
  const { pawl, random } = process;
  const kind = random();
  const lists = kind < 0.4 ? pick(random, 1) : kind < 0.6 ? pick(random, 2) : pick(random, 1);
  const slots = lists.map((list) => pawl.slot<List>(list, { initial: [] }));
  const add = (list: List): List => [...list, token];
  const addAll = (tx: { slot(slot: (typeof slots)[number]): { update(change: typeof add): unknown } }): void => {
    for (const slot of slots) tx.slot(slot).update(add);
  };
  const asked = world.database.moment;
  // Repeating is safe for a message only, so the others take the first answer that they get.
  const isMessage = kind >= 0.6;
  for (;;) {
    try {
      if (isMessage) await pawl.dedupe("lists", token, addAll);
      else if (slots.length > 1) await pawl.transact(addAll, { touches: slots });
      else await slots[0]?.update(add);
      acknowledged.push({ token, lists, asked });
      if (!isMessage || random() < 0.7) return;
    } catch (error) {
      if (!(error instanceof StoreError)) throw error;
      if (!isMessage) return;
      await process.sleep(200);
    }
  }
}

function pick(random: () => number, count: number): readonly string[] {
  const first = Math.floor(random() * LISTS.length);
  return Array.from({ length: count }, (_, i) => LISTS[(first + i) % LISTS.length] ?? "");
}

/** The tokens that a commit added to each list. */
function* added({ puts }: Commit): Generator<{ readonly list: string; readonly token: string }> {
  const parse = (text: string | null | undefined): List => (text == null ? [] : (JSON.parse(text) as List));
  for (const { was, row } of puts) {
    if (row.space !== "slot") continue;
    const before = new Set(parse(was?.value));
    for (const token of parse(row.value)) if (!before.has(token)) yield { list: row.key, token };
  }
}

async function checkLists(world: World, acknowledged: readonly Acknowledged[]): Promise<void> {
  const { commits, rewinds } = world.database;
  const kept = new Map(LISTS.map((list) => [list, [] as string[]]));
  for (const commit of commits) for (const { list, token } of added(commit)) kept.get(list)?.push(token);
  const lost = new Set<string>();
  for (const rewind of rewinds)
    for (const commit of rewind.lost) for (const { list, token } of added(commit)) lost.add(`${list} ${token}`);
  const pawl = world.open();
  for (const list of LISTS) {
    const { value } = await pawl.slot<List>(list, { initial: [] }).get();
    for (const token of kept.get(list) ?? [])
      world.check(
        value.includes(token),
        `${token} was committed to ${list} after the last rewind that could lose it, and is gone`,
      );
    world.check(
      value.join() === kept.get(list)?.join(),
      `${list} is ${value.join()}, and ${kept.get(list)?.join()} was committed`,
    );
  }
  for (const { token, lists, asked } of acknowledged)
    for (const list of lists) {
      const isKept = kept.get(list)?.includes(token) === true;
      world.check(isKept || lost.has(`${list} ${token}`), `${token} was acknowledged and never committed to ${list}`);
      world.check(
        isKept || asked.rewinds < rewinds.length,
        `${token} was asked for after the last rewind and is not in ${list}`,
      );
    }
}

// ------------------------------------------------------------------------------------------------- claims

const LEASE_MS = 10_000;
const KIND = "rewound";
const JOBS = ["j0", "j1", "j2"];
const STEPS = 4;

const at = (name: string) => address("rewound", name);

/** A holder appends to a job what it does; a job that is lost is made again. */
export const rewoundClaims = {
  name: "a holder writes only what it holds after a rewind",
  options: REWINDS,
  async scenario(world: World): Promise<void> {
    const acknowledged = new Map<string, Moment>();
    let marks = 0;
    for (const name of ["w1", "w2"])
      world.process(
        name,
        async ({ pawl, incarnation, random, sleep }) => {
          const by = `${name}#${incarnation}`;
          startWorker(pawl.kernel, {
            chores: [],
            kinds: [KIND],
            by,
            leaseMs: LEASE_MS,
            concurrency: 2,
            work: async (held) => {
              for (;;) {
                const mark = `mark ${++marks}`;
                const asked = world.database.moment;
                const left = await held.commit((record) => {
                  const steps = Number(record.value) + 1;
                  record.append("step", { by, mark, steps });
                  record.write({ value: steps });
                  return STEPS - steps;
                });
                acknowledged.set(mark, asked);
                if (random() < 0.3) await sleep(random() * 2 * LEASE_MS);
                if (left <= 0) break;
              }
              // What it did may be lost, and is to be done again then.
              await held.rest((tx) => (Number(tx.record(held.at).value) < STEPS ? tx.nowMs : null));
            },
            failed: (error) => {
              if (error instanceof FencedError) world.note(`${name} was fenced`);
            },
          });
        },
        { service: true },
      );
    world.process("client", async (process) => {
      const { kernel } = process.pawl;
      for (;;) {
        for (const name of JOBS) await until(() => make(kernel, name), process);
        let isDone = false;
        await until(async () => {
          const rows = await kernel.read(JOBS.map(at));
          isDone = rows.every((row) => row?.holder === null && Number(row.value) >= STEPS);
        }, process);
        // What is done now may be lost, until nothing fails any more.
        if (isDone && world.healedAtMs !== undefined) return;
        await process.sleep(500);
        if (isDone && process.random() < 0.05) return;
      }
    });
    await world.finish();
    await checkJobs(world, acknowledged);
    checkCommits(world);
  },
};

async function make(kernel: Kernel, name: string): Promise<void> {
  await kernel.transact(
    (tx: Tx) => {
      const record = tx.record(at(name));
      if (!record.exists) record.write({ value: 0, kind: KIND, dueMs: tx.nowMs });
    },
    [at(name)],
  );
}

async function checkJobs(world: World, acknowledged: ReadonlyMap<string, Moment>): Promise<void> {
  const { commits, rewinds } = world.database;
  const pawl = world.open();
  const kept = new Set<string>();
  for (const name of JOBS) {
    const entries = await pawl.kernel.entries(at(name), 0, 10_000);
    const written = commits.flatMap(({ puts }) =>
      puts.flatMap(({ row, entries: own }) => (row.key === name ? own : [])),
    );
    world.check(
      entries.map(({ data }) => data).join() === written.map(({ data }) => data).join(),
      `${name}: its log is ${entries.map(({ data }) => data).join()}, and ${written.map(({ data }) => data).join()} was committed`,
    );
    for (const [i, { version, data }] of entries.entries()) {
      world.check(version === i + 1, `${name}: its log has ${version} where ${i + 1} belongs`);
      const { mark, steps } = JSON.parse(data) as { mark: string; steps: number };
      kept.add(mark);
      world.check(steps === i + 1, `${name}: step ${steps} is entry ${version} of its log`);
    }
  }
  for (const { puts } of commits)
    for (const { was, row, entries } of puts)
      for (const { data } of row.space === "rewound" ? entries : []) {
        const { by } = JSON.parse(data) as { by: string };
        const holders = [was?.holder, row.holder];
        world.check(holders.includes(by), `${row.key}: ${by} wrote, and ${holders.join(" then ")} held it`);
      }
  const lost = new Set(
    rewinds.flatMap((rewind) =>
      rewind.lost.flatMap(({ puts }) =>
        puts.flatMap(({ entries }) => entries.map(({ data }) => (JSON.parse(data) as { mark?: string }).mark)),
      ),
    ),
  );
  for (const [mark, asked] of acknowledged) {
    world.check(kept.has(mark) || lost.has(mark), `${mark} was acknowledged and never committed`);
    world.check(
      kept.has(mark) || asked.rewinds < rewinds.length,
      `${mark} was asked for after the last rewind, and is not there`,
    );
  }
}

// ------------------------------------------------------------------------------------------------- runs

const go = signal<string>("go");
const RUNS = ["r1", "r2"];
const RETRY = { attempts: 50, delay: 500, maxDelay: 8_000 } as const;
const LOST = /^(run_not_found|result_timeout|run_parked)$/;

/** Runs with all that makes a history, whose clients ask again for whatever was lost; all of them complete, with a history that is whole. */
export const rewoundRuns = {
  name: "runs resume from the history that a rewind left",
  options: REWINDS,
  async scenario(world: World): Promise<void> {
    const stage = new Stage(world, (place) => [trip(stage, place), leg(stage, place)]);
    for (const name of ["w1", "w2"]) stage.worker(name);
    stage.person("person");
    for (const name of ["c1", "c2"])
      world.process(name, async (process) => {
        if (process.random() < 0.3) stage.work(process);
        // What was acknowledged before the faults ended may be lost.
        for (let isLast = false; !isLast; ) {
          isLast = world.healedAtMs !== undefined;
          for (const id of RUNS) await travel(process, id);
          if (!isLast) await process.sleep(process.random() * 5_000);
        }
        for (const id of RUNS) await stage.outcome(process, "trip", id);
      });
    await world.finish();
    for (const id of RUNS) {
      const outcomes = [...(stage.told.get(id) ?? [])];
      world.check(
        outcomes.length > 0 && outcomes.every((one) => one.startsWith("completed")),
        `${id}: ${outcomes.join()}`,
      );
    }
    await stage.check(240_000);
  },
};

/** Starts the run, sends what it waits for and waits for its end, until it has ended: each part again if it was lost. */
async function travel(process: Process, id: string): Promise<void> {
  const run = process.pawl.run("trip", id);
  for (;;) {
    try {
      await process.pawl.start("trip", {}, { id });
      await run.signal(go, "hello", { id: "one" }).catch((error: unknown) => {
        if (!(error instanceof PawlError && error.code === "run_ended")) throw error;
      });
      await run.result({ timeout: 20_000 });
      return;
    } catch (error) {
      if (!(error instanceof StoreError) && !(error instanceof PawlError && LOST.test(error.code))) throw error;
      await process.sleep(200);
    }
  }
}

const trip = (stage: Stage, place: Place) =>
  workflow("trip", async (ctx: Context) => {
    const act = (name: string) => ctx.step(name, (step) => stage.act(place, ctx.runId, name, step), { retry: RETRY });
    const heard: unknown[] = [await act("one"), await act("two")];
    heard.push(...(await Promise.all([act("three"), act("four"), ctx.sleep(1_000)])));
    heard.push((await ctx.waitForSignal(go)).value);
    const { value } = await ctx.slot<string>("seen", { initial: "" }).update((text) => `${text}x`);
    heard.push(value, await ctx.call(leg(stage, place)), await act("five"));
    return heard;
  });

const leg = (stage: Stage, place: Place) =>
  workflow("leg", async (ctx: Context) => {
    const act = (name: string) => ctx.step(name, (step) => stage.act(place, ctx.runId, name, step), { retry: RETRY });
    await act("six");
    return act("seven");
  });
