/**
 * The progress of a target while a worker holds it: how many of its events are handled, and how many of these are committed.
 *
 * A handler that writes nothing in Pawl leaves nothing to commit but that its event is handled. So the next handler begins while that is being committed, and one commit
 * moves the target on by all events that were handled meanwhile. What a handler emits or commits is one commit with its own event and those before it.
 *
 * Guarantees: if the process ends, only events are handled again that were handled while a commit was under way, and fewer than `MOST_AHEAD`. None is handled ahead of
 * a commit where one of them may be what ends its processes, because the target was lost before; nor after the lease may have ended, because another
 * worker may have it.
 */

import type { Held } from "../../kernel/claim/claim.ts";
import type { Tx } from "../../kernel/decision.ts";
import type { Draft } from "../../kernel/draft.ts";
import { FencedError } from "../../kernel/errors.ts";
import type { Lease } from "../../kernel/lease.ts";
import type { Clock } from "../../kernel/ports.ts";
import { decideHandled } from "./decide.ts";
import type { TargetValue } from "./stored.ts";

/** How many events of a target may be handled before their progress is committed. */
const MOST_AHEAD = 32;

export class Progress {
  readonly #clock: Clock;
  readonly #held: Held;
  readonly #lease: Lease;
  readonly #losses: number;
  /** How many events of the target's log are handled, and how many of them as far as the store knows. */
  #handled: number;
  #committed: number;
  #committing: Promise<void> | undefined;
  #isScheduled = false;
  #isResting = false;
  /** Why the store did not take a commit. */
  #trouble: { readonly error: unknown } | undefined;

  /** `losses` is how often a worker lost the target. */
  constructor(clock: Clock, held: Held, lease: Lease, done: number, losses: number) {
    this.#clock = clock;
    this.#held = held;
    this.#lease = lease;
    this.#losses = losses;
    this.#handled = done;
    this.#committed = done;
  }

  /** The first `done` events are handled, and nothing else is to be written for the last of them. Resolves when the next one may be handled. */
  async handled(done: number): Promise<void> {
    this.#handled = done;
    const mayBeAhead = this.#held.tries === 1 && this.#clock.nowMs() < this.#lease.safeUntilMs;
    const most = mayBeAhead ? MOST_AHEAD : 1;
    while (this.#handled - this.#committed >= most) await this.#commit();
    this.#checkTrouble();
    this.#schedule();
  }

  /** Commits that all these events are handled. */
  async flush(): Promise<void> {
    while (this.#committed < this.#handled) await this.#commit();
    this.#checkTrouble();
  }

  /**
   * What a commit writes by which the first `done` events are handled. Returns false, with nothing written, if they were: a commit whose outcome was
   * unknown turned out to be there.
   */
  write(record: Draft, done: number): boolean {
    const value = record.value as TargetValue;
    if (value.done >= done) return false;
    // A target that gets ahead is not what ends its processes.
    record.write({ value: decideHandled(value, done, this.#losses), tries: 1 });
    return true;
  }

  /** That commit was made. */
  wrote(done: number): void {
    this.#handled = Math.max(this.#handled, done);
    this.#committed = Math.max(this.#committed, done);
  }

  /** Releases the target, with what `write` writes of the first `done` events, unless news came. */
  async rest(done: number, write: (record: Draft, tx: Tx) => void): Promise<"rested" | "woken"> {
    this.#isResting = true;
    try {
      await this.#committing;
      this.#checkTrouble();
      const outcome = await this.#held.rest(() => null, write);
      if (outcome === "rested") this.wrote(done);
      return outcome;
    } finally {
      this.#isResting = false;
    }
  }

  /** What is handled before anything else happens in this process shares a commit. */
  #schedule(): void {
    if (this.#isScheduled || this.#committing !== undefined || this.#committed === this.#handled) return;
    this.#isScheduled = true;
    this.#clock.soon(() => {
      this.#isScheduled = false;
      if (this.#isResting || this.#committed === this.#handled || this.#trouble !== undefined) return;
      // Thrown by what is called next.
      this.#commit().catch(() => {});
    });
  }

  #commit(): Promise<void> {
    this.#checkTrouble();
    this.#committing ??= this.#commitHandled();
    return this.#committing;
  }

  async #commitHandled(): Promise<void> {
    try {
      const done = await this.#held.commit((record) => {
        // Also those that were handled since the commit was asked for.
        const done = this.#handled;
        this.write(record, done);
        return done;
      });
      this.wrote(done);
    } catch (error) {
      this.#trouble = { error };
      // The handler that is at work is ahead of this commit.
      if (error instanceof FencedError) this.#lease.lose(error);
      throw error;
    } finally {
      this.#committing = undefined;
    }
    if (this.#committed < this.#handled) this.#schedule();
  }

  #checkTrouble(): void {
    if (this.#trouble !== undefined) throw this.#trouble.error;
  }
}
