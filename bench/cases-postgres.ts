/**
 * The cases on PostgreSQL. Those that SQLite has too have the same letters; a full run takes about five minutes.
 */

import { againstRaw, amongOurs, atLeast, atMost, CALLERS, type Case } from "./comparisons.ts";
import type { Contender } from "./contender.ts";
import { counts } from "./counts.ts";
import type { PostgresGround } from "./ground-postgres.ts";
import { ours, oursHeld, oursLocked, oursNew, oursSlot } from "./ours.ts";
import { oursRuns } from "./ours-runs.ts";
import { honesty } from "./pgbench.ts";
import { counters, steps } from "./plan.ts";
import { processes } from "./processes.ts";
import { byHand, rawPostgres, rawPostgresTwice, rawRunsPostgres, rawRunsPostgresTwice } from "./raw-postgres.ts";
import { shortScaleCases } from "./scale.ts";

const raws = [rawPostgres, rawPostgresTwice];

/** What an assumption saves: the same commits with it, beside each row locked and read. */
function assuming(id: string, title: string, contender: Contender, commitsPerRecord: number): readonly Case[] {
  const common = { title, raws: [oursLocked], contender, make: steps, target: atLeast(1) };
  return [
    againstRaw({
      ...common,
      id,
      unit: "commits/s",
      size: { turns: 400, rounds: 5 },
      options: { callers: CALLERS, commitsPerRecord },
    }),
    againstRaw({
      ...common,
      id: `${id}d`,
      title: `${title}, a lone caller`,
      unit: "ms",
      size: { turns: 500, rounds: 5 },
      options: { callers: 1, commitsPerRecord },
      target: atMost(1),
    }),
  ];
}

export const postgresCases: readonly Case<PostgresGround>[] = [
  againstRaw({
    id: "a",
    title: "100 callers, a record and a log entry",
    unit: "commits/s",
    size: { turns: 800, rounds: 5 },
    raws,
    contender: ours,
    make: steps,
    options: { callers: CALLERS },
    target: atLeast(0.5),
  }),
  againstRaw({
    id: "a2",
    title: "the same, each row locked and read",
    unit: "commits/s",
    size: { turns: 800, rounds: 5 },
    raws,
    contender: oursLocked,
    make: steps,
    options: { callers: CALLERS },
    target: atLeast(0.5),
  }),
  againstRaw({
    id: "b",
    title: "the same by the holder, nothing read",
    unit: "commits/s",
    size: { turns: 800, rounds: 5 },
    raws,
    contender: oursHeld,
    make: steps,
    options: { callers: CALLERS, claimed: true },
    target: atLeast(0.6),
  }),
  againstRaw({
    id: "c",
    title: "the same, each commit a new record",
    unit: "commits/s",
    size: { turns: 400, rounds: 5 },
    raws,
    contender: ours,
    make: steps,
    options: { callers: CALLERS, commitsPerRecord: 1 },
    target: null,
  }),
  ...assuming("p1", "rows written last are assumed, beside locked and read", ours, 10),
  ...assuming("p2", "new records are assumed to be absent, beside looked for", oursNew, 1),
  againstRaw({
    id: "d",
    title: "a lone caller: time of a commit",
    unit: "ms",
    size: { turns: 1000, rounds: 9 },
    raws: [rawPostgres],
    contender: ours,
    make: steps,
    options: { callers: 1 },
    target: atMost(1.5),
  }),
  amongOurs({
    id: "e",
    title: "100 callers on one hot record",
    size: { turns: 400, rounds: 5 },
    contender: ours,
    make: steps,
    easy: ["on 100 records", { callers: CALLERS }],
    hard: ["on one record", { callers: CALLERS, hot: true }],
    target: atLeast(1),
  }),
  againstRaw({
    id: "w1",
    title: "runs of one step, 100 callers: their commits",
    unit: "commits/s",
    size: { turns: 400, rounds: 5 },
    raws: [rawRunsPostgres, rawRunsPostgresTwice],
    contender: oursRuns,
    make: steps,
    options: { callers: CALLERS, commitsPerRecord: 2 },
    target: atLeast(0.5),
    same: "lengths",
  }),
  againstRaw({
    id: "w10",
    title: "runs of ten steps, 100 callers: their commits",
    unit: "commits/s",
    size: { turns: 396, rounds: 5 },
    raws: [rawRunsPostgres, rawRunsPostgresTwice],
    contender: oursRuns,
    make: steps,
    options: { callers: CALLERS, commitsPerRecord: 11 },
    target: atLeast(0.5),
    same: "lengths",
  }),
  ...shortScaleCases,
  processes({ id: "h", title: "processes, records of their own", isHot: false, target: atLeast(1) }),
  processes({ id: "j", title: "processes on one hot record", isHot: true, target: null }),
  againstRaw({
    id: "i1",
    title: "slot.update, 100 callers, a slot each",
    unit: "commits/s",
    size: { turns: 400, rounds: 5 },
    raws,
    contender: oursSlot,
    make: counters,
    options: { callers: CALLERS },
    target: null,
  }),
  amongOurs({
    id: "i2",
    title: "slot.update, 100 callers on one slot",
    size: { turns: 400, rounds: 5 },
    contender: oursSlot,
    make: counters,
    easy: ["on 100 slots", { callers: CALLERS }],
    hard: ["on one slot", { callers: CALLERS, hot: true }],
    target: null,
  }),
  againstRaw({
    id: "k",
    title: "written by hand, 32 connections",
    unit: "commits/s",
    size: { turns: 100, rounds: 3 },
    raws,
    contender: byHand,
    make: steps,
    options: { callers: CALLERS },
    target: null,
  }),
  honesty,
  counts,
];
