/**
 * Event streams, compared with the bare group commit of the same rows, 100 callers; and reactions.
 *
 * x1: appends to many streams, ten to each. x2: all append to one stream
 * x3: commands with an invariant, on many streams. x4: all on one stream
 * x5: a reaction that catches up with the events of 100 streams. x6: with those of one stream, which are handled one after another
 * x7: how long it takes from an append in one process to the reaction in another one
 * x8: a reaction to streams with one event each, beside x5: each target is claimed for one event
 */

import { againstRaw, amongOurs, atLeast, CALLERS, type Case } from "./comparisons.ts";
import type { Contender } from "./contender.ts";
import type { PostgresGround } from "./ground-postgres.ts";
import { latency } from "./latency-streams.ts";
import { oursReactions, rawReactions, rawReactionsPostgres } from "./ours-reactions.ts";
import { oursAppends, oursCommands, seeAppends, seeCommands } from "./ours-streams.ts";
import { events } from "./plan.ts";
import { rawSeen } from "./raw.ts";
import { rawSeenPostgres } from "./raw-postgres.ts";
import type { Target } from "./result.ts";
import type { See } from "./run-rows.ts";

interface Writing {
  readonly id: string;
  readonly title: string;
  readonly contender: Contender;
  readonly see: See;
  readonly isHot: boolean;
}

const writings: readonly Writing[] = [
  { id: "x1", title: "appends to many streams", contender: oursAppends, see: seeAppends, isHot: false },
  { id: "x2", title: "appends to one stream", contender: oursAppends, see: seeAppends, isHot: true },
  { id: "x3", title: "commands on many streams", contender: oursCommands, see: seeCommands, isHot: false },
  { id: "x4", title: "commands on one stream", contender: oursCommands, see: seeCommands, isHot: true },
];

const NAME = "raw, the rows of streams";

function writing({ id, title, contender, isHot }: Writing, raws: readonly Contender[], turns: number): Case {
  return againstRaw({
    id,
    title: `${title}, 100 callers`,
    unit: "commits/s",
    size: { turns, rounds: 5 },
    raws,
    contender,
    make: events,
    options: { callers: CALLERS, hot: isHot },
    target: atLeast(0.5),
    same: "lengths",
  });
}

/** `targets` streams, and as many events to each. */
function reacting(id: string, targets: number, raw: Contender, turns: number, target: Target | null): Case {
  return againstRaw({
    id,
    title: `reactions to the events of ${targets === 1 ? "one stream" : `${targets} streams`}`,
    unit: "commits/s",
    size: { turns, rounds: 5 },
    raws: [raw],
    contender: oursReactions,
    make: (options) => events({ ...options, commitsPerRecord: options.turns }),
    options: { callers: targets },
    target,
    // How often a target is written when it gets events depends on how many it gets at a time; what is handled is counted.
    same: null,
  });
}

/** As many events, of 100 streams or of one stream for each. */
const oneEach = amongOurs({
  id: "x8",
  title: "reactions to streams with one event each",
  size: { turns: 50, rounds: 5 },
  contender: oursReactions,
  make: ({ callers, turns, commitsPerRecord = turns }) =>
    events({ callers: (callers * turns) / commitsPerRecord, turns: commitsPerRecord, commitsPerRecord }),
  easy: ["events of 100 streams", { callers: CALLERS }],
  hard: ["one event each", { callers: CALLERS, commitsPerRecord: 1 }],
  target: null,
});

export const sqliteStreamCases: readonly Case[] = [
  ...writings.map((one) => writing(one, [rawSeen(NAME, one.see)], 800)),
  reacting("x5", CALLERS, rawReactions, 400, atLeast(0.5)),
  reacting("x6", 1, rawReactions, 2000, null),
  latency("x7", false),
  oneEach,
];

/** Two connections cannot share one record. */
const rawsOf = ({ see, isHot }: Writing): readonly Contender[] =>
  isHot
    ? [rawSeenPostgres(NAME, see, 1)]
    : [rawSeenPostgres(NAME, see, 1), rawSeenPostgres(`${NAME}, two connections`, see, 2)];

export const postgresStreamCases: readonly Case<PostgresGround>[] = [
  ...writings.map((one) => writing(one, rawsOf(one), 400)),
  reacting("x5", CALLERS, rawReactionsPostgres, 200, atLeast(0.5)),
  reacting("x6", 1, rawReactionsPostgres, 1000, null),
  latency("x7", true),
  oneEach,
];
