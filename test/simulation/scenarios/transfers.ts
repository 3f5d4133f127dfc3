// Goal: money moves once. Every transfer that was acknowledged is there, none is there twice, and none is there by half,
// although requests are lost, replies are lost, processes die, and two callers send the same transfer concurrently (G1, G2).
// Method: two processes work through the same list of transfers, each under an id of its own. A transfer finds its accounts by
// reading another slot, so its keys are not known before. Refusals write first and throw then: nothing of it may stay.

import { type Slot, StoreError } from "../../../src/index.ts";
import { checkCommits } from "../../../src/testing/checkers/commits.ts";
import type { Process, World } from "../../../src/testing/index.ts";

const ACCOUNTS = ["ann", "bob", "cy"];
const START = 100;

class Refused extends Error {}

interface Transfer {
  readonly id: string;
  readonly from: string;
  readonly to: string;
  readonly amount: number;
  /** Whether the decision changes its mind after writing. */
  readonly refuses: boolean;
}

export const transfers = {
  name: "money moves once",
  async scenario(world: World): Promise<void> {
    const list: Transfer[] = Array.from({ length: 5 }, (_, i) => {
      const from = world.random.below(3);
      return {
        id: `t${i}`,
        from: ACCOUNTS[from] ?? "",
        to: ACCOUNTS[(from + 1 + world.random.below(2)) % 3] ?? "",
        amount: 1 + world.random.below(9),
        refuses: world.random.chance(0.2),
      };
    });
    const acknowledged = new Set<string>();
    for (const name of ["north", "south"])
      world.process(name, async (process) => {
        for (const transfer of list) await until(() => move(process, transfer, acknowledged), process);
      });
    // The two halves of a commit, seen together from outside at any moment.
    world.process("auditor", async (process) => {
      const slots = accounts(process);
      for (let i = 0; i < 5; i++) {
        await process.sleep(process.random() * 2_000);
        await until(async () => {
          const total = await process.pawl.transact((tx) => slots.reduce((sum, s) => sum + tx.slot(s).get().value, 0), {
            touches: slots,
          });
          world.check(total === START * ACCOUNTS.length, `the accounts add up to ${total}`);
        }, process);
      }
    });
    await world.finish();
    checkCommits(world);
    const pawl = world.open();
    for (const name of ACCOUNTS) {
      const done = list.filter((transfer) => !transfer.refuses);
      const sum = (side: "from" | "to") =>
        done.filter((t) => t[side] === name).reduce((total, t) => total + t.amount, 0);
      const { value } = await pawl.slot<number>(name, { initial: START }).get();
      world.check(
        value === START - sum("from") + sum("to"),
        `${name} has ${value}, not ${START - sum("from") + sum("to")}`,
      );
    }
    for (const { id, refuses } of list) {
      const { value } = await pawl.slot<boolean>(`done/${id}`, { initial: false }).get();
      world.check(value === !refuses, `the mark of ${id} says ${value}`);
      world.check(!acknowledged.has(id) || value, `${id} was acknowledged and is not there`);
    }
  },
};

const accounts = (process: Process): Slot<number, never>[] =>
  ACCOUNTS.map((name) => process.pawl.slot<number>(name, { initial: START }));

async function move(process: Process, transfer: Transfer, acknowledged: Set<string>): Promise<void> {
  const { pawl } = process;
  const mark = pawl.slot<boolean>(`done/${transfer.id}`, { initial: false });
  const receipt = pawl.slot<string>(`receipt/${transfer.id}`);
  // Which account a name stands for is itself in a slot, as a decision may find its keys on the way.
  const alias = pawl.slot<string>(`alias/${transfer.from}`, { initial: transfer.from });
  try {
    await pawl.transact(
      (tx) => {
        if (tx.slot(mark).get().value) return;
        tx.slot(mark).set(true);
        tx.slot(receipt).set(tx.uuid());
        const from = tx.slot(pawl.slot<number>(tx.slot(alias).get().value, { initial: START }));
        const to = tx.slot(pawl.slot<number>(transfer.to, { initial: START }));
        from.update((balance) => balance - transfer.amount);
        if (transfer.refuses) throw new Refused();
        to.update((balance) => balance + transfer.amount);
      },
      { touches: [mark] },
    );
    acknowledged.add(transfer.id);
  } catch (error) {
    if (!(error instanceof Refused)) throw error;
  }
}

/** Tries again as long as the store is the reason; the same id makes that safe. */
export async function until(act: () => Promise<void>, process: Process): Promise<void> {
  for (;;) {
    try {
      return await act();
    } catch (error) {
      if (!(error instanceof StoreError)) throw error;
      await process.sleep(200);
    }
  }
}
