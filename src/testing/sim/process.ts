/**
 * A simulated process: one incarnation of a program, with its own clock, randomness and store connection.
 *
 * After a crash, no promise that the process waits for settles, so not even `finally` runs, as with kill -9. A pause delays everything that
 * it waits for; the process then resumes without noticing.
 */

import type { Ports } from "../../kernel/ports.ts";
import { bound, nodePorts } from "../../node/ports.ts";
import { type Pawl, pawlOn } from "../../pawl.ts";
import type { ProcessStore } from "./database.ts";
import { simulatedHttp } from "./http.ts";
import type { World } from "./world.ts";

/** The key ring of all processes. @internal */
export const SIMULATED_KEYS = { current: "simulated", ring: { simulated: new Uint8Array(32).fill(1) } };

export class Process {
  readonly name: string;
  /** 1 for the first start of the program, and one more after each crash. */
  readonly incarnation: number;
  /** Whether this incarnation runs the previous release, if the simulation mixes releases. */
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
    const actions = { options: { keys: SIMULATED_KEYS } };
    this.pawl = pawlOn(this.#store, this.ports, { namespace, patienceMs: world.patienceMs, actions });
  }

  /** This process's clock, which may be wrong, and its randomness, which depends on the seed. */
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
      // Ambient calls are detected for the whole world, so the trap only makes each decision run twice.
      trap: this.#world.rehearses ? (decision) => decision() : undefined,
      bodies: nodePorts.bodies,
      holding: nodePorts.holding,
      http: () => simulatedHttp(this.#world, this),
    };
  }

  get isAlive(): boolean {
    return this.#isAlive;
  }

  /** A random number from 0 up to, but not including, 1. */
  readonly random = (): number => this.#world.random.unit();

  /** Waits in simulated time. */
  readonly sleep = (ms: number): Promise<void> => this.held(ms);

  /** Calls an external service. It may fail, not reply, or act late. Throws `ServiceError`. */
  readonly call = <Request, Answer>(service: Service<Request, Answer>, request: Request): Promise<Answer> =>
    callService(this.#world, this, service, request);

  /** Waits until the scheduler releases it; a crash or a pause may come first. @internal */
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

  /** Waits for this long, and then for the scheduler. @internal */
  held(ms: number): Promise<void> {
    return new Promise((resolve) => {
      this.#world.scheduler.after(ms, () => this.stop("held", resolve));
    });
  }

  /** Queues a callback of this process; it is called when the process is alive and not paused. @internal */
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
    this.#world.scheduler.note(`${this.name}#${this.incarnation} is paused for ${ms} ms`);
    // An empty timer, so that the clock reaches the end of the pause even if nothing else waits for it.
    this.#world.scheduler.after(ms, () => {});
  }
}

/** A callback that is set while plain code holds a lock keeps that context, as with real timers. Others avoid the cost. */
const underLocks = (callback: () => void): (() => void) =>
  nodePorts.holding?.current() === undefined ? callback : bound(callback);

/** An external service that processes call: a payment provider, a mail server. */
export interface Service<Request, Answer> {
  readonly name: string;
  readonly handle: (request: Request) => Answer;
}

/** An external service failed. If `refused`, it did nothing; otherwise it is unknown whether it acted. */
export class ServiceError extends Error {
  readonly refused: boolean;

  constructor(service: string, refused: boolean) {
    super(refused ? `${service} returned 503` : `${service} did not reply in time`);
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
  const reply = service.handle(request);
  if (faults.strikes("httpTimeout")) throw new ServiceError(service.name, false);
  await process.arrive(`call ${service.name}: reply`);
  return reply;
}
