/**
 * Admission: what a concurrency limit costs, and how fast a place is handed on. The cases of scale are in `scale-queued.ts` and `scale-schedules.ts`.
 *
 * q1: starts by 100 callers with a limit that is never reached, beside the same without one; q1k with a key for each caller
 * q2, q2k: the same with runs of one step, until their results are there
 * q3: from the end of a run to the first step of the next under `max: 1`, in one worker process and in two
 */

import { againstRaw, atLeast, CALLERS, type Case } from "./comparisons.ts";
import type { PostgresGround } from "./ground-postgres.ts";
import { handOver } from "./latency-hand-over.ts";
import { type LimitKind, limited } from "./ours-limits.ts";
import { steps } from "./plan.ts";

const NEARLY_FREE = atLeast(0.85);

function limitedCase(id: string, title: string, kind: LimitKind, commitsPerRecord: number, turns: number): Case {
  return againstRaw({
    id,
    title,
    unit: "commits/s",
    size: { turns, rounds: 9 },
    raws: [limited("none")],
    contender: limited(kind),
    make: steps,
    options: { callers: CALLERS, commitsPerRecord },
    target: NEARLY_FREE,
    // A limit has rows of its own.
    same: null,
  });
}

const limitedCases = (turns: number): readonly Case[] => [
  limitedCase("q1", "starts under a limit that is never reached", "all", 1, turns),
  limitedCase("q1k", "the same, by key", "key", 1, turns),
  limitedCase("q2", "runs of one step under such a limit", "all", 2, turns),
  limitedCase("q2k", "the same, by key", "key", 2, turns),
];

export const sqliteFlowCases: readonly Case[] = [...limitedCases(160), handOver({ id: "q3", isAimedAt: false })];

export const postgresFlowCases: readonly Case<PostgresGround>[] = [
  ...limitedCases(100),
  handOver({ id: "q3", isAimedAt: true }),
];
