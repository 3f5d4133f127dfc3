/**
 * Replay: a run's code is brought to where it was by its history, read in pages and applied one fact at a time.
 */

import type { Address, StoredEntry } from "../../kernel/contract.ts";
import { FencedError, UnsupportedEncodingError } from "../../kernel/errors.ts";
import type { Kernel } from "../../kernel/kernel.ts";
import type { Started } from "../flow/stored.ts";
import { skipsOf } from "../history/forgotten.ts";
import { isIn } from "../history/ranges.ts";
import type { RunValue } from "../stored.ts";
import type { Coroutine } from "./coroutine.ts";

export interface Replaying {
  readonly kernel: Kernel;
  readonly at: Address;
  readonly value: RunValue;
  readonly coroutine: Coroutine;
  begin(started: Started): void;
  /** The claim under which the run is worked on, and where the history ended then: what comes after that was written when the claim was over. */
  readonly claim?: { readonly fence: number; readonly head: number } | undefined;
  /** True when the replay is not needed any more. */
  isOver(): boolean;
}

export async function replay(on: Replaying): Promise<void> {
  const { kernel, at, coroutine, value, claim } = on;
  const { from, retriedAt = 0 } = value;
  const skips = await skipsOf(kernel, at, value);
  let before: StoredEntry | undefined;
  let expected = from;
  coroutine.isReplaying = true;
  // Each waits for the next one, which may tell the time that the code saw after it.
  for await (const entry of kernel.entriesAfter(at, from - 1)) {
    if (on.isOver()) return;
    const { version, name } = entry;
    if (claim !== undefined && version > claim.head) throw new FencedError(at.key, claim.fence, claim.fence);
    // A fact that is gone would not always be missed by the code.
    if (version !== expected) throw missing(at, expected);
    expected += 1;
    if (version === retriedAt) coroutine.retriedAtMs = entry.atMs;
    if (isIn(skips, version)) coroutine.forgot(name, kernel.decodeFresh(at, entry.data));
    else if (version < retriedAt && name !== "started")
      coroutine.remember(version, name, kernel.decodeFresh(at, entry.data), entry.atMs);
    else {
      if (before !== undefined) await apply(on, before, entry);
      before = entry;
    }
    coroutine.head = version;
  }
  const { head } = coroutine;
  // What the code does from here on is new, unless it is remembered.
  if (retriedAt === 0) coroutine.isReplaying = false;
  if (before !== undefined) await apply(on, before, undefined);
  coroutine.isReplaying = false;
  coroutine.head = head;
}

const missing = ({ space, key }: Address, version: number): UnsupportedEncodingError =>
  new UnsupportedEncodingError(`entry ${version} of its history`, "it is missing", { name: `${space} "${key}"` });

async function apply(on: Replaying, entry: StoredEntry, next: StoredEntry | undefined): Promise<void> {
  const { kernel, at, coroutine } = on;
  const data = kernel.decodeFresh(at, entry.data);
  if (entry.name === "started") on.begin(data as Started);
  else {
    const nowMs = next?.name === "now" ? Number(kernel.decodeFresh(at, next.data)) : entry.atMs;
    if (!coroutine.replay(entry.name, data, nowMs, entry)) return;
  }
  await ran(on);
  // Facts from before a retry come before those from after it.
  while (coroutine.recall()) await ran(on);
}

/** The code has run as far as it can. */
async function ran({ kernel, coroutine }: Replaying): Promise<void> {
  await new Promise<void>((resolve) => kernel.ports.clock.soon(resolve));
  // What the code starts is in `waiting` until it settles; a list of everything would grow with the history.
  coroutine.takeNew();
  coroutine.takeLosers();
}
