/**
 * A simulated world: processes that share one database, faults, and simulated time.
 *
 * `finish` has three phases: faults occur while the programs run; then all faults end; then every program must end. The scenario checks its
 * invariants afterwards, or meanwhile with `check`.
 */

import { StoreError } from "../../kernel/errors.ts";
import type { Ports } from "../../kernel/ports.ts";
import { type Pawl, pawlOn } from "../../pawl.ts";
import type { Database } from "./database.ts";
import { type Fault, type FaultCounts, Faults } from "./faults.ts";
import type { Outside } from "./http.ts";
import { Process, type Service, SIMULATED_KEYS } from "./process.ts";
import { Random } from "./random.ts";
import { Scheduler } from "./scheduler.ts";

/** A guarantee of the system under test was broken, or the simulation could not continue. */
export class BrokenPromiseError extends Error {
  override readonly name = "BrokenPromiseError";
}

interface Program {
  readonly name: string;
  readonly run: (process: Process) => Promise<void>;
  /** Runs until the world ends, and need not end before. */
  readonly isService: boolean;
  lives: number;
  process: Process | undefined;
  hasEnded: boolean;
}

export interface WorldLimits {
  /** How long faults occur, in simulated time. */
  readonly faultsMs: number;
  /** How long the programs may take to end after that. */
  readonly healMs: number;
  readonly steps: number;
}

const NAMESPACE = "simulated";

export class World {
  /** @internal */
  readonly random: Random;
  /** @internal */
  readonly faults: Faults;
  /** @internal */
  readonly scheduler: Scheduler;
  /** @internal */
  readonly database: Database;
  readonly seed: number;
  /** Whether each decision runs twice under this seed, and must write the same. @internal */
  readonly rehearses: boolean;
  /** How many concurrent commits a process can have: one as on SQLite, more as on a server. @internal */
  readonly lanes: number;
  /** How long calls wait for an unreachable store: sometimes not long enough to learn the outcome. @internal */
  readonly patienceMs: number;
  /** What outgoing HTTP reaches. @internal */
  outside: Outside | undefined;
  readonly #limits: WorldLimits;
  readonly #programs: Program[] = [];
  #failure: unknown;
  #healedAtMs: number | undefined;

  /** @internal */
  constructor(
    seed: number,
    options: {
      readonly fixed: Partial<FaultCounts>;
      readonly limits: WorldLimits;
      readonly keepTrace: boolean;
      readonly database: (world: World) => Database;
    },
  ) {
    this.seed = seed;
    this.random = new Random(seed);
    this.faults = new Faults(this.random, options.fixed);
    this.scheduler = new Scheduler(this.random, this.faults, options);
    if (options.keepTrace) this.faults.onStrike = (fault) => this.#noteFault(fault);
    this.database = options.database(this);
    this.#limits = options.limits;
    this.rehearses = this.random.chance(0.5);
    this.lanes = 1 + this.random.below(3);
    this.patienceMs = this.random.chance(0.2) ? 20 : 20_000;
  }

  /** The simulated time in milliseconds; the clocks of processes may differ. */
  get nowMs(): number {
    return this.scheduler.nowMs;
  }

  /** Whether there were programs, and they ran. @internal */
  get hasRun(): boolean {
    return this.#healedAtMs !== undefined && this.#programs.length > 0;
  }

  /** When the faults ended. */
  get healedAtMs(): number | undefined {
    return this.#healedAtMs;
  }

  /**
   * Adds a program. It runs in its own process; after a crash, or when a store error ends it, it is started again, until it returns. A service
   * runs until the world ends.
   */
  process(name: string, run: (process: Process) => Promise<void>, options?: { readonly service?: boolean }): void {
    const program: Program = {
      name,
      run,
      isService: options?.service ?? false,
      lives: 0,
      process: undefined,
      hasEnded: false,
    };
    this.#programs.push(program);
    this.#startSoon(program, 0);
  }

  /** Defines an external service that processes can `call`. It never crashes and loses nothing. */
  service<Request, Answer>(name: string, handle: (request: Request) => Answer): Service<Request, Answer> {
    return { name, handle };
  }

  /** Runs every program to its end: first with faults, then without. Throws what was found. */
  async finish(): Promise<void> {
    const { faultsMs, healMs, steps } = this.#limits;
    const isOver = () => this.#failure !== undefined || this.#programs.every((p) => p.hasEnded || p.isService);
    const ended = await this.scheduler.run(isOver, { steps: steps / 2, untilMs: this.nowMs + faultsMs });
    this.#heal();
    const endMs = this.nowMs + healMs;
    if (!ended && !(await this.scheduler.run(isOver, { steps, untilMs: endMs })) && this.#failure === undefined) {
      const waiting = this.#programs.filter((p) => !p.hasEnded && !p.isService).map((p) => p.name);
      this.#failure = new BrokenPromiseError(
        `after all faults ended, these did not come to an end: ${waiting.join(", ")}. They had ${healMs / 60_000} simulated minutes (healMs)`,
      );
    }
    for (const { process } of this.#programs) if (process?.isAlive) process.die();
    if (this.#failure !== undefined) throw this.#failure;
  }

  /** Returns a handle without faults, to read the final state. */
  open(): Pawl {
    const ports: Ports = {
      clock: {
        nowMs: () => this.scheduler.nowMs,
        after: (ms, callback) => this.scheduler.after(ms, callback),
        soon: (callback) => queueMicrotask(callback),
      },
      chance: { random: () => this.random.unit(), uuid: () => this.random.uuid() },
    };
    const actions = { options: { keys: SIMULATED_KEYS } };
    return pawlOn(this.database.memory.connect(NAMESPACE), ports, { namespace: NAMESPACE, actions });
  }

  /** Fails the simulation if the condition does not hold. */
  check(condition: boolean, message: string): void {
    if (condition) return;
    // Kept, so that the finding is not lost if the code under test catches the error.
    const broken = new BrokenPromiseError(message);
    this.#failure ??= broken;
    throw broken;
  }

  /** Fails the simulation. @internal */
  fail(error: unknown): void {
    this.#failure ??= error;
  }

  /** The first failure, if there was one. @internal */
  get failure(): unknown {
    return this.#failure;
  }

  /** Timers that overtake calls are visible by the times in the trace; a line for each would hide the rest. */
  #noteFault(fault: Fault): void {
    if (fault !== "overtake") this.note(`  fault: ${fault}`);
  }

  /** Adds a line to the trace that is printed when the seed fails. */
  note(what: string): void {
    this.scheduler.note(what);
  }

  /** @internal */
  crash(process: Process): void {
    this.note(`${process.name}#${process.incarnation} crashes`);
    process.die();
    const program = this.#programs.find((p) => p.process === process);
    if (program !== undefined && !program.hasEnded) this.#startSoon(program, this.random.below(5_000));
  }

  #startSoon(program: Program, afterMs: number): void {
    this.scheduler.after(afterMs, () => this.#start(program));
  }

  #start(program: Program): void {
    program.lives += 1;
    this.jumpStoreClock();
    const process = new Process(this, program.name, program.lives, NAMESPACE);
    program.process = process;
    // A program that is not an async function has ended when it returns.
    Promise.resolve(program.run(process)).then(
      () => {
        if (process.isAlive && !program.isService) program.hasEnded = true;
      },
      (error: unknown) => {
        if (!process.isAlive) return;
        // A store that fails for too long ends the process; every other error is a finding.
        if (error instanceof StoreError) this.crash(process);
        else this.#failure ??= error;
      },
    );
  }

  /** Moves the store's clock by up to an hour, forward or back. @internal */
  jumpStoreClock(): void {
    if (!this.faults.strikes("storeClockJump")) return;
    this.database.jumpClock(Math.floor((this.random.unit() - 0.5) * 2 * 3_600_000));
  }

  /** The store loses its last commits. @internal */
  rewindStore(): void {
    if (this.faults.strikes("rewind")) this.database.rewind();
  }

  #heal(): void {
    if (this.faults.healed) return;
    this.faults.heal();
    this.#healedAtMs = this.nowMs;
    // A store clock that was set back catches up with the latest time it ever had.
    this.database.healClock();
    this.note("all faults end");
  }
}
