/**
 * Events that the store has lost: rows that were removed behind Pawl's back, or that a restore did not bring back. Readers report them as `event_gone`.
 *
 * An event can also be missing because it was archived and removed, which is no loss. The stream's record says up to where, before they are removed, so it
 * is read after the event was found missing (`closing/entries.ts`).
 */

import type { FollowPage, LostEntry } from "../kernel/contract.ts";
import type { Kernel } from "../kernel/kernel.ts";
import { readFirstVersion } from "./closing/entries.ts";
import { EventGoneError } from "./errors.ts";
import { streamAt } from "./stored.ts";

/** Events of a page that were lost. What the store says is only a hint. */
export async function lostIn(kernel: Kernel, { lost = [] }: FollowPage): Promise<readonly LostEntry[]> {
  const found: LostEntry[] = [];
  for (const one of lost) if (one.version >= (await readFirstVersion(kernel, streamAt(one.key)))) found.push(one);
  return found;
}

/** How many streams a reading remembers. */
const MOST_STREAMS = 10_000;

/** Finds gaps for a reader of all events of its streams: the versions of each come without any. */
export class Versions {
  readonly #last = new Map<string, number>();
  /** Streams that are not remembered have not been read. */
  #isComplete: boolean;

  constructor(isFromBeginning: boolean) {
    this.#isComplete = isFromBeginning;
  }

  /** Whether an event before this one was not read. */
  hasGap(stream: string, version: number): boolean {
    const last = this.#last.get(stream) ?? (this.#isComplete ? 0 : version - 1);
    // The stream that was read longest ago is the first.
    this.#last.delete(stream);
    this.#last.set(stream, version);
    const [oldest] = this.#last.keys();
    if (this.#last.size > MOST_STREAMS && oldest !== undefined) {
      this.#last.delete(oldest);
      this.#isComplete = false;
    }
    return version > last + 1;
  }
}

/** Throws `event_gone` if the event before this one was lost, and not removed. */
export async function checkNotLost(kernel: Kernel, stream: string, version: number): Promise<void> {
  if (version > (await readFirstVersion(kernel, streamAt(stream)))) throw new EventGoneError(stream, version - 1);
}
