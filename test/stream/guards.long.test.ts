/**
 * Goal: no guard against the failures in failures.test.ts is there for show.
 * Method: each guard is taken out of a copy of the source (`guards.ts`, `run-guards.ts`), in a process of its own, and its failure is played on
 * that copy, where it must be seen.
 */

import { execFile } from "node:child_process";
import { join } from "node:path";
import { promisify } from "node:util";
import { beforeAll, describe, expect, test } from "vitest";
import { guards } from "./guards.ts";
import type { GuardReport } from "./run-guards.ts";

describe("a failure is seen", () => {
  let reports: ReadonlyMap<string, GuardReport>;
  beforeAll(async () => {
    const runner = join(import.meta.dirname, "run-guards.ts");
    const args = ["--conditions=pawl-source", "--disable-warning=ExperimentalWarning", runner];
    const { stdout } = await promisify(execFile)(process.execPath, args, { timeout: 290_000 });
    const lines = stdout.trim().split("\n");
    reports = new Map(lines.map((line): GuardReport => JSON.parse(line)).map((report) => [report.guard, report]));
  }, 300_000);

  for (const { name } of guards)
    test(name, () => {
      expect(reports.get(name)).toMatchObject({ is: "seen" });
    });

  test("and not where nothing is taken out", () => {
    expect(reports.get("nothing")).toMatchObject({ is: "not seen" });
  });
});
