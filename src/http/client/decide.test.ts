/**
 * Goal: a call is sent again exactly when that is safe and may help.
 * Method: a table of outcomes and of moments.
 */

import { describe, expect, test } from "vitest";
import { type Attempted, decideRetry, parseRetryAfter, type RetryMoment, type RetryRules } from "./decide.ts";

const rules: RetryRules = { isRepeatable: false, isResult: false };
const moment: RetryMoment = { attempt: 1, elapsedMs: 0, patienceMs: 30_000, random: 0 };
const problem = (status: number, code = "x", retryAfterMs?: number): Attempted => ({ status, code, retryAfterMs });

const rows: {
  rule: string;
  attempted: Attempted;
  rules?: Partial<RetryRules>;
  moment?: Partial<RetryMoment>;
  waitMs: number | null;
}[] = [
  { rule: "no response", attempted: problem(0, "server_unreachable"), waitMs: 50 },
  { rule: "408", attempted: problem(408), waitMs: 50 },
  { rule: "425", attempted: problem(425), waitMs: 50 },
  { rule: "429", attempted: problem(429), waitMs: 50 },
  { rule: "502", attempted: problem(502), waitMs: 50 },
  { rule: "503", attempted: problem(503, "store_busy"), waitMs: 50 },
  { rule: "504 of a proxy", attempted: problem(504, "unexpected_response"), waitMs: 50 },
  { rule: "400 is final", attempted: problem(400), waitMs: null },
  { rule: "401 is final", attempted: problem(401), waitMs: null },
  { rule: "404 is final", attempted: problem(404), waitMs: null },
  { rule: "409 is final", attempted: problem(409, "version_conflict"), waitMs: null },
  { rule: "422 is final", attempted: problem(422, "idempotency_mismatch"), waitMs: null },
  { rule: "500 is final", attempted: problem(500, "internal"), waitMs: null },
  { rule: "501 is final", attempted: problem(501), waitMs: null },
  { rule: "507 is final", attempted: problem(507, "store_full"), waitMs: null },
  { rule: "the attempt before is at work", attempted: problem(409, "idempotency_in_progress"), waitMs: 50 },
  { rule: "an unknown outcome", attempted: problem(504, "outcome_unknown"), waitMs: null },
  {
    rule: "an unknown outcome of what may run again",
    attempted: problem(504, "outcome_unknown"),
    rules: { isRepeatable: true },
    waitMs: 50,
  },
  {
    rule: "a refusal that the call is about",
    attempted: problem(429, "rate_limited"),
    rules: { isResult: true },
    waitMs: null,
  },
  { rule: "it waits as long as the server says", attempted: problem(429, "x", 3000), waitMs: 3000 },
  { rule: "but not less than its own pause", attempted: problem(503, "x", 0), moment: { attempt: 4 }, waitMs: 400 },
  { rule: "pauses double", attempted: problem(503), moment: { attempt: 3 }, waitMs: 200 },
  { rule: "up to a limit", attempted: problem(503), moment: { attempt: 30 }, waitMs: 2500 },
  { rule: "and are spread by chance", attempted: problem(503), moment: { attempt: 3, random: 0.5 }, waitMs: 300 },
  { rule: "until patience ends", attempted: problem(503), moment: { elapsedMs: 29_950 }, waitMs: 50 },
  { rule: "with the last attempt at its end", attempted: problem(503), moment: { elapsedMs: 29_951 }, waitMs: 49 },
  { rule: "and not beyond", attempted: problem(503), moment: { elapsedMs: 30_000 }, waitMs: null },
  { rule: "not if the server says later", attempted: problem(429, "x", 30_001), waitMs: null },
  { rule: "no patience is one attempt", attempted: problem(503), moment: { patienceMs: 0 }, waitMs: null },
];

describe("decideRetry", () => {
  test.each(rows)("$rule", ({ attempted, waitMs, ...row }) => {
    expect(decideRetry(attempted, { ...rules, ...row.rules }, { ...moment, ...row.moment })).toBe(waitMs);
  });
});

test.each([
  ["2", 2000],
  [" 0 ", 0],
  ["Tue, 15 Jan 2030 08:00:10 GMT", 10_000],
  ["Tue, 15 Jan 2030 07:00:00 GMT", 0],
  ["soon", undefined],
  ["-1", undefined],
  [null, undefined],
])("Retry-After: %s", (header, ms) => {
  expect(parseRetryAfter(header, Date.UTC(2030, 0, 15, 8))).toBe(ms);
});
