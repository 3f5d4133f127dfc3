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

test("a target with one event is read once", async () => {
  const store = new MemoryDatabase(wallMs).connect("shop");
  await using pawl = pawlOn(store, nodePorts, { namespace: "shop" });
  await pawl.stream("account").append([Deposited({ amount: 1 })]);
  const entries = vi.spyOn(store, "entries");
  const worker = pawl.work([reaction("mail", { on: [Deposited] }, async () => {})]);
  await expect
    .poll(async () => {
      const { targets } = await pawl.reactions.targets("mail");
      return targets.map(({ status, handled }) => `${status} ${handled}`);
    }, PATIENCE)
    .toEqual(["idle 1"]);
  await worker.stop();
  // Its log, and the event in its stream.
  expect(entries.mock.calls.map(([{ space }]) => space)).toEqual(["reaction-target/mail", "stream"]);
});
