/**
 * Goal: whether and when a step is tried again is exactly what its policy says.
 * Method: one row for each rule, and one for each side of each boundary.
 */

import { describe, expect, test } from "vitest";
import { InvalidArgumentError, InvalidDurationError, NonRetryableError } from "./errors.ts";
import { checkRetry, decideRetry, type Retry, type RetryOptions } from "./retry.ts";

const base: Retry = { attempts: 5, delayMs: 1000, factor: 2, maxDelayMs: 6000, jitter: 0, when: undefined };
const plain = new Error("down");
const final = new NonRetryableError("stolen");

const rules: readonly {
  readonly rule: string;
  readonly retry?: Partial<Retry>;
  readonly attempt: number;
  readonly error?: unknown;
  readonly chance?: number;
  readonly delayMs: number | null;
}[] = [
  { rule: "the first wait is the delay", attempt: 1, delayMs: 1000 },
  { rule: "the next ones grow by the factor", attempt: 2, delayMs: 2000 },
  { rule: "again and again", attempt: 3, delayMs: 4000 },
  { rule: "none is longer than the longest", attempt: 4, delayMs: 6000 },
  { rule: "the last attempt is the last", attempt: 5, delayMs: null },
  { rule: "more than the last is over too", attempt: 6, delayMs: null },
  { rule: "one attempt is never again", retry: { attempts: 1 }, attempt: 1, delayMs: null },
  { rule: "a factor of 1 keeps the wait", retry: { factor: 1 }, attempt: 4, delayMs: 1000 },
  { rule: "no delay is at once", retry: { delayMs: 0 }, attempt: 3, delayMs: 0 },
  { rule: "a delay above the longest is cut", retry: { delayMs: 9000 }, attempt: 1, delayMs: 6000 },
  { rule: "a power too big for a number is cut", retry: { attempts: 1e6 }, attempt: 5000, delayMs: 6000 },
  { rule: "an error that says so is final", attempt: 1, error: final, delayMs: null },
  { rule: "what is final asks no `when`", retry: { when: () => true }, attempt: 1, error: final, delayMs: null },
  { rule: "`when` says yes", retry: { when: (e) => e === plain }, attempt: 1, error: plain, delayMs: 1000 },
  { rule: "`when` says no", retry: { when: (e) => e !== plain }, attempt: 1, error: plain, delayMs: null },
  { rule: "what was thrown need not be an error", attempt: 1, error: undefined, delayMs: 1000 },
  { rule: "without jitter, chance has no say", attempt: 1, chance: 0.99, delayMs: 1000 },
  { rule: "jitter only shortens: none of it", retry: { jitter: 0.5 }, attempt: 1, chance: 0, delayMs: 1000 },
  { rule: "jitter only shortens: half of it", retry: { jitter: 0.5 }, attempt: 1, chance: 0.5, delayMs: 750 },
  { rule: "jitter only shortens: all of it", retry: { jitter: 1 }, attempt: 1, chance: 1, delayMs: 0 },
  { rule: "jitter is taken from the wait as cut", retry: { jitter: 0.5 }, attempt: 4, chance: 1, delayMs: 3000 },
  { rule: "waits are whole milliseconds", retry: { delayMs: 10, jitter: 0.33 }, attempt: 1, chance: 0.5, delayMs: 8 },
];

test.each(rules)("$rule", ({ retry, attempt, error = plain, chance = 0, delayMs }) => {
  expect(decideRetry({ ...base, ...retry }, attempt, error, chance)).toBe(delayMs);
});

describe("a policy", () => {
  test("without a longest wait has one that is not below its delay", () => {
    expect(checkRetry({ delay: "10 minutes" })).toMatchObject({ delayMs: 600_000, maxDelayMs: 600_000 });
    expect(checkRetry({ delay: "7s" }, base)).toEqual({ ...base, delayMs: 7000, maxDelayMs: 7000 });
    // What was asked for counts, also where it contradicts itself.
    expect(checkRetry({ delay: "7s", maxDelay: "6s" }, base)).toEqual({ ...base, delayMs: 7000 });
    const contradicting = checkRetry({ delay: "7s", maxDelay: "6s" });
    expect(checkRetry({ attempts: 2 }, contradicting)).toEqual({ ...contradicting, attempts: 2 });
  });

  test("that says nothing is the one it is based on", () => {
    expect(checkRetry(undefined, base)).toBe(base);
    expect(checkRetry({}, base)).toEqual(base);
    expect(checkRetry(undefined)).toMatchObject({
      attempts: 5,
      delayMs: 1000,
      factor: 2,
      maxDelayMs: 60_000,
      jitter: 0.5,
    });
  });

  test("changes what it says and nothing else", () => {
    const when = () => false;
    expect(checkRetry({ attempts: 2 }, base)).toEqual({ ...base, attempts: 2 });
    expect(checkRetry({ delay: "2s" }, base)).toEqual({ ...base, delayMs: 2000 });
    expect(checkRetry({ delay: "6s" }, base)).toEqual({ ...base, delayMs: 6000 });
    expect(checkRetry({ delay: 0 }, base)).toEqual({ ...base, delayMs: 0 });
    expect(checkRetry({ factor: 1 }, base)).toEqual({ ...base, factor: 1 });
    expect(checkRetry({ maxDelay: "1 hour" }, base)).toEqual({ ...base, maxDelayMs: 3_600_000 });
    expect(checkRetry({ jitter: 0 }, { ...base, jitter: 1 })).toEqual(base);
    expect(checkRetry({ when }, base)).toEqual({ ...base, when });
  });

  const bad: [string, RetryOptions, typeof InvalidArgumentError | typeof InvalidDurationError][] = [
    ["no attempt", { attempts: 0 }, InvalidArgumentError],
    ["half an attempt", { attempts: 1.5 }, InvalidArgumentError],
    ["a factor below 1", { factor: 0.99 }, InvalidArgumentError],
    ["a factor that is no number", { factor: Number.NaN }, InvalidArgumentError],
    ["a factor without end", { factor: Number.POSITIVE_INFINITY }, InvalidArgumentError],
    ["jitter below 0", { jitter: -0.01 }, InvalidArgumentError],
    ["jitter above 1", { jitter: 1.01 }, InvalidArgumentError],
    ["jitter that is no number", { jitter: Number.NaN }, InvalidArgumentError],
    ["a delay below 0", { delay: -1 }, InvalidDurationError],
    ["a delay that is no duration", { delay: "soon" }, InvalidDurationError],
    ["a longest delay that is none", { maxDelay: "long" }, InvalidDurationError],
  ];
  test.each(bad)("with %s is refused", (_, options, error) => {
    expect(() => checkRetry(options)).toThrow(error);
  });
});
