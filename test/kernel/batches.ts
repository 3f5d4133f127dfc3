/** What the tests of batches share: decisions that count on one record, and stores that lose a request or a reply. */

import type { Batch, Receipt, Row } from "../../src/kernel/contract.ts";
import { type Address, address } from "../../src/kernel/contract.ts";
import type { Decision } from "../../src/kernel/decision.ts";
import type { Remedy } from "../../src/kernel/errors.ts";
import type { Kernel } from "../../src/kernel/kernel.ts";
import { drained, type Gate, storeError } from "./kit.ts";

export const a = address("n", "a");
export const b = address("n", "b");
export const c = address("n", "c");

/** Adds one, and answers the sum. */
export const add =
  (at: Address): Decision<number> =>
  (tx) => {
    const record = tx.record(at);
    const next = Number(record.value ?? 0) + 1;
    record.write({ value: next });
    return next;
  };

export async function rowOf(kernel: Kernel, at: Address): Promise<Row | null> {
  const [row = null] = await kernel.read([at]);
  return row;
}

export async function sumOf(kernel: Kernel, at: Address): Promise<number> {
  return Number((await rowOf(kernel, at))?.value ?? 0);
}

export const failing = (code: Parameters<typeof storeError>[0], remedy: Remedy) => async (): Promise<Receipt> => {
  throw storeError(code, remedy);
};

/** The batch is committed, and the reply is lost. */
export const lostReply = async (batch: Batch, pass: (batch: Batch) => Promise<Receipt>): Promise<Receipt> => {
  await pass(batch);
  throw storeError("outcome_unknown", "settle");
};

export const lostRequest = failing("outcome_unknown", "settle");

/** Lets the commit through when the gate opens. */
export const held = (until: Gate) => async (batch: Batch, pass: (batch: Batch) => Promise<Receipt>) => {
  await until.opened;
  return pass(batch);
};

/** Whether it has ended, without waiting for it. */
export async function hasEnded(promise: Promise<unknown>): Promise<boolean> {
  let ended = false;
  const note = () => {
    ended = true;
  };
  promise.then(note, note);
  await drained();
  return ended;
}

/** The holder of a record, which knows its row. */
export async function hold(kernel: Kernel, at: Address): Promise<Row> {
  await kernel.transact(add(at), [at]);
  const row = await rowOf(kernel, at);
  if (row === null) throw new Error("it was just written");
  kernel.hold(at, row);
  return row;
}
