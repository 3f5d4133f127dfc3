/**
 * `simulate`: executes a scenario under many seeds and reports the seed that broke it.
 *
 * Each seed is a separate world, with its own faults and its own order of events, and is executed twice: both executions must be
 * identical, or a failure could not be reproduced. A failing seed is executed once more with a trace, and the error says how to run only
 * that one.
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

/** A fault that is named here has that probability under every seed; each seed draws the probabilities of the others. */
export interface SimulateOptions extends Partial<FaultCounts> {
  /** The number of seeds. Default: 100. */
  readonly seeds?: number;
  /** The first seed. Default: 1. The environment variable `PAWL_SEED` runs only that seed. */
  readonly firstSeed?: number;
  /** Only the faults that are named here. Default: false. */
  readonly calm?: boolean;
  /** How long faults occur before everything heals, in simulated milliseconds. Default: ten minutes. */
  readonly faultsMs?: number;
  /** How long the programs may then take to end. Default: ten minutes. */
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

export interface SimulationReport {
  readonly name: string;
  readonly schedules: number;
  /** How many calls and timers the scheduler released, over all schedules. */
  readonly portCalls: number;
  readonly struck: Readonly<FaultCounts>;
}

export type Scenario = (world: World) => Promise<void>;

/** A seed broke the scenario. `cause` is the error; the message has the trace and how to run the seed again. */
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

/** Provides the databases of the worlds. @internal */
export interface DatabaseProvider {
  /** Whether two executions of a seed are identical. Otherwise each seed is executed once, with its trace. */
  readonly isRepeatable: boolean;
  /** Returns an empty database for the next world. */
  open(): Promise<(world: World) => Database>;
}

const IN_MEMORY: DatabaseProvider = { isRepeatable: true, open: async () => (world) => new SimulatedDatabase(world) };

export function simulate(name: string, options: SimulateOptions, scenario: Scenario): Promise<SimulationReport> {
  return simulateOn(IN_MEMORY, name, options, scenario);
}

/** @internal */
export async function simulateOn(
  provider: DatabaseProvider,
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
    return await simulateAll(provider, name, options, scenario, seeds);
  } finally {
    isRunning = false;
  }
}

/** Simulations replace globals while they run, so they run one after another. */
let isRunning = false;

async function simulateAll(
  provider: DatabaseProvider,
  name: string,
  options: SimulateOptions,
  scenario: Scenario,
  seeds: readonly number[],
): Promise<SimulationReport> {
  const struck = noFaults();
  let portCalls = 0;
  for (const seed of seeds) {
    const execute = (keepTrace: boolean) => runSeed(provider, seed, options, scenario, keepTrace);
    const executions: SeedResult[] = [];
    // Called from one line of code, because stored errors have a stack.
    for (let i = 0; i < (provider.isRepeatable ? 2 : 1) && executions[0]?.failure === undefined; i++)
      executions.push(await execute(!provider.isRepeatable));
    const [first, second = first] = executions;
    if (first === undefined || second === undefined) throw new Error("a seed was not run");
    let { failure } = first;
    if (failure === undefined && second.fingerprint !== first.fingerprint)
      failure = new BrokenPromiseError(
        `two executions of the seed differ (${first.fingerprint} and ${second.fingerprint}): the scenario depends on something that is not simulated`,
      );
    if (failure !== undefined) throw explain(name, seed, provider.isRepeatable ? await execute(true) : first, failure);
    portCalls += first.steps;
    for (const fault of FAULT_NAMES) struck[fault] += first.struck[fault];
  }
  return { name, schedules: seeds.length, portCalls, struck };
}

/** Returns the faults that seeds draw but that never occurred in these simulations: nothing is shown about those. */
export function neverStruck(reports: readonly SimulationReport[]): readonly Fault[] {
  return DRAWN_FAULTS.filter((fault) => reports.every((report) => report.struck[fault] === 0));
}

/** Returns a summary of the simulations as text. */
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

/** Refuses invalid options: a simulation that executes nothing would pass. */
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
  provider: DatabaseProvider,
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
  const world = new World(seed, { fixed, limits, keepTrace, database: await provider.open() });
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
  // Other failures are likely to follow from it.
  if (ambient.caught !== undefined)
    failure = new BrokenPromiseError(
      `${ambient.caught}: simulated code must use the time and randomness of its process`,
      {
        cause: failure,
      },
    );
  const { fingerprint, steps } = world.scheduler;
  return { failure, fingerprint, steps, struck: world.faults.struck, world };
}

function explain(name: string, seed: number, { world }: SeedResult, cause: unknown): SimulationError {
  const mix = FAULT_NAMES.filter((fault) => world.faults.mix[fault] > 0)
    .map((fault) => `${fault} ${world.faults.mix[fault].toFixed(3)}`)
    .join(", ");
  const trace = world.scheduler.trace.slice(-TRACE_LINES).join("\n");
  return new SimulationError(name, seed, `faults: ${mix}\nthe last events:\n${trace}`, { cause });
}
