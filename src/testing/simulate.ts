/**
 * `simulate`: runs a scenario under many seeds and says which one broke it.
 *
 * Each seed is a world of its own, with its own faults and its own order of events, and runs twice: the two must go exactly
 * the same way, or a failure could not be looked at again. A failing seed is run once more with a trace, and the error says
 * how to run just that one.
 *
 * `simulateOn` does the same on another database than the one in memory, for the tests of real stores.
 */

import {
  checkBoolean,
  checkCount,
  checkDuration,
  checkFunction,
  checkOptions,
  checkText,
  type OptionNames,
} from "../kernel/check.ts";
import { InvalidArgumentError } from "../kernel/errors.ts";
import { AmbientWatch } from "./sim/ambient.ts";
import type { Database } from "./sim/database.ts";
import { DRAWN_FAULTS, FAULT_NAMES, type Fault, type FaultCounts, noFaults } from "./sim/faults.ts";
import { SimulatedDatabase } from "./sim/store.ts";
import { BrokenPromiseError, World } from "./sim/world.ts";

/** Options; a fault that is named has that probability under every seed, the others are drawn by each seed. */
export interface SimulateOptions extends Partial<FaultCounts> {
  /** How many schedules to try; 100 unless said otherwise. */
  readonly seeds?: number;
  /** The first of them; 1 unless said otherwise. `PAWL_SEED` in the environment runs one seed alone. */
  readonly firstSeed?: number;
  /** No faults but those that are named. */
  readonly calm?: boolean;
  /** How long faults strike before everything heals, in simulated milliseconds; ten minutes unless said otherwise. */
  readonly faultsMs?: number;
  /** How long the programs may then take to end; ten minutes unless said otherwise. */
  readonly healMs?: number;
}

type OwnOption = Exclude<keyof SimulateOptions, Fault>;

const OWN_OPTIONS: Readonly<Record<OwnOption, true>> = {
  seeds: true,
  firstSeed: true,
  calm: true,
  faultsMs: true,
  healMs: true,
};
const OPTIONS: OptionNames = new Set([...Object.keys(OWN_OPTIONS), ...FAULT_NAMES]);

/** What a simulation did. */
export interface SimulationReport {
  readonly name: string;
  readonly schedules: number;
  /** How often the scheduler let something go, over all schedules. */
  readonly portCalls: number;
  readonly struck: Readonly<FaultCounts>;
}

export type Scenario = (world: World) => Promise<void>;

/** A seed broke the scenario. `cause` is what broke; the message has the trace and how to run it again. */
export class SimulationError extends Error {
  override readonly name = "SimulationError";
  readonly seed: number;

  constructor(scenario: string, seed: number, detail: string, options: { cause: unknown }) {
    const reason = options.cause instanceof Error ? options.cause.message : String(options.cause);
    super(
      `"${scenario}" broke under seed ${seed}: ${reason}\n${detail}\nRun it again: PAWL_SEED=${seed} and the same command`,
      options,
    );
    this.seed = seed;
  }
}

const STEPS = 60_000;
const TRACE_LINES = 60;

/** What worlds are made on. @internal */
export interface Ground {
  /** Whether a seed goes the same way twice. Otherwise each runs once, with its trace, because nobody can look at it again. */
  readonly isRepeatable: boolean;
  /** An empty database for the next world. */
  open(): Promise<(world: World) => Database>;
}

const IN_MEMORY: Ground = { isRepeatable: true, open: async () => (world) => new SimulatedDatabase(world) };

export function simulate(name: string, options: SimulateOptions, scenario: Scenario): Promise<SimulationReport> {
  return simulateOn(IN_MEMORY, name, options, scenario);
}

/** @internal */
export async function simulateOn(
  ground: Ground,
  name: string,
  options: SimulateOptions,
  scenario: Scenario,
): Promise<SimulationReport> {
  checkText(name, "the name of the simulation");
  checkFunction(scenario, "the scenario");
  const seeds = chosenSeeds(options);
  if (isRunning) throw new InvalidArgumentError("simulate", "must not be called while another simulation runs");
  isRunning = true;
  try {
    return await simulateAll(ground, name, options, scenario, seeds);
  } finally {
    isRunning = false;
  }
}

/** Simulations replace globals while they run, so they run one after another. */
let isRunning = false;

async function simulateAll(
  ground: Ground,
  name: string,
  options: SimulateOptions,
  scenario: Scenario,
  seeds: readonly number[],
): Promise<SimulationReport> {
  const struck = noFaults();
  let portCalls = 0;
  for (const seed of seeds) {
    const run = (keepTrace: boolean) => runSeed(ground, seed, options, scenario, keepTrace);
    const lives: Awaited<ReturnType<typeof run>>[] = [];
    // Called from one place, because errors that are stored tell where they were made.
    for (let life = 0; life < (ground.isRepeatable ? 2 : 1) && lives[0]?.failure === undefined; life++)
      lives.push(await run(!ground.isRepeatable));
    const [first, second = first] = lives;
    if (first === undefined || second === undefined) throw new Error("a seed was not run");
    let { failure } = first;
    if (failure === undefined && second.fingerprint !== first.fingerprint)
      failure = new BrokenPromiseError(
        `two runs of the seed differ (${first.fingerprint} and ${second.fingerprint}): the scenario depends on something that is not simulated`,
      );
    if (failure !== undefined) throw explain(name, seed, ground.isRepeatable ? await run(true) : first, failure);
    portCalls += first.steps;
    for (const fault of FAULT_NAMES) struck[fault] += first.struck[fault];
  }
  return { name, schedules: seeds.length, portCalls, struck };
}

/** Which of the faults that seeds draw never struck in these simulations: each of them is a hole in what they show. */
export function neverStruck(reports: readonly SimulationReport[]): readonly Fault[] {
  return DRAWN_FAULTS.filter((fault) => reports.every((report) => report.struck[fault] === 0));
}

/** What the simulations did, for people to read. */
export function describe(reports: readonly SimulationReport[]): string {
  const lines = reports.map(
    ({ name, schedules, portCalls }) =>
      `${String(schedules).padStart(8)} schedules, ${(portCalls / schedules).toFixed(0).padStart(5)} port calls each: ${name}`,
  );
  const struck = FAULT_NAMES.map(
    (fault) => `${fault} ${reports.reduce((sum, report) => sum + report.struck[fault], 0)}`,
  );
  return [...lines, `faults struck: ${struck.join(", ")}`].join("\n");
}

/** A simulation that tries nothing would pass: whatever is not understood is refused. */
function chosenSeeds(options: SimulateOptions): readonly number[] {
  checkOptions(options ?? null, OPTIONS);
  for (const fault of FAULT_NAMES) {
    const given = options[fault];
    if (given !== undefined && !(typeof given === "number" && given >= 0 && given <= 1))
      throw new InvalidArgumentError(fault, "must be a probability from 0 to 1");
  }
  const { calm, faultsMs, healMs } = options;
  if (calm !== undefined) checkBoolean(calm, "calm");
  if (faultsMs !== undefined) checkDuration(faultsMs, "faultsMs");
  if (healMs !== undefined) checkDuration(healMs, "healMs");
  const only = process.env["PAWL_SEED"] ?? "";
  const first = only === "" ? (options.firstSeed ?? 1) : Number(only);
  const seeds = only === "" ? (options.seeds ?? 100) : 1;
  if (!Number.isSafeInteger(first) || first < 0) throw new InvalidArgumentError("the seed", "must be a whole number");
  checkCount(seeds, "the number of seeds", 1e9);
  return Array.from({ length: seeds }, (_, index) => first + index);
}

interface SeedResult {
  readonly failure: unknown;
  readonly fingerprint: string;
  readonly steps: number;
  readonly struck: FaultCounts;
  readonly world: World;
}

async function runSeed(
  ground: Ground,
  seed: number,
  options: SimulateOptions,
  scenario: Scenario,
  keepTrace: boolean,
): Promise<SeedResult> {
  const fixed: Partial<FaultCounts> = {};
  for (const fault of FAULT_NAMES) {
    const given = options[fault] ?? (options.calm === true ? 0 : undefined);
    if (given !== undefined) fixed[fault] = given;
  }
  const limits = { faultsMs: options.faultsMs ?? 600_000, healMs: options.healMs ?? 600_000, steps: STEPS };
  const world = new World(seed, { fixed, limits, keepTrace, database: await ground.open() });
  const ambient = new AmbientWatch();
  let failure: unknown;
  try {
    await scenario(world);
  } catch (error) {
    failure = error ?? new BrokenPromiseError("the scenario threw nothing");
  } finally {
    ambient.end();
  }
  failure ??= world.failure;
  await world.database.end().catch((error: unknown) => {
    failure ??= error;
  });
  if (failure === undefined && !world.hasRun)
    failure = new BrokenPromiseError("nothing was simulated: the scenario must add processes and await world.finish()");
  // What went wrong otherwise is likely to follow from it.
  if (ambient.caught !== undefined)
    failure = new BrokenPromiseError(`${ambient.caught}: simulated code must take time and chance from its process`, {
      cause: failure,
    });
  const { fingerprint, steps } = world.scheduler;
  return { failure, fingerprint, steps, struck: world.faults.struck, world };
}

function explain(name: string, seed: number, { world }: SeedResult, cause: unknown): SimulationError {
  const mix = FAULT_NAMES.filter((fault) => world.faults.mix[fault] > 0)
    .map((fault) => `${fault} ${world.faults.mix[fault].toFixed(3)}`)
    .join(", ");
  const trace = world.scheduler.trace.slice(-TRACE_LINES).join("\n");
  return new SimulationError(name, seed, `faults: ${mix}\nthe last of what happened:\n${trace}`, { cause });
}
