/**
 * Records, through the kernel: every column, logs, several records in one decision, lists and reads.
 */

import type { Address, Row } from "../../../src/kernel/contract.ts";
import type { Tx } from "../../../src/kernel/decision.ts";
import type { Draft } from "../../../src/kernel/draft.ts";
import { type Columns, type Draw, TIMER_KINDS } from "../draw.ts";
import { Planned, type World } from "../world.ts";
import { type Kind, kind, localKind } from "./operation.ts";

const ofRecord = (draw: Draw): Address => draw.record();

/** One that is not there yet may be a record to claim later; one of these three kinds of place. */
const ofAny = (draw: Draw): Address => draw.pick([draw.record(), draw.timer(), draw.bell()]);

/** What a decision has seen of a record, to be made comparable once it is over. */
interface Sight {
  readonly row: Row | null;
  readonly exists: boolean;
  readonly value: unknown;
}

const see = (draft: Draft): Sight => ({
  row: draft.row === null ? null : { ...draft.row },
  exists: draft.exists,
  value: draft.value,
});

function show(on: World, { row, exists, value }: Sight): unknown {
  if (row === null) return { exists, value, row };
  // Its number is not known before it is stored.
  const { id, ...rest } = on.shape(row);
  return { exists, value, row: rest };
}

interface EntryDraft {
  readonly name: string;
  readonly data: unknown;
}

const drawLines = (draw: Draw): EntryDraft[] =>
  Array.from({ length: draw.pick([1, 1, 2, 3, 20]) }, () => ({ name: draw.text(), data: draw.value() }));

/** What a decision does to one of its records. */
interface Step {
  readonly at: Address;
  readonly does: "look" | "write" | "change" | "append" | "remove" | "throw";
  readonly value: unknown;
  readonly columns: Columns;
  readonly lines: readonly EntryDraft[];
}

function drawStep(draw: Draw): Step {
  const does = draw.pick(["look", "write", "write", "change", "append", "append", "remove", "throw"] as const);
  const calm = does === "throw" && draw.chance(0.6) ? "look" : does;
  return { at: draw.record(), does: calm, value: draw.value(), columns: draw.columns(), lines: drawLines(draw) };
}

function takeStep(tx: Tx, { at, does, value, columns, lines }: Step): Sight {
  const record = tx.record(at);
  switch (does) {
    case "look":
      break;
    case "write":
      record.write({ value, ...columns });
      break;
    case "change":
      if (record.exists) record.write(columns);
      break;
    case "append":
      if (record.exists) for (const { name, data } of lines) record.append(name, data);
      break;
    case "remove":
      record.remove();
      break;
    case "throw":
      throw new Planned("half-way");
  }
  return see(record);
}

export const localRecordKinds = [
  localKind(
    "record.write",
    10,
    ofRecord,
    (draw) => ({ by: draw.writer(), value: draw.value(), columns: draw.columns() }),
    async (on, { by, at, value, columns }) =>
      show(
        on,
        await on.kernel(by).transact(
          (tx) => {
            tx.record(at).write({ value, ...columns });
            return see(tx.record(at));
          },
          [at],
        ),
      ),
  ),
  localKind(
    "record.change",
    5,
    ofRecord,
    (draw) => ({ by: draw.writer(), columns: draw.columns() }),
    (on, { by, at, columns }) => on.kernel(by).transact((tx) => tx.record(at).write(columns), [at]),
  ),
  localKind(
    "record.append",
    10,
    ofRecord,
    (draw) => ({ by: draw.writer(), lines: drawLines(draw) }),
    async (on, { by, at, lines }) => {
      const append = (tx: Tx) => lines.map(({ name, data }) => tx.record(at).append(name, data));
      const versions = await on.kernel(by).transact(append, [at]);
      const entries = await on.kernel(by).entries(at, (versions[0] ?? 1) - 1, 1000);
      return { versions, entries: entries.map((entry) => on.entry(entry)) };
    },
  ),
  localKind(
    "record.remove",
    4,
    ofRecord,
    (draw) => ({ by: draw.writer() }),
    async (on, { by, at }) =>
      show(
        on,
        await on.kernel(by).transact(
          (tx) => {
            tx.record(at).remove();
            return see(tx.record(at));
          },
          [at],
        ),
      ),
  ),
  localKind(
    "record.remove and make again at once",
    2,
    ofRecord,
    (draw) => ({ by: draw.writer(), value: draw.value(), columns: draw.columns(), lines: drawLines(draw) }),
    async (on, { by, at, value, columns, lines }) =>
      show(
        on,
        await on.kernel(by).transact(
          (tx) => {
            const record = tx.record(at);
            record.remove();
            record.write({ value, ...columns });
            for (const { name, data } of lines) record.append(name, data);
            return see(record);
          },
          [at],
        ),
      ),
  ),
  localKind(
    "record.look",
    3,
    ofRecord,
    (draw) => ({ by: draw.writer() }),
    // The record is not declared, so that the first run of the decision is void.
    async (on, { by, at }) => show(on, await on.kernel(by).transact((tx) => see(tx.record(at)), [])),
  ),
  localKind(
    "record.entries",
    3,
    ofRecord,
    (draw) => ({ by: draw.writer(), after: draw.from(0, 25), limit: draw.limit() }),
    async (on, { by, at, after, limit }) => {
      const entries = await on.kernel(by).entries(at, after, limit);
      if (entries.length === limit) on.saw("entries: a full page");
      return entries.map((entry) => on.entry(entry));
    },
  ),
];

export const recordKinds: readonly Kind[] = [
  ...localRecordKinds,
  kind(
    "record.several at once",
    10,
    (draw) => {
      const steps = Array.from({ length: draw.from(2, 8) }, () => drawStep(draw));
      return { by: draw.writer(), steps, keys: distinct(steps.map(({ at }) => at).filter(() => draw.chance(0.5))) };
    },
    async (on, { by, steps, keys }) => {
      const sights = await on.kernel(by).transact((tx) => steps.map((step) => takeStep(tx, step)), keys);
      return sights.map((sight) => show(on, sight));
    },
  ),
  kind(
    "record.read",
    4,
    (draw) => ({ by: draw.writer(), keys: distinct(Array.from({ length: draw.from(1, 8) }, () => ofAny(draw))) }),
    async (on, { by, keys }) => (await on.kernel(by).read(keys)).map((row) => on.row(row)),
  ),
  kind(
    "record.list",
    4,
    (draw) => ({
      by: draw.writer(),
      query: { space: ofAny(draw).space, prefix: draw.prefix(), after: draw.after(), limit: draw.limit() },
    }),
    async (on, { by, query }) => {
      const rows = await on.kernel(by).list(query);
      if (rows.length === query.limit) on.saw("list: a full page");
      return rows.map((row) => on.row(row));
    },
  ),
  kind(
    "record.due, one kind",
    3,
    (draw) => ({ by: draw.writer(), kinds: [draw.pick(TIMER_KINDS)], limit: draw.limit() }),
    async (on, { by, kinds, limit }) => {
      const page = await on.kernel(by).due({ kinds, limit });
      if (page.keys.length === limit) on.saw("due: a full page");
      if (page.nextDueMs !== null) on.saw("due: something later");
      return { keys: page.keys, next: on.due(page.nextDueMs) };
    },
  ),
  kind(
    "record.due, some kinds",
    1,
    (draw) => ({
      by: draw.writer(),
      kinds: draw.some([...TIMER_KINDS, ...TIMER_KINDS, "no such kind"], draw.below(5)),
    }),
    async (on, { by, kinds }) => {
      const { keys, nextDueMs } = await on.kernel(by).due({ kinds, limit: 1000 });
      const rows = await on.kernel(by).read(keys.map((key) => ({ ...key, text: `${key.space}\n${key.key}` })));
      // Who comes first is promised within a kind.
      const byKind = [...new Set(kinds)].sort().map((one) => rows.filter((row) => row?.kind === one));
      return { keys: byKind.map((some) => some.map((row) => on.row(row))), next: on.due(nextDueMs) };
    },
  ),
];

export function distinct(keys: readonly Address[]): Address[] {
  return [...new Map(keys.map((at) => [at.text, at])).values()];
}
