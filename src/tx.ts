/**
 * `tx`: what a decision works with. Everything that the handle can do to the store in one commit, at once and together.
 */

import type { Actions } from "./action/actions.ts";
import type { TxActions } from "./action/tx-actions.ts";
import type { Answered } from "./idempotency/attempt.ts";
import type { DedupeOptions } from "./idempotency/dedupe.ts";
import type { Idempotency, KeyOptions } from "./idempotency/idempotency.ts";
import type { Tx as KernelTx, Sync } from "./kernel/decision.ts";
import { InvalidArgumentError } from "./kernel/errors.ts";
import type { Kernel } from "./kernel/kernel.ts";
import { Lock, type TxLock } from "./lock/lock.ts";
import type { Machine } from "./machine/definition.ts";
import type { Machines, TxMachine } from "./machine/machine.ts";
import { RateLimit, type TxRateLimit } from "./rate/rate.ts";
import { type AnySlot, Slot, type TxSlot } from "./slot/slot.ts";
import type { WithInput } from "./workflow/context.ts";
import type { Signal, Workflow } from "./workflow/definition.ts";
import type { Runs, SignalOptions, StartOptions } from "./workflow/runs.ts";

/** What a handle has, for its decisions. @internal */
export interface Capabilities {
  readonly kernel: Kernel;
  readonly runs: Runs;
  readonly actions: Actions;
  readonly machines: Machines;
  readonly idempotency: Pick<Idempotency<Tx, object>, "within">;
}

/** A slot of another handle would be written to this one's database, under its name. */
export function slotOf(kernel: Kernel, slot: AnySlot): Slot<unknown, unknown> {
  if (!(slot instanceof Slot)) throw new InvalidArgumentError("the slot", "must be a handle, as pawl.slot gives it");
  if (!slot.isOn(kernel))
    throw new InvalidArgumentError("the slot", `"${slot.name}" must be of the handle whose transact this is`);
  return slot;
}

/** What a decision works with. */
export class Tx {
  readonly #tx: KernelTx;
  readonly #has: Capabilities;

  /** @internal */
  constructor(tx: KernelTx, has: Capabilities) {
    this.#tx = tx;
    this.#has = has;
  }

  /** Starts a run, if this commit happens; answers its id. */
  start<Input>(workflow: Workflow<Input, unknown>, ...rest: WithInput<Input, StartOptions>): string;
  start(workflow: string, input?: unknown, options?: StartOptions): string;
  start(workflow: string | { readonly name: string }, input?: unknown, options?: StartOptions): string {
    return this.#has.runs.startIn(this.#tx, workflow, input, options);
  }

  /** Sends a signal to a run, if this commit happens; answers whether it is new. */
  signal<Payload>(run: string, signal: Signal<Payload>, ...rest: WithInput<Payload, SignalOptions>): boolean;
  signal(run: string, signal: Signal<unknown>, payload?: unknown, options?: SignalOptions): boolean {
    return this.#has.runs.signalIn(this.#tx, run, signal, payload, options);
  }

  /** The store's clock, in milliseconds since 1970; the same throughout the commit. */
  get nowMs(): number {
    return this.#tx.nowMs;
  }

  /** At least 0 and below 1; the same again when the decision runs again. */
  random(): number {
    return this.#tx.random();
  }

  /** A new unguessable id; the same again when the decision runs again. */
  uuid(): string {
    return this.#tx.uuid();
  }

  /** A lock, to be taken, checked or given back in this commit. */
  lock(lock: Lock): TxLock {
    if (!(lock instanceof Lock) || !lock.isOn(this.#has.kernel))
      throw new InvalidArgumentError(
        "the lock",
        "must be of the handle whose transact this is, as pawl.mutex gives it",
      );
    return lock.within(this.#tx);
  }

  /** A slot, to be read and written at once. */
  slot<T, Empty>(slot: Slot<T, Empty>): TxSlot<T, Empty> {
    slotOf(this.#has.kernel, slot);
    return slot.within(this.#tx);
  }

  /** One-time actions: created, used and canceled in this commit. */
  get actions(): TxActions {
    return this.#has.actions.within(this.#tx);
  }

  /** A machine, to be moved in this commit. */
  machine<State extends string, Data, Given>(machine: Machine<State, Data, Given>): TxMachine<State, Data, Given> {
    return this.#has.machines.within(this.#tx, machine);
  }

  /** A rate limit, to be taken from in this commit; nobody waits here. */
  rateLimit(limit: RateLimit): TxRateLimit {
    if (!(limit instanceof RateLimit) || !limit.isOn(this.#has.kernel))
      throw new InvalidArgumentError("the rate limit", "must be of the handle whose transact this is");
    return limit.within(this.#tx);
  }

  /** Answers what is stored under the key, or runs the function and stores what it returns, all in this commit. */
  idempotent<T>(key: string, options: KeyOptions | undefined, decide: () => Sync<T>): Answered<T> {
    return this.#has.idempotency.within(this.#tx).idempotent(key, options, decide);
  }

  /** Marks a message as handled by this consumer; answers whether it is new. */
  dedupe(consumer: string, messageId: string, options?: DedupeOptions): boolean {
    return this.#has.idempotency.within(this.#tx).dedupe(consumer, messageId, options);
  }
}
