/**
 * The benchmark: it runs, it answers for every case, and its baseline is a fair one.
 *
 * Goal: figures that are printed in documents come from a tool that still works, and from contenders that do the same work.
 * Method: a quick run as a child process, checked by what it writes; nothing here depends on how fast anything was. Then the
 * settings of the baseline beside those of the store, and contenders that cheat, which must be found out.
 */

import { spawnSync } from "node:child_process";
import { mkdtempSync, readdirSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { DatabaseSync } from "node:sqlite";
import { afterAll, beforeAll, describe, expect, it, vi } from "vitest";
import { drawChart } from "../bench/chart.ts";
import type { Contender } from "../bench/contender.ts";
import { openOurs, ours, oursHeld, oursSlot } from "../bench/ours.ts";
import { counters, type Plan, steps } from "../bench/plan.ts";
import { openRaw, rawMany, rawRows } from "../bench/raw.ts";
import { measureOf, median, type Report, resultOf } from "../bench/result.ts";
import { compare } from "../bench/rounds.ts";
import { drawTable } from "../bench/table.ts";

let folder = "";
beforeAll(() => {
  folder = mkdtempSync(join(tmpdir(), "pawl-bench-test-"));
});
afterAll(() => rmSync(folder, { recursive: true, force: true }));

const IDS = ["a", "b", "c", "d", "e", "f1", "f2", "f3", "g1", "g2", "g3", "g4", "h1", "h2", "i1", "i2"];

describe("a quick run", () => {
  it("answers for every case with figures that can be, and leaves nothing else behind", { timeout: 120_000 }, () => {
    const out = join(folder, "out");
    const main = join(import.meta.dirname, "../bench/main.ts");
    const flags = ["--conditions=pawl-source", "--disable-warning=ExperimentalWarning"];
    const args = [...flags, main, "--quick", "--out", out, "--date", "2001-02-03"];
    const { status, stdout, stderr } = spawnSync(process.execPath, args, { encoding: "utf8", timeout: 110_000 });
    expect({ status, stderr }, stdout).toEqual({ status: 0, stderr: "" });
    expect(readdirSync(out).sort()).toEqual(["chart.svg", "results.json"]);
    const report: Report = JSON.parse(readFileSync(join(out, "results.json"), "utf8"));
    expect(report).toMatchObject({ format: 1, mode: "quick", date: "2001-02-03" });
    expect(report.machine).toMatchObject({ node: process.versions.node, sqlite: process.versions["sqlite"] });
    expect(report.results.map(({ id }) => id)).toEqual(IDS);
    for (const { id, base, ours, ratio, bestRatio, target, reached } of report.results) {
      expect(ratio, id).toBeCloseTo(ours.median / base.median, 3);
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
    // A hundred callers share a transaction: that, and no timing, is what the comparison with raw rests on.
    const sharing = report.results.find(({ id }) => id === "a")?.details["Pawl: commits in a transaction"];
    expect(sharing).toBeGreaterThan(90);
  });
});

describe("the baseline", () => {
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

  const plans: readonly [string, Contender, () => Plan][] = [
    ["steps", ours, () => steps({ callers: 7, turns: 20 })],
    ["new records", ours, () => steps({ callers: 7, turns: 5, commitsPerRecord: 1 })],
    ["claimed records", oursHeld, () => steps({ callers: 7, turns: 20, claimed: true })],
    ["counters", oursSlot, () => counters({ callers: 7, turns: 20 })],
  ];
  it.each(plans)("leaves the same rows as ours: %s", async (_, contender, plan) => {
    const measures = await race([rawRows, rawMany, contender], plan);
    expect(measures.map(({ commitsPerTransaction }) => commitsPerTransaction)).toEqual([7, 7, 7]);
  });

  const cheats: readonly [string, (plan: Plan) => Plan][] = [
    ["a turn less", (plan) => ({ ...plan, turns: plan.turns - 1 })],
    ["no log", (plan) => ({ ...plan, logged: false })],
    ["other values", (plan) => ({ ...plan, values: plan.values.map(() => 0) })],
  ];
  it.each(cheats)("that does something else is found out: %s", async (_, change) => {
    const cheat: Contender = {
      name: "cheat",
      open: async (path) => {
        const session = await rawRows.open(path);
        return { run: (plan) => session.run(change(plan)), close: () => session.close() };
      },
    };
    await expect(race([ours, cheat], () => steps({ callers: 3, turns: 10 }))).rejects.toThrow("left other rows");
  });

  function race(contenders: readonly Contender[], plan: () => Plan) {
    const setting = { folder: mkdtempSync(join(folder, "race-")), quick: true, rounds: () => 1 };
    const sides = contenders.map((contender) => ({ name: contender.name, contender, plan }));
    return compare(setting, { unit: "commits/s", rounds: 1, sides, sameRows: true });
  }
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
    expect(drawChart(report)).toContain('<rect class="missed"');
    const better = reportOf(resultWith(6, { is: "at least", ratio: 0.5 }));
    expect(drawTable(better)).not.toContain("MISSED");
    expect(drawChart(better)).not.toContain('<rect class="missed"');
  });

  it("a chart is well-formed whatever the names are", () => {
    const chart = drawChart(reportOf({ ...resultWith(6, null), title: "a < b && c > d" }));
    expect(chart).toContain("a &lt; b &amp;&amp; c &gt; d");
  });

  const resultWith = (ours: number, target: Parameters<typeof resultOf>[0]["target"]) =>
    resultOf({
      id: "x",
      title: "x",
      unit: "ms",
      base: measureOf("base", [10]),
      ours: measureOf("ours", [ours]),
      target,
    });

  function reportOf(result: ReturnType<typeof resultWith>): Report {
    const machine = {
      platform: "p",
      cpu: "c",
      cores: 1,
      memoryGiB: 1,
      node: "n",
      sqlite: "s",
      fileSystem: "f",
      syncMs: 1,
    };
    return { format: 1, date: "2001-02-03", mode: "full", seconds: 1, machine, results: [result] };
  }
});

function randomName(): string {
  return Math.random().toString(36).slice(2);
}
