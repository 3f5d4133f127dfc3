/**
 * The audit: reads a finished run from its files, in a process that took no part in it, and reports whether all checks pass.
 *
 * `node demo/audit.ts <database>`; the exit code is 1 if a check fails.
 */

import { existsSync } from "node:fs";
import { integrityOf, type LogLine, ledgersOf, openReadOnly, readEvidence } from "./evidence.ts";
import { type Line, print } from "./terminal.ts";
import { hardestStory, judge, money } from "./verdict.ts";

const [database] = process.argv.slice(2);
if (database === undefined || !existsSync(database)) {
  console.error("Name the database of a run that was kept: node demo/audit.ts <database>");
  process.exitCode = 2;
} else {
  process.exitCode = audit(database) ? 0 : 1;
}

function audit(file: string): boolean {
  const db = openReadOnly(file);
  const evidence = readEvidence(db, ledgersOf(file));
  const checks = judge(evidence, integrityOf(db));
  db.close();
  const failed = checks.filter(({ holds }) => !holds);
  const lines: Line[] = [
    [
      ["  The verdict", "bold"],
      [", read from the file by another process, with plain SQL", "dim"],
    ],
    [],
    ...checks.map(({ law, holds, found }): Line => {
      if (holds) return [["  "], ["✓", "green"], [` ${law.padEnd(36)}`], [found, "dim"]];
      return [["  "], [`✗ ${law.padEnd(36)}`, "red"], ["FAILED", "bad"], [` ${found}`]];
    }),
    [],
    ...storyLines(hardestStory(evidence.log)),
    failed.length === 0
      ? [["  "], [" NOTHING LOST, NOTHING DONE TWICE ", "good"]]
      : [["  "], [` THE BOOKS ARE WRONG: ${failed.length} of ${checks.length} checks failed `, "bad"]],
  ];
  print(process.stdout, lines);
  return failed.length === 0;
}

/** The log of one order. */
function storyLines(story: readonly LogLine[]): readonly Line[] {
  const order = story[0]?.order;
  if (order === undefined) return [];
  const query = `select at_utc, name, data from pawl_past where key = '${order}'`;
  return [
    [
      [`  The order with the most attempts, ${order}`, "bold"],
      [", from its log", "dim"],
    ],
    [[`  ${query}`, "dim"]],
    [],
    ...story.map(({ atUtc, name, cents, by }): Line => {
      const style = name === "charged" ? "green" : name === "started" ? "yellow" : "plain";
      const what = [cents === null ? "" : money(cents), by === null ? "" : `by ${by}`].filter(Boolean).join(" ");
      return [["  "], [atUtc.slice(11), "dim"], ["  "], [name.padEnd(9), style], [what]];
    }),
    [],
  ];
}
