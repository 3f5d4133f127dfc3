/**
 * A reporter for vitest that writes how many tests passed, failed and were skipped to the file that PAWL_TEST_COUNTS
 * names, so that `npm test` (run.mjs) can close with them. Anything that neither passed nor failed counts as skipped.
 */

import { writeFileSync } from "node:fs";

export default class CountTests {
  onTestRunEnd(testModules) {
    const states = testModules.flatMap((module) => [...module.children.allTests()].map((test) => test.result().state));
    const passed = states.filter((state) => state === "passed").length;
    const failed = states.filter((state) => state === "failed").length;
    const skipped = states.length - passed - failed;
    writeFileSync(process.env.PAWL_TEST_COUNTS, JSON.stringify({ passed, failed, skipped }));
  }
}
