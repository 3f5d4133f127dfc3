/**
 * The cases on SQLite: what is compared with what, how much of it, and what is aimed at.
 *
 * Sizes are such that a full run, without the cases of scale, ends within six minutes on a busy machine with two cores; a quick run
 * is only there to see that everything runs, and its figures mean nothing. A round is long enough that SQLite copies its log back
 * at least once.
 */

import { againstRaw, amongOurs, atLeast, atMost, CALLERS, type Case } from "./comparisons.ts";
import { million } from "./million.ts";
import { ours, oursHeld, oursSlot } from "./ours.ts";
import { oursRuns } from "./ours-runs.ts";
import { counters, steps } from "./plan.ts";
import { processes } from "./processes.ts";
import { rawMany, rawRows, rawRuns } from "./raw.ts";
import { scaleCases } from "./scale.ts";

const raws = [rawRows, rawMany];

export const sqliteCases: readonly Case[] = [
  againstRaw({
    id: "a",
    title: "100 callers, a record and a log entry",
    unit: "commits/s",
    size: { turns: 1600, rounds: 5 },
    raws,
    contender: ours,
    make: steps,
    options: { callers: CALLERS },
    target: atLeast(0.6),
  }),
  againstRaw({
    id: "b",
    title: "the same by the holder, nothing read",
    unit: "commits/s",
    size: { turns: 1600, rounds: 5 },
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
    size: { turns: 1600, rounds: 5 },
    raws,
    contender: ours,
    make: steps,
    options: { callers: CALLERS, commitsPerRecord: 1 },
    target: atLeast(0.6),
  }),
  againstRaw({
    id: "d",
    title: "a lone caller: time of a commit",
    unit: "ms",
    size: { turns: 400, rounds: 9 },
    // With one caller, a statement for each row is a statement for each turn.
    raws: [rawRows],
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
  amongOurs({
    id: "f1",
    title: "random keys, ten commits to each",
    size: { turns: 1000, rounds: 3 },
    contender: ours,
    make: steps,
    easy: ["ordered keys", { callers: CALLERS }],
    hard: ["random keys", { callers: CALLERS, order: "random" }],
    target: atLeast(0.75),
  }),
  amongOurs({
    id: "f2",
    title: "random keys, only new records",
    size: { turns: 1000, rounds: 3 },
    contender: ours,
    make: steps,
    easy: ["ordered keys", { callers: CALLERS, commitsPerRecord: 1 }],
    hard: ["random keys", { callers: CALLERS, commitsPerRecord: 1, order: "random" }],
    target: atLeast(0.75),
  }),
  againstRaw({
    id: "f3",
    title: "random keys, only new records",
    unit: "commits/s",
    size: { turns: 600, rounds: 3 },
    raws,
    contender: ours,
    make: steps,
    options: { callers: CALLERS, commitsPerRecord: 1, order: "random" },
    target: atLeast(0.6),
  }),
  { id: "g", title: "a million records that come due", run: million },
  againstRaw({
    id: "w1",
    title: "runs of one step, 100 callers: their commits",
    unit: "commits/s",
    size: { turns: 1600, rounds: 5 },
    raws: [rawRuns],
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
    size: { turns: 1595, rounds: 5 },
    raws: [rawRuns],
    contender: oursRuns,
    make: steps,
    options: { callers: CALLERS, commitsPerRecord: 11 },
    target: atLeast(0.5),
    same: "lengths",
  }),
  ...scaleCases,
  processes({ id: "h", title: "processes on one file", isHot: false, target: null }),
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
];
