/**
 * The verdict: numbers from the evidence for the live picture, and checks for the end. Pure.
 *
 * Each check can fail: test/demo/demo.test.ts plants the mistake that it has to find.
 */

import type { Evidence, LogLine } from "./evidence.ts";

/** The evidence in numbers, right at any moment of the run. */
export interface Tally {
  readonly ordered: number;
  readonly placed: number;
  readonly charged: number;
  /** How many orders each web process has placed and each worker has charged, by its name, over all processes with that name. */
  readonly doneBy: ReadonlyMap<string, number>;
  readonly waiting: number;
  readonly inHand: number;
  readonly takenOver: number;
  readonly ignored: number;
  readonly refused: number;
  /** What was confirmed or acknowledged and is not in the database. */
  readonly lost: number;
  /** Charges beyond an order's first. */
  readonly twice: number;
  readonly balanceCents: number;
  /** The sum of the orders charged so far, by the provider's own list. */
  readonly expectedCents: number;
}

export function tallyOf(evidence: Evidence): Tally {
  const placed = byOrder(evidence.log, "placed");
  const started = byOrder(evidence.log, "started");
  const charges = byOrder(evidence.log, "charged");
  return {
    ordered: evidence.ordered.size,
    placed: placed.size,
    charged: charges.size,
    doneBy: doneBy(evidence.log),
    waiting: evidence.openCount - evidence.heldCount,
    inHand: evidence.heldCount,
    takenOver: linesIn(started) - started.size,
    ignored: evidence.againCount,
    refused: evidence.refused.length,
    lost: unplaced(evidence, placed).length + missing(evidence, charges).length,
    twice: linesIn(charges) - charges.size,
    balanceCents: evidence.balanceCents,
    expectedCents: sum([...charges.keys()].map((order) => evidence.ordered.get(order) ?? 0)),
  };
}

export interface Check {
  readonly law: string;
  readonly holds: boolean;
  readonly found: string;
}

/** Checks a run that has ended. */
export function judge(evidence: Evidence, integrity: string): readonly Check[] {
  const { ordered, log } = evidence;
  const placed = byOrder(log, "placed");
  const charges = byOrder(log, "charged");
  const uncharged = [...ordered.keys()].filter((order) => !charges.has(order));
  const repeated = [...charges].filter(([, lines]) => lines.length > 1).map(([order]) => order);
  const replaced = [...placed]
    .filter(([order, lines]) => lines.length > 1 || !ordered.has(order))
    .map(([order]) => order);
  const total = sum([...ordered.values()]);
  const wrongPrice = [...charges].filter(([order, lines]) => lines.some(({ cents }) => cents !== ordered.get(order)));
  const gone = missing(evidence, charges);
  const slipped = evidence.refused.filter(({ order, fence }) =>
    charges.get(order)?.some((line) => line.fence === fence),
  );
  const unruly = [...byOrder(log, "started")]
    .filter(([order, starts]) => !rises(starts, charges.get(order) ?? []))
    .map(([order]) => order);
  return [
    {
      law: "every order was charged",
      holds: ordered.size > 0 && uncharged.length === 0,
      found: `${count(ordered.size - uncharged.length)} of ${count(ordered.size)}${named(uncharged)}`,
    },
    {
      law: "no order was charged twice",
      holds: repeated.length === 0,
      found: `${count(linesIn(charges))} charges of ${count(charges.size)} orders${named(repeated)}`,
    },
    {
      law: "the balance is right to the cent",
      holds: evidence.balanceCents === total && wrongPrice.length === 0,
      found: `${money(evidence.balanceCents)} here, ${money(total)} ordered`,
    },
    {
      law: "no duplicate made a second order",
      holds: replaced.length === 0 && unplaced(evidence, placed).length === 0,
      found: `${count(evidence.deliveryCount)} deliveries, ${count(placed.size)} orders${named(replaced)}`,
    },
    {
      law: "no acknowledged charge is missing",
      holds: gone.length === 0,
      found: `${count(evidence.charged.length)} acknowledged, ${count(evidence.charged.length - gone.length)} of them here${named(gone)}`,
    },
    {
      law: "no refused commit slipped in",
      holds: slipped.length === 0,
      found: `${count(evidence.refused.length)} refused, ${count(slipped.length)} of them here${named(slipped.map(({ order }) => order))}`,
    },
    {
      law: "each take-over had a higher fence",
      holds: unruly.length === 0,
      found: `${count(tallyOf(evidence).takenOver)} take-overs${named(unruly)}`,
    },
    {
      law: "nothing is left half-done",
      holds: evidence.openCount === 0,
      found: `${count(evidence.openCount)} orders on the queue`,
    },
    { law: "the file is whole", holds: integrity === "ok", found: `integrity_check: ${integrity}` },
  ];
}

/** The log of the order that was attempted most often. */
export function hardestStory(log: readonly LogLine[]): readonly LogLine[] {
  const started = [...byOrder(log, "started")].sort(([, a], [, b]) => b.length - a.length);
  const hardest = started[0]?.[0];
  return log.filter(({ order }) => order === hardest);
}

/** The log names a process as "worker 3 (pid 12)"; its successors have the same name and another pid. */
function doneBy(log: readonly LogLine[]): ReadonlyMap<string, number> {
  const done = new Map<string, number>();
  for (const { name, by } of log) {
    if (by === null || !(name === "placed" || name === "charged")) continue;
    const who = by.replace(/ \(pid \d+\)$/, "");
    done.set(who, (done.get(who) ?? 0) + 1);
  }
  return done;
}

/** Orders that were confirmed to the provider and were never placed. */
function unplaced({ confirmed }: Evidence, placed: ReadonlyMap<string, unknown>): readonly string[] {
  return [...confirmed].filter((order) => !placed.has(order));
}

/** Charges that were acknowledged to a worker, and that are not in the database. */
function missing({ charged }: Evidence, charges: ReadonlyMap<string, readonly LogLine[]>): readonly string[] {
  return charged
    .filter(({ order, fence }) => !charges.get(order)?.some((line) => line.fence === fence))
    .map(({ order }) => order);
}

/** Whether fences strictly rise from attempt to attempt, and the charge is of the last. */
function rises(starts: readonly LogLine[], charges: readonly LogLine[]): boolean {
  const fences = starts.map(({ fence }) => fence ?? 0);
  const rising = fences.every((fence, index) => fence > (fences[index - 1] ?? 0));
  return rising && charges.every(({ fence }) => fence === fences.at(-1));
}

function byOrder(log: readonly LogLine[], name: string): ReadonlyMap<string, readonly LogLine[]> {
  return Map.groupBy(
    log.filter((line) => line.name === name),
    ({ order }) => order,
  );
}

const linesIn = (orders: ReadonlyMap<string, readonly LogLine[]>): number =>
  sum([...orders.values()].map((lines) => lines.length));

const sum = (numbers: readonly number[]): number => numbers.reduce((total, each) => total + each, 0);

const named = (orders: readonly string[]): string =>
  orders.length === 0 ? "" : `: see ${orders.slice(0, 5).join(", ")}${orders.length > 5 ? " …" : ""}`;

export const count = (amount: number): string => amount.toLocaleString("en-US");

export const money = (cents: number): string =>
  (cents / 100).toLocaleString("en-US", { style: "currency", currency: "USD" });
