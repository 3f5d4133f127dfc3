/**
 * Checks everything that is stored about admission at one moment, against what must always be true: each limit counts the runs that hold a place
 * under it, and no more than its maximum; each waiting run is in its line once, in order; each line is in the ring of one limit; and no run waits that
 * could be admitted.
 */

import { address, type Row } from "../../src/kernel/contract.ts";
import type { Kernel } from "../../src/kernel/kernel.ts";
import { waitingIn } from "../../src/workflow/flow/decide.ts";
import {
  HURRIED_QUEUE,
  type LimitValue,
  type LineValue,
  limitAt,
  type PlaceRef,
} from "../../src/workflow/flow/stored.ts";
import { ENDED, type RunValue } from "../../src/workflow/stored.ts";

interface StoredRun {
  readonly row: Row;
  readonly value: RunValue;
}

/** What is stored, by key; limits by the text of their address. */
export interface Stored {
  readonly runs: ReadonlyMap<string, StoredRun>;
  readonly limits: ReadonlyMap<string, { readonly value: LimitValue; readonly kind: string | null }>;
  readonly lines: ReadonlyMap<string, LineValue>;
}

/** Reads what is stored, and returns what is wrong. */
export async function wrongPlaces(kernel: Kernel): Promise<readonly string[]> {
  const rows: Row[] = [];
  for (const space of ["run", "line"]) for await (const row of kernel.rows(space)) rows.push(row);
  const refs = new Map<string, PlaceRef>();
  for (const row of rows)
    if (row.space === "run" && row.value !== null)
      for (const ref of (kernel.decode(row, row.value) as RunValue).gate?.places ?? [])
        refs.set(limitAt(ref).text, ref);
  const limits = await kernel.read([...refs.values()].map(limitAt));
  return wrongIn(storedIn(kernel, [...rows, ...limits.filter((row) => row !== null)]));
}

/** What these rows say. */
export function storedIn(kernel: Kernel, rows: Iterable<Row>): Stored {
  const runs = new Map<string, StoredRun>();
  const limits = new Map<string, { value: LimitValue; kind: string | null }>();
  const lines = new Map<string, LineValue>();
  for (const row of rows) {
    if (row.value === null) continue;
    const value = kernel.decode(row, row.value);
    if (row.space === "run") runs.set(row.key, { row, value: value as RunValue });
    else if (row.space === "line") lines.set(row.key, value as LineValue);
    else if (/^limit(\/|$)/.test(row.space))
      limits.set(address(row.space, row.key).text, { value: value as LimitValue, kind: row.kind });
  }
  return { runs, limits, lines };
}

/** Returns what is wrong, in words. */
export function wrongIn({ runs, limits: known, lines }: Stored): readonly string[] {
  const wrong: string[] = [];
  const limits = new Map(known);
  for (const { value } of runs.values())
    for (const ref of value.gate?.places ?? [])
      if (!limits.has(limitAt(ref).text)) limits.set(limitAt(ref).text, { value: { max: 0, held: 0 }, kind: null });

  // Limits count those that hold a place.
  for (const [text, { value: limit }] of limits) {
    const holders = [...runs.values()].filter(
      ({ value }) => value.gate?.isOpen === true && value.gate.places?.some((ref) => limitAt(ref).text === text),
    );
    if (holders.length !== limit.held)
      wrong.push(`limit ${text} counts ${limit.held}, and ${holders.length} runs hold it`);
    if (limit.held > limit.max) wrong.push(`limit ${text} has ${limit.held} of ${limit.max}`);
    for (const { row } of holders)
      if (ENDED.has(row.status ?? "")) wrong.push(`run ${row.key} is ${row.status} and holds limit ${text}`);
    // Rings have each line once, and lead back.
    const ring: string[] = [];
    let before: string | null = null;
    for (let id = limit.first ?? null; id !== null; id = lines.get(id)?.next ?? null) {
      if (ring.includes(id) || ring.length > 100_000) {
        wrong.push(`the ring of ${text} comes back to ${id}`);
        break;
      }
      ring.push(id);
      const line = lines.get(id);
      if (line === undefined) wrong.push(`the ring of ${text} has line ${id}, which is not there`);
      else if (limitAt(line.places[line.in] ?? ["?"]).text !== text)
        wrong.push(`line ${id} is in the ring of ${text}, and says another`);
      else if (line.prev !== before) wrong.push(`line ${id} has ${line.prev} before it instead of ${before}`);
      before = id;
    }
    if ((limit.last ?? null) !== before)
      wrong.push(`the last of the ring of ${text} is ${limit.last} instead of ${before}`);
  }
  // Lines have each waiting run once, in the order in which they came.
  const inLine = new Map<string, string>();
  for (const [id, line] of lines) {
    if (waitingIn(line.lanes) === 0) wrong.push(`line ${id} is empty`);
    const limit = line.places[line.in];
    if (limit === undefined) wrong.push(`line ${id} is in no ring`);
    else if (!ringOf(limits.get(limitAt(limit).text)?.value, lines).includes(id))
      wrong.push(`line ${id} is not in its ring`);
    else {
      const { value, kind } = limits.get(limitAt(limit).text) ?? { value: { max: 0, held: 0 }, kind: null };
      if (value.held < value.max && kind !== HURRIED_QUEUE)
        wrong.push(`line ${id} waits, and ${limit.join(" ")} has room`);
    }
    for (const [priority, first, last, count, sinceMs] of line.lanes) {
      let at: string | null = first;
      let seen = 0;
      let lastSeen = "";
      while (at !== null && seen <= count) {
        const run: StoredRun | undefined = runs.get(at);
        const queued: NonNullable<RunValue["gate"]>["queued"] = run?.value.gate?.queued;
        if (run === undefined || queued === undefined || run.row.status !== "queued") {
          wrong.push(`line ${id} has run ${at}, which is ${run?.row.status}`);
          break;
        }
        if (run.value.gate?.line !== id || (run.value.gate.priority ?? 0) !== priority)
          wrong.push(`run ${at} is in another line than it says`);
        if (seen === 0 && queued.sinceMs !== sinceMs) wrong.push(`line ${id} says another time than its first run`);
        if (seen > 0 && queued.prev !== lastSeen)
          wrong.push(`run ${at} has ${queued.prev} before it instead of ${lastSeen}`);
        if (inLine.has(at)) wrong.push(`run ${at} is in line twice`);
        inLine.set(at, id);
        lastSeen = at;
        seen += 1;
        at = queued.next;
      }
      if (seen !== count || lastSeen !== last)
        wrong.push(
          `line ${id} has ${seen} runs of priority ${priority} up to ${lastSeen}, and says ${count} up to ${last}`,
        );
    }
  }
  for (const { row } of runs.values())
    if (row.status === "queued" && !inLine.has(row.key)) wrong.push(`run ${row.key} is queued and in no line`);
  return wrong;
}

function ringOf(limit: LimitValue | undefined, lines: ReadonlyMap<string, LineValue>): readonly string[] {
  const ring: string[] = [];
  for (let id = limit?.first ?? null; id !== null && ring.length <= lines.size; id = lines.get(id)?.next ?? null)
    ring.push(id);
  return ring;
}
