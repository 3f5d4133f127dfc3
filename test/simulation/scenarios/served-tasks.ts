// Goal: a signal, the timeout and a cancellation that meet at the exact deadline of a task, over HTTP, have one outcome, the same for every caller (G15, G26),
// although servers are killed in between and callers repeat what they sent (G2). Each refusal says which outcome was the first, and never that there is no such task.
// Method: two servers that work on tasks, too, and die: by chance, and by an operator who kills one of them some calls before or after the deadline. Callers
// with the real client create the same task under the same key, read its deadline in the store, and then signal, cancel or wait, at the deadline or a
// millisecond beside it, each twice. What each was told is compared with what all others were told, with what a server says afterwards, and with the store.
// Ten thousand of them: `npm run simulate -- --scenario "over HTTP" --seeds 10000`.

import { type Client, PawlHttpError } from "../../../src/http/client/index.ts";
import { tasks } from "../../../src/http/server/routes/tasks.ts";
import { httpTasks, type RunInfo, type TaskOutcome } from "../../../src/index.ts";
import type { Process, World } from "../../../src/testing/index.ts";
import { ACTS, type Act, outcomeText, settle } from "../../task/race.ts";
import { Network } from "../network.ts";
import { until } from "./transfers.ts";

const SERVERS = ["s1", "s2"];
const LEASE_MS = 10_000;
const BESIDE_MS = [-1, 0, 0, 0, 1];
/** Sooner than a server starts again. */
const PAUSE_MS = 200;

interface Race {
  readonly world: World;
  readonly network: Network;
  readonly maxWaitMs: number;
  /** What everybody was told. */
  readonly tasks: Set<string>;
  readonly tokens: Set<string>;
  readonly outcomes: Set<string>;
  /** By the clock of the world, when a caller has read it first. */
  readonly deadline: PromiseWithResolvers<number>;
}

export const servedTasks = {
  name: "signal, timeout and cancel over HTTP come to one outcome",
  // A client whose clock was set back waited for as long.
  regressions: [3546],
  async scenario(world: World): Promise<void> {
    const race: Race = {
      world,
      network: new Network(world, [tasks]),
      maxWaitMs: 500 + world.random.below(2_000),
      tasks: new Set(),
      tokens: new Set(),
      outcomes: new Set(),
      deadline: Promise.withResolvers(),
    };
    world.outside = { handle: () => ({ status: world.random.chance(0.1) ? 500 : 200 }) };
    const running = new Map<string, Process>();
    for (const name of SERVERS)
      world.process(
        name,
        async (process) => {
          running.set(name, process);
          process.pawl.work([httpTasks()], { lease: LEASE_MS });
          race.network.serve(process);
        },
        { service: true },
      );
    world.process("operator", (process) => kill(race, process, running), { service: true });
    for (const [i, act] of ACTS.entries()) world.process(`c${i}`, (process) => play(race, process, act));
    await world.finish();
    const [task = ""] = race.tasks;
    const { outcome } = await world.open().tasks.get(task);
    tell(race, outcome);
    world.check(outcome !== null, "the task has no outcome");
  },
};

/** Kills a server, around the deadline, between any two calls of whoever is there then. */
async function kill(race: Race, process: Process, running: ReadonlyMap<string, Process>): Promise<void> {
  const { world } = race;
  await process.sleep(Math.max(0, (await race.deadline.promise) - world.nowMs - world.random.below(2)));
  for (let calls = world.random.below(40); calls > 0; calls--) await process.arrive("waits for calls");
  const server = running.get(world.random.pick(SERVERS));
  if (server?.isAlive === true && !world.faults.healed) world.crash(server);
}

async function play(race: Race, process: Process, act: Act): Promise<void> {
  const { world, network, maxWaitMs, tasks, tokens } = race;
  const check = (isSo: boolean, message: string): void => world.check(isSo, message);
  /** Calls one of the servers until it says something. */
  const call = async <T>(send: (client: Client) => Promise<T>): Promise<T> => {
    for (;;)
      try {
        return await send(network.client(process, world.random.pick(SERVERS)));
      } catch (error) {
        if (!(error instanceof PawlHttpError) || (error.status > 0 && error.status < 500)) throw error;
        world.check(error.code !== "internal", `a server failed: ${error.message}`);
        await process.sleep(PAUSE_MS);
      }
  };
  const { task, signalToken } = await call((client) =>
    client.tasks.create({
      targetUrl: "https://target.example/",
      idempotencyKey: "k",
      retry: { attempts: 30, delay: 100, maxDelay: 1_000 },
      waitForSignal: true,
      maxWaitTime: maxWaitMs,
    }),
  );
  const { id } = task;
  tasks.add(id);
  tokens.add(String(signalToken));
  world.check(tasks.size === 1, `the task is ${[...tasks].join(" and ")}`);
  world.check(tokens.size === 1, "the task has several tokens");
  await process.sleep(Math.max(0, (await deadlineOf(race, process, id)) - world.nowMs + world.random.pick(BESIDE_MS)));
  for (let times = 0; times < 2; times++) {
    tell(race, await call((client) => settle(client, id, signalToken, act, check)));
    await process.sleep(world.random.below(3));
  }
  for (let outcome: TaskOutcome | null = null; outcome === null; tell(race, outcome))
    ({ outcome } = await call((client) => client.tasks.get(id, { wait: 5_000 })));
}

/** When the task times out, by the clock of the world, as the store says; now, if it has ended. */
async function deadlineOf({ world, deadline, maxWaitMs }: Race, process: Process, id: string): Promise<number> {
  for (let info: RunInfo | undefined; ; await process.sleep(PAUSE_MS)) {
    await until(async () => {
      info = await process.pawl.run(id).status();
    }, process);
    if (info === undefined || info.endedAt !== null) return world.nowMs;
    const untilMs = info.doing.find(({ kind }) => kind === "signal")?.until?.getTime();
    if (untilMs === undefined) continue;
    // A store clock that was set back catches up when all faults end.
    const atMs = world.nowMs + Math.min(maxWaitMs, untilMs - world.database.nowMs());
    deadline.resolve(atMs);
    return atMs;
  }
}

function tell({ world, outcomes }: Race, outcome: TaskOutcome | null): void {
  if (outcome !== null) outcomes.add(outcomeText(outcome));
  world.check(outcomes.size <= 1, `callers were told ${[...outcomes].join(" and ")}`);
}
