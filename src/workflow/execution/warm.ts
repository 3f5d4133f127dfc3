/**
 * Warm runs: the code of runs that rest, kept in memory so that resuming them replays nothing.
 *
 * Code is used again only where the history ends as the code has seen it; otherwise the run is replayed. Of too many, the code that has
 * rested longest is dropped.
 *
 * Code that rests may continue by itself, when it awaits something that is no operation. Then its run is woken, and a worker takes it.
 */

import { StoreError } from "../../kernel/errors.ts";
import type { Kernel } from "../../kernel/kernel.ts";
import { pause } from "../../kernel/ports.ts";
import { wakeRun } from "../runs/wake.ts";
import { hasEnded, type RunValue, runAt } from "../stored.ts";
import type { Coroutine } from "./coroutine.ts";
import { discard } from "./ending.ts";
import type { Execution } from "./execution.ts";

/** A run's code at rest. */
interface Warm {
  readonly coroutine: Coroutine;
  readonly incarnation: number;
  readonly skips: number;
}

/** For code that continues by itself, a store that is unreachable is tried again after this long. */
const ROUSE_MS = 1000;

export class WarmRuns {
  readonly #kernel: Kernel;
  readonly #limit: number;
  readonly #warm = new Map<string, Warm>();

  /** Keeps the code of at most `limit` runs. */
  constructor(kernel: Kernel, limit: number) {
    this.#kernel = kernel;
    this.#limit = limit;
  }

  /** The code that was kept, if it is where the history ends; other code of the run is not used again. */
  take(id: string, head: number | undefined, value: RunValue): Coroutine | undefined {
    const warm = this.#warm.get(id);
    if (warm === undefined) return undefined;
    const { coroutine, incarnation, skips } = warm;
    const isSame = incarnation === value.incarnation && skips === (value.skips?.length ?? 0);
    if (!isSame || coroutine.head !== head) {
      this.#evict(id);
      // Of a run that ended and was started anew, only callbacks are left that may still start something.
      if (incarnation !== value.incarnation) coroutine.refuseNew();
      return undefined;
    }
    this.#warm.delete(id);
    coroutine.roused = undefined;
    return coroutine;
  }

  /** Keeps the code of a run that rests. */
  keep(id: string, execution: Execution): void {
    const { coroutine } = execution;
    const { value } = execution.run;
    if (this.#limit === 0) {
      execution.discard();
      return;
    }
    this.#listenTo(id, execution);
    this.#warm.set(id, { coroutine, incarnation: value.incarnation, skips: value.skips?.length ?? 0 });
    if (this.#warm.size > this.#limit) this.#evict(this.#warm.keys().next().value as string);
  }

  /** Code that awaits something foreign besides its operations continues by itself: then a worker must work on its run. */
  #listenTo(id: string, execution: Execution): void {
    const { coroutine } = execution;
    coroutine.roused = () => {
      coroutine.roused = undefined;
      const { bodies } = this.#kernel.ports;
      const rouse = (): void => void this.#rouse(id, execution);
      // It is called from the code of the run, where nothing may be written.
      if (bodies === undefined) rouse();
      else bodies.run({ run: id, step: "" }, rouse);
    };
  }

  /** The code of a run at rest continues by itself: the run is woken. If it has ended elsewhere, what the code starts is refused. */
  async #rouse(id: string, execution: Execution): Promise<void> {
    const { coroutine } = execution;
    while (this.#warm.get(id)?.coroutine === coroutine)
      try {
        const isEnded = await this.#kernel.transact(
          (tx) => {
            const isOver = hasEnded(tx.record(runAt(id)));
            if (!isOver) wakeRun(tx, id);
            return isOver;
          },
          [runAt(id)],
        );
        if (this.#warm.get(id)?.coroutine !== coroutine) return;
        // Another worker may take it, and the code here may continue again when that has ended it.
        if (!isEnded) return this.#listenTo(id, execution);
        this.#warm.delete(id);
        execution.discard();
        coroutine.refuseNew();
        return;
      } catch (error) {
        if (!(error instanceof StoreError)) return;
        await pause(this.#kernel.ports.clock, ROUSE_MS);
      }
  }

  /** None of the code is used again. */
  evictAll(): void {
    for (const id of [...this.#warm.keys()]) this.#evict(id);
  }

  /** The code is not used again. */
  #evict(id: string): void {
    const warm = this.#warm.get(id);
    if (warm === undefined) return;
    this.#warm.delete(id);
    warm.coroutine.roused = undefined;
    discard(warm.coroutine, () => {});
  }
}
