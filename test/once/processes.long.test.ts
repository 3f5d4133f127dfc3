/**
 * One winner (G4) and all or nothing (G29), with eight real processes on one database.
 *
 * Goal: of 64 clients in 8 processes, one wins each action, none has two winners and none is left without one; a winner that asks
 * again gets the same result, even if its process was killed before it got the first. And an order that consumes a coupon, moves its machine,
 * starts a run and stores its result exists completely or not at all, at the end and whenever it is read.
 * Method: clients attack the actions a few at a time, with a barrier before each few, and processes are killed in the middle and started
 * anew. Orders are placed by processes that are killed by SIGKILL again and again, two of them at work on each order and two orders after
 * each coupon, while a process beside them looks all the time. A planted mistake, in which each part is a commit of its own, must be seen.
 *
 * `PAWL_ONCE_ACTIONS=10000 PAWL_ONCE_ORDERS=2000` makes it as large as it was meant to be.
 */

import { join } from "node:path";
import { describe, expect, test } from "vitest";
import type { Pawl } from "../../src/index.ts";
import { Child, spawnNode } from "../node/child.ts";
import { type Ground, grounds, sleep } from "../sql/grounds.ts";
import {
  OPTIONS as ACTIONS,
  type Asked,
  CLIENTS_EACH,
  type Heard,
  nameOf,
  PROCESSES,
  processOf,
  type Wish,
} from "./actions.ts";
import { isCanceled, LEASE_MS, OPTIONS, requestOf, type Sight, type Way } from "./orders.ts";
import { fulfil, looksOf, order, partsOf, runOf } from "./shop.ts";

const sizeOf = (name: string, usual: number): number => Number(process.env[name] ?? usual);
const ACTIONS_COUNT = sizeOf("PAWL_ONCE_ACTIONS", 100);
const ORDERS_COUNT = sizeOf("PAWL_ONCE_ORDERS", 80);
/** Time for the sizes that were asked for, on a machine that is busy with other things. */
const TIMEOUT = { timeout: 600_000 + 3_000 * (ACTIONS_COUNT + ORDERS_COUNT) };

const start = (program: string, args: readonly string[]): Child =>
  new Child(spawnNode(join(import.meta.dirname, "children", program), args), program);

async function ready(child: Child): Promise<Child> {
  expect(await child.line()).toBe("ready");
  return child;
}

async function onGround(make: () => Promise<Ground>, act: (ground: Ground) => Promise<void>): Promise<void> {
  const ground = await make();
  try {
    await act(ground);
  } finally {
    await ground.leave();
  }
}

// ------------------------------------------------------------------------------------------------- one winner

/** The number of concurrent actions. */
const FEW = 20;
/** The number of rounds in which a process dies and is restarted. */
const KILLS = Math.max(4, Math.floor(ACTIONS_COUNT / 500));

class Crowd {
  readonly #where: string;
  readonly #children: Promise<Child>[];

  constructor(where: string) {
    this.#where = where;
    this.#children = Array.from({ length: PROCESSES }, (_, number) => this.#start(number));
  }

  #start(number: number): Promise<Child> {
    return ready(start("client.ts", [this.#where, String(number)]));
  }

  all(): Promise<Child[]> {
    return Promise.all(this.#children);
  }

  async wish(number: number, wish: Wish): Promise<Heard[]> {
    const child = await (this.#children[number] as Promise<Child>);
    child.tell(JSON.stringify(wish));
    return JSON.parse(await child.line());
  }

  /** The process dies with what it has won and not told; the next one has the same clients, who know nothing of it. */
  async dieDuring(number: number, take: readonly string[]): Promise<Heard[]> {
    const child = await (this.#children[number] as Promise<Child>);
    child.tell(JSON.stringify({ take, diesAfter: 1 + Math.floor(Math.random() * 3) } satisfies Wish));
    expect(await child.ended, child.complaints).toEqual({ code: null, signal: "SIGKILL" });
    this.#children[number] = this.#start(number);
    return this.wish(number, { take });
  }

  async end(): Promise<void> {
    for (const child of await this.all()) child.signal("SIGKILL");
    for (const child of await this.all()) await child.ended;
  }
}

async function makeActions(pawl: Pawl, ids: readonly string[]): Promise<void> {
  for (let i = 0; i < ids.length; i += 100)
    await pawl.actions.createMany(ids.slice(i, i + 100).map((id) => ({ id, payload: `what ${id} gives` })));
}

describe.each(grounds)("64 clients in 8 processes on %s", (_, make) => {
  test("each action has one winner, which gets the same result again", TIMEOUT, () =>
    onGround(make, async (ground) => {
      const pawl = await ground.open({ actions: ACTIONS });
      const ids = Array.from({ length: ACTIONS_COUNT }, (_, i) => `a${i}`);
      await makeActions(pawl, ids);
      const crowd = new Crowd(ground.where);
      await crowd.all();

      const heard: Heard[] = [];
      let kills = 0;
      const isReplayed = () => heard.some((one) => one.ok && one.replayed);
      for (let i = 0; i < ids.length || (!isReplayed() && i < ACTIONS_COUNT + 20 * FEW); i += FEW) {
        // Whether a winner dies before it gets its result is random: if none has, there is another round.
        if (i >= ids.length) {
          const more = Array.from({ length: FEW }, (_, n) => `a${i + n}`);
          await makeActions(pawl, more);
          ids.push(...more);
          kills = Math.min(kills, KILLS - 1);
        }
        const take = ids.slice(i, i + FEW);
        const killed = i > 0 && kills < KILLS ? Math.floor(Math.random() * PROCESSES) : -1;
        if (killed >= 0) kills += 1;
        const rounds = Array.from({ length: PROCESSES }, (_, number) =>
          number === killed ? crowd.dieDuring(number, take) : crowd.wish(number, { take }),
        );
        for (const round of await Promise.all(rounds)) heard.push(...round);
      }

      expect(heard.length).toBe(ids.length * PROCESSES * CLIENTS_EACH);
      const wins = Map.groupBy(
        heard.filter(({ ok }) => ok),
        ({ action }) => action,
      );
      // None is without a winner, and none has two.
      expect(ids.filter((id) => wins.get(id)?.length !== 1)).toEqual([]);
      const winnerOf = (action: string): string => wins.get(action)?.[0]?.client ?? "";
      const wrong = heard.filter((one) => !one.ok && (one.code !== "already_used" || one.by !== winnerOf(one.action)));
      expect(wrong).toEqual([]);

      // All winners ask again, and all losers of the first few with them.
      const asked = ids.map((action): Asked => ({ action, client: winnerOf(action) }));
      const again = await Promise.all(
        Array.from({ length: PROCESSES }, (_, number) =>
          crowd.wish(number, { ask: asked.filter(({ client }) => processOf(client) === number) }),
        ),
      );
      const same = again.flat().map((one) => {
        const first = wins.get(one.action)?.[0];
        const isSame = one.ok && first?.ok === true && one.atMs === first.atMs && one.payload === first.payload;
        return isSame && one.ok && one.replayed && one.payload === `what ${one.action} gives`;
      });
      expect(same.length).toBe(ids.length);
      expect(same.every((is) => is)).toBe(true);
      const losers = ids.slice(0, FEW).map((action): Asked => {
        const client = nameOf((processOf(winnerOf(action)) + 1) % PROCESSES, 0);
        return { action, client };
      });
      const lost = await crowd.wish(0, { ask: losers });
      expect(lost.filter(({ ok }) => ok)).toEqual([]);

      // The audit trail has one use, by the winner; and the winners are of many processes, so there was a race.
      for (const id of ids.slice(0, FEW))
        expect((await pawl.actions.history(id)).map(({ name, data }) => [name, data])).toEqual([
          ["created", {}],
          ["consumed", { by: winnerOf(id), usesLeft: 0 }],
        ]);
      const replays = heard.filter((one) => one.ok && one.replayed).length;
      const processes = new Set(ids.map((id) => processOf(winnerOf(id)))).size;
      console.log(
        `once on ${ground.store}: ${ids.length} actions, ${heard.length} asked, winners in ${processes} processes, ` +
          `${kills} kills, ${replays} winners heard of it only in their next life`,
      );
      expect(processes).toBeGreaterThan(1);
      expect(replays).toBeGreaterThan(0);
      await crowd.end();
      await pawl.close();
    }),
  );
});

// ------------------------------------------------------------------------------------------------- all or nothing

interface Size {
  readonly orders: number;
  /** How often each process is killed before it has its way. */
  readonly killsEach: number;
}

interface Said {
  readonly placed: Map<string, Set<string>>;
  readonly refused: Map<string, Set<string>>;
  kills: number;
}

/** One of the eight: it is killed a few times, and then has its way. */
async function seat(ground: Ground, way: Way, { orders, killsEach }: Size, number: number, said: Said): Promise<void> {
  // Each order is given to two seats, so that most orders are placed by two concurrently.
  const mine = Array.from({ length: orders }, (_, i) => i)
    .filter((i) => i % PROCESSES === number || (i + 3) % PROCESSES === number)
    .map(requestOf);
  const args = [ground.where, way, JSON.stringify(mine), number % 2 === 0 ? "works" : "places"];
  for (let life = 0; life <= killsEach; life++) {
    const child = await ready(start("placer.ts", args));
    const isLast = life === killsEach;
    if (!isLast) void sleep(Math.random() * 150).then(() => child.signal("SIGKILL"));
    const isDone = await hear(child, said);
    const { code, signal } = await child.ended;
    if (signal === "SIGKILL") said.kills += 1;
    // One that was quicker than its killer is done, and the next one asks for everything again.
    expect({ isDone, code, signal }, child.complaints).toEqual(
      signal === "SIGKILL" && !isLast ? { isDone, code: null, signal } : { isDone: true, code: 0, signal: null },
    );
  }
}

/** Records a child's output; returns whether it ended normally. */
async function hear(child: Child, { placed, refused }: Said): Promise<boolean> {
  for (;;) {
    let line: string;
    try {
      line = await child.line();
    } catch {
      return false;
    }
    if (line === "done") return true;
    const [verb, id = "", what = ""] = line.split(" ");
    const notes = verb === "placed" ? placed : refused;
    notes.set(id, (notes.get(id) ?? new Set()).add(what));
  }
}

async function placeAll(ground: Ground, way: Way, size: Size): Promise<{ said: Said; sight: Sight }> {
  const pawl = await ground.open({ actions: OPTIONS });
  const coupons = new Set(Array.from({ length: size.orders }, (_, i) => requestOf(i).coupon));
  await Promise.all(Array.from(coupons, (id) => pawl.actions.create({ id })));
  const orders = pawl.machine(order);
  await Promise.all(
    Array.from({ length: size.orders }, async (_, i) => {
      await orders.create(requestOf(i).id);
      if (isCanceled(i)) await orders.transition(requestOf(i).id, "canceled");
    }),
  );
  await pawl.close();
  const observer = await ready(start("observer.ts", [ground.where, String(size.orders)]));
  const said: Said = { placed: new Map(), refused: new Map(), kills: 0 };
  await Promise.all(Array.from({ length: PROCESSES }, (_, number) => seat(ground, way, size, number, said)));
  observer.tell("stop");
  const sight: Sight = JSON.parse(await observer.line());
  return { said, sight };
}

describe.each(grounds)("orders placed by 8 processes that are killed, on %s", (_, make) => {
  test("each exists completely or not at all, and no reader sees a part of one", TIMEOUT, () =>
    onGround(make, async (ground) => {
      const size = { orders: ORDERS_COUNT, killsEach: 2 };
      const { said, sight } = await placeAll(ground, "together", size);
      console.log(
        `orders on ${ground.store}: ${said.placed.size} placed and ${said.refused.size} refused by 8 processes with ` +
          `${said.kills} kills; ${sight.looks} looks, ${sight.midway} of them while it grew, ${sight.parts.length} parts seen`,
      );
      expect(sight.parts).toEqual([]);
      expect(sight.looks).toBeGreaterThan(20);
      expect(sight.midway).toBeGreaterThan(0);
      expect(said.kills).toBeGreaterThan(PROCESSES / 2);

      await using pawl = await ground.open({ actions: OPTIONS });
      const requests = Array.from({ length: ORDERS_COUNT }, (_, i) => requestOf(i));
      const rows = (await pawl.kernel.read(requests.flatMap(partsOf))).filter((row) => row !== null);
      const { placed, parts } = looksOf(requests, rows);
      expect(parts).toEqual([]);
      // Every result that a caller got is true, and the same for all.
      expect(new Set(said.placed.keys())).toEqual(new Set(placed));
      expect([...said.placed].filter(([, numbers]) => numbers.size !== 1)).toEqual([]);
      const isPlaced = new Set(placed);
      expect(requests.filter(({ id }) => said.refused.has(id) === isPlaced.has(id))).toEqual([]);
      // Of two that want a coupon one has it, and one that was canceled never has.
      for (let i = 0; i < ORDERS_COUNT; i += 2) {
        const [one, two] = [requestOf(i).id, requestOf(i + 1).id];
        expect(isPlaced.has(one) !== isPlaced.has(two), `${one}, ${two}`).toBe(true);
        if (isCanceled(i)) expect(isPlaced.has(one)).toBe(false);
      }
      // Some were refused by the first part, and some by the second, after the first had been decided.
      const codes = new Set([...said.refused.values()].flatMap((some) => [...some]));
      expect([...codes].toSorted()).toEqual(["already_used", "illegal_transition"]);
      // What was started continues, and nothing else was started.
      pawl.work([fulfil], { lease: LEASE_MS });
      for (const id of placed) expect(await pawl.run(fulfil, runOf(id)).result()).toBe(`parcel of ${id} shipped`);
      const { runs } = await pawl.runs.list({ limit: 1000 });
      if (placed.length < 1000) expect(runs.length).toBe(placed.length);
    }),
  );

  test("parts would be seen if each were a commit of its own", TIMEOUT, () =>
    onGround(make, async (ground) => {
      const { sight } = await placeAll(ground, "apart", { orders: 40, killsEach: 1 });
      expect(sight.parts).not.toEqual([]);
    }),
  );
});
