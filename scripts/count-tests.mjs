/**
 * A reporter for vitest that names the slowest files of a run, and writes how many tests passed, failed and were skipped to the file that
 * PAWL_TEST_COUNTS names, so that `npm test` (run.mjs) can close with them. Anything that neither passed nor failed counts as skipped.
 */

import { writeFileSync } from "node:fs";
import { relative } from "node:path";

const SHOWN = 10;

export default class CountTests {
  onTestRunEnd(testModules) {
    const states = testModules.flatMap((module) => [...module.children.allTests()].map((test) => test.result().state));
    const passed = states.filter((state) => state === "passed").length;
    const failed = states.filter((state) => state === "failed").length;
    const skipped = states.length - passed - failed;
    writeFileSync(process.env.PAWL_TEST_COUNTS, JSON.stringify({ passed, failed, skipped }));
    if (testModules.length > SHOWN) console.log(`\nThe slowest files:\n${slowest(testModules).join("\n")}`);
  }
}

/** How long a file took includes its hooks and what it imports, but not the start of its process. */
function slowest(testModules) {
  const took = testModules.map((module) => {
    const { collectDuration, duration } = module.diagnostic();
    return { file: relative(process.cwd(), module.moduleId), seconds: (collectDuration + duration) / 1000 };
  });
  const sorted = took.toSorted((a, b) => b.seconds - a.seconds).slice(0, SHOWN);
  return sorted.map(({ file, seconds }) => `${seconds.toFixed(1).padStart(7)} s  ${file}`);
}
