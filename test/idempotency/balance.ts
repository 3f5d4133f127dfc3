/** What the tests of idempotency count on: a balance, and a payment that is declined. */

import { address } from "../../src/kernel/contract.ts";
import type { Tx } from "../../src/kernel/decision.ts";
import type { Member } from "./kit.ts";

export const BALANCE = address("test", "balance");

/** An effect: one more on the balance. */
export function deposit(tx: Tx, amount = 1): number {
  const record = tx.record(BALANCE);
  const balance = (record.exists ? (record.value as number) : 0) + amount;
  record.write({ value: balance });
  return balance;
}

export async function balanceOf({ kernel }: Member): Promise<number> {
  const [row] = await kernel.read([BALANCE]);
  return row?.value == null ? 0 : (kernel.decode(row, row.value) as number);
}

export class Declined extends Error {
  readonly code = "card_declined";
  readonly data = { reason: "empty" };
  readonly request = { authorization: "secret" };
  constructor() {
    super("the card was declined");
    this.name = "Declined";
  }
}
