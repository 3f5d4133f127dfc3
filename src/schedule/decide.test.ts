/** The rules of schedules, one row each. */

import { describe, expect, it } from "vitest";
import {
  DECLARED_MS,
  decideDeclare,
  decideDue,
  decideOverlap,
  decideTogether,
  firstTicks,
  hasTicksLeft,
  jitterOf,
  LATE_MS,
  MOST_DECIDED,
  nextTick,
  RENEWED_MS,
  stateOf,
  type TickSource,
} from "./decide.ts";
import type { Plan } from "./stored.ts";
import { tickRunId, triggerRunId } from "./stored.ts";
import { nextTime } from "./times.ts";

const HOUR = 3_600_000;
const hourly: Plan = { timing: { everyMs: HOUR, anchorMs: 0 }, overlap: "skip", catchUp: 1 };
const source = (plan: Plan, jitterMs = 0): TickSource => ({
  plan,
  next: nextTime,
  dueMs: (tickMs) => tickMs + jitterMs,
});

describe("ticks", () => {
  const rules = [
    { rule: "the next one is after the moment", plan: hourly, after: HOUR, next: 2 * HOUR },
    { rule: "the first one may be at starts", plan: { ...hourly, startsMs: 5 * HOUR }, after: 0, next: 5 * HOUR },
    { rule: "the last one may be at ends", plan: { ...hourly, endsMs: HOUR }, after: 0, next: HOUR },
    { rule: "there is none after ends", plan: { ...hourly, endsMs: HOUR }, after: HOUR, next: undefined },
    {
      rule: "every begins at its anchor",
      plan: { ...hourly, timing: { everyMs: HOUR, anchorMs: 90 } },
      after: 0,
      next: 90,
    },
    { rule: "a list of times, in order", plan: { ...hourly, timing: { atMs: [5, 7] } }, after: 5, next: 7 },
    { rule: "a list of times ends", plan: { ...hourly, timing: { atMs: [5, 7] } }, after: 7, next: undefined },
  ];
  it.each(rules)("$rule", ({ plan, after, next }) => {
    expect(nextTick(plan, after, nextTime)).toBe(next);
  });
});

describe("the first ticks up to a moment", () => {
  const rules = [
    { rule: "are those after the cursor", cursor: HOUR, upTo: 3 * HOUR, limit: 9, ticks: [2 * HOUR, 3 * HOUR] },
    { rule: "are no more than were asked for", cursor: 0, upTo: 3 * HOUR, limit: 2, ticks: [HOUR, 2 * HOUR] },
    { rule: "do not wait for their jitter: they were due", cursor: 0, upTo: HOUR, limit: 9, ticks: [HOUR] },
    { rule: "are none at the moment itself", cursor: HOUR, upTo: HOUR, limit: 9, ticks: [] },
  ];
  it.each(rules)("$rule", ({ cursor, upTo, limit, ticks }) =>
    expect(firstTicks(source(hourly, 500), cursor, upTo, limit)).toEqual(ticks),
  );
});

describe("what is due", () => {
  const late = 10 * HOUR + LATE_MS + 1;
  const rules = [
    { rule: "nothing before its time", catchUp: 1, cursor: 0, now: HOUR - 1, missed: [], kept: [] },
    { rule: "a tick at its time", catchUp: 0, cursor: 0, now: HOUR, missed: [], kept: [1] },
    { rule: "a tick a little late is on time", catchUp: 0, cursor: 0, now: HOUR + LATE_MS, missed: [], kept: [1] },
    { rule: "none: a late tick is missed", catchUp: 0, cursor: 9 * HOUR, now: late, missed: [10], kept: [] },
    { rule: "last: a late tick is made up for", catchUp: 1, cursor: 9 * HOUR, now: late, missed: [], kept: [10] },
    {
      rule: "none: those before one that is on time are missed",
      catchUp: 0,
      cursor: 7 * HOUR,
      now: 10 * HOUR,
      missed: [8, 9],
      kept: [10],
    },
    { rule: "last: only the last one", catchUp: 1, cursor: 6 * HOUR, now: late, missed: [7, 8, 9], kept: [10] },
    {
      rule: "last: one that is on time is the last",
      catchUp: 1,
      cursor: 6 * HOUR,
      now: 10 * HOUR,
      missed: [7, 8, 9],
      kept: [10],
    },
    {
      rule: "a number: the last ones, in order",
      catchUp: 3,
      cursor: 5 * HOUR,
      now: late,
      missed: [6, 7],
      kept: [8, 9, 10],
    },
    { rule: "a number that is not reached", catchUp: 99, cursor: 7 * HOUR, now: late, missed: [], kept: [8, 9, 10] },
  ];
  it.each(rules)("$rule", ({ catchUp, cursor, now, missed, kept }) => {
    expect(decideDue(source({ ...hourly, catchUp }), cursor, now)).toEqual({
      missed: missed.map((n) => n * HOUR),
      kept: kept.map((n) => n * HOUR),
    });
  });

  it("ticks that are on time are all started", () => {
    const often = { ...hourly, timing: { everyMs: 1000, anchorMs: 0 }, catchUp: 0 };
    expect(decideDue(source(often), 0, LATE_MS).kept.length).toBe(LATE_MS / 1000);
  });

  it("with jitter it is due later, and late later", () => {
    expect(decideDue(source(hourly, 500), 0, HOUR + 499).kept).toEqual([]);
    expect(decideDue(source({ ...hourly, catchUp: 0 }, 500), 0, HOUR + 500 + LATE_MS).kept).toEqual([HOUR]);
  });

  it("a tick that is delayed for long makes those after it wait, which are not late for that", () => {
    const uneven: TickSource = { ...source(hourly), dueMs: (tickMs) => (tickMs === HOUR ? 5 * HOUR : tickMs) };
    expect(decideDue(uneven, 0, 5 * HOUR).kept).toHaveLength(5);
    // It was decided alone, and the others are looked at after it.
    expect(decideDue(uneven, HOUR, 5 * HOUR + LATE_MS).kept).toHaveLength(4);
    expect(decideDue(uneven, HOUR, 5 * HOUR + LATE_MS + 1).kept).toHaveLength(1);
  });

  it.each([
    { overlap: "skip", passedOver: [1, 2], kept: [3] },
    { overlap: "cancel-running", passedOver: [1, 2], kept: [3] },
    { overlap: "queue", passedOver: [], kept: [1, 2, 3] },
    { overlap: "allow", passedOver: [], kept: [1, 2, 3] },
  ] as const)("of ticks that are due together, with $overlap", ({ overlap, ...decided }) => {
    expect(decideTogether(overlap, [1, 2, 3])).toEqual(decided);
    expect(decideTogether(overlap, [])).toEqual({ passedOver: [], kept: [] });
  });

  it("very many missed ticks are decided in parts, and the last are kept", () => {
    const plan = { ...hourly, catchUp: 2 };
    const nowMs = (MOST_DECIDED + 10) * HOUR + LATE_MS + 1;
    const first = decideDue(source(plan), 0, nowMs);
    expect(first).toEqual({ missed: Array.from({ length: MOST_DECIDED }, (_, i) => (i + 1) * HOUR), kept: [] });
    const rest = decideDue(source(plan), MOST_DECIDED * HOUR, nowMs);
    expect([rest.missed.length, rest.kept.length]).toEqual([8, 2]);
  });

  it("ticks of years are not counted one by one", () => {
    const often: Plan = { ...hourly, timing: { cron: "* * * * * *", timezone: "Europe/Berlin" }, catchUp: 3 };
    const nowMs = Date.UTC(2030, 0, 1);
    let [cursorMs, rounds] = [Date.UTC(2026, 0, 1), 0];
    for (;;) {
      rounds += 1;
      const { jumpedMs, missed, kept } = decideDue(source(often), cursorMs, nowMs);
      cursorMs = kept.at(-1) ?? missed.at(-1) ?? jumpedMs ?? cursorMs;
      if (kept.length > 0) break;
    }
    expect(cursorMs).toBe(nowMs);
    expect(rounds).toBeLessThan(5);
  });
});

describe("overlaps", () => {
  const rules = [
    { overlap: "skip", active: 0, queued: 0, decision: "start" },
    { overlap: "skip", active: 1, queued: 0, decision: "skip" },
    { overlap: "allow", active: 9, queued: 0, decision: "start" },
    { overlap: "cancel-running", active: 0, queued: 0, decision: "start" },
    { overlap: "cancel-running", active: 1, queued: 0, decision: "cancel" },
    { overlap: "queue", active: 0, queued: 0, decision: "start" },
    { overlap: "queue", active: 1, queued: 0, decision: "queue" },
    { overlap: "queue", active: 1, queued: 1, decision: "queue" },
    { overlap: "queue", active: 1, queued: 2, decision: "skip" },
    { overlap: "queue", active: 0, queued: 1, decision: "queue" },
    { overlap: "queue", active: 0, queued: 2, decision: "skip" },
  ] as const;
  it.each(rules)(
    "$overlap with $active runs and $queued waiting: $decision",
    ({ overlap, active, queued, decision }) => {
      expect(decideOverlap({ overlap, mostQueued: 2 }, active, queued)).toBe(decision);
    },
  );

  it("ticks that wait count for max", () => {
    const plan = { ...hourly, max: 3 };
    expect(hasTicksLeft({ plan, fired: 2 })).toBe(true);
    expect(hasTicksLeft({ plan, fired: 3 })).toBe(false);
    expect(hasTicksLeft({ plan, fired: 1, queued: [1, 2] })).toBe(false);
    expect(hasTicksLeft({ plan: hourly, fired: 1e6 })).toBe(true);
  });
});

describe("declarations", () => {
  const mine = { by: "mine", revision: 2, isFirst: false };
  const other = (revision: number, untilMs = 1000) => ({ declared: { by: "other", revision, untilMs } });
  const own = (untilMs: number) => ({ declared: { by: "mine", revision: 2, untilMs } });
  const rules = [
    { rule: "there is none", stored: undefined, mine, decision: "create" },
    { rule: "one that was created at run time", stored: {}, mine, decision: "refuse" },
    { rule: "its own, said lately", stored: own(RENEWED_MS), mine, decision: "keep" },
    { rule: "its own, said a while ago", stored: own(RENEWED_MS - 1), mine, decision: "renew" },
    { rule: "a lower revision", stored: other(1), mine, decision: "replace" },
    { rule: "a higher revision", stored: other(3), mine, decision: "leave" },
    {
      rule: "a higher revision, at the beginning",
      stored: other(3),
      mine: { ...mine, isFirst: true },
      decision: "leave",
    },
    { rule: "a higher revision that no worker declares", stored: other(3, 0), mine, decision: "replace" },
    { rule: "an equal one", stored: other(2), mine, decision: "leave" },
    {
      rule: "an equal one, at the beginning: the last one counts",
      stored: other(2),
      mine: { ...mine, isFirst: true },
      decision: "replace",
    },
  ];
  it.each(rules)("$rule: $decision", ({ stored, mine, decision }) => {
    expect(decideDeclare(stored, mine, 0)).toBe(decision);
  });

  it("one that no worker declares is undeclared, unless it has ended", () => {
    const declared = { by: "x", revision: 0, untilMs: DECLARED_MS };
    expect(stateOf("active", { declared }, DECLARED_MS - 1)).toBe("active");
    expect(stateOf("active", { declared }, DECLARED_MS)).toBe("undeclared");
    expect(stateOf("paused", { declared }, DECLARED_MS)).toBe("undeclared");
    expect(stateOf("ended", { declared }, DECLARED_MS)).toBe("ended");
    expect(stateOf("paused", {}, DECLARED_MS)).toBe("paused");
  });
});

describe("jitter", () => {
  it("is the same each time, differs by tick and by name, and is within its limit", () => {
    const jitters = Array.from({ length: 1000 }, (_, i) => jitterOf("nightly", 9, i * HOUR));
    expect(jitters).toEqual(Array.from({ length: 1000 }, (_, i) => jitterOf("nightly", 9, i * HOUR)));
    expect(new Set(jitters)).toEqual(new Set([0, 1, 2, 3, 4, 5, 6, 7, 8, 9]));
    expect(jitterOf("daily", HOUR, 0)).not.toBe(jitterOf("nightly", HOUR, 0));
    expect(jitterOf("nightly", undefined, 0)).toBe(0);
  });
});

describe("ids of runs", () => {
  it("are made of schedule and time", () => {
    expect(tickRunId("nightly", Date.UTC(2026, 2, 29, 1, 30))).toBe("nightly/2026-03-29T01:30:00.000Z");
    expect(triggerRunId("nightly", "u")).toBe("nightly/trigger/u");
  });

  it("of long names are cut, and remain different", () => {
    const long = "ü".repeat(128);
    const [a, b] = [tickRunId(long, 0), tickRunId(`${"ü".repeat(127)}x`, 0)];
    expect(Buffer.byteLength(a)).toBeLessThanOrEqual(256);
    expect(a).toMatch(/^ü+~[0-9a-f]{16}\/1970-01-01T00:00:00.000Z$/);
    expect(a).not.toBe(b);
    expect(tickRunId(long, 1)).not.toBe(a);
  });
});
