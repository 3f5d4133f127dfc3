/**
 * What reactions and projections still need of a stream: events that are not routed yet, and routed ones that their target has not handled.
 *
 * An event is routed in the commit that moves the reaction's cursor past it, so the position of an event tells whether it was. Where each stream is a
 * target, one target is looked at. Targets that are computed can have events of any stream: the cost is that of a list of all of them.
 */

import type { Address, Row, StoredEntry } from "../../kernel/contract.ts";
import type { Kernel } from "../../kernel/kernel.ts";
import { type EventsLacking, type EventsLeft, StreamInUseError } from "../errors.ts";
import {
  GENERATIONS,
  type GenerationValue,
  generationAt,
  PROJECTIONS,
  type ProjectionValue,
  RETIRED,
} from "../projections/stored.ts";
import {
  REACTIONS,
  type Routed,
  type RouterValue,
  type TargetValue,
  targetAt,
  targetSpaceOf,
} from "../reactions/stored.ts";
import { keptUpTo } from "../reading.ts";
import { PAGE } from "./entries.ts";

interface Router {
  readonly name: string;
  readonly cursor: number;
  readonly on: ReadonlySet<string>;
  /** Events of a stream are at the target with its name, and nowhere else. */
  readonly isByStream: boolean;
}

export interface NeedsOptions {
  /** The stream has its tombstone already. Default: false. */
  readonly isClosed?: boolean;
  /** Projections that are being built count. Default: true. */
  readonly areBuilt?: boolean;
}

/** Throws `stream_in_use` while a reaction or a projection needs events of the stream up to this version. */
export async function checkNotNeeded(
  kernel: Kernel,
  at: Address,
  upTo: number,
  { isClosed = false, areBuilt = true }: NeedsOptions = {},
): Promise<void> {
  const routers = await routersOf(kernel);
  const left = new Map<string, number>();
  const add = (reaction: string, count: number) => {
    if (count > 0) left.set(reaction, (left.get(reaction) ?? 0) + count);
  };
  for await (const { reaction } of unrouted(kernel, at, upTo, routers)) add(reaction, 1);
  for (const router of routers) add(router.name, await unhandled(kernel, router, at.key, upTo));
  const reactions = Array.from(left, ([reaction, events]): EventsLeft => ({ reaction, events }));
  const projections = await unprojected(kernel, at, upTo, areBuilt);
  if (reactions.length + projections.length > 0) throw new StreamInUseError(at.key, reactions, projections, isClosed);
}

export async function routersOf(kernel: Kernel): Promise<readonly Router[]> {
  const routers: Router[] = [];
  for await (const row of kernel.rows(REACTIONS)) {
    const { cursor, on, targets } = kernel.decode(row, row.value ?? "") as RouterValue;
    routers.push({ name: row.key, cursor, on: new Set(on), isByStream: targets === "stream" });
  }
  return routers;
}

/** Projections that do not have all events up to a version: each of their generations is looked at, also one that is being built. */
async function unprojected(
  kernel: Kernel,
  at: Address,
  upTo: number,
  areBuilt: boolean,
): Promise<readonly EventsLacking[]> {
  const built = areBuilt ? undefined : await generationsInBuilding(kernel);
  const generations: Router[] = [];
  for await (const row of kernel.rows(GENERATIONS)) {
    if (row.kind === RETIRED || built?.has(row.key) === true) continue;
    const { projection, cursor, on } = kernel.decode(row, row.value ?? "") as GenerationValue;
    generations.push({ name: projection, cursor, on: new Set(on), isByStream: false });
  }
  const left = new Map<string, number>();
  for await (const { reaction: name } of unrouted(kernel, at, upTo, generations))
    left.set(name, (left.get(name) ?? 0) + 1);
  return Array.from(left, ([projection, events]) => ({ projection, events }));
}

/** The keys of generations that readers do not see yet. */
async function generationsInBuilding(kernel: Kernel): Promise<ReadonlySet<string>> {
  const keys = new Set<string>();
  for await (const row of kernel.rows(PROJECTIONS)) {
    const { building } = kernel.decode(row, row.value ?? "") as ProjectionValue;
    if (building !== undefined) keys.add(generationAt(row.key, building).key);
  }
  return keys;
}

/** An event, without its data: many of them fit into memory. */
export type EventAt = Pick<StoredEntry, "version" | "position">;

/** The events up to a version that reactions have not routed yet, the newest first. */
export async function* unrouted(
  kernel: Kernel,
  at: Address,
  upTo: number,
  routers: readonly Router[],
): AsyncGenerator<{ readonly reaction: string; readonly event: EventAt }> {
  const lowest = Math.min(...routers.map(({ cursor }) => cursor));
  for (let last = routers.length === 0 ? 0 : upTo; last > 0; ) {
    const page = await keptUpTo(kernel, at, Math.max(1, last - PAGE + 1), last);
    for (const { version, position, name } of page.toReversed())
      for (const { name: reaction, cursor, on } of routers)
        if (position > cursor && on.has(name)) yield { reaction, event: { version, position } };
    // Within a stream, positions are in the order of versions.
    const [oldest] = page;
    if (oldest === undefined || oldest.position <= lowest) return;
    last = oldest.version - 1;
  }
}

/** How many events of the stream targets of the reaction have not handled. */
async function unhandled(kernel: Kernel, router: Router, stream: string, upTo: number): Promise<number> {
  const { name: reaction, isByStream } = router;
  let count = 0;
  const targets = isByStream ? rowOf(kernel, targetAt(reaction, stream)) : kernel.rows(targetSpaceOf(reaction));
  for await (const row of targets) {
    const { done } = kernel.decode(row, row.value ?? "") as TargetValue;
    if (done >= row.head) continue;
    const target = targetAt(reaction, row.key);
    for await (const { data } of kernel.entriesAfter(target, done)) {
      const routed = kernel.decode(target, data) as Routed;
      if ((routed.stream ?? row.key) === stream && routed.version <= upTo) count += 1;
    }
  }
  return count;
}

async function* rowOf(kernel: Kernel, at: Address): AsyncGenerator<Row> {
  const [row] = await kernel.read([at]);
  if (row != null && row.value !== null) yield row;
}
