import { expect, test } from "vitest";
import { RunNotFoundError } from "../workflow/errors.ts";
import { CliError, exitCodeOf, showError } from "./exit-codes.ts";

test.each([
  { code: undefined, exit: 1, why: "an error without a code has failed" },
  { code: "run_failed", exit: 1, why: "what is in no other class has failed" },
  { code: "invalid_argument", exit: 2, why: "a bad value is wrong usage" },
  { code: "schema_mismatch", exit: 2, why: "so is data of another shape" },
  { code: "run_not_found", exit: 3, why: "not found is a class" },
  { code: "database_not_found", exit: 5, why: "but not that of the database itself" },
  { code: "run_conflict", exit: 4, why: "a conflict is a class" },
  { code: "run_ended", exit: 4, why: "what has ended is settled" },
  { code: "task_settled", exit: 4, why: "so is a task" },
  { code: "task_not_dead", exit: 4, why: "also if it is to begin again" },
  { code: "task_timed_out", exit: 4, why: "also by its timeout" },
  { code: "run_timed_out", exit: 1, why: "a run that timed out was no conflict" },
  { code: "already_used", exit: 4, why: "an action has one winner" },
  { code: "schedule_exists", exit: 4, why: "a name is taken" },
  { code: "idempotency_mismatch", exit: 4, why: "so is a key" },
  { code: "store_unreachable", exit: 5, why: "no store" },
  { code: "server_unreachable", exit: 5, why: "no server" },
  { code: "store_corrupt", exit: 1, why: "a damaged store was reached" },
])("$code ends with $exit: $why", ({ code, exit }) => expect(exitCodeOf(code)).toBe(exit));

test.each([
  {
    rule: "an error of the library",
    error: new RunNotFoundError("x"),
    shown: { message: 'there is no run "x"', code: "run_not_found", exit: 3 },
  },
  {
    rule: "several lines become one",
    error: new CliError("a_b", "one\n  two\n"),
    shown: { message: "one two", code: "a_b", exit: 1 },
  },
  {
    rule: "a code of Node is none of ours",
    error: Object.assign(new Error("no"), { code: "ENOENT" }),
    shown: { message: "no", code: undefined, exit: 1 },
  },
  { rule: "what is thrown may be no error", error: "no", shown: { message: "no", code: undefined, exit: 1 } },
  {
    rule: "an error without a message says something",
    error: Object.assign(new Error("text"), { message: "" }),
    shown: { message: "it failed without a reason", code: undefined, exit: 1 },
  },
])("shown: $rule", ({ error, shown }) => expect(showError(error)).toEqual(shown));
