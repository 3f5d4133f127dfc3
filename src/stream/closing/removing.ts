/**
 * How events leave the store, for a closing and a pruning alike: they are passed to the archive, then a commit says that they may be removed, and only
 * then are they removed.
 *
 * Each of the three steps can be repeated, and another call may have made it meanwhile.
 */

import type { Address, StoredEntry } from "../../kernel/contract.ts";
import type { Kernel } from "../../kernel/kernel.ts";
import { EventGoneError } from "../errors.ts";
import { REMOVED, type RemovedValue, type StreamValue, statusOf } from "../stored.ts";
import { type Archive, writeToArchive } from "./archive.ts";
import type { Removal, StreamState } from "./decide.ts";
import { PAGE, readFirstVersion } from "./entries.ts";

/** How many events are removed in one step. */
const STEP = 1000;

/** What says that events may be removed. */
interface Marked {
  readonly value: StreamValue;
  readonly removedUpTo: number;
}

/** Passes events to the archive, if there is one. Returns undefined if others have removed them meanwhile. */
export async function passEvents(
  kernel: Kernel,
  at: Address,
  range: { readonly from: number; readonly to: number },
  archive: Archive | undefined,
): Promise<(Removal & { readonly archived: number }) | undefined> {
  const source = new StoreSource(kernel, at, range);
  try {
    let archived = 0;
    if (archive !== undefined) archived = await writeToArchive(archive, at.key, range, source.read());
    else for await (const _ of source.read());
    return { archived, names: source.names, position: source.position };
  } catch (error) {
    if (source.isRemoved) return undefined;
    throw error;
  }
}

/** Says that events of a stream may be removed, under its lock. Returns whether that was said. */
export function markRemoved(
  kernel: Kernel,
  at: Address,
  change: (state: StreamState) => Marked | undefined,
): Promise<boolean> {
  return kernel.transact(
    (tx) => {
      const record = tx.record(at);
      if (!record.exists) return false;
      const changed = change({ head: record.head, value: record.value as StreamValue });
      if (changed === undefined) return false;
      const { removedUpTo, value } = changed;
      const all = tx.record(REMOVED);
      const { upTo = 0 } = (all.value ?? {}) as Partial<RemovedValue>;
      all.write({ value: { upTo: Math.max(removedUpTo, upTo) } satisfies RemovedValue });
      record.write({ value: { ...value, removedAt: all.version }, status: statusOf(value) });
      return true;
    },
    [at, REMOVED],
  );
}

export async function removeEvents(kernel: Kernel, at: Address, upTo: number): Promise<void> {
  while ((await kernel.prune(at, upTo, STEP)) > 0);
}

/** The events to archive, as the store has them. */
class StoreSource {
  readonly #kernel: Kernel;
  readonly #at: Address;
  readonly #from: number;
  readonly #to: number;
  readonly names = new Set<string>();
  /** That of the last one. */
  position = 0;
  /** Another call has removed them while they were read. */
  isRemoved = false;

  constructor(kernel: Kernel, at: Address, { from, to }: { readonly from: number; readonly to: number }) {
    this.#kernel = kernel;
    this.#at = at;
    this.#from = from;
    this.#to = to;
  }

  async *read(): AsyncGenerator<StoredEntry> {
    for (let next = this.#from; next <= this.#to; ) {
      const { entries: page } = await this.#kernel.entryPage(this.#at, next - 1, Math.min(PAGE, this.#to - next + 1));
      if (page.length === 0 || page[0]?.version !== next) {
        this.isRemoved = (await readFirstVersion(this.#kernel, this.#at)) > next;
        throw new EventGoneError(this.#at.key, next);
      }
      for (const entry of page) {
        if (entry.version !== next) throw new EventGoneError(this.#at.key, next);
        next += 1;
        this.names.add(entry.name);
        this.position = entry.position;
        yield entry;
      }
    }
  }
}
