// Goal: the generated programs can be trusted: workflows that break a promise in a known way do not get past them.
// Method: each defect is planted into the real source in a process of its own; programs that are drawn from its seed on must break its rule.

import { execFile } from "node:child_process";
import { readFile } from "node:fs/promises";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";
import { describe, expect, test } from "vitest";
import { type Edit, replaceOnce } from "../simulation/plant.ts";
import { RULE_NAMES } from "./oracle.ts";
import { PLANTED } from "./planted.ts";
import { REGRESSIONS } from "./regressions.ts";

/** So many programs are drawn before a defect counts as not found. */
const PROGRAMS = 300;
/** From program 1 on, each defect is found within so many. */
const MOST_PROGRAMS = 3_000;

/** The worlds in which a kept program broke its promise, and some others. */
const worldsOf = (kept: string): readonly number[] => [
  ...(REGRESSIONS[kept]?.worlds ?? []),
  ...Array.from({ length: 20 }, (_, at) => at + 1),
];

const run = promisify(execFile);
const runner = fileURLToPath(new URL("./run-planted.ts", import.meta.url));

interface Hunt {
  readonly edits: readonly Edit[];
  readonly rule?: string;
  readonly seeds: readonly number[];
  /** A program that was kept, to be run in the worlds of the seeds. */
  readonly kept?: string;
}

async function hunt(planted: Hunt): Promise<string> {
  const env = { ...process.env, PAWL_PLANTED: JSON.stringify(planted) };
  const { stdout } = await run(process.execPath, [runner], { env, timeout: 280_000 });
  return stdout;
}

describe.concurrent("a planted defect is found", () => {
  for (const { name, edits, rule, program } of PLANTED)
    test(name, { timeout: 300_000 }, async () => {
      const first = typeof program === "number" ? program : 1;
      const seeds = Array.from({ length: PROGRAMS }, (_, at) => first + at);
      const kept = typeof program === "number" ? undefined : program;
      const hunted = { edits, rule, ...(kept === undefined ? { seeds } : { kept, seeds: worldsOf(kept) }) };
      expect(await hunt(hunted)).toContain("found by program");
    });

  test("a change that is no defect is not", { timeout: 300_000 }, async () => {
    const harmless = {
      file: "workflow/execution/steps.ts",
      from: "const STORE_MS = 1000;",
      to: "const STORE_MS = 999 + 1;",
    };
    const seeds = [...new Set(PLANTED.map(({ program }) => program).filter((seed) => typeof seed === "number"))];
    await expect(hunt({ edits: [harmless], seeds })).rejects.toThrow(expect.objectContaining({ code: 1 }));
  });

  test("one whose place is gone from the source is noticed", { timeout: 300_000 }, async () => {
    const gone = { file: "workflow/execution/steps.ts", from: "there is no such text", to: "" };
    await expect(hunt({ edits: [gone], seeds: [1] })).rejects.toThrow("has this text 0 times instead of once");
  });
});

test("every place of a defect is in the source once", async () => {
  for (const { edits } of PLANTED)
    for (const edit of edits)
      replaceOnce(await readFile(new URL(`../../src/${edit.file}`, import.meta.url), "utf8"), edit);
});

test("every rule of the oracle finds one", () => {
  const rules = new Set(PLANTED.map(({ rule }) => rule));
  expect(RULE_NAMES.filter((rule) => !rules.has(rule))).toEqual([]);
});

test("each has a name of its own, and most are found by few programs", () => {
  expect(new Set(PLANTED.map(({ name }) => name)).size).toBe(PLANTED.length);
  const seeds = PLANTED.map(({ program }) => program).filter((seed) => typeof seed === "number");
  expect(seeds.filter((seed) => seed > MOST_PROGRAMS)).toEqual([]);
  expect(seeds.length).toBeGreaterThanOrEqual(60);
});
