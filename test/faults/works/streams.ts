/**
 * Streams: events that are appended under an expected version, commands with an invariant, and a reaction that carries each event on.
 *
 * Clients append one or two events where they believe the end of a stream to be; new streams begin all the while, so that several clients create the
 * same one. What was not acknowledged is sent again with the same expected version. Other clients put units into stocks and take them out, by commands;
 * the streams of the stocks are appended to as well, so that commands find states that lack events. A reaction forwards each event, by a
 * target that events of several streams share: half of them with `emit`, and half in a decision that also takes a unit from a stock. Its handlers
 * sleep and fail.
 *
 * Checked: an acknowledged append is at its version, all of it, once; one that was refused is not there (G1, G2, G11); versions have no gap; no stock was
 * ever below zero, and its stored state is that of its events (G29); each event was forwarded once, at its target, in the order of all streams, and
 * took a unit exactly if it says so (G12, G13). The run checks whether all of it ends once faults are over (G25).
 */

import { aggregate, event, type Reaction, reaction } from "../../../src/index.ts";
import type { Pawl } from "../../../src/pawl.ts";
import type { Bench } from "../bench.ts";
import { monotonicNs } from "../ledger.ts";
import { LEASE_MS } from "./claims.ts";
import type { Evidence, Work } from "./work.ts";

const NAME = "streams";
const REACTION = "forward";
const CALLERS = 2;
const LOGS = 6;
const STOCKS = 4;
export const TARGETS = 6;
const MAX_PAUSE_MS = 80;
/** After this time everybody moves on to new logs. */
const WINDOW_MS = 8_000;
/** Clients that go on appending when the machine does not keep up would only measure that. */
const MOST_PENDING = 300;
const RETRY = { attempts: 1000, delay: 10, maxDelay: 300 } as const;
/** Three leases, the slow poll that makes up for a lost wake-up, and the time to do what is left. */
const HEALS_WITHIN_MS = 3 * LEASE_MS + 5_000 + 8_000;

export const Sent = event<{ readonly mark: string }>("Sent");
export const Put = event<{ readonly mark: string; readonly units: number }>("Put");
export const Took = event<{ readonly mark: string; readonly units: number }>("Took");
export const Forwarded = event<{ readonly of: string; readonly took: boolean }>("Forwarded");

interface Units {
  readonly mark: string;
  readonly units: number;
}

const stock = aggregate("stock", {
  initial: { left: 0 },
  on: [
    [Put, ({ left }, { units }) => ({ left: left + units })],
    [Took, ({ left }, { units }) => ({ left: left - units })],
  ],
  commands: {
    put: (_state, given: Units, { emit }) => emit(Put(given)),
    take: ({ left }, given: Units, { emit, refuse }) => {
      if (given.units > left) refuse("not_enough", { left });
      emit(Took(given));
    },
  },
});

export type Wish =
  | {
      readonly verb: "append";
      readonly stream: string;
      readonly expected: number;
      /** One for each event. */
      readonly marks: readonly string[];
    }
  | ({ readonly verb: "put" | "take"; readonly stream: string } & Units);

/** Whether it was done, and the version of the stream after it, or the one that was in its way. */
export interface Outcome {
  readonly ok: boolean;
  readonly version: number;
}

export const streams: Work = {
  name: NAME,
  healsWithinMs: HEALS_WITHIN_MS,
  left: { count: countPending, eachMs: 50 },

  async act(bench) {
    const clients = Array.from({ length: CALLERS }, () => call(bench));
    await Promise.all([...clients, work(bench), unblock(bench)]);
  },

  // A command would be done twice.
  again({ input }) {
    const wish = input as Wish;
    return wish.verb === "append" ? { id: wish.marks[0] ?? "", task: wish } : null;
  },

  isCommit: ({ answer, output }) => answer === "yes" && (output as Outcome).ok,

  isHealed: async (pawl) => (await countPending(pawl)) === 0,

  async judge(pawl, evidence) {
    const state = await look(pawl);
    const unknown = evidence.operations.filter(({ answer }) => answer === "unknown");
    const marks = new Set([...state.streams.values()].flat().map(({ mark }) => mark));
    const happened = unknown.filter(({ input }) => marks.has(marksOf(input as Wish)[0] ?? "")).length;
    return { wrong: checkStreams(evidence, state), unknown: unknown.length, happened };
  },
};

const marksOf = (wish: Wish): readonly string[] => (wish.verb === "append" ? wish.marks : [wish.mark]);

// ------------------------------------------------------------------------------------------------- clients

async function call(bench: Bench): Promise<void> {
  const { random } = bench;
  const heads = new Map<string, number>();
  const hasRoom = room(bench);
  while (!bench.isOver) {
    const task = bench.take(NAME) as Wish | undefined;
    if (task === undefined && (bench.isHealing || !(await hasRoom()))) {
      await bench.sleep(20);
      continue;
    }
    const wish = task ?? draw(bench, heads);
    const answer = await bench.attempt(NAME, wish, () => act(bench.pawl, wish));
    if (answer.is === "yes") heads.set(wish.stream, answer.output.version);
    await bench.sleep(random.unit() * MAX_PAUSE_MS);
  }
}

function draw(bench: Bench, heads: ReadonlyMap<string, number>): Wish {
  const { random } = bench;
  const kind = random.unit();
  const shop = `stock-${random.below(STOCKS)}`;
  if (kind < 0.5) {
    const window = Math.floor(monotonicNs() / 1e6 / WINDOW_MS);
    const stream = kind < 0.05 ? shop : `log-${window}-${random.below(LOGS)}`;
    const marks = random.chance(0.3) ? [bench.mark(), bench.mark()] : [bench.mark()];
    return { verb: "append", stream, expected: heads.get(stream) ?? 0, marks };
  }
  return { verb: kind < 0.7 ? "put" : "take", stream: shop, mark: bench.mark(), units: 1 + random.below(3) };
}

async function act(pawl: Pawl, wish: Wish): Promise<Outcome> {
  if (wish.verb === "append") {
    const events = wish.marks.map((mark) => Sent({ mark }));
    const { ok, version } = await pawl.stream(wish.stream).tryAppend(events, { expectedVersion: wish.expected });
    return { ok, version };
  }
  const { verb, stream, mark, units } = wish;
  const tried = await pawl.aggregate(stock, stream).tryExecute(verb, { mark, units });
  return { ok: tried.ok, version: tried.ok ? tried.version : 0 };
}

/** Whether the reaction keeps up; asked at most once a second. */
function room({ pawl }: Bench): () => Promise<boolean> {
  let lookedAtMs = Number.NEGATIVE_INFINITY;
  let answer = false;
  return async () => {
    if (performance.now() - lookedAtMs < 1_000) return answer;
    lookedAtMs = performance.now();
    answer = await countPending(pawl).then(
      (count) => count < MOST_PENDING,
      () => false,
    );
    return answer;
  };
}

/** Events that are not forwarded yet. */
async function countPending(pawl: Pawl): Promise<number> {
  const [found] = (await pawl.reactions.list()).filter(({ name }) => name === REACTION);
  // No worker has made it yet, and all is to be done.
  if (found === undefined) return MOST_PENDING;
  const { targets } = await pawl.reactions.targets(REACTION, { limit: 1000 });
  return targets.reduce((sum, { pending }) => sum + pending, found.unrouted);
}

// ------------------------------------------------------------------------------------------------- the reaction

export function targetOf(mark: string): string {
  let sum = 0;
  for (const letter of mark) sum = (31 * sum + letter.charCodeAt(0)) % 65_536;
  return `t${sum % TARGETS}`;
}

const outOf = (target: string): string => `out-${target}`;

function forward(bench: Bench): Reaction {
  const { random } = bench;
  return reaction(
    REACTION,
    { on: [Sent], target: ({ data }) => targetOf(data.mark), retry: RETRY },
    async (e, { emit, commit, target }) => {
      if (random.chance(0.2)) await bench.sleep(random.unit() * 30);
      if (random.chance(0.01)) await bench.sleep(random.unit() * 2 * LEASE_MS);
      if (e.version % 2 === 0) emit(outOf(target), [Forwarded({ of: e.id, took: false })]);
      // What was emitted before it is left out with it.
      if (random.chance(0.05)) throw new Error("the outside is busy");
      if (e.version % 2 === 0) return;
      await commit((tx) => {
        const { ok: took } = tx
          .aggregate(stock, `stock-${e.version % STOCKS}`)
          .tryExecute("take", { mark: e.id, units: 1 });
        tx.stream(outOf(target)).append([Forwarded({ of: e.id, took })]);
      });
    },
  );
}

/** Takes part in the work; now and then it stops in good order, and another begins. */
async function work(bench: Bench): Promise<void> {
  const { pawl, random } = bench;
  while (!bench.isOver) {
    const worker = pawl.work([forward(bench)], { lease: LEASE_MS });
    const turns = 20 + random.below(200);
    for (let turn = 0; !bench.isOver && (turn < turns || bench.isHealing); turn++) await bench.sleep(50);
    await worker.stop(random.chance(0.5) ? { timeout: 100 } : undefined);
  }
}

/** A target whose processes ended again and again waits for an operator. */
async function unblock(bench: Bench): Promise<void> {
  while (!bench.isOver) {
    await bench.sleep(500 + bench.random.unit() * 500);
    // While the store does not serve, it is asked again later.
    await bench.pawl.reactions.unblock(REACTION, { status: "blocked" }).catch(() => {});
  }
}

// ------------------------------------------------------------------------------------------------- the checks

export interface StoredUnits {
  readonly version: number;
  readonly id: string;
  readonly name: string;
  readonly mark: string;
  readonly units: number;
}

export interface StreamsState {
  /** The events of each stream that clients write to, in its order; units are 0 where there are none. */
  readonly streams: ReadonlyMap<string, readonly StoredUnits[]>;
  /** The stored state of each stock. */
  readonly left: ReadonlyMap<string, number>;
  /** The ids of all sent events, in the order of all streams. */
  readonly order: readonly string[];
  /** What was forwarded at each target, in the order of its stream. */
  readonly forwarded: ReadonlyMap<
    string,
    readonly { readonly version: number; readonly of: string; readonly took: boolean }[]
  >;
}

async function look(pawl: Pawl): Promise<StreamsState> {
  const streams = new Map<string, StoredUnits[]>();
  const order: string[] = [];
  for await (const { stream, version, id, name, data } of pawl.events.read({ events: [Sent, Put, Took] })) {
    const stored = { version, id, name, mark: data.mark, units: "units" in data ? data.units : 0 };
    streams.set(stream, [...(streams.get(stream) ?? []), stored]);
    if (name === Sent.name) order.push(id);
  }
  const left = new Map<string, number>();
  for (let i = 0; i < STOCKS; i++) {
    const name = `stock-${i}`;
    left.set(name, (await pawl.aggregate(stock, name).state()).state.left);
  }
  const forwarded = new Map<string, { version: number; of: string; took: boolean }[]>();
  for (let i = 0; i < TARGETS; i++) {
    const all: { version: number; of: string; took: boolean }[] = [];
    for await (const { version, data } of pawl.stream(outOf(`t${i}`)).read({ events: [Forwarded] }))
      all.push({ version, ...data });
    forwarded.set(`t${i}`, all);
  }
  return { streams, left, order, forwarded };
}

/** Compares what the clients were told, and what should follow from it, with the database. */
export function checkStreams({ operations }: Evidence, state: StreamsState): string[] {
  return [...checkAppends(operations, state), ...checkStocks(state), ...checkForwarded(state)];
}

function checkAppends(operations: Evidence["operations"], { streams: stored }: StreamsState): string[] {
  const wrong: string[] = [];
  const places = new Map<string, string[]>();
  const sent = new Set<string>();
  for (const [stream, events] of stored)
    for (const [i, { version, mark, id, name }] of events.entries()) {
      if (version !== i + 1) wrong.push(`${stream} has version ${version} where ${i + 1} belongs`);
      if (name === Sent.name) sent.add(id);
      places.set(mark, [...(places.get(mark) ?? []), `${stream} ${version}`]);
    }
  for (const [mark, found] of places)
    if (found.length > 1) wrong.push(`${mark} is there ${found.length} times: ${found.join(", ")}`);

  const asked = Map.groupBy(operations, ({ input }) => marksOf(input as Wish)[0] ?? "");
  const known = new Set<string>();
  for (const [first, attempts] of asked) {
    const wish = attempts[0]?.input as Wish;
    for (const mark of marksOf(wish)) known.add(mark);
    const there = marksOf(wish).flatMap((mark) => places.get(mark) ?? []);
    if (there.length !== 0 && there.length !== marksOf(wish).length)
      wrong.push(`of ${marksOf(wish).join(" and ")} only a part is there: ${there.join(", ")}`);
    const done = attempts.filter(({ answer, output }) => answer === "yes" && (output as Outcome).ok);
    if (done.length > 1) wrong.push(`${first} was acknowledged ${done.length} times`);
    for (const { output, life } of done) {
      const { version } = output as Outcome;
      const count = marksOf(wish).length;
      const expected = marksOf(wish).map((_, i) => `${wish.stream} ${version - count + 1 + i}`);
      if (there.join(", ") !== expected.join(", "))
        wrong.push(
          `${first} was acknowledged to ${life} as ${expected.join(", ")} and is ${there.join(", ") || "lost"}`,
        );
      if (wish.verb === "append" && version !== wish.expected + count)
        wrong.push(`${first} was appended after ${version - count}, and ${wish.expected} was expected`);
    }
    if (there.length > 0 && done.length === 0 && !attempts.some(({ answer }) => answer === "unknown"))
      wrong.push(`${first} was refused, and is there: ${there.join(", ")}`);
  }
  // A reaction takes units in the name of the event that it handles.
  for (const [mark, [place]] of places)
    if (!known.has(mark) && !sent.has(mark)) wrong.push(`${place} is ${mark}, which no client asked for`);
  return wrong;
}

function checkStocks({ streams: stored, left }: StreamsState): string[] {
  const wrong: string[] = [];
  for (const [stream, is] of left) {
    let sum = 0;
    for (const { version, name, units } of stored.get(stream) ?? []) {
      sum += name === Put.name ? units : name === Took.name ? -units : 0;
      if (sum < 0) wrong.push(`${stream} has ${sum} units after version ${version}`);
    }
    if (sum !== is) wrong.push(`the state of ${stream} is ${is}, and its events add up to ${sum}`);
  }
  return wrong;
}

function checkForwarded({ streams: stored, order, forwarded }: StreamsState): string[] {
  const wrong: string[] = [];
  const targets = new Map<string, string>();
  const taken = new Set<string>();
  for (const { id, name, mark } of [...stored.values()].flat()) {
    if (name === Sent.name) targets.set(id, targetOf(mark));
    if (name === Took.name) taken.add(mark);
  }
  const times = new Map<string, number>();
  for (const [target, all] of forwarded) {
    for (const [i, { version, of, took }] of all.entries()) {
      if (version !== i + 1) wrong.push(`${outOf(target)} has version ${version} where ${i + 1} belongs`);
      times.set(of, (times.get(of) ?? 0) + 1);
      if (!targets.has(of)) wrong.push(`${of} was forwarded at ${target}, and is no event`);
      if (took !== taken.has(of))
        wrong.push(`${of} was forwarded ${took ? "with" : "without"} a unit that was ${took ? "not taken" : "taken"}`);
    }
    const expected = order.filter((id) => targets.get(id) === target);
    const is = all.map(({ of }) => of);
    const first = expected.findIndex((id, i) => is[i] !== id);
    if (first >= 0 && is.length === expected.length)
      wrong.push(`${target} handled ${is[first]} where ${expected[first]} was next`);
  }
  for (const id of targets.keys())
    if (times.get(id) !== 1) wrong.push(`event ${id} was forwarded ${times.get(id) ?? 0} times`);
  return wrong;
}
