/**
 * The benchmark: its baseline is a fair one.
 *
 * Goal: figures that are printed in documents come from contenders that do the same work.
 * Method: the settings of the baselines beside those of the stores, and contenders that cheat, which must be found out.
 */

import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { DatabaseSync } from "node:sqlite";
import { afterAll, beforeAll, describe, expect, it, vi } from "vitest";
import type { Contender } from "../../bench/contender.ts";
import { type Ground, type Sameness, sqliteGround } from "../../bench/ground.ts";
import { type PostgresGround, postgresGround } from "../../bench/ground-postgres.ts";
import { openOurs, ours, oursHeld, oursSlot } from "../../bench/ours.ts";
import { oursAppends, oursCommands, seeAppends, seeCommands } from "../../bench/ours-streams.ts";
import { findPgbench, pgbench } from "../../bench/pgbench.ts";
import { counters, events, type Plan, steps } from "../../bench/plan.ts";
import { openRaw, rawMany, rawRows, rawSeen } from "../../bench/raw.ts";
import { byHand, rawPostgres, rawPostgresTwice, rawSeenPostgres, SETTINGS } from "../../bench/raw-postgres.ts";
import { compare, type Setting } from "../../bench/rounds.ts";
import type { See } from "../../bench/run-rows.ts";
import { pinForWriting } from "../../src/stores/postgres/statements.ts";
import { type FreshDatabase, freshDatabase } from "../postgres/server.ts";

let folder = "";
beforeAll(() => {
  folder = mkdtempSync(join(tmpdir(), "pawl-bench-test-"));
});
afterAll(() => rmSync(folder, { recursive: true, force: true }));

const plans: readonly [string, Contender, () => Plan][] = [
  ["steps", ours, () => steps({ callers: 7, turns: 20 })],
  ["new records", ours, () => steps({ callers: 7, turns: 5, commitsPerRecord: 1 })],
  ["claimed records", oursHeld, () => steps({ callers: 7, turns: 20, claimed: true })],
  ["counters", oursSlot, () => counters({ callers: 7, turns: 20 })],
];

/** What they write is seen by letting them write in memory. */
const streams: readonly [string, Contender, See, () => Plan][] = [
  ["appends", oursAppends, seeAppends, () => events({ callers: 7, turns: 20 })],
  ["appends to one stream", oursAppends, seeAppends, () => events({ callers: 7, turns: 20, hot: true })],
  ["commands", oursCommands, seeCommands, () => events({ callers: 7, turns: 20 })],
  ["commands on one stream", oursCommands, seeCommands, () => events({ callers: 7, turns: 20, hot: true })],
];

const fewSteps = () => steps({ callers: 3, turns: 10 });

const cheats: readonly [string, (plan: Plan) => Plan][] = [
  ["a turn less", (plan) => ({ ...plan, turns: plan.turns - 1 })],
  ["no log", (plan) => ({ ...plan, logged: false })],
  ["other values", (plan) => ({ ...plan, values: plan.values.map(() => 0) })],
];

function cheatingLike(honest: Contender, change: (plan: Plan) => Plan): Contender {
  return {
    name: "cheat",
    open: async (place) => {
      const session = await honest.open(place);
      return { run: (plan) => session.run(change(plan)), close: () => session.close() };
    },
  };
}

function race(ground: Ground, contenders: readonly Contender[], plan: () => Plan, same: Sameness = "rows") {
  const setting: Setting = { ground, folder, quick: true, rounds: () => 1, note: () => {} };
  const sides = contenders.map((contender) => ({ name: contender.name, contender, plan }));
  return compare(setting, { unit: "commits/s", rounds: 1, sides, same });
}

describe("the baseline on SQLite", () => {
  it("is set up like the store", async () => {
    const raw = await pragmasOf(async (path) => openRaw(path).close());
    const store = await pragmasOf(async (path) => (await openOurs(path)).kernel.close());
    expect(raw).toEqual(store);
    expect(raw).toContain("synchronous = 2");
  });

  /** Every pragma that is set while a database is opened. */
  async function pragmasOf(use: (path: string) => Promise<unknown>): Promise<string[]> {
    const exec = vi.spyOn(DatabaseSync.prototype, "exec");
    const prepare = vi.spyOn(DatabaseSync.prototype, "prepare");
    await use(join(folder, `${randomName()}.db`));
    const texts = [...exec.mock.calls, ...prepare.mock.calls].flatMap(([sql]) => sql.split(";"));
    exec.mockRestore();
    prepare.mockRestore();
    const pragmas = texts.filter((text) => /^\s*pragma .*=/i.test(text));
    return pragmas.map((text) => text.replace(/^\s*pragma\s+/i, "").trim()).sort();
  }

  it.each(plans)("leaves the same rows as ours: %s", async (_, contender, plan) => {
    const measures = await race(groundOfSqlite(), [rawRows, rawMany, contender], plan);
    const [rows, many, pawl] = measures.map(({ commitsPerTransaction }) => commitsPerTransaction);
    expect([rows, many]).toEqual([7, 7]);
    // On a busy machine a flight may leave before the last caller has submitted.
    expect(pawl).toBeGreaterThan(3.5);
    expect(pawl).toBeLessThanOrEqual(7);
  });

  it.each(streams)("leaves as many and as long rows as ours: %s", async (_, contender, see, plan) => {
    const measures = await race(groundOfSqlite(), [rawSeen("raw", see), contender], plan, "lengths");
    expect(measures.map(({ commitsPerTransaction }) => commitsPerTransaction)).toEqual([7, 7]);
  });

  it("of streams that leaves out what is followed is found out", async () => {
    const unfollowed: See = async (namespace, plan) =>
      (await seeAppends(namespace, plan)).map((turn) => ({
        ...turn,
        entries: turn.entries.map(({ isFollowed: _, ...entry }) => entry),
      }));
    const contenders = [oursAppends, rawSeen("cheat", unfollowed)];
    const plan = () => events({ callers: 3, turns: 10 });
    await expect(race(groundOfSqlite(), contenders, plan, "lengths")).rejects.toThrow("left other rows");
  });

  it.each(cheats)("that does something else is found out: %s", async (_, change) => {
    const contenders = [ours, cheatingLike(rawRows, change)];
    await expect(race(groundOfSqlite(), contenders, fewSteps)).rejects.toThrow("left other rows");
  });

  const groundOfSqlite = () => sqliteGround(mkdtempSync(join(folder, "race-")));
});

describe("the baseline on PostgreSQL", () => {
  let server: FreshDatabase;
  let ground: PostgresGround;
  beforeAll(async () => {
    server = await freshDatabase();
    ground = await postgresGround(server.url);
  }, 90_000);
  afterAll(async () => {
    await ground.close();
    await server.drop();
  });

  it("has the plans that the store pins", () => {
    const { text } = pinForWriting(5000, true).statement;
    const pinned = [...text.matchAll(/set_config\('((?:enable_|plan_|jit)\w*)', '(\w+)', true\)/g)];
    expect(pinned.map(([, name, value]) => `${name} = ${value}`)).toEqual(SETTINGS);
  });

  it.each(plans)("leaves the same rows as ours: %s", async (_, contender, plan) => {
    const measures = await race(ground, [rawPostgres, rawPostgresTwice, byHand, contender], plan);
    expect(measures.slice(0, 2).map(({ commitsPerTransaction }) => commitsPerTransaction)).toEqual([7, 3.5]);
  });

  it.each(streams)("leaves as many and as long rows as ours: %s", async (_, contender, see, plan) => {
    const shares = plan().hot ? [1] : [1, 2];
    const raws = shares.map((count) => rawSeenPostgres(`raw ${count}`, see, count));
    const measures = await race(ground, [...raws, contender], plan, "lengths");
    expect(measures[0]?.commitsPerTransaction).toBe(7);
  });

  it.runIf(findPgbench() !== null)("does what pgbench does", async () => {
    const measures = await race(ground, [rawPostgres, pgbench], fewSteps);
    expect(measures.map(({ commitsPerTransaction }) => commitsPerTransaction)).toEqual([3, 3]);
  });

  it.each(cheats)("that does something else is found out: %s", async (_, change) => {
    const contenders = [ours, cheatingLike(rawPostgres, change)];
    await expect(race(ground, contenders, fewSteps)).rejects.toThrow("left other rows");
  });
});

function randomName(): string {
  return Math.random().toString(36).slice(2);
}
