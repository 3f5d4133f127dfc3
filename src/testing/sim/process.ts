/**
 * A simulated process: one incarnation of a program, with a clock, a chance and a store connection of its own.
 *
 * A crash is silence: whatever it waits for never comes, so not even `finally` runs, as with kill -9. A pause holds everything
 * it waits for, and then lets it go on without knowing.
 */

import type { Ports } from "../../kernel/ports.ts";
import { bound, nodePorts } from "../../node/ports.ts";
import { type Pawl, pawlOn } from "../../pawl.ts";
import type { ProcessStore } from "./database.ts";
import type { World } from "./world.ts";

export class Process {
  readonly name: string;
  /** 1 for the first life of the program, and one more after each crash. */
  readonly incarnation: number;
  /** True where this life runs the release before this one, if the simulation mixes them. */
  readonly isPreviousRelease: boolean;
  readonly pawl: Pawl;
  readonly #world: World;
  readonly #store: ProcessStore;
  #skewMs = 0;
  #pausedUntilMs = 0;
  #isAlive = true;

  /** @internal */
  constructor(world: World, name: string, incarnation: number, namespace: string) {
    this.#world = world;
    this.name = name;
    this.incarnation = incarnation;
    this.isPreviousRelease = world.faults.strikes("mixedVersions");
    if (world.faults.strikes("clockSkew")) this.#skewMs = (world.random.unit() - 0.5) * 2 * 3_600_000;
    this.#store = world.database.connect(this, namespace);
    this.pawl = pawlOn(this.#store, this.ports, { namespace, patienceMs: world.patienceMs });
  }

  /** This process's clock, which may be wrong, and its chance, which the seed decides. */
  get ports(): Ports {
    return {
      clock: {
        nowMs: () => this.#world.scheduler.nowMs + this.#skewMs,
        after: (ms, callback) => {
          let isCancelled = false;
          const go = underLocks(callback);
          const cancel = this.#world.scheduler.after(ms, () =>
            this.stop("timer", () => {
              if (!isCancelled) go();
            }),
          );
          return () => {
            isCancelled = true;
            cancel();
          };
        },
        soon: (callback) => this.stop("soon", underLocks(callback)),
      },
      chance: {
        random: () => this.#world.random.unit(),
        uuid: () => this.#world.random.uuid(),
        stamp: this.#world.random.stamp,
      },
      // Ambient calls are caught for the whole world, so there is nothing to set here but the second run.
      trap: this.#world.rehearses ? (decision) => decision() : undefined,
      bodies: nodePorts.bodies,
      holding: nodePorts.holding,
    };
  }

  get isAlive(): boolean {
    return this.#isAlive;
  }

  /** At least 0, below 1; the seed decides. */
  readonly random = (): number => this.#world.random.unit();

  /** Waits in the world's time. */
  readonly sleep = (ms: number): Promise<void> => this.held(ms);

  /** Calls an outside service, which may fail, not answer, or act late. */
  readonly call = <Request, Answer>(service: Service<Request, Answer>, request: Request): Promise<Answer> =>
    callService(this.#world, this, service, request);

  /** Waits until the scheduler lets it go; a crash or a pause may come first. @internal */
  arrive(label: string): Promise<void> {
    return new Promise((resolve) => {
      const wait = () =>
        this.stop(label, () => {
          const { faults, random } = this.#world;
          if (faults.strikes("crash")) return this.#world.crash(this);
          if (faults.strikes("clockJump")) this.#skewMs += (random.unit() - 0.5) * 2 * 3_600_000;
          if (!faults.strikes("pause")) return resolve();
          this.#pause(random.below(120_000));
          wait();
        });
      wait();
    });
  }

  /** Waits for this long, and its turn. @internal */
  held(ms: number): Promise<void> {
    return new Promise((resolve) => {
      this.#world.scheduler.after(ms, () => this.stop("held", resolve));
    });
  }

  /** Queues something of this process; it goes when the process is alive and not paused. @internal */
  stop(label: string, go: () => void): void {
    this.#world.scheduler.stop({
      label: `${this.name}#${this.incarnation} ${label}`,
      isReady: () => this.#pausedUntilMs <= this.#world.scheduler.nowMs || this.#world.faults.healed,
      go: () => {
        if (this.#isAlive) go();
      },
    });
  }

  /** @internal */
  die(): void {
    this.#isAlive = false;
    this.#store.abandon();
  }

  #pause(ms: number): void {
    this.#pausedUntilMs = this.#world.scheduler.nowMs + ms;
    this.#world.scheduler.note(`${this.name}#${this.incarnation} stands still for ${ms} ms`);
    // So that the clock reaches the end of the pause although nothing else may be waiting for it.
    this.#world.scheduler.after(ms, () => {});
  }
}

/** A timer that is set under a lock of plain code knows of it when it fires, as real ones do. Others need not pay for that. */
const underLocks = (callback: () => void): (() => void) =>
  nodePorts.holding?.current() === undefined ? callback : bound(callback);

/** Something outside of Pawl that processes call: a payment provider, a mail server. */
export interface Service<Request, Answer> {
  readonly name: string;
  readonly handle: (request: Request) => Answer;
}

/** An outside service failed. If it `refused`, it did nothing; otherwise nothing is known of what it did. */
export class ServiceError extends Error {
  readonly refused: boolean;

  constructor(service: string, refused: boolean) {
    super(refused ? `${service} answered 503` : `${service} did not answer in time`);
    this.name = "ServiceError";
    this.refused = refused;
  }
}

async function callService<Request, Answer>(
  world: World,
  process: Process,
  service: Service<Request, Answer>,
  request: Request,
): Promise<Answer> {
  const { faults, random, scheduler } = world;
  await process.arrive(`call ${service.name}`);
  if (faults.strikes("httpError")) throw new ServiceError(service.name, true);
  if (faults.strikes("httpLate")) {
    scheduler.after(random.below(60_000), () => void service.handle(request));
    throw new ServiceError(service.name, false);
  }
  const answer = service.handle(request);
  if (faults.strikes("httpTimeout")) throw new ServiceError(service.name, false);
  await process.arrive(`call ${service.name}: reply`);
  return answer;
}
