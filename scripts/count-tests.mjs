/**
 * A reporter for vitest that names the slowest files of a run, and writes how many tests passed, failed and were skipped, and which failed, to the
 * file that PAWL_TEST_COUNTS names, so that `npm test` (run.mjs) can close with them. Anything that neither passed nor failed counts as skipped.
 */

import { writeFileSync } from "node:fs";
import { relative } from "node:path";

const SHOWN = 10;

export default class CountTests {
  onTestRunEnd(testModules) {
    const tests = testModules.flatMap((module) => [...module.children.allTests()]);
    const count = (state) => tests.filter((test) => test.result().state === state).length;
    const passed = count("passed");
    const failed = count("failed");
    const skipped = tests.length - passed - failed;
    const failures = testModules.flatMap(failuresOf);
    writeFileSync(process.env.PAWL_TEST_COUNTS, JSON.stringify({ passed, failed, skipped, failures }));
    if (testModules.length > SHOWN) console.log(`\nThe slowest files:\n${slowest(testModules).join("\n")}`);
  }
}

/** The tests of a file that failed, each with its first error; the file itself if it failed without running them. */
function failuresOf(module) {
  const file = fileOf(module);
  const failed = [...module.children.allTests("failed")].map((test) => ({
    file,
    test: test.fullName,
    error: test.result().errors?.[0]?.message ?? "",
  }));
  if (failed.length > 0 || module.state() !== "failed") return failed;
  return [{ file, test: "(the file)", error: module.errors()[0]?.message ?? "" }];
}

function fileOf({ moduleId }) {
  return relative(process.cwd(), moduleId);
}

/** How long a file took includes its hooks and what it imports, but not the start of its process. */
function slowest(testModules) {
  const took = testModules.map((module) => {
    const { collectDuration, duration } = module.diagnostic();
    return { file: fileOf(module), seconds: (collectDuration + duration) / 1000 };
  });
  const sorted = took.toSorted((a, b) => b.seconds - a.seconds).slice(0, SHOWN);
  return sorted.map(({ file, seconds }) => `${seconds.toFixed(1).padStart(7)} s  ${file}`);
}
