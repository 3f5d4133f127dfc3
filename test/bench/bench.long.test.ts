/**
 * Goal: the benchmark runs from beginning to end, on both stores, and its figures are plausible.
 * Method: a quick run on each store as a child process, checked by what it writes; nothing here depends on how fast anything was.
 */

import { spawn } from "node:child_process";
import { once } from "node:events";
import { mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import pg from "pg";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { findPgbench } from "../../bench/pgbench.ts";
import { findRedis } from "../../bench/redis.ts";
import { type Saved, STORES, type StoreName } from "../../bench/result.ts";
import { type PostgresServer, startPostgres } from "../postgres/server.ts";
import { reportOf, resultWith } from "./reports.ts";

let folder = "";
beforeAll(() => {
  folder = mkdtempSync(join(tmpdir(), "pawl-bench-test-"));
});
afterAll(() => rmSync(folder, { recursive: true, force: true }));

/** Redis is compared with where it is installed. */
const lockIds = (id: string, beside: readonly string[]): readonly string[] =>
  [...beside, ...(findRedis() === null ? [] : ["c"])].map((letter) => `${id}${letter}`);

const ONCE = ["o1", "o2", "o2k", "o3a", "o3b", "o3c", "o4a", "o4b", "o5"] as const;
const STREAMS = ["x1", "x2", "x3", "x4", "x5", "x6", "x7a", "x7b", "x8"] as const;
const FLOW = ["q1", "q1k", "q2", "q2k", "q3a", "q3b", "q3c"] as const;
/** Cases of scale, which run by name only. */
const FLOW_SCALE = ["s8a", "s8b", "s8c", "s8d", "s8e", "s8f", "s8g", "s9a", "s9b"] as const;

const IDS: Readonly<Record<StoreName, readonly string[]>> = {
  sqlite: [
    ...["a", "b", "c", "d", "e", "f1", "f2", "f3", "g1", "g2", "g3", "g4", "w1", "w10", "h1", "h2", "i1", "i2"],
    ...["l1", "l2", "l3"].flatMap((id) => lockIds(id, [])),
    ...ONCE,
    ...STREAMS,
    ...FLOW,
  ],
  postgres: [
    ...["a", "a2", "b", "c", "p1", "p1d", "p2", "p2d", "d", "e", "w1", "w10", "h1", "h2", "j1", "j2", "i1", "i2", "k"],
    ...(findPgbench() === null ? [] : ["r1", "r2"]),
    ...["t1a", "t1b", "t2a", "t2b"],
    ...["l1", "l2", "l3"].flatMap((id) => lockIds(id, ["a", "b"])),
    ...ONCE,
    ...STREAMS,
    ...FLOW,
  ],
};

/** How many of a hundred callers share a transaction: that, and no timing, is what the comparison with raw rests on. */
const SHARING: Readonly<Record<StoreName, number>> = { sqlite: 90, postgres: 20 };

describe("a quick run", () => {
  it.each([
    ...STORES.map((store) => ({ store, of: "every case", ids: IDS[store], only: [] })),
    ...STORES.map((store) => ({ store, of: "runs in line and schedules", ids: FLOW_SCALE, only: ["--only", "s8,s9"] })),
  ])(
    "on $store answers for $of with figures that can be, and leaves nothing else behind",
    { timeout: 600_000 },
    async ({ store, ids, only }) => {
      const out = mkdtempSync(join(folder, "out-"));
      // The bytes of the log are those of the whole server, so no other test may use it.
      const server = store === "postgres" ? await startPostgres() : null;
      const before = await databasesOf(server);
      const env = { ...process.env, ...(server === null ? {} : { PAWL_TEST_POSTGRES: server.url }) };
      const main = join(import.meta.dirname, "../../bench/main.ts");
      const flags = ["--conditions=pawl-source", "--disable-warning=ExperimentalWarning"];
      const args = [...flags, main, store, "--quick", ...only, "--out", out, "--date", "2001-02-03"];
      // The server may be one that this process keeps, so this process must not stand still.
      const { code, stdout, stderr } = await run(args, env);
      expect({ code, stderr }, stdout).toEqual({ code: 0, stderr: "" });
      expect(readdirSync(out).sort()).toEqual(["chart.svg", "results.json"]);
      expect(await databasesOf(server)).toEqual(before);
      await server?.destroy();
      const saved: Saved = JSON.parse(readFileSync(join(out, "results.json"), "utf8"));
      expect(Object.keys(saved)).toEqual(["format", store]);
      const report = saved[store];
      if (report === undefined) throw new Error("there is no report of this store");
      expect(report).toMatchObject({ mode: "quick", date: "2001-02-03" });
      expect(report.machine.node).toBe(process.versions.node);
      expect(report.machine.database).toMatch(
        store === "sqlite" ? `SQLite ${process.versions["sqlite"]}` : /^PostgreSQL \d/,
      );
      expect(report.results.map(({ id }) => id)).toEqual(ids);
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
      const first = report.results.find(({ id }) => id === "a");
      expect(first !== undefined).toBe(only.length === 0);
      if (first !== undefined) expect(first.details["Pawl: commits in a transaction"]).toBeGreaterThan(SHARING[store]);
    },
  );

  it("of one store keeps what was saved of the other", async () => {
    const out = mkdtempSync(join(folder, "both-"));
    const other = reportOf(resultWith(6, null));
    writeFileSync(join(out, "results.json"), JSON.stringify({ format: 2, postgres: other }));
    const main = join(import.meta.dirname, "../../bench/main.ts");
    const flags = ["--conditions=pawl-source", "--disable-warning=ExperimentalWarning"];
    const args = [...flags, main, "--store", "sqlite", "--quick", "--only", "d", "--out", out];
    expect(await run(args, process.env)).toMatchObject({ code: 0 });
    const saved: Saved = JSON.parse(readFileSync(join(out, "results.json"), "utf8"));
    expect(Object.keys(saved)).toEqual(["format", "sqlite", "postgres"]);
    expect(saved.postgres).toEqual(other);
    expect(readFileSync(join(out, "chart.svg"), "utf8").match(/class="title"/g)).toHaveLength(2);
  });

  async function run(args: readonly string[], env: NodeJS.ProcessEnv) {
    const child = spawn(process.execPath, args, { env, stdio: ["ignore", "pipe", "pipe"], timeout: 590_000 });
    const [out, err]: [string[], string[]] = [[], []];
    child.stdout.setEncoding("utf8").on("data", (text: string) => out.push(text));
    child.stderr.setEncoding("utf8").on("data", (text: string) => err.push(text));
    const [code] = await once(child, "close");
    return { code, stdout: out.join(""), stderr: err.join("") };
  }

  /** The databases that the benchmark has made on this server and not dropped. */
  async function databasesOf(server: PostgresServer | null): Promise<readonly string[]> {
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
