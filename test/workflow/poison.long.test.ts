/**
 * Goal: a run that ends its process, or never ends, is parked after its tries, and all others continue (G21).
 * Method: two real processes work, and are started again whenever they end. Among a hundred good runs there is one of each way in which code can be
 * poison.
 */

import { join } from "node:path";
import { expect, test } from "vitest";
import { Child, type Ending, spawnNode } from "../node/child.ts";
import { good, isInKey, keyed, POISONS, type Poison, poison } from "./children/poisoned.ts";
import { onStores, SQL } from "./kit.ts";

const program = join(import.meta.dirname, "children", "poisoned.ts");
const LONG = { timeout: 150_000, interval: 100 } as const;
const GOOD = 100;

onStores(SQL, (place) => {
  test("one of each poison among a hundred good runs: all good ones complete, and each poison is parked or failed", {
    timeout: 180_000,
  }, async () => {
    const pawl = await place.open();
    const endings: Ending[] = [];
    const children = new Set<Child>();
    let isOver = false;
    const tend = async (): Promise<void> => {
      while (!isOver) {
        // A small heap is full sooner.
        const nodeArgs = ["--max-old-space-size=96", "--unhandled-rejections=throw"];
        const child = new Child(spawnNode(program, [place.where, place.namespace], { nodeArgs }), "a worker");
        children.add(child);
        const ending = await child.ended;
        children.delete(child);
        if (!isOver) endings.push(ending);
      }
    };
    const kinds = Object.keys(POISONS) as Poison[];
    const goods = await Promise.all(Array.from({ length: GOOD / 2 }, (_, n) => pawl.start(good, n)));
    const poisons = await Promise.all(
      kinds.map((kind) => pawl.start(isInKey(kind) ? keyed.name : poison.name, kind, { id: kind })),
    );
    for (let n = GOOD / 2; n < GOOD; n++) goods.push(await pawl.start(good, n));
    const tended = Promise.all([tend(), tend()]);
    try {
      const results = await Promise.all(goods.map((run) => run.result({ timeout: LONG.timeout })));
      expect(results).toEqual(goods.map((_, n) => n + 5));
      const cameTo = async () =>
        Object.fromEntries(await Promise.all(poisons.map(async (run) => [run.id, (await run.status()).status])));
      await expect.poll(cameTo, LONG).toEqual(POISONS);
      // Those that end a process did so, and no more often than their tries.
      expect(endings.length).toBeGreaterThanOrEqual(6);
      expect(endings.length).toBeLessThanOrEqual(6 * 3 + 2);
      const reasons = await Promise.all(poisons.map((run) => run.result().catch((error: Error) => error.message)));
      console.log(`${place.store}: ${endings.length} processes came down\n${reasons.join("\n")}`);
      for (const [n, kind] of kinds.entries())
        if (POISONS[kind] === "parked" && kind !== "never settles") expect(reasons[n]).toMatch(/claimed 4 times/);
    } finally {
      isOver = true;
      await Promise.all([...children].map((child) => child.kill()));
      await tended;
    }
  });
});
