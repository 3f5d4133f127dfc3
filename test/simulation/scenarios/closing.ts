// Goal: streams are closed, restarted and pruned although processes die, pause, lose replies and race with appends: every event that was committed is in
// the archive or in the store, once and in its place; no event follows a tombstone but the opening event; and every event is handled by the
// reaction before it is removed. Once faults stop, all of it is done (G2, G11, G12, G25).
// Method: two writers append to three streams, two accountants close them with a restart, with and without an expected version, and one prunes them. They
// share an archive, which is slow and survives crashes. A worker that cannot read the archive copies each event. Two clerks apply a policy: they prune streams
// that have too many events, and close those that are idle, which all are in the end.

import {
  type Archive,
  type ArchivedEvent,
  aggregate,
  event,
  isPawlError,
  type Pawl,
  reaction,
  type StreamEvent,
  streamPolicy,
} from "../../../src/index.ts";
import { SweepLoop } from "../../../src/kernel/sweep-loop.ts";
import { setArchive } from "../../../src/stream/closing/archive.ts";
import { policyRules } from "../../../src/stream/policies/definition.ts";
import { ensurePolicy } from "../../../src/stream/policies/finding.ts";
import { policyQueues } from "../../../src/stream/policies/worker.ts";
import { checkCommits } from "../../../src/testing/checkers/commits.ts";
import type { Process, World } from "../../../src/testing/index.ts";
import { until } from "./transfers.ts";

const Sent = event<{ readonly n: number }>("Sent");
const Opened = event<{ readonly by: string }>("Opened");
const Copied = event<{ readonly of: string }>("Copied");

const LEASE_MS = 5_000;
const STREAMS = ["s-a", "s-b", "s-c"];
const IDLE_MS = 20_000;

const tidy = streamPolicy("tidy", { prefix: "s-", prune: { keep: 3 }, close: { idleFor: IDLE_MS } });

const counted = aggregate("counted", {
  initial: 0,
  on: [[Sent, (count) => count + 1]],
  // Stores the state, so that events before it may be pruned.
  commands: { look: (count) => count },
});

type Shelf = Map<string, Map<number, ArchivedEvent>>;

/** What a process sees of the shelf: it stores events when it has all of them. */
const archiveOn = (shelf: Shelf, { sleep, random }: Pick<Process, "sleep" | "random">): Archive => ({
  async write(stream, events) {
    const taken: ArchivedEvent[] = [];
    for await (const one of events) taken.push(one);
    await sleep(random() * 1_000);
    const stored = shelf.get(stream) ?? new Map<number, ArchivedEvent>();
    for (const one of taken) stored.set(one.version, one);
    shelf.set(stream, stored);
  },
  async *read(stream, { from, to }) {
    const stored = shelf.get(stream);
    for (let version = from; version <= to; version++) {
      const one = stored?.get(version);
      if (one !== undefined) yield one;
    }
  },
});

export const closings = {
  name: "a stream is closed once, and no event is lost",
  // A clerk that dies leaves its stream for five minutes, and one that had trouble leaves it alone for ten.
  options: { faultsMs: 60_000, healMs: 1_800_000 },
  // 218: the clock of the store steps back while the policy closes an idle stream.
  regressions: [218],
  async scenario(world: World): Promise<void> {
    const shelf: Shelf = new Map();
    const acknowledged = new Set<string>();
    let left = 5;
    const someStream = (random: () => number) => STREAMS[Math.floor(random() * STREAMS.length)] ?? "s-a";
    for (const name of ["north", "south"])
      world.process(name, async (process) => {
        const { pawl, random, sleep } = process;
        setArchive(pawl.kernel, archiveOn(shelf, process));
        for (let i = 0; i < 6; i++) {
          const stream = pawl.stream(someStream(random));
          await until(async () => {
            const events = [Sent({ n: i }), Sent({ n: i + 1 })];
            const appended = await unless("stream_closed", () => stream.append(events));
            for (const id of appended?.ids ?? []) acknowledged.add(id);
          }, process);
          if (random() < 0.5)
            await until(async () => {
              await unless("stream_closed", () => pawl.aggregate(counted, stream.id).execute("look"));
            }, process);
          await sleep(random() * (random() < 0.2 ? 2 * IDLE_MS : 2_000));
        }
        left -= 1;
      });
    for (const name of ["ann", "bob"])
      world.process(name, async (process) => {
        const { pawl, random, sleep } = process;
        setArchive(pawl.kernel, archiveOn(shelf, process));
        await isKnown(process);
        for (let i = 0; i < 3; i++) {
          await sleep(random() * 4_000);
          const stream = someStream(random);
          const restart = Opened({ by: `${name} ${process.incarnation} ${i}` });
          const isExact = random() < 0.5;
          await close(process, async () => {
            const expectedVersion = isExact ? await pawl.stream(stream).head() : undefined;
            await pawl.streams.close(stream, { expectedVersion, restart });
          });
        }
        left -= 1;
      });
    world.process("cid", async (process) => {
      const { pawl, random, sleep } = process;
      setArchive(pawl.kernel, archiveOn(shelf, process));
      await isKnown(process);
      for (let i = 0; i < 3; i++) {
        await sleep(random() * 4_000);
        const stream = someStream(random);
        await close(process, async () => {
          const { version } = await pawl.aggregate(counted, stream).execute("look");
          if (version > 1)
            await pawl.streams.prune(stream, { before: 1 + Math.floor(random() * version), discard: false });
        });
      }
      left -= 1;
    });
    for (const name of ["dan", "eve"])
      world.process(
        name,
        async (process) => {
          const { pawl, random, sleep } = process;
          const rules = policyRules(tidy);
          if (rules === undefined) throw new Error("it is no policy");
          setArchive(pawl.kernel, archiveOn(shelf, process));
          await isKnown(process);
          await until(() => ensurePolicy(pawl.kernel, rules), process);
          const { signal: stopping } = new AbortController();
          const queues = policyQueues(pawl.kernel, rules, { streams: pawl.streams, failed: () => {}, stopping });
          // The looks of a worker come once a minute; these more often.
          const loop = new SweepLoop(pawl.kernel, queues, () => {});
          for (;;) {
            await until(async () => {
              await loop.look();
            }, process);
            await sleep(2_000 + random() * 8_000);
          }
        },
        { service: true },
      );
    world.process(
      "worker",
      async ({ pawl, random, sleep }) => {
        const copy = reaction(
          "copy",
          { on: [Sent], retry: { attempts: 6, delay: 200 }, lease: LEASE_MS },
          async (e, { emit }) => {
            emit("copies", [Copied({ of: e.id })]);
            await sleep(random() * 500);
          },
        );
        pawl.work([copy], { lease: LEASE_MS });
      },
      { service: true },
    );
    world.process("operator", async (process) => {
      const { pawl } = process;
      for (let idleLooks = 0; idleLooks < 3; ) {
        await process.sleep(2_000);
        await until(async () => {
          const isKnown = (await pawl.reactions.list()).length === 1;
          if (isKnown) await pawl.reactions.unblock("copy", {});
          const { targets } = await pawl.reactions.targets("copy");
          const isIdle =
            isKnown &&
            (await pawl.reactions.get("copy")).unrouted === 0 &&
            targets.every(({ pending }) => pending === 0);
          idleLooks = isIdle && left === 0 && (await areClosed(pawl)) ? idleLooks + 1 : 0;
        }, process);
      }
    });
    await world.finish();
    checkCommits(world);
    const pawl = world.open();
    setArchive(pawl.kernel, archiveOn(shelf, { sleep: async () => {}, random: () => 0 }));
    await judge(world, pawl, acknowledged);
  },
};

/** Whether all streams are closed, and what the policy has closed has gone to the archive. */
async function areClosed(pawl: Pawl): Promise<boolean> {
  for (const stream of STREAMS) {
    const kept: StreamEvent[] = [];
    for await (const one of pawl.stream(stream).read({ from: "kept" })) kept.push(one);
    const last = kept.at(-1);
    if (last !== undefined && (last.name !== "$closed" || (isByPolicy(last) && kept.length > 1))) return false;
  }
  return true;
}

/** Whether this is a tombstone of the policy. Accountants give no reason. */
const isByPolicy = ({ name, data }: StreamEvent): boolean =>
  name === "$closed" && (data as { readonly reason?: string }).reason !== undefined;

/** Waits for the reaction: one that is new to the store would have to read the archive. */
async function isKnown(process: Process): Promise<void> {
  for (let count = 0; count === 0; await process.sleep(500))
    await until(async () => {
      count = (await process.pawl.reactions.list()).length;
    }, process);
}

/** Tries until it is done; what it refuses to close is closed later. */
async function close(process: Process, act: () => Promise<unknown>): Promise<void> {
  for (let isDone = false; !isDone; ) {
    await until(async () => {
      const refused = await refusalOf(act);
      isDone =
        refused === undefined ||
        refused === "stream_not_found" ||
        refused === "stream_closed" ||
        refused === "invalid_argument";
    }, process);
    if (!isDone) await process.sleep(500);
  }
}

const REFUSALS = [
  "stream_in_use",
  "concurrency_conflict",
  "stream_not_found",
  "stream_closed",
  "invalid_argument",
] as const;

async function refusalOf(act: () => Promise<unknown>): Promise<string | undefined> {
  try {
    await act();
    return undefined;
  } catch (error) {
    const found = REFUSALS.find((code) => isPawlError(error, code));
    if (found === undefined) throw error;
    return found;
  }
}

async function unless<T>(code: (typeof REFUSALS)[number], act: () => Promise<T>): Promise<T | undefined> {
  try {
    return await act();
  } catch (error) {
    if (!isPawlError(error, code)) throw error;
    return undefined;
  }
}

async function judge(world: World, pawl: Pawl, acknowledged: ReadonlySet<string>): Promise<void> {
  const ids: string[] = [];
  const sent: string[] = [];
  let tombstones = 0;
  for (const stream of STREAMS) {
    let before = "";
    let beforeMs = 0;
    let version = 0;
    let count = 0;
    for await (const one of pawl.stream(stream).read()) {
      version += 1;
      world.check(one.version === version, `event ${one.version} of ${stream} is in the place of ${version}`);
      world.check(before !== "$closed" || one.name === "Opened", `${one.name} follows a tombstone of ${stream}`);
      world.check(before === "$closed" || one.name !== "Opened", `${stream} was opened while it was open`);
      if (one.name === "$closed") tombstones += 1;
      const idleMs = one.at.getTime() - beforeMs;
      // The clock of the store may step back between the look that finds a stream idle and the commit that closes it.
      world.check(
        !isByPolicy(one) || idleMs >= IDLE_MS || world.faults.struck.storeClockJump > 0,
        `the policy closed ${stream}, which was idle for ${idleMs} ms`,
      );
      beforeMs = one.at.getTime();
      ids.push(one.id);
      if (Sent.is(one)) sent.push(one.id);
      if (Sent.is(one)) count += 1;
      before = one.name;
    }
    world.check(version === (await pawl.stream(stream).head()), `${stream} has ${version} events and another head`);
    const { state } = await pawl.aggregate(counted, stream).state();
    world.check(state === count, `the state of ${stream} counts ${state} of ${count} events`);
  }
  world.check(new Set(ids).size === ids.length, "an event is there twice");
  const { closed = 0, removed = 0 } = (await pawl.streams.policies())[0] ?? {};
  world.check(closed <= tombstones, `the policy has counted ${closed} of ${tombstones} closings`);
  world.check(removed <= ids.length, `the policy has counted ${removed} of ${ids.length} events`);
  for (const id of acknowledged) world.check(sent.includes(id), `event ${id} was acknowledged and is gone`);
  const copies: string[] = [];
  for await (const { data } of pawl.stream("copies").read({ events: [Copied] })) copies.push(data.of);
  for (const id of sent) {
    const found = copies.filter((one) => one === id).length;
    world.check(found === 1, `event ${id} was copied ${found} times`);
  }
  world.check(copies.length === sent.length, `${copies.length} copies of ${sent.length} events`);
}
