/**
 * Races that code makes itself, with `Promise.race` and the like: which waits for signals, and which sleeps, only such races observe.
 *
 * `Promise.race` gives the same two functions to each of its promises. When one of them settles, the race is over and does not observe the
 * others any more: a wait for a signal that nothing else observes is abandoned, and must not take a message that a later wait is for. No
 * code continues with what is abandoned, so a run can be in a deadlock beside it.
 */

import { LazyMap } from "../../kernel/lazy.ts";
import type { Reaction } from "./operation.ts";
import type { PendingOperation } from "./pending.ts";

export class Races {
  /** The waits for signals, and the sleeps, that are observed with others, by the function that is called when one of them is fulfilled. */
  readonly #waits = new LazyMap<unknown, Set<PendingOperation>>();

  /** The operation is observed together with others. */
  join(pending: PendingOperation, reaction: Reaction): void {
    pending.reactions = [...pending.reactions, reaction];
    if (pending.kind !== "signal" && pending.kind !== "sleep") return;
    const waits = this.#waits.get(reaction.fulfilled);
    if (waits === undefined) this.#waits.set(reaction.fulfilled, new Set([pending]));
    else waits.add(pending);
  }

  /** An operation has settled, and with it every race that it was in. */
  end(reactions: readonly Reaction[]): void {
    for (const { fulfilled, rejected } of reactions) {
      const waits = this.#waits.get(fulfilled);
      if (waits === undefined) continue;
      for (const wait of waits)
        wait.reactions = wait.reactions.filter((one) => one.fulfilled !== fulfilled || one.rejected !== rejected);
      this.#waits.delete(fulfilled);
    }
  }
}
