/**
 * The faults: what is done to workers, to their connections and to the server.
 *
 * Each occurs once and resolves when it is over and only recovery is left; it returns false if it could not occur.
 * The run repairs what must be repaired before the next one, such as a new standby. Faults on workers run beside the others.
 */

import type { Random } from "../../src/testing/sim/random.ts";
import type { Cluster } from "./cluster.ts";
import type { Crew, Place } from "./crew.ts";
import { monotonicNs } from "./ledger.ts";
import type { FaultyProxy } from "./proxy.ts";
import type { Span } from "./works/work.ts";

export interface Scene {
  readonly crew: Crew;
  readonly random: Random;
  /** Longer than any lease. */
  readonly pastLeaseMs: () => number;
  /** While reads could see what was then lost; see `Evidence`. */
  readonly doubts: Span[];
}

/** A scene with a server. */
export interface ServerScene extends Scene {
  readonly cluster: Cluster;
}

export interface Fault {
  readonly name: string;
  /** How often it is drawn, compared with the others. */
  readonly weight: number;
}

/** Needs nothing but workers. */
export interface WorkerFault extends Fault {
  readonly strike: (scene: Scene) => Promise<boolean>;
}

/** Needs a server, or the way to it. */
export interface ServerFault extends Fault {
  readonly strike: (scene: ServerScene) => Promise<boolean>;
}

const sleep = (ms: number): Promise<void> => new Promise((resolve) => setTimeout(resolve, ms));
const between = (random: Random, least: number, most: number): number => least + random.unit() * (most - least);

async function someWorker({ crew, random }: Scene, act: (place: Place) => Promise<void> | void): Promise<boolean> {
  const { present } = crew;
  if (present.length === 0) return false;
  await act(random.pick(present));
  return true;
}

export const workerFaults: readonly WorkerFault[] = [
  {
    name: "a worker is killed",
    weight: 4,
    strike: (scene) => someWorker(scene, (place) => place.kill()),
  },
  {
    name: "a worker is suspended for longer than its lease",
    weight: 3,
    strike: (scene) => someWorker(scene, (place) => place.pause(scene.pastLeaseMs())),
  },
];

const someProxy = ({ cluster, random }: ServerScene): FaultyProxy => random.pick(cluster.proxies);

/** The ways of some workers that are there and write; at least one if there is any. */
function someWriters({ crew, random }: Scene): FaultyProxy[] {
  const all = crew.present.flatMap(({ proxy }) => (proxy === null ? [] : [proxy]));
  const some = all.filter(() => random.chance(0.6));
  return some.length > 0 ? some : all.slice(0, 1);
}

/** Waits until the proxies have found what they were to strike, and takes back what they did not. */
async function untilStruck(proxies: readonly FaultyProxy[], count: () => number): Promise<boolean> {
  const before = count();
  const deadlineMs = performance.now() + 2_000;
  while (performance.now() < deadlineMs && proxies.some(({ pendingFaults }) => pendingFaults > 0)) await sleep(5);
  for (const proxy of proxies) proxy.disarm();
  return count() > before;
}

const countsOf = (proxies: readonly FaultyProxy[], name: keyof FaultyProxy["counts"]): number =>
  proxies.reduce((sum, { counts }) => sum + counts[name], 0);

export const networkFaults: readonly ServerFault[] = [
  {
    // Beside these because where there is no server, all processes share the machine's clock.
    name: "a worker's clock jumps",
    weight: 1,
    strike: (scene) =>
      someWorker(scene, (place) => {
        const hours = scene.random.pick([-24, -1, -0.001, 0.001, 1, 24]);
        place.jump(Math.round(hours * 3_600_000 * scene.random.unit()));
      }),
  },
  {
    name: "one connection is cut",
    weight: 1,
    async strike({ cluster, random }) {
      const all = cluster.proxies.flatMap(({ connections }) => connections);
      if (all.length === 0) return false;
      random.pick(all).cut();
      return true;
    },
  },
  {
    name: "all connections are cut",
    weight: 2,
    strike: async ({ cluster }) => cluster.proxies.reduce((sum, proxy) => sum + proxy.cutAll(), 0) > 0,
  },
  {
    name: "a worker is cut off past its lease",
    weight: 2,
    async strike(scene) {
      const ms = scene.pastLeaseMs();
      someProxy(scene).stallAll(ms);
      await sleep(ms);
      return true;
    },
  },
  {
    name: "bytes are held up on their way",
    weight: 1,
    async strike(scene) {
      const ms = between(scene.random, 100, 900);
      someProxy(scene).stallAll(ms, scene.random.pick(["up", "down"]));
      await sleep(ms);
      return true;
    },
  },
  {
    name: "connections are refused",
    weight: 1,
    async strike(scene) {
      const proxy = someProxy(scene);
      const over = proxy.refuse(between(scene.random, 300, 1_200));
      proxy.cutAll();
      await over;
      return true;
    },
  },
  {
    name: "replies to COMMIT are lost",
    weight: 6,
    async strike(scene) {
      const victims = someWriters(scene);
      for (const proxy of victims) proxy.dropCommitReplies(1 + scene.random.below(3));
      return untilStruck(victims, () => countsOf(victims, "commitRepliesDropped"));
    },
  },
  {
    name: "a reply to COMMIT is late",
    weight: 2,
    async strike(scene) {
      const ms = between(scene.random, 200, 2_500);
      const victims = someWriters(scene).slice(0, 1);
      for (const proxy of victims) proxy.delayCommitReply(ms);
      const hasStruck = await untilStruck(victims, () => countsOf(victims, "commitRepliesDelayed"));
      if (hasStruck) await sleep(ms);
      return hasStruck;
    },
  },
  {
    name: "requests are lost",
    weight: 3,
    async strike(scene) {
      const { random } = scene;
      const victims = someWriters(scene);
      for (const proxy of victims) proxy.dropRequests(1 + random.below(3), random.pick(["whole", "second half"]));
      return untilStruck(victims, () => countsOf(victims, "requestsDropped"));
    },
  },
];

/** Commits hang because the standby is unreachable, until an operator turns the waiting off. */
async function cancelWaits(cluster: Cluster, rounds: number): Promise<number> {
  let cancelled = 0;
  const deadlineMs = performance.now() + 5_000;
  for (let round = 0; round < rounds && performance.now() < deadlineMs; ) {
    await sleep(100);
    const waiting = (await cluster.backends()).filter(({ waitsForStandby }) => waitsForStandby);
    for (const { pid } of waiting) await cluster.query("select pg_cancel_backend($1)", [pid]);
    cancelled += waiting.length;
    if (waiting.length > 0) round += 1;
  }
  return cancelled;
}

export const serverFaults: readonly ServerFault[] = [
  {
    name: "all backends are ended",
    weight: 2,
    async strike({ cluster }) {
      const all = await cluster.backends();
      for (const { pid } of all) await cluster.query("select pg_terminate_backend($1)", [pid]);
      return all.length > 0;
    },
  },
  {
    name: "a storm ends backends here and there",
    weight: 2,
    async strike({ cluster, random }) {
      let ended = 0;
      for (let round = 0; round < 6; round++) {
        for (const { pid } of await cluster.backends())
          if (random.chance(0.3)) {
            await cluster.query("select pg_terminate_backend($1)", [pid]);
            ended += 1;
          }
        await sleep(between(random, 20, 120));
      }
      return ended > 0;
    },
  },
  {
    name: "a backend dies, and the server restarts all",
    weight: 1,
    async strike({ cluster, random }) {
      const all = await cluster.backends();
      if (all.length === 0) return false;
      try {
        process.kill(random.pick(all).pid, "SIGKILL");
      } catch {
        return false;
      }
      await sleep(50);
      await cluster.untilUp();
      return true;
    },
  },
  {
    name: "the server crashes and starts again",
    weight: 2,
    async strike({ cluster, random }) {
      await cluster.primary.stop("immediate");
      await sleep(random.unit() * 500);
      await cluster.primary.start();
      return true;
    },
  },
  {
    name: "waits for the standby are cancelled",
    weight: 2,
    async strike({ cluster, random }) {
      const { standby } = cluster;
      if (standby === null) return false;
      await standby.stop(random.pick(["fast", "immediate"]));
      const cancelled = await cancelWaits(cluster, 3);
      await standby.start();
      return cancelled > 0;
    },
  },
  {
    name: "the standby is promoted",
    weight: 2,
    async strike({ cluster, random }) {
      await cluster.untilSynchronous();
      if (random.chance(0.5)) await cluster.primary.stop("immediate");
      else await cluster.primary.kill("SIGKILL");
      await cluster.promote();
      return true;
    },
  },
  {
    name: "the standby is promoted after waits for it were cancelled",
    weight: 1,
    async strike({ cluster, random, doubts }) {
      const { standby } = cluster;
      if (standby === null) return false;
      await cluster.untilSynchronous();
      const from = monotonicNs();
      await standby.stop("immediate");
      const cancelled = await cancelWaits(cluster, 1);
      await cluster.primary.kill(random.pick(["SIGKILL", "SIGQUIT"]));
      if (cluster.primary.isRunning) await cluster.primary.stop("immediate");
      await standby.start();
      await cluster.promote();
      doubts.push({ from, to: monotonicNs() });
      return cancelled > 0;
    },
  },
];
