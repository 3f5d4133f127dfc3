/**
 * `tx`: what a decision works with. It has the verbs of every capability, each on the records of this one commit.
 */

import type { TxVerbs } from "./capabilities.ts";
import type { Capability } from "./kernel/capability.ts";
import type { Tx as KernelTx } from "./kernel/decision.ts";

/** Its verbs are those of the capabilities. */
export interface Tx extends TxVerbs {}

/** What a decision works with. */
// biome-ignore lint/suspicious/noUnsafeDeclarationMerging: `with` defines the verbs, from the list of capabilities.
export class Tx {
  readonly #tx: KernelTx;

  /** @internal */
  constructor(tx: KernelTx) {
    this.#tx = tx;
  }

  /** The class of a handle's decisions, with the verbs of its capabilities. @internal */
  static with(capabilities: readonly Capability[]): new (tx: KernelTx) => Tx {
    class HandleTx extends Tx {}
    const { prototype } = HandleTx;
    for (const { view = {}, properties = {} } of capabilities) {
      for (const [name, verb] of Object.entries(view))
        Object.defineProperty(prototype, name, {
          value(this: Tx, ...given: never[]) {
            return verb(this.#tx, ...given);
          },
        });
      for (const [name, property] of Object.entries(properties))
        Object.defineProperty(prototype, name, {
          get(this: Tx) {
            return property(this.#tx);
          },
        });
    }
    return HandleTx;
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
}
