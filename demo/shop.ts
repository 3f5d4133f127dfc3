/**
 * The shop: how the processes of the demonstration change the database. Three decisions, each committed completely or not at all.
 *
 * An order is one record. It is placed once, however often it is delivered; then it is due, and workers claim it; charging
 * it adds its price to the balance, appends an entry to its log and removes it from the queue, in one commit.
 *
 * Charging does not check whether the order was charged before: only the claim protects the balance, so that a broken
 * claim would show in it.
 */

import type { Held } from "../src/kernel/claim/claim.ts";
import { type Address, address } from "../src/kernel/contract.ts";
import type { Pawl } from "../src/pawl.ts";
import type { Slot } from "../src/slot/slot.ts";

/** The queue that workers claim orders from. */
export const ORDER_KIND = "order";

/** How long a worker keeps its orders without renewing them. Short, so that the takeovers can be seen. */
export const LEASE_MS = 1_500;

export interface Order {
  readonly id: string;
  readonly cents: number;
}

const orderAt = (id: string): Address => address("order", id);

/** What the shop has earned, in cents. Every worker writes it. */
export const balanceOf = (pawl: Pawl): Slot<number, never> => pawl.slot<number>("balance", { initial: 0 });

/** Places the order. Returns whether it is new. */
export function placeOrder(pawl: Pawl, { id, cents }: Order, by: string): Promise<boolean> {
  const at = orderAt(id);
  return pawl.kernel.transact(
    (tx) => {
      const order = tx.record(at);
      if (order.exists) return false;
      order.write({ value: { cents }, kind: ORDER_KIND, status: "placed", dueMs: tx.nowMs });
      order.append("placed", { cents, by });
      return true;
    },
    [at],
  );
}

/** Records which worker begins to work on the order, so that its log has every attempt. */
export async function startOrder(held: Held, by: string): Promise<void> {
  await held.commit((order) => order.append("started", { by, fence: held.fence }));
}

/** The money, the log and the queue, in one commit. Throws `fenced` if another worker has taken the order over. */
export async function chargeOrder(held: Held, balance: Slot<number, never>, by: string): Promise<void> {
  const outcome = await held.rest(
    () => null,
    (order, tx) => {
      const cents = centsOf(order.value);
      balance.within(tx).update((sum) => sum + cents);
      order.append("charged", { cents, by, fence: held.fence });
      order.write({ kind: null, status: "charged" });
    },
  );
  if (outcome !== "rested") throw new Error("an order was woken up, which no code of this shop does");
}

function centsOf(value: unknown): number {
  if (typeof value === "object" && value !== null && "cents" in value && typeof value.cents === "number")
    return value.cents;
  throw new Error("an order without a price");
}
