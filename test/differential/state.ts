/**
 * The whole state of a subject, as lines to compare: every row that the cast could have made, deleted ones too, every log, every
 * list in its order, and what the neighbour has.
 *
 * Positions of log entries are the store's own; that they are unique and rise from commit to commit is checked here.
 */

import { jsonCodec } from "../../src/kernel/codec/json.ts";
import { type Address, address, type StoredEntry } from "../../src/kernel/contract.ts";
import { ACCOUNTS, COUNTERS } from "./draw.ts";
import type { World } from "./world.ts";

/** More than a space or a log can have. */
const ALL = 100_000;

const place = { namespace: "", space: "", key: "" };

/** A text that tells apart whatever the codec can tell apart. */
export const textOf = (answer: unknown): string => jsonCodec.encode(answer, place);

export async function stateOf(on: World): Promise<string> {
  const { cast } = on;
  const logged = [...cast.records, ...cast.timers, ...cast.bells];
  const slots = [...cast.slots, ...COUNTERS, ...ACCOUNTS].map((name) => address("slot", name));
  const all = [...logged, ...slots];
  const rows = await on.kernel(0).read(all);
  const lines = rows.map((row, index) => `${textOf(all[index]?.text)}: ${textOf(on.row(row))}`);
  const spaces = new Set(all.map(({ space }) => space));
  lines.push(...(await Promise.all([...spaces, "many"].map((space) => listOf(on, space)))));
  lines.push(...(await logsOf(on, logged)));
  const theirs = await on.raw.theirs.store.list({ space: "slot", prefix: "", after: null, limit: ALL });
  lines.push(`theirs: ${textOf(theirs.map(({ key, version, value }) => [key, version, value]))}`);
  return lines.join("\n");
}

async function listOf(on: World, space: string): Promise<string> {
  const rows = await on.kernel(1).list({ space, prefix: "", after: null, limit: ALL });
  return `list of ${space}: ${textOf(rows.map(({ key, version }) => [key, version]))}`;
}

async function logsOf(on: World, keys: readonly Address[]): Promise<string[]> {
  const lines: string[] = [];
  const positions: number[] = [];
  const isInPlace = ({ position }: StoredEntry) => on.positions.has(position) || position > on.lastPosition;
  const logs = await Promise.all(keys.map(async (at) => ({ at, entries: await on.kernel(1).entries(at, 0, ALL) })));
  for (const { at, entries } of logs) {
    if (entries.length === 0) continue;
    const mine = entries.map(({ position }) => position);
    const isRising = mine.every((position, index) => index === 0 || position > (mine[index - 1] ?? 0));
    const order = isRising && entries.every(isInPlace) ? "in order" : "out of order";
    lines.push(`log of ${textOf([at.space, at.key, order, entries.map((entry) => on.entry(entry))])}`);
    positions.push(...mine);
  }
  on.positions = new Set(positions);
  on.lastPosition = Math.max(on.lastPosition, ...positions);
  if (on.positions.size !== positions.length) lines.push("two log entries have the same position");
  return lines;
}
