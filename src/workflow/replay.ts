/**
 * Replay: a run's code is brought to where it was by its history, read in pages and applied one fact at a time.
 */

import type { Address, StoredEntry } from "../kernel/contract.ts";
import type { Kernel } from "../kernel/kernel.ts";
import type { Coroutine } from "./coroutine.ts";
import type { RunValue } from "./run.ts";

export interface Replaying {
  readonly kernel: Kernel;
  readonly at: Address;
  readonly value: RunValue;
  readonly coroutine: Coroutine;
  begin(input: unknown): void;
  /** True when nobody needs it any more. */
  isOver(): boolean;
}

export async function replay(on: Replaying): Promise<void> {
  const { coroutine, value } = on;
  const { from, skips = [] } = value;
  const isSkipped = (version: number): boolean => skips.some(([first, last]) => version >= first && version <= last);
  let before: StoredEntry | undefined;
  coroutine.isReplaying = true;
  // Each waits for the next one, which may tell the time that the code saw after it.
  for await (const entry of on.kernel.entriesAfter(on.at, from - 1)) {
    if (on.isOver()) return;
    if (!isSkipped(entry.version)) {
      if (before !== undefined) await apply(on, before, entry);
      before = entry;
    }
    coroutine.head = entry.version;
  }
  coroutine.isReplaying = false;
  const { head } = coroutine;
  if (before !== undefined) await apply(on, before, undefined);
  coroutine.head = head;
}

async function apply(on: Replaying, entry: StoredEntry, next: StoredEntry | undefined): Promise<void> {
  const { kernel, at, coroutine } = on;
  const data = kernel.decodeFresh(at, entry.data);
  if (entry.name === "started") on.begin((data as { input: unknown }).input);
  else {
    const nowMs = next?.name === "now" ? Number(kernel.decodeFresh(at, next.data)) : entry.atMs;
    if (!coroutine.replay(entry.name, data, nowMs)) return;
  }
  await new Promise<void>((resolve) => kernel.ports.clock.soon(resolve));
  // What the code asks for is in `waiting` until it is answered; a list of all of it would grow with the history.
  coroutine.takeNew();
}
