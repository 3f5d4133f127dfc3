/**
 * One success for each expected version (G11), with eight real processes on one database.
 *
 * Goal: of 32 writers in 8 processes on one stream, one has each version, no version is missing, and each append that was acknowledged is there
 * once, where it was said to be; of 104 creators of each of a hundred streams, one creates it.
 * Method: writers that append where they have read, in processes that are killed by SIGKILL in the middle and started anew. Each reports its
 * successes as they come. What is there and was not reported can only be the last append of a writer whose process was killed.
 */

import { join } from "node:path";
import { describe, expect, test } from "vitest";
import type { Pawl } from "../../src/index.ts";
import { Child, spawnNode } from "../node/child.ts";
import { type Ground, grounds } from "../sql/grounds.ts";
import { all } from "./kit.ts";
import { CREATORS_EACH, lifeOf, PROCESSES, type Wish, type Won, WRITERS_EACH, Written } from "./writers.ts";

const TIMEOUT = { timeout: 600_000 };
const WINS = 12;
/** Seats whose process is killed after this many of its appends were reported, and the next one in its place too. */
const KILLED_AFTER = 9;
const KILLS = 2;
const isKilled = (seat: number): boolean => seat % 2 === 1;

const range = (length: number) => Array.from({ length }, (_, i) => i);

class Crowd {
  readonly won: Won[] = [];
  readonly killed = new Set<string>();
  readonly #where: string;
  readonly #children = new Map<number, Child>();

  constructor(where: string) {
    this.#where = where;
  }

  async wish(seat: number, wish: Wish, kills = 0): Promise<void> {
    for (let life = 0; ; life++) {
      const name = `p${seat}l${life}`;
      const child = this.#children.get(seat) ?? (await this.#start(seat, name));
      child.tell(JSON.stringify(wish));
      if (await this.#hear(child, life < kills ? KILLED_AFTER : Number.POSITIVE_INFINITY)) return;
      expect(await child.ended, child.complaints).toEqual({ code: null, signal: "SIGKILL" });
      this.killed.add(name);
      this.#children.delete(seat);
    }
  }

  async #start(seat: number, name: string): Promise<Child> {
    const file = join(import.meta.dirname, "children", "writer.ts");
    const child = new Child(spawnNode(file, [this.#where, name]), name);
    expect(await child.line()).toBe("ready");
    this.#children.set(seat, child);
    return child;
  }

  /** Records what the child reports. Returns false if it was killed, after as many reports. */
  async #hear(child: Child, killedAfter: number): Promise<boolean> {
    for (let heard = 0; ; heard++) {
      if (heard === killedAfter) child.signal("SIGKILL");
      let line: string;
      try {
        line = await child.line();
      } catch (error) {
        // Whatever it had reported by then was read before its end.
        if (heard < killedAfter) throw error;
        return false;
      }
      // One that was quicker than its killer is done.
      if (line === "done") return true;
      this.won.push(JSON.parse(line));
    }
  }

  async end(): Promise<void> {
    for (const child of this.#children.values()) await child.kill();
  }
}

async function withCrowd(make: () => Promise<Ground>, act: (crowd: Crowd, pawl: Pawl) => Promise<void>) {
  const ground = await make();
  const pawl = await ground.open();
  const crowd = new Crowd(ground.where);
  try {
    await act(crowd, pawl);
  } finally {
    await crowd.end();
    await pawl.close();
    await ground.leave();
  }
}

/** The stream has each acknowledged append where it was said to be, and no gap. Returns the others that it has. */
async function compare(pawl: Pawl, crowd: Crowd, id: string): Promise<string[]> {
  const stored = await all(pawl.stream(id).read({ events: [Written] }));
  expect(stored.map(({ version }) => version)).toEqual(range(stored.length).map((n) => n + 1));
  const marks = stored.map(({ data }) => data.mark);
  expect(new Set(marks).size).toBe(marks.length);
  const won = crowd.won.filter(({ stream }) => stream === id);
  expect(won.filter(({ after, version }) => version !== after + 1)).toEqual([]);
  const found = won.map(({ version }) => stored[version - 1]);
  expect(found.map((one) => [one?.version, one?.id, one?.data.mark])).toEqual(
    won.map(({ version, id, mark }) => [version, id, mark]),
  );
  const reported = new Set(won.map(({ mark }) => mark));
  expect(reported.size).toBe(won.length);
  return marks.filter((mark) => !reported.has(mark));
}

describe.each(grounds)("8 processes on %s", (_, make) => {
  test(
    "32 writers of one stream, some of which are killed: one success for each version, and none missing",
    TIMEOUT,
    () =>
      withCrowd(make, async (crowd, pawl) => {
        await Promise.all(
          range(PROCESSES).map((seat) => crowd.wish(seat, { append: "hot", wins: WINS }, isKilled(seat) ? KILLS : 0)),
        );
        const unreported = await compare(pawl, crowd, "hot");
        const lives = Map.groupBy(unreported, lifeOf);
        // Its writers had one append in hand each when their process was killed; what they had reported was read.
        for (const [life, marks] of lives) {
          expect(crowd.killed.has(life), `${life} was not killed, and has ${marks}`).toBe(true);
          expect(marks.length).toBeLessThanOrEqual(WRITERS_EACH);
        }
        const processes = new Set(crowd.won.map(({ mark }) => lifeOf(mark).split("l")[0]));
        console.log(
          `streams: ${crowd.won.length} appends by ${processes.size} processes with ${crowd.killed.size} kills, ${unreported.length} not reported`,
        );
        expect(crowd.won.length).toBeGreaterThanOrEqual(PROCESSES * WRITERS_EACH * WINS);
        expect(crowd.killed.size).toBeGreaterThan(0);
        expect(processes.size).toBe(PROCESSES);
      }),
  );

  test(`${PROCESSES * CREATORS_EACH} creators of each of 100 streams: one of them creates it`, TIMEOUT, () =>
    withCrowd(make, async (crowd, pawl) => {
      // So many at a time that all processes are at work on the same ones.
      for (const few of range(10)) {
        const create = range(10).map((n) => `new-${few}-${n}`);
        await Promise.all(range(PROCESSES).map((seat) => crowd.wish(seat, { create })));
      }
      const creators = Map.groupBy(crowd.won, ({ stream }) => stream);
      expect(creators.size).toBe(100);
      for (const [id, won] of creators) {
        expect(won.length, id).toBe(1);
        expect(await pawl.stream(id).head()).toBe(1);
        expect(await compare(pawl, crowd, id)).toEqual([]);
      }
      expect(new Set(crowd.won.map(({ mark }) => lifeOf(mark))).size).toBeGreaterThan(1);
    }),
  );
});
