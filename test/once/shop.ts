/**
 * The shop of these tests: an order is placed by one decision that consumes a coupon, moves the order's machine, starts a run and stores
 * the answer under an idempotency key, as examples/composed.ts does it.
 *
 * `place` is what is under test. `looksOf` says, for rows that were read in one snapshot, which of the four parts of each order are there:
 * all or none of them; otherwise a reader has seen a part.
 */

import { actionAt, refOf } from "../../src/action/stored.ts";
import { keyAt } from "../../src/idempotency/stored.ts";
import { machine, type OpenOptions, open, type Pawl, type Tx, workflow } from "../../src/index.ts";
import { type Address, address, type Key } from "../../src/kernel/contract.ts";
import { instanceSpace } from "../../src/machine/stored.ts";
import { runAt } from "../../src/workflow/stored.ts";

export const order = machine("order", {
  initial: "pending",
  transitions: { pending: ["placed", "canceled"], placed: ["shipped"], shipped: [], canceled: [] },
});

/** However often a slow machine lets its lease end. */
const TRIES = 1_000;

export const fulfil = workflow({ name: "fulfil", tries: TRIES }, async (ctx, { id }: { id: string }) => {
  const parcel = await ctx.step("pack", () => `parcel of ${id}`);
  return ctx.step("ship", () => `${parcel} shipped`);
});

export interface Request {
  readonly id: string;
  readonly coupon: string;
}

/** The result that the caller gets, the first time and every time after. */
export interface Receipt {
  readonly id: string;
  readonly run: string;
  readonly number: string;
}

export const runOf = (id: string): string => `fulfil-${id}`;
export const keyOf = (id: string): string => `place-${id}`;
const SCOPE = "shop";

/** The four parts, but for the answer. */
export function place(tx: Tx, { id, coupon }: Request): Receipt {
  tx.actions.consume(coupon, { by: id });
  tx.machine(order).transition(id, "placed", { actor: "shop" });
  const run = tx.start(fulfil, { id }, { id: runOf(id) });
  return { id, run, number: tx.uuid() };
}

/** In one decision, the answer included. */
export async function placeAtOnce(pawl: Pawl, request: Request): Promise<Receipt> {
  const { value } = await pawl.transact((tx) =>
    tx.idempotent(keyOf(request.id), { scope: SCOPE, fingerprint: request }, () => place(tx, request)),
  );
  return value;
}

/** With an attempt that holds the key first: what it commits is the same. */
export async function placeByAttempt(pawl: Pawl, request: Request, lease = 300): Promise<Receipt> {
  const options = { scope: SCOPE, fingerprint: request, lease };
  const { value } = await pawl.idempotent(keyOf(request.id), options, ({ commit }) =>
    commit((tx) => place(tx, request)),
  );
  return value;
}

/** A wrong implementation: each part is a separate commit. */
export async function placeApart(pawl: Pawl, request: Request): Promise<Receipt> {
  const { id, coupon } = request;
  const options = { scope: SCOPE, fingerprint: request, lease: 300 };
  const { value } = await pawl.idempotent(keyOf(id), options, async () => {
    await pawl.actions.consume(coupon, { by: id, consumerKey: id });
    await pawl.machine(order).transition(id, "placed", { eventId: id });
    await pawl.start(fulfil, { id }, { id: runOf(id) });
    return { id, run: runOf(id), number: "1" };
  });
  return value;
}

/** Where the four parts of an order are. */
export const partsOf = ({ id, coupon }: Request): readonly [Address, Address, Address, Address] => [
  actionAt(refOf(coupon)),
  address(instanceSpace(order.name), id),
  runAt(runOf(id)),
  keyAt(SCOPE, keyOf(id)),
];

/** What is known of a row in a snapshot. */
export interface Seen extends Key {
  readonly status: string | null;
  readonly head: number;
  readonly value: string | null;
}

export interface Look {
  readonly placed: readonly string[];
  /** Orders of which a part was seen, with what was there. */
  readonly parts: readonly string[];
}

/** Which of the orders are placed, and of which only a part is there. */
export function looksOf(requests: readonly Request[], rows: Iterable<Seen>): Look {
  const found = new Map<string, Seen>();
  for (const row of rows) if (row.value !== null) found.set(`${row.space}\n${row.key}`, row);
  const placed: string[] = [];
  const parts: string[] = [];
  for (const request of requests) {
    const [coupon, instance, run, answer] = partsOf(request).map(({ text }) => found.get(text));
    const isThere = {
      coupon: coupon?.status === "consumed" && usedBy(coupon) === request.id,
      "coupon's log": coupon?.head === 2 && usedBy(coupon) === request.id,
      order: instance?.status === "placed",
      "order's log": instance?.status !== "canceled" && instance?.head === 2,
      run: run !== undefined,
      "run's history": run !== undefined && run.head > 0,
      answer: answer?.status === "completed",
    };
    const there = Object.entries(isThere).flatMap(([part, is]) => (is ? [part] : []));
    if (there.length === Object.keys(isThere).length) placed.push(request.id);
    else if (there.length > 0) parts.push(`${request.id} has only ${there.join(", ")}`);
  }
  return { placed, parts };
}

function usedBy({ value }: Seen): unknown {
  const { last }: { last?: { by?: unknown } } = JSON.parse(value ?? "{}");
  return last?.by;
}

/** A handle of a process that is one of many: it makes do with a few connections. */
export async function openOne(where: string, options: Omit<OpenOptions, "store" | "pool"> = {}): Promise<Pawl> {
  if (!where.startsWith("postgres")) return open(where, options);
  const { default: pg } = await import("pg");
  // The process ends although the pool is not ended.
  const pool = new pg.Pool({ connectionString: where, max: 5, idleTimeoutMillis: 0, allowExitOnIdle: true });
  pool.on("error", () => {});
  return open({ pool, ...options });
}
