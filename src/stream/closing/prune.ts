/**
 * Pruning a stream: the events behind a folded state are archived and removed while the stream stays open.
 *
 * It is one commit, which says in the stream's value what may be removed. A call that was interrupted is repeated with the same arguments, and does the rest.
 */

import type { Address } from "../../kernel/contract.ts";
import { InvalidArgumentError } from "../../kernel/errors.ts";
import type { Kernel } from "../../kernel/kernel.ts";
import { StreamClosedError, StreamNotFoundError } from "../errors.ts";
import { firstVersionOf } from "../stored.ts";
import type { Archive } from "./archive.ts";
import { decidePrune, withRemoved } from "./decide.ts";
import { readStreamValue } from "./entries.ts";
import { checkNotNeeded } from "./needs.ts";
import { markRemoved, passEvents, removeEvents } from "./removing.ts";

export interface PrunedStream {
  /** The first version that the store keeps. */
  readonly firstVersion: number;
  /** How many events this call archived. */
  readonly archived: number;
}

/** Without an archive, the events are discarded. */
export async function pruneStream(
  kernel: Kernel,
  at: Address,
  before: number,
  archive: Archive | undefined,
): Promise<PrunedStream> {
  const request = { before: Math.max(1, before), isDiscarded: archive === undefined };
  let archived = 0;
  for (;;) {
    const state = await readStreamValue(kernel, at);
    const step = decidePrune(state, request);
    switch (step.is) {
      case "missing":
        throw new StreamNotFoundError(at.key);
      case "closed":
        throw new StreamClosedError(at.key, state?.head ?? 0);
      case "beyond":
        throw new InvalidArgumentError(
          "before",
          `must be at most ${step.most}: the last event of stream "${at.key}" stays`,
        );
      case "unfolded":
        throw new InvalidArgumentError(
          "before",
          `must be at most ${step.most}: no aggregate has a stored state of stream "${at.key}" with later events. Run a command of one, which may emit nothing, or give discard: true`,
        );
      case "archive": {
        const { to } = step;
        await checkNotNeeded(kernel, at, to);
        const passed = await passEvents(kernel, at, step, archive);
        if (passed === undefined) break;
        await checkNotNeeded(kernel, at, to);
        const isMarked = await markRemoved(kernel, at, (now) =>
          decidePrune(now, request).is === "archive"
            ? { value: withRemoved(now.value, to + 1, passed), removedUpTo: passed.position }
            : undefined,
        );
        if (isMarked) ({ archived } = passed);
        break;
      }
      case "remove": {
        const firstVersion = firstVersionOf(state?.value ?? {});
        await removeEvents(kernel, at, firstVersion - 1);
        return { firstVersion, archived };
      }
    }
  }
}
