/**
 * The benchmark: it runs, it answers for every case, and its baseline is a fair one.
 *
 * Goal: figures that are printed in documents come from a tool that still works, and from contenders that do the same work.
 * Method: a quick run on each store as a child process, checked by what it writes; nothing here depends on how fast anything was.
 * Then the settings of the baselines beside those of the stores, and contenders that cheat, which must be found out.
 */

import { spawn } from "node:child_process";
import { once } from "node:events";
import { mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { DatabaseSync } from "node:sqlite";
import pg from "pg";
import { afterAll, beforeAll, describe, expect, it, vi } from "vitest";
import { drawChart } from "../bench/chart.ts";
import type { Contender } from "../bench/contender.ts";
import { type Ground, sqliteGround } from "../bench/ground.ts";
import { type PostgresGround, postgresGround } from "../bench/ground-postgres.ts";
import { openOurs, ours, oursHeld, oursSlot } from "../bench/ours.ts";
import { findPgbench, pgbench } from "../bench/pgbench.ts";
import { counters, type Plan, steps } from "../bench/plan.ts";
import { openRaw, rawMany, rawRows } from "../bench/raw.ts";
import { byHand, rawPostgres, rawPostgresTwice, SETTINGS } from "../bench/raw-postgres.ts";
import { findRedis } from "../bench/redis.ts";
import {
  measureOf,
  median,
  type Report,
  type Result,
  resultOf,
  type Saved,
  STORES,
  type StoreName,
} from "../bench/result.ts";
import { compare, type Setting } from "../bench/rounds.ts";
import { drawTable } from "../bench/table.ts";
import { pinForWriting } from "../src/stores/postgres/statements.ts";
import { type FreshDatabase, freshDatabase } from "./postgres/server.ts";

let folder = "";
beforeAll(() => {
  folder = mkdtempSync(join(tmpdir(), "pawl-bench-test-"));
});
afterAll(() => rmSync(folder, { recursive: true, force: true }));

/** Redis is compared with where it is installed. */
const lockIds = (id: string, beside: readonly string[]): readonly string[] =>
  [...beside, ...(findRedis() === null ? [] : ["c"])].map((letter) => `${id}${letter}`);

const ONCE = ["o1", "o2", "o2k", "o3a", "o3b", "o3c", "o4a", "o4b", "o5"] as const;

const IDS: Readonly<Record<StoreName, readonly string[]>> = {
  sqlite: [
    ...["a", "b", "c", "d", "e", "f1", "f2", "f3", "g1", "g2", "g3", "g4", "w1", "w10", "h1", "h2", "i1", "i2"],
    ...["l1", "l2", "l3"].flatMap((id) => lockIds(id, [])),
    ...ONCE,
  ],
  postgres: [
    ...["a", "a2", "b", "c", "p1", "p1d", "p2", "p2d", "d", "e", "w1", "w10", "h1", "h2", "j1", "j2", "i1", "i2", "k"],
    ...(findPgbench() === null ? [] : ["r1", "r2"]),
    ...["t1a", "t1b", "t2a", "t2b"],
    ...["l1", "l2", "l3"].flatMap((id) => lockIds(id, ["a", "b"])),
    ...ONCE,
  ],
};

/** How many of a hundred callers share a transaction: that, and no timing, is what the comparison with raw rests on. */
const SHARING: Readonly<Record<StoreName, number>> = { sqlite: 90, postgres: 20 };

describe("a quick run", () => {
  it.each(STORES)(
    "on %s answers for every case with figures that can be, and leaves nothing else behind",
    { timeout: 240_000 },
    async (store) => {
      const out = join(folder, "out", store);
      const server = store === "postgres" ? await freshDatabase() : null;
      const before = await databasesOf(server);
      const env = { ...process.env, ...(server === null ? {} : { PAWL_TEST_POSTGRES: server.url }) };
      const main = join(import.meta.dirname, "../bench/main.ts");
      const flags = ["--conditions=pawl-source", "--disable-warning=ExperimentalWarning"];
      const args = [...flags, main, store, "--quick", "--out", out, "--date", "2001-02-03"];
      // The server may be one that this process keeps, so this process must not stand still.
      const { code, stdout, stderr } = await run(args, env);
      expect({ code, stderr }, stdout).toEqual({ code: 0, stderr: "" });
      expect(readdirSync(out).sort()).toEqual(["chart.svg", "results.json"]);
      expect(await databasesOf(server)).toEqual(before);
      await server?.drop();
      const saved: Saved = JSON.parse(readFileSync(join(out, "results.json"), "utf8"));
      expect(Object.keys(saved)).toEqual(["format", store]);
      const report = saved[store];
      if (report === undefined) throw new Error("there is no report of this store");
      expect(report).toMatchObject({ mode: "quick", date: "2001-02-03" });
      expect(report.machine.node).toBe(process.versions.node);
      expect(report.machine.database).toMatch(
        store === "sqlite" ? `SQLite ${process.versions["sqlite"]}` : /^PostgreSQL \d/,
      );
      expect(report.results.map(({ id }) => id)).toEqual(IDS[store]);
      for (const { id, base, ours, ratio, bestRatio, target, reached } of report.results) {
        // Medians are rounded, so the ratio agrees with them to a few digits, however large it is.
        expect(ratio / (ours.median / base.median), id).toBeCloseTo(1, 2);
        expect(bestRatio, id).toBeGreaterThan(0);
        expect(reached === null, id).toBe(target === null);
        for (const { name, median, min, max, rounds } of [base, ours]) {
          expect(rounds.length, `${id} ${name}`).toBeGreaterThanOrEqual(1);
          expect(min, `${id} ${name}`).toBeGreaterThan(0);
          expect(median, `${id} ${name}`).toBeGreaterThanOrEqual(min);
          expect(max, `${id} ${name}`).toBeGreaterThanOrEqual(median);
          expect(stdout, `${id} ${name}`).toContain(name);
        }
      }
      const sharing = report.results.find(({ id }) => id === "a")?.details["Pawl: commits in a transaction"];
      expect(sharing).toBeGreaterThan(SHARING[store]);
    },
  );

  it("of one store keeps what was saved of the other", { timeout: 60_000 }, async () => {
    const out = mkdtempSync(join(folder, "both-"));
    const other = reportOf(resultWith(6, null));
    writeFileSync(join(out, "results.json"), JSON.stringify({ format: 2, postgres: other }));
    const main = join(import.meta.dirname, "../bench/main.ts");
    const flags = ["--conditions=pawl-source", "--disable-warning=ExperimentalWarning"];
    const args = [...flags, main, "--store", "sqlite", "--quick", "--only", "d", "--out", out];
    expect(await run(args, process.env)).toMatchObject({ code: 0 });
    const saved: Saved = JSON.parse(readFileSync(join(out, "results.json"), "utf8"));
    expect(Object.keys(saved)).toEqual(["format", "sqlite", "postgres"]);
    expect(saved.postgres).toEqual(other);
    expect(readFileSync(join(out, "chart.svg"), "utf8").match(/class="title"/g)).toHaveLength(2);
  });

  async function run(args: readonly string[], env: NodeJS.ProcessEnv) {
    const child = spawn(process.execPath, args, { env, stdio: ["ignore", "pipe", "pipe"], timeout: 230_000 });
    const [out, err]: [string[], string[]] = [[], []];
    child.stdout.setEncoding("utf8").on("data", (text: string) => out.push(text));
    child.stderr.setEncoding("utf8").on("data", (text: string) => err.push(text));
    const [code] = await once(child, "close");
    return { code, stdout: out.join(""), stderr: err.join("") };
  }

  /** The databases that the benchmark has made on this server and not dropped. */
  async function databasesOf(server: FreshDatabase | null): Promise<readonly string[]> {
    if (server === null) return [];
    const client = new pg.Client({ connectionString: server.url });
    await client.connect();
    const { rows } = await client.query<{ datname: string }>(
      "select datname from pg_database where datname like 'pawl\\_bench\\_%' order by datname",
    );
    await client.end();
    return rows.map(({ datname }) => datname);
  }
});

const plans: readonly [string, Contender, () => Plan][] = [
  ["steps", ours, () => steps({ callers: 7, turns: 20 })],
  ["new records", ours, () => steps({ callers: 7, turns: 5, commitsPerRecord: 1 })],
  ["claimed records", oursHeld, () => steps({ callers: 7, turns: 20, claimed: true })],
  ["counters", oursSlot, () => counters({ callers: 7, turns: 20 })],
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

function race(ground: Ground, contenders: readonly Contender[], plan: () => Plan) {
  const setting: Setting = { ground, folder, quick: true, rounds: () => 1, note: () => {} };
  const sides = contenders.map((contender) => ({ name: contender.name, contender, plan }));
  return compare(setting, { unit: "commits/s", rounds: 1, sides, same: "rows" });
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
    expect(measures.map(({ commitsPerTransaction }) => commitsPerTransaction)).toEqual([7, 7, 7]);
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

  it.runIf(findPgbench() !== null)("does what pgbench does", async () => {
    const measures = await race(ground, [rawPostgres, pgbench], fewSteps);
    expect(measures.map(({ commitsPerTransaction }) => commitsPerTransaction)).toEqual([3, 3]);
  });

  it.each(cheats)("that does something else is found out: %s", async (_, change) => {
    const contenders = [ours, cheatingLike(rawPostgres, change)];
    await expect(race(ground, contenders, fewSteps)).rejects.toThrow("left other rows");
  });
});

describe("what is shown", () => {
  it.each([
    { of: [3, 1, 2], is: 2 },
    { of: [4, 1, 2, 3], is: 2.5 },
    { of: [5], is: 5 },
  ])("the median of $of is $is", ({ of, is }) => {
    expect(median(of)).toBe(is);
  });

  it.each([
    { is: "at least", ratio: 0.5, ours: 5, reached: true },
    { is: "at least", ratio: 0.5, ours: 4.9, reached: false },
    { is: "at most", ratio: 1.5, ours: 15, reached: true },
    { is: "at most", ratio: 1.5, ours: 15.1, reached: false },
  ] as const)("$ours beside 10 has reached $is $ratio: $reached", ({ is, ratio, ours, reached }) => {
    expect(resultWith(ours, { is, ratio }).reached).toBe(reached);
  });

  it("a missed target is said in the table and seen in the chart", () => {
    const report = reportOf(resultWith(4, { is: "at least", ratio: 0.5 }));
    expect(drawTable(report)).toContain("MISSED");
    expect(drawChart([report])).toContain('<rect class="missed"');
    const better = reportOf(resultWith(6, { is: "at least", ratio: 0.5 }));
    expect(drawTable(better)).not.toContain("MISSED");
    expect(drawChart([better])).not.toContain('<rect class="missed"');
  });

  it("what could not be measured is said", () => {
    const report = { ...reportOf(resultWith(6, null)), notes: ["nobody has checked"] };
    expect(drawTable(report)).toContain("nobody has checked");
  });

  it("a chart is well-formed whatever the names are", () => {
    const chart = drawChart([reportOf({ ...resultWith(6, null), title: "a < b && c > d" })]);
    expect(chart).toContain("a &lt; b &amp;&amp; c &gt; d");
  });
});

const resultWith = (ours: number, target: Result["target"]): Result =>
  resultOf({
    id: "x",
    title: "x",
    unit: "ms",
    base: measureOf("base", [10]),
    ours: measureOf("ours", [ours]),
    target,
  });

function reportOf(result: Result): Report {
  const disk = { fileSystem: "f", syncMs: 1 };
  const machine = { platform: "p", cpu: "c", cores: 1, memoryGiB: 1, node: "n", database: "SQLite 3", disk };
  return { date: "2001-02-03", mode: "full", seconds: 1, machine, results: [result], notes: [] };
}

function randomName(): string {
  return Math.random().toString(36).slice(2);
}
