/**
 * Runs many programs: draws them, runs each in a world of its own, asks the oracle, and shrinks what fails.
 *
 * What was reached is counted. An operation, mistake or fault that was never reached is a hole in what the programs show.
 */

import type { FaultCounts } from "../../src/testing/sim/faults.ts";
import { DRAWN_FAULTS, noFaults } from "../../src/testing/sim/faults.ts";
import { drawCase } from "./draw.ts";
import { detectFeatures, type Features } from "./features.ts";
import { judge } from "./oracle.ts";
import { judgeOutcome } from "./outcome.ts";
import { printCase } from "./print.ts";
import type { Case } from "./program.ts";
import { STEP_MISTAKES } from "./program.ts";
import { shrink } from "./shrink.ts";
import { type Execution, type Finding, runCase } from "./stage.ts";

export interface Failure extends Finding {
  /** The seed of the program, and that of the world in which the smallest one fails. */
  readonly seed: number;
  readonly worldSeed: number;
  /** The smallest program that still fails. */
  readonly plan: Case;
  readonly program: string;
}

export interface Exploration {
  programs: number;
  failed: number;
  calm: number;
  /** How often each operation, option, mistake and action was reached. */
  readonly reached: Map<string, number>;
  readonly struck: FaultCounts;
  /** How often the model was sure, and why it was not. */
  readonly models: Map<string, number>;
  /** How many programs broke each rule. */
  readonly broken: Map<string, number>;
  readonly failures: Failure[];
}

export interface ExploreOptions {
  readonly seeds: number;
  readonly firstSeed?: number | undefined;
  /** Goes on after a failure, and keeps at most this many of each rule. Default: stops at the first failure. */
  readonly keep?: number | undefined;
  readonly features?: Features | undefined;
  /** Whether failures are shrunk. Default: true. */
  readonly shrinks?: boolean | undefined;
  /** Every so many programs, one runs twice and must go the same way. */
  readonly twiceEvery?: number | undefined;
}

export const noExploration = (): Exploration => ({
  programs: 0,
  failed: 0,
  calm: 0,
  reached: new Map(),
  struck: noFaults(),
  models: new Map(),
  broken: new Map(),
  failures: [],
});

/** Adds what another process explored. */
export function addExploration(sum: Exploration, more: Exploration): void {
  sum.programs += more.programs;
  sum.failed += more.failed;
  sum.calm += more.calm;
  for (const [what, times] of more.reached) sum.reached.set(what, (sum.reached.get(what) ?? 0) + times);
  for (const [why, times] of more.models) sum.models.set(why, (sum.models.get(why) ?? 0) + times);
  for (const [rule, times] of more.broken) sum.broken.set(rule, (sum.broken.get(rule) ?? 0) + times);
  for (const fault of DRAWN_FAULTS) sum.struck[fault] += more.struck[fault];
  sum.failures.push(...more.failures);
}

/** Runs one program; what it breaks, if anything. */
export async function tryCase(
  plan: Case,
  seed: number,
  features: Features,
): Promise<{ execution: Execution; finding: Finding | undefined; unsure: string | undefined }> {
  const execution = await runCase(plan, seed, features);
  const finding = judge(execution);
  if (finding !== undefined) return { execution, finding, unsure: undefined };
  return { execution, ...(await judgeOutcome(execution, features)) };
}

export async function explore(options: ExploreOptions): Promise<Exploration> {
  const { seeds, firstSeed = 1, keep, features = detectFeatures(), twiceEvery = 20 } = options;
  const explored = noExploration();
  for (let seed = firstSeed; seed < firstSeed + seeds; seed++) {
    const plan = drawCase(seed, features);
    const lives: Awaited<ReturnType<typeof tryCase>>[] = [];
    // Called from one place, because errors that are stored tell where they were made.
    for (let life = 0; life < (seed % twiceEvery === 0 ? 2 : 1); life++)
      lives.push(await tryCase(plan, seed, features));
    const [first, second = first] = lives;
    if (first === undefined || second === undefined) throw new Error("a program was not run");
    const { execution, unsure } = first;
    const finding = first.finding ?? differs(execution, second.execution);
    count(explored, execution);
    const sure = unsure ?? (finding === undefined ? "the model was sure" : "a rule was broken");
    explored.models.set(sure, (explored.models.get(sure) ?? 0) + 1);
    if (finding === undefined) continue;
    explored.failed += 1;
    const known = explored.broken.get(finding.rule) ?? 0;
    explored.broken.set(finding.rule, known + 1);
    if (keep !== undefined && known >= keep) continue;
    const isShrunk = options.shrinks ?? true;
    const failure = { ...finding, seed, worldSeed: seed, plan, program: printCase(plan) };
    explored.failures.push(isShrunk ? await smallest(plan, seed, finding, features) : failure);
    if (keep === undefined) break;
  }
  return explored;
}

function differs(one: Execution, other: Execution): Finding | undefined {
  const before = one.world.scheduler.fingerprint;
  const after = other.world.scheduler.fingerprint;
  return before === after ? undefined : { rule: "the same seed goes the same way", message: `${before} and ${after}` };
}

function count(explored: Exploration, { plan, ledger, world }: Execution): void {
  explored.programs += 1;
  if (!plan.faults) explored.calm += 1;
  for (const [what, times] of ledger.reached) explored.reached.set(what, (explored.reached.get(what) ?? 0) + times);
  for (const fault of DRAWN_FAULTS) explored.struck[fault] += world.faults.struck[fault];
}

/** Shrinks a failing program, and says what is left of it. */
async function smallest(plan: Case, seed: number, finding: Finding, features: Features): Promise<Failure> {
  let last = finding;
  const fails = async (candidate: Case): Promise<number | undefined> => {
    const worlds = candidate.faults ? [seed, seed + 1, seed + 2] : [seed];
    for (const world of worlds) {
      const { finding: again } = await tryCase(candidate, world, features);
      if (again?.rule !== finding.rule) continue;
      last = again;
      return world;
    }
    return undefined;
  };
  const found = await shrink({ plan, seed }, fails);
  return { ...last, seed, worldSeed: found.seed, plan: found.plan, program: printCase(found.plan) };
}

export const describeFailure = ({ rule, message, seed, worldSeed, program }: Failure): string =>
  `program ${seed} broke the rule "${rule}": ${message}\nThe smallest program that does (world ${worldSeed}):\n${program}\nRun it again: npm run simulate -- --programs 1 --first-seed ${seed}`;

/** What must have been reached for the programs to show anything. */
export function neverReached({ reached, struck }: Exploration, features: Features): readonly string[] {
  const missing = expectedReach(features).filter((what) => !reached.has(what));
  const unused = ["httpError", "httpLate", "httpTimeout", "mixedVersions"];
  return [
    ...missing,
    ...DRAWN_FAULTS.filter((fault) => struck[fault] === 0 && !unused.includes(fault)).map((fault) => `fault: ${fault}`),
  ];
}

function expectedReach(features: Features): readonly string[] {
  return [
    ...["plain", "tx", "once"].map((kind) => `ctx.step ${kind}`),
    ...["id", "attempts", "timeout", "totalTimeout", "heartbeat", "rate", "semaphore"].map(
      (option) => `step option: ${option}`,
    ),
    ...STEP_MISTAKES.map((mistake) => `mistake: ${mistake}`),
    ...[
      "not awaited",
      "awaited late",
      "awaited in another order",
      "a name with #",
      "used after the end",
      "foreign promise",
      "foreign promise that never settles",
      "foreign promise in a race",
    ].map((mistake) => `mistake: ${mistake}`),
    ...[
      "ctx.sleep",
      "ctx.sleepUntil",
      "ctx.waitForSignal",
      "ctx.waitForSignal with timeout",
      "ctx.waitForAny",
      "ctx.rateLimit",
    ],
    ...[
      "ctx.call",
      "ctx.call with an id",
      "ctx.start",
      "ctx.start with an id",
      "whenParentEnds cancel",
      "whenParentEnds leave",
    ],
    ...["get", "set", "trySet", "update", "delete"].map((verb) => `ctx.slot ${verb}`),
    ...[
      "lock: lock with",
      ...["mutex", "semaphore", "read", "write"].flatMap((kind) =>
        ["with", "acquire", "try"].map((verb) => `lock: ${kind} ${verb}`),
      ),
    ],
    ...[
      "Promise.all",
      "Promise.race",
      "Promise.allSettled",
      "ctx.all",
      "ctx.race",
      "ctx.allSettled",
      "loop",
      "try/catch",
      "try/finally",
      "throw",
    ],
    ...[
      "throw until it is mended",
      "remind: received",
      "remind: another round",
      "fan: slots",
      "fan: locks",
      "fan: children",
      "a further attempt",
      "reconcile",
    ],
    ...[
      "cancel",
      "retry()",
      "restart",
      "signal",
      "started under a lock",
      "a step takes a lock of plain code",
      "code that contradicts the history",
      "a run resumed",
      "a run lost by its worker",
      "worker stopped and started again",
    ],
    ...(features.shield ? ["ctx.shield"] : []),
    ...(features.force ? ["cancel by force"] : []),
  ];
}

export function describeExploration(explored: Exploration): string {
  const { programs, calm, failed, reached, struck, models, broken } = explored;
  const list = [...reached].sort(([a], [b]) => (a < b ? -1 : 1)).map(([what, times]) => `${what} ${times}`);
  const faults = DRAWN_FAULTS.map((fault) => `${fault} ${struck[fault]}`);
  return `${programs} programs, ${calm} of them without faults; ${failed} failed${[...broken].map(([rule, times]) => `\n  ${rule}: ${times}`).join("")}\nmodel: ${[...models].map(([why, times]) => `${why} ${times}`).join(", ")}\nreached: ${list.join(", ")}\nfaults struck: ${faults.join(", ")}`;
}
