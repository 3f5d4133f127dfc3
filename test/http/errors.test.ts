/**
 * Every error of the library has a status.
 */

import { expect, test } from "vitest";
import type { PawlErrorCode } from "../../src/errors.ts";
import { problemOf, STATUS_OF } from "../../src/http/server/problem.ts";
import { RunNotFoundError } from "../../src/workflow/errors.ts";

test("each code of the library has a status, and no other code has one", () => {
  // It does not compile if a code is missing, or is one that the library no longer has.
  const statuses: Readonly<Record<PawlErrorCode, number>> = STATUS_OF;
  const unknown: Exclude<keyof typeof STATUS_OF, PawlErrorCode>[] = [];
  expect(unknown).toEqual([]);
  expect(Object.values(statuses).every((status) => status >= 400 && status < 600)).toBe(true);
});

test("an error of the library keeps its code, its message and its data", () => {
  const problem = problemOf(new RunNotFoundError("r1"));
  expect(problem).toMatchObject({ status: 404, code: "run_not_found", data: { run: "r1" } });
  expect(problemOf(new TypeError("a bug"))).toBeUndefined();
});
