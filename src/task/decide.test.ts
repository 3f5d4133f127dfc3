/** The rules of tasks: who settles one, what an attempt means, and when the next one is made. */

import fc from "fast-check";
import { describe, expect, test } from "vitest";
import {
  ALL_5XX,
  decideSettle,
  fenceOf,
  judge,
  MOST_ATTEMPTS,
  parseRetryAfter,
  type Settlement,
  type Settling,
  type TaskState,
} from "./decide.ts";

const open: TaskState = { outcome: null, fingerprint: null, waitsUntilMs: null };
const waiting: TaskState = { ...open, waitsUntilMs: 100 };
const settled = (status: string, by: string, fingerprint: string | null = null): TaskState =>
  ({ outcome: { status, by }, fingerprint, waitsUntilMs: null }) as TaskState;

const done: Settling = { by: "signal", status: "completed", fingerprint: "a" };
const other: Settling = { by: "signal", status: "completed", fingerprint: "b" };
const fail: Settling = { by: "signal", status: "failed", fingerprint: "a" };
const cancel: Settling = { by: "cancel" };

describe("settling", () => {
  test.each<{ rule: string; state: TaskState; settling: Settling; nowMs?: number; is: string }>([
    { rule: "a signal is the first", state: open, settling: done, is: "first" },
    { rule: "a cancellation is the first", state: open, settling: cancel, is: "first" },
    { rule: "a signal comes while the task waits", state: waiting, settling: done, nowMs: 99, is: "first" },
    { rule: "a signal comes when the wait ends", state: waiting, settling: done, nowMs: 100, is: "overdue" },
    { rule: "a cancellation comes when the wait ends", state: waiting, settling: cancel, nowMs: 100, is: "overdue" },
    { rule: "a cancellation comes before that", state: waiting, settling: cancel, nowMs: 99, is: "first" },
    { rule: "the same signal again", state: settled("completed", "signal", "a"), settling: done, is: "again" },
    { rule: "the same failure again", state: settled("failed", "signal", "a"), settling: fail, is: "again" },
    { rule: "another value", state: settled("completed", "signal", "a"), settling: other, is: "task_settled" },
    { rule: "another status", state: settled("completed", "signal", "a"), settling: fail, is: "task_settled" },
    {
      rule: "a signal after the response",
      state: settled("completed", "response"),
      settling: done,
      is: "task_settled",
    },
    { rule: "a signal after the failure", state: settled("failed", "response"), settling: done, is: "task_settled" },
    { rule: "a signal after a cancellation", state: settled("canceled", "cancel"), settling: done, is: "task_settled" },
    {
      rule: "a signal after the timeout",
      state: settled("timed_out", "timeout"),
      settling: done,
      is: "task_timed_out",
    },
    { rule: "a signal after expiry", state: settled("expired", "timeout"), settling: done, is: "task_timed_out" },
    { rule: "a cancellation again", state: settled("canceled", "cancel"), settling: cancel, is: "again" },
    {
      rule: "a cancellation after a signal",
      state: settled("completed", "signal", "a"),
      settling: cancel,
      is: "task_settled",
    },
    {
      rule: "a cancellation after the timeout",
      state: settled("timed_out", "timeout"),
      settling: cancel,
      is: "task_settled",
    },
  ])("$rule: $is", ({ state, settling, nowMs = 0, is }) => {
    const settlement = decideSettle(state, settling, nowMs);
    expect(settlement.is === "late" ? settlement.code : settlement.is).toBe(is);
  });

  test("whatever comes in whatever order, one is first, and each of the others is that one again or late", () => {
    const comers = fc.array(fc.constantFrom(done, other, fail, cancel), { minLength: 1, maxLength: 10 });
    fc.assert(
      fc.property(comers, fc.nat(200), (settlings, nowMs) => {
        let state: TaskState = waiting;
        const outcomes: Settlement["is"][] = [];
        for (const settling of settlings) {
          const { is } = decideSettle(state, settling, nowMs);
          outcomes.push(is);
          if (is === "overdue") state = settled("timed_out", "timeout");
          else if (is === "first")
            state =
              settling.by === "cancel"
                ? settled("canceled", "cancel")
                : settled(settling.status, "signal", settling.fingerprint);
        }
        expect(outcomes.filter((is) => is === "first" || is === "overdue")).toEqual([outcomes[0]]);
        expect(outcomes[0]).toBe(nowMs >= 100 ? "overdue" : "first");
      }),
    );
  });
});

describe("what an attempt means", () => {
  const network = { code: "network", message: "" };
  const timeout = { code: "timeout", message: "" };
  const tooLarge = { code: "body_too_large", message: "" };
  const forbidden = { code: "target_forbidden", message: "" };
  test.each<{ rule: string; attempt: Parameters<typeof judge>[0]; made?: number; statuses?: number[]; is: string }>([
    { rule: "a 200 is done", attempt: { status: 200 }, is: "done" },
    { rule: "a 204 is done", attempt: { status: 204 }, is: "done" },
    { rule: "a 299 is done", attempt: { status: 299 }, is: "done" },
    { rule: "a redirect has failed: it is not followed", attempt: { status: 302 }, is: "failed" },
    { rule: "a 199 has failed", attempt: { status: 199 }, is: "failed" },
    { rule: "a 400 has failed", attempt: { status: 400 }, is: "failed" },
    { rule: "a 404 has failed", attempt: { status: 404 }, is: "failed" },
    { rule: "a 408 is tried again", attempt: { status: 408 }, is: "retry" },
    { rule: "a 409 has failed", attempt: { status: 409 }, is: "failed" },
    { rule: "a 409 that is listed is tried again", attempt: { status: 409 }, statuses: [409], is: "retry" },
    { rule: "a 410 has failed", attempt: { status: 410 }, is: "failed" },
    { rule: "a 410 has failed also if it is listed", attempt: { status: 410 }, statuses: [410], is: "failed" },
    { rule: "a 429 is tried again", attempt: { status: 429 }, is: "retry" },
    { rule: "a 499 has failed", attempt: { status: 499 }, is: "failed" },
    { rule: "a 500 is tried again", attempt: { status: 500 }, is: "retry" },
    { rule: "a 599 is tried again", attempt: { status: 599 }, is: "retry" },
    { rule: "a 600 has failed", attempt: { status: 600 }, is: "failed" },
    { rule: "a 503 has failed if only others are listed", attempt: { status: 503 }, statuses: [429], is: "failed" },
    { rule: "a 503 is tried again with all of 5xx", attempt: { status: 503 }, statuses: [ALL_5XX], is: "retry" },
    { rule: "a network error is tried again", attempt: { error: network }, is: "retry" },
    { rule: "a timeout is tried again", attempt: { error: timeout }, is: "retry" },
    { rule: "a 200 whose body was cut off is tried again", attempt: { status: 200, error: tooLarge }, is: "retry" },
    { rule: "a 404 whose body was cut off is tried again", attempt: { status: 404, error: tooLarge }, is: "retry" },
    { rule: "a target that is forbidden has failed", attempt: { error: forbidden }, is: "failed" },
    { rule: "the attempt before the last is tried again", attempt: { status: 500 }, made: 4, is: "retry" },
    { rule: "the last attempt has failed", attempt: { status: 500 }, made: 5, is: "failed" },
    { rule: "the last attempt is done", attempt: { status: 200 }, made: 5, is: "done" },
  ])("$rule", ({ attempt, made = 1, statuses, is }) => {
    const policy = statuses === undefined ? {} : { retryStatuses: statuses };
    expect(judge(attempt, made, policy, () => 0).is).toBe(is);
  });

  test.each([
    { rule: "the first wait is the policy's", made: 1, retryAfterMs: undefined, delayMs: 1000 },
    { rule: "the second is longer", made: 2, retryAfterMs: undefined, delayMs: 2000 },
    { rule: "the target may ask for more", made: 1, retryAfterMs: 7000, delayMs: 7000 },
    { rule: "it cannot ask for less", made: 2, retryAfterMs: 1, delayMs: 2000 },
  ])("$rule", ({ made, retryAfterMs, delayMs }) => {
    const attempt = { status: 503, ...(retryAfterMs === undefined ? {} : { retryAfterMs }) };
    expect(judge(attempt, made, {}, () => 0)).toEqual({ is: "retry", delayMs });
  });
});

test("chance is drawn only for an attempt that is tried again", () => {
  const draws = (status: number): number => {
    let drawn = 0;
    judge({ status }, 1, {}, () => ++drawn);
    return drawn;
  };
  expect([200, 404, 503].map(draws)).toEqual([0, 0, 1]);
});

describe("Retry-After", () => {
  const nowMs = Date.parse("2026-01-01T00:00:00Z");
  const DAY_MS = 86_400_000;
  test.each([
    { text: undefined, ms: undefined },
    { text: "0", ms: 0 },
    { text: "120", ms: 120_000 },
    { text: "Thu, 01 Jan 2026 00:01:00 GMT", ms: 60_000 },
    { text: "Wed, 31 Dec 2025 23:59:00 GMT", ms: 0 },
    { text: "-5", ms: undefined },
    { text: "1.5", ms: undefined },
    { text: "1e9", ms: undefined },
    { text: "86400", ms: DAY_MS },
    { text: "86401", ms: DAY_MS },
    { text: "999999999", ms: DAY_MS },
    { text: "9999999999", ms: DAY_MS },
    { text: "9".repeat(400), ms: DAY_MS },
    { text: "Fri, 02 Jan 2026 00:00:00 GMT", ms: DAY_MS },
    { text: "Fri, 02 Jan 2026 00:00:01 GMT", ms: DAY_MS },
    { text: "Fri, 31 Dec 9999 23:59:59 GMT", ms: DAY_MS },
    { text: "Thu, 01 Jan 1970 00:00:00 GMT", ms: 0 },
    // The two forms of RFC 9110 that are obsolete.
    { text: "Thursday, 01-Jan-26 00:01:00 GMT", ms: 60_000 },
    { text: "Thursday, 01-Jan-76 00:00:00 GMT", ms: DAY_MS },
    { text: "Saturday, 01-Jan-77 00:00:00 GMT", ms: 0 },
    { text: "Thu Jan  1 00:01:00 2026", ms: 60_000 },
    { text: "Thu Jan 15 00:01:00 2026", ms: DAY_MS },
    { text: "+5", ms: undefined },
    { text: "Infinity", ms: undefined },
    { text: "0x10", ms: undefined },
    { text: "Thursday, 99-Xxx-26 00:01:00 GMT", ms: undefined },
    { text: "Thu Xxx 99 00:01:00 2026", ms: undefined },
    { text: "tomorrow", ms: undefined },
    { text: "2026-01-01", ms: undefined },
    { text: "Xxx, 99 Yyy 2026 00:01:00 GMT", ms: undefined },
    { text: "", ms: undefined },
  ])("$text is $ms ms", ({ text, ms }) => {
    expect(parseRetryAfter(text, nowMs)).toBe(ms);
  });
});

describe("the fence of an attempt", () => {
  test.each([
    { rule: "the next attempt of a claim has a higher one", before: [7, 1], after: [7, 2] },
    { rule: "so has the first after a takeover", before: [7, 3], after: [8, 1] },
    { rule: "and the same attempt after a takeover", before: [7, 3], after: [8, 3] },
    { rule: "the first of a claim is above the last possible one before", before: [7, MOST_ATTEMPTS], after: [8, 1] },
  ] as const)("$rule", ({ before, after }) => {
    expect(fenceOf(after[0], after[1])).toBeGreaterThan(fenceOf(before[0], before[1]));
  });

  test("is exact for claims of the next two hundred years", () => {
    const claim = Date.parse("2226-01-01T00:00:00Z");
    expect(Number.isSafeInteger(fenceOf(claim, MOST_ATTEMPTS))).toBe(true);
  });
});
