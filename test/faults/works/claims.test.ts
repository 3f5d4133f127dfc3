/**
 * The checks of the fault runs on claims, on made-up ledgers.
 *
 * Goal: a run that finds nothing wrong means something. Each kind of wrong that a check is for is planted once, and must be
 * found; the same ledger without it must pass.
 */

import { describe, expect, it } from "vitest";
import type { Note, Operation } from "../ledger.ts";
import { checkClaims, type Grant, type LogEntry, type Seen } from "./claims.ts";
import { evidence, operation } from "./evidence.ts";
import type { Span } from "./work.ts";

describe("claims", () => {
  const entry = (version: number, fence: number, mark: string, of = "job"): LogEntry => ({ version, fence, mark, of });
  const append = (
    mark: string,
    fence: number,
    answer: "yes" | "no" | "unknown",
    version: number | null,
    at?: Span,
  ): Operation => operation({ of: "job", to: "job", fence, mark }, answer, { version }, at);
  const grant = (fence: number, at: number, since: number | null = null, life = "w0#1"): Note => ({
    work: "claims",
    life,
    at,
    what: "grant",
    data: { of: "job", fence, since } satisfies Grant,
  });
  const seen = (version: number, mark: string, at = 0): Note => ({
    work: "claims",
    life: "follower#1",
    at,
    what: "seen",
    data: { to: "job", of: "job", fence: 1, version, mark } satisfies Seen,
  });
  const log = (...entries: LogEntry[]) => new Map([["job", entries]]);
  const check = (
    operations: readonly Operation[],
    notes: readonly Note[],
    logs: ReadonlyMap<string, readonly LogEntry[]>,
    doubts: readonly Span[] = [],
  ) => checkClaims(evidence(operations, notes, doubts), logs);
  const well = [
    append("x", 1, "yes", 1, { from: 2, to: 3 }),
    append("y", 2, "yes", 2, { from: 6, to: 7 }),
    append("z", 2, "unknown", null, { from: 8, to: 9 }),
  ];

  it("a log in which each holder wrote in its turn is fine", () => {
    expect(check(well, [grant(1, 1), grant(2, 5)], log(entry(1, 1, "x"), entry(2, 2, "y")))).toEqual([]);
    expect(check(well, [], log(entry(1, 1, "x"), entry(2, 2, "y"), entry(3, 2, "z")))).toEqual([]);
  });

  const plants: { wrong: string; says: string; found: readonly string[] }[] = [
    {
      wrong: "a lost entry",
      says: "was acknowledged to w0#1 as job 2 and is lost",
      found: check(well, [], log(entry(1, 1, "x"))),
    },
    {
      wrong: "a gap",
      says: "job has entry 3 where 2 belongs",
      found: check(well, [], log(entry(1, 1, "x"), entry(3, 2, "z"))),
    },
    {
      wrong: "an entry elsewhere than reported",
      says: "was acknowledged as job 2 and is job 3",
      found: check(well, [], log(entry(1, 1, "x"), entry(2, 2, "z"), entry(3, 2, "y"))),
    },
    {
      wrong: "an entry that is there twice",
      says: "x is there twice: job 1 and job 2",
      found: check(well.slice(0, 1), [], log(entry(1, 1, "x"), entry(2, 1, "x"))),
    },
    {
      wrong: "an entry that was refused",
      says: "x was refused (store_busy) and is there: job 1",
      found: check([append("x", 1, "no", null)], [], log(entry(1, 1, "x"))),
    },
    {
      wrong: "a rest that found news and was written all the same",
      says: "x was refused (news) and is there: job 1",
      found: check([append("x", 1, "yes", null)], [], log(entry(1, 1, "x"))),
    },
    {
      wrong: "an entry that no worker requested",
      says: "job 1 is q, which no worker requested",
      found: check([], [], log(entry(1, 1, "q"))),
    },
    {
      wrong: "a fence going back: a stale write after a take-over",
      says: "job 2 was written under fence 1 of job, after fence 2",
      found: check([append("y", 2, "yes", 1), append("x", 1, "yes", 2)], [], log(entry(1, 2, "y"), entry(2, 1, "x"))),
    },
    {
      wrong: "a stale write elsewhere, in the name of a record that was taken over",
      says: "tally 2 was written under fence 1 of job, after fence 2",
      found: check(
        [
          operation({ of: "job", to: "tally", fence: 2, mark: "y" }, "yes", { version: 1 }),
          operation({ of: "job", to: "tally", fence: 1, mark: "x" }, "yes", { version: 2 }),
        ],
        [],
        new Map([["tally", [entry(1, 2, "y"), entry(2, 1, "x")]]]),
      ),
    },
    {
      wrong: "a write that began when another already had a newer fence",
      says: "wrote x under fence 1 of job when 2 was out",
      found: check(
        [append("x", 1, "yes", 1, { from: 20, to: 25 })],
        [grant(1, 1), grant(2, 10, null, "w1#1")],
        log(entry(1, 1, "x")),
      ),
    },
    {
      wrong: "a fence that was given out twice",
      says: "fence 1 of job was given to w0#1 and to w1#1",
      found: check([], [grant(1, 1), grant(1, 5, null, "w1#1")], log()),
    },
    {
      wrong: "a fence that fell from one claim to the next",
      says: "w1#1 asked for job after w0#1 had fence 2, and got 1",
      found: check([], [grant(2, 10), grant(1, 30, 20, "w1#1")], log()),
    },
    {
      wrong: "an entry that the follower skipped",
      says: "the follower of job saw 2 after 0",
      found: check(well, [seen(2, "y")], log(entry(1, 1, "x"), entry(2, 2, "y"))),
    },
    {
      wrong: "an entry that the follower saw twice",
      says: "the follower of job saw 1 after 1",
      found: check(well, [seen(1, "x"), seen(1, "x")], log(entry(1, 1, "x"))),
    },
    {
      wrong: "an entry that the follower saw and that is gone",
      says: "the follower saw z as job 3, and it is gone",
      found: check(well, [seen(1, "x"), seen(2, "y"), seen(3, "z")], log(entry(1, 1, "x"), entry(2, 2, "y"))),
    },
    {
      wrong: "an entry that the follower never came to",
      says: "the follower of job came to 1 of 2",
      found: check(well, [seen(1, "x")], log(entry(1, 1, "x"), entry(2, 2, "y"))),
    },
  ];

  it.each(plants)("$wrong is found", ({ says, found }) => {
    expect(found.join("\n")).toContain(says);
  });

  it("a lease that was handed on before its end is found, unless its holder may have given it back", () => {
    const ms = 1e6;
    const notes = [grant(1, 2 * ms, 1 * ms), grant(2, 1_000 * ms, 990 * ms, "w1#1")];
    const says = "w0#1 was granted job under fence 1, and 999 ms later w1#1 was as well";
    expect(check([], notes, log())).toEqual([says]);
    expect(check([], [grant(1, 2 * ms, 1 * ms), grant(2, 1_600 * ms)], log())).toEqual([]);
    const rest = (answer: "yes" | "no" | "unknown", version: number | null, at: number) =>
      operation({ of: "job", to: "job", fence: 1, mark: "r", rests: true }, answer, { version }, { from: at, to: at });
    expect(check([rest("unknown", null, 500 * ms)], notes, log())).toEqual([]);
    expect(check([rest("yes", 1, 500 * ms)], notes, log(entry(1, 1, "r")))).toEqual([]);
    expect(check([rest("no", null, 500 * ms)], notes, log())).toEqual([says]);
    expect(check([rest("yes", null, 500 * ms)], notes, log())).toEqual([says]);
    expect(check([rest("unknown", null, 1_001 * ms)], notes, log())).toEqual([says]);
  });

  it("concurrent claims may have come in either order", () => {
    expect(check([], [grant(2, 10e9), grant(1, 30e9, 5e9, "w1#1")], log())).toEqual([]);
  });

  it("what the follower saw on a primary that was given up may be gone", () => {
    const all = log(entry(1, 1, "x"), entry(2, 2, "y"));
    const notes = [seen(1, "x"), seen(2, "y"), seen(3, "z", 50)];
    expect(check(well, notes, all, [{ from: 40, to: 60 }])).toEqual([]);
    expect(check(well, notes, all, [{ from: 51, to: 60 }])).toHaveLength(1);
  });
});
