/**
 * Chaos: kills processes with SIGKILL, and now and then freezes a worker until its lease has ended.
 *
 * It prefers processes that are working on orders. A frozen worker does not know about its pause when it resumes, and tries to
 * commit orders that others have charged meanwhile.
 */

import type { Place } from "./crew.ts";
import { amid, countOf } from "./picture.ts";
import { LEASE_MS } from "./shop.ts";

/** A worker, with the orders that its process works on. */
export interface WorkerPlace {
  readonly place: Place<never>;
  readonly inHand: readonly string[];
}

export interface ChaosOptions {
  readonly workers: readonly WorkerPlace[];
  readonly webs: readonly Place<never>[];
  readonly lengthMs: number;
  readonly report: (what: "killed" | "frozen" | "awake", sentence: string) => void;
}

const FIRST_KILL_MS = 900;
const KILL_EVERY_MS = [800, 1_400] as const;
/** One in this many kills is of a web process. */
const WEB_TURN = 4;
const FIRST_FREEZE_MS = 600;
const FREEZE_EVERY_MS = 6_000;
/** A worker may be killed before it freezes, so another one is asked after this time. */
const ASK_AGAIN_MS = 500;
/** Past the end of the lease, and long enough for others to take over and finish. */
const FROZEN_MS = LEASE_MS + 1_000;
/** The worker is resumed after this time even if no other has taken over. */
const FROZEN_AT_MOST_MS = 5 * FROZEN_MS;

export class Chaos {
  readonly #options: ChaosOptions;
  readonly #endMs: number;
  readonly #timers = new Set<NodeJS.Timeout>();
  #killCount = 0;
  #nextFreezeAtMs: number;
  #frozenCount = 0;
  readonly #takenOver = new Set<string>();

  constructor(options: ChaosOptions) {
    this.#options = options;
    this.#endMs = performance.now() + options.lengthMs;
    this.#nextFreezeAtMs = performance.now() + FIRST_FREEZE_MS;
    this.#again(FIRST_KILL_MS, KILL_EVERY_MS, () => this.#kill());
    // Windows knows neither SIGSTOP nor SIGCONT.
    if (process.platform !== "win32") this.#again(ASK_AGAIN_MS, [ASK_AGAIN_MS, ASK_AGAIN_MS], () => this.#freeze());
  }

  #again(inMs: number, every: readonly [number, number], act: () => void): void {
    this.#later(inMs, () => {
      if (performance.now() >= this.#endMs) return;
      act();
      this.#again(every[0] + (every[1] - every[0]) * Math.random(), every, act);
    });
  }

  #later(ms: number, act: () => void): void {
    const timer = setTimeout(() => {
      this.#timers.delete(timer);
      act();
    }, ms);
    this.#timers.add(timer);
  }

  #kill(): void {
    this.#killCount += 1;
    if (this.#killCount % WEB_TURN === 0) {
      const web = anyOf(this.#options.webs.filter(({ state }) => state === "working"));
      if (web === undefined) return;
      this.#options.report("killed", `${web.name} (pid ${web.pid})`);
      web.kill();
      return;
    }
    const working = this.#options.workers.filter(({ place }) => place.state === "working");
    const victim = anyOf(working.filter(({ inHand }) => inHand.length > 0)) ?? anyOf(working);
    if (victim === undefined) return;
    const { place, inHand } = victim;
    this.#options.report("killed", `${place.name} (pid ${place.pid}) ${amid(inHand.length)}`);
    place.kill();
  }

  /** Asks a worker to freeze. It does so when it works on an order, and reports it. */
  #freeze(): void {
    if (performance.now() < this.#nextFreezeAtMs) return;
    anyOf(this.#options.workers.filter(({ place }) => place.state === "working"))?.place.send({ is: "freeze" });
  }

  /** A worker has reported that it freezes now. */
  froze({ place, inHand }: WorkerPlace): void {
    this.#nextFreezeAtMs = performance.now() + FREEZE_EVERY_MS;
    this.#frozenCount += 1;
    place.is("frozen");
    this.#options.report("frozen", `${place.name} (pid ${place.pid}) with ${countOf(inHand.length)} in progress`);
    const sinceMs = performance.now();
    for (const order of inHand) this.#takenOver.delete(order);
    this.#later(FROZEN_MS, () => this.#thaw(place, inHand, sinceMs));
  }

  /** Resumes it once another worker has taken over, so that its commit comes too late. */
  #thaw(place: Place<never>, orders: readonly string[], sinceMs: number): void {
    const isLate = orders.some((order) => this.#takenOver.has(order));
    if (!isLate && performance.now() - sinceMs < FROZEN_AT_MOST_MS) {
      this.#later(100, () => this.#thaw(place, orders, sinceMs));
      return;
    }
    this.#frozenCount -= 1;
    this.#options.report("awake", `${place.name} (pid ${place.pid}) resumes, without knowing about the pause`);
    place.thaw();
  }

  /** A worker has reported that it continues an order of another. */
  tookOver(order: string): void {
    this.#takenOver.add(order);
  }

  /** No process will be killed any more, and none is frozen. */
  get isOver(): boolean {
    return performance.now() >= this.#endMs && this.#frozenCount === 0;
  }

  stop(): void {
    for (const timer of this.#timers) clearTimeout(timer);
  }
}

function anyOf<T>(candidates: readonly T[]): T | undefined {
  return candidates[Math.floor(candidates.length * Math.random())];
}
