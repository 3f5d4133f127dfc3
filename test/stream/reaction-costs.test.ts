/**
 * Goal: what a reaction asks of its store does not grow with the number of its targets.
 * Method: a store in memory that counts how often a batch asks for more rows, and reads.
 */

import { expect, test, vi } from "vitest";
import { reaction } from "../../src/index.ts";
import { nodePorts, wallMs } from "../../src/node/ports.ts";
import { pawlOn } from "../../src/pawl.ts";
import { MemoryDatabase } from "../../src/stores/memory/memory.ts";
import { PATIENCE } from "../workflow/kit.ts";
import { Deposited } from "./kit.ts";

const STREAMS = 300;

test("events for many targets are routed without asking for one target after another", async () => {
  const store = new MemoryDatabase(wallMs).connect("shop");
  const commit = store.commit.bind(store);
  let most = 0;
  store.commit = (batch) => {
    let asked = 0;
    return commit({
      ...batch,
      decide: (found) => {
        asked += 1;
        most = Math.max(most, asked);
        return batch.decide(found);
      },
    });
  };
  await using pawl = pawlOn(store, nodePorts, { namespace: "shop" });
  for (let index = 0; index < STREAMS; index++)
    await pawl.stream(`account-${index}`).append([Deposited({ amount: 1 })]);
  let handled = 0;
  pawl.work([
    reaction("mail", { on: [Deposited] }, async () => {
      handled += 1;
    }),
  ]);
  await expect.poll(() => handled, PATIENCE).toBe(STREAMS);
  expect(most).toBeGreaterThan(1);
  expect(most).toBeLessThan(10);
});

test("events that the worker routed itself are not read again", async () => {
  const store = new MemoryDatabase(wallMs).connect("shop");
  await using pawl = pawlOn(store, nodePorts, { namespace: "shop" });
  const worker = pawl.work([reaction("mail", { on: [Deposited] }, async () => {})]);
  const isHandled = async (count: number): Promise<void> => {
    await pawl.stream("account").append([Deposited({ amount: 1 })]);
    const shown = async () => {
      const { targets } = await pawl.reactions.targets("mail");
      return targets.map(({ status, handled }) => `${status} ${handled}`);
    };
    await expect.poll(shown, PATIENCE).toEqual([`idle ${count}`]);
  };
  // From then on the worker only waits for events.
  await isHandled(1);
  const entries = vi.spyOn(store, "entries");
  const commits = vi.spyOn(store, "commit");
  await isHandled(2);
  // The append; the routing, which claims the target; the progress, which releases it.
  expect(commits).toHaveBeenCalledTimes(3);
  expect(entries.mock.calls).toEqual([]);
  await worker.stop();
});
