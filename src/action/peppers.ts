/**
 * Several peppers, the newest first, and a record of those that the database was used with.
 *
 * New values are hashed with the newest; values stored under an older one are still verified with that one. To rotate, every process first
 * gets the new pepper at the end of its list, and then at the front: a process without it could neither check a PIN that was hashed with it
 * nor recognize a consumer. The old one can be removed when nothing that was hashed with it is needed any more.
 *
 * A wrong pepper would stay unnoticed for long: old PINs could not be checked, and a consumer that repeats its call would not be
 * recognized, and would use an action of several uses again. So the first use records the pepper (by its id, which does not reveal it), and
 * a process none of whose peppers was used here is refused (`pepper_changed`).
 */

import { type Address, address } from "../kernel/contract.ts";
import type { Tx } from "../kernel/decision.ts";
import { InvalidArgumentError } from "../kernel/errors.ts";
import type { Kernel } from "../kernel/kernel.ts";
import { PepperChangedError, PepperMissingError } from "./errors.ts";
import { Pepper } from "./pepper.ts";

export type PepperSecret = string | Uint8Array;

/** The ids of peppers that were the newest of a process that used them. An id is never removed from the list. */
interface PepperValue {
  readonly ids: readonly string[];
}

const PEPPERS: Address = address("action-pepper", "used");
const MAX_PEPPERS = 8;

export class Peppers {
  readonly #all: readonly Pepper[];
  readonly #mayChange: boolean;
  #isChecked = false;

  constructor(given: PepperSecret | readonly PepperSecret[] | undefined, namespace: string, mayChange: boolean) {
    const list = given === undefined ? [] : Array.isArray(given) ? (given as readonly PepperSecret[]) : [given];
    if (given !== undefined && (list.length === 0 || list.length > MAX_PEPPERS))
      throw new InvalidArgumentError("the pepper", `must be one, or a list of 1 to ${MAX_PEPPERS}, the newest first`);
    this.#all = list.map((secret) => new Pepper(secret as PepperSecret, namespace));
    if (new Set(this.#all.map(({ id }) => id)).size < this.#all.length)
      throw new InvalidArgumentError("the pepper", "must not be in the list twice");
    this.#mayChange = mayChange;
  }

  /** All peppers, the newest first; throws without one. */
  for(what: string): readonly [Pepper, ...Pepper[]] {
    const [newest, ...older] = this.#all;
    if (newest === undefined) throw new PepperMissingError(what);
    return [newest, ...older];
  }

  /** The pepper with this id, if this process has it. */
  find(id: string): Pepper | undefined {
    return this.#all.find((pepper) => pepper.id === id);
  }

  get isChecked(): boolean {
    return this.#isChecked || this.#all.length === 0;
  }

  /** Compares them with the ones that were used before; throws `pepper_changed`. Not repeated after it succeeded. */
  async check(kernel: Kernel): Promise<void> {
    if (this.isChecked) return;
    await kernel.transact((tx) => this.checkIn(tx), [PEPPERS]);
    this.#isChecked = true;
  }

  /** The same in a decision. */
  checkIn(tx: Tx): void {
    const [newest] = this.#all;
    if (this.isChecked || newest === undefined) return;
    const record = tx.record(PEPPERS);
    const { ids } = (record.exists ? record.value : { ids: [] }) as PepperValue;
    if (ids.includes(newest.id)) return;
    const isKnown = this.#all.some(({ id }) => ids.includes(id));
    if (ids.length > 0 && !isKnown && !this.#mayChange) throw new PepperChangedError();
    record.write({ value: { ids: [newest.id, ...ids] } satisfies PepperValue });
  }
}
