/**
 * Goal: a rate limit holds across processes: in any time, by the store's clock, no more than the burst and what is added, and hardly less.
 * Method: real processes on one database that take as fast as they can. Takes in decisions are logged by the same commit, so every window
 * between two of them can be checked exactly; for those that wait, the whole time is checked.
 */

import { join } from "node:path";
import { describe, expect, it } from "vitest";
import { address } from "../../src/kernel/contract.ts";
import { open } from "../../src/open.ts";
import { Child, spawnNode } from "../node/child.ts";
import { type Ground, grounds } from "../sql/grounds.ts";
import { type Figures, GRANTS } from "./kit.ts";

const PROCESSES = 2;
const FOR_MS = 1200;

/** All processes take for a while; answers how much, and for how long at most. */
async function takeTogether(
  ground: Ground,
  way: "decide" | "wait",
  figures: Figures,
): Promise<{ taken: number; elapsedMs: number }> {
  const file = join(import.meta.dirname, "children", "taker.ts");
  const args = [ground.where, way, JSON.stringify(figures), String(FOR_MS)];
  const children = Array.from({ length: PROCESSES }, () => new Child(spawnNode(file, args), "taker.ts"));
  for (const child of children) expect(await child.line()).toBe("ready");
  const startedMs = Date.now();
  for (const child of children) child.tell("go");
  let taken = 0;
  for (const child of children) {
    const mine = Number(await child.line());
    expect(mine).toBeGreaterThan(0);
    taken += mine;
    expect(await child.ended, child.complaints).toEqual({ code: 0, signal: null });
  }
  return { taken, elapsedMs: Date.now() - startedMs };
}

/** How many tokens are over the limit in the worst window between two takes; at most 0 where it was kept. */
function worst(grants: readonly { readonly atMs: number; readonly count: number }[], figures: Figures): number {
  let most = Number.NEGATIVE_INFINITY;
  for (const [i, from] of grants.entries()) {
    let tokens = 0;
    for (const { atMs, count } of grants.slice(i)) {
      tokens += count;
      most = Math.max(most, tokens - figures.burst - ((atMs - from.atMs) * figures.max) / figures.perMs);
    }
  }
  return most;
}

describe.each(grounds)("processes on %s", (_, make) => {
  it("that take in decisions keep the limit in every window", async () => {
    const ground = await make();
    try {
      const figures = { max: 300, perMs: 1000, burst: 7 };
      const { taken, elapsedMs } = await takeTogether(ground, "decide", figures);
      await using pawl = await open(ground.where);
      const at = address(GRANTS.space, GRANTS.key);
      const grants: { atMs: number; count: number }[] = [];
      for await (const { atMs, data } of pawl.kernel.entriesAfter(at, 0)) grants.push({ atMs, count: Number(data) });
      expect(grants.reduce((sum, { count }) => sum + count, 0)).toBe(taken);
      expect(worst(grants, figures)).toBeLessThanOrEqual(1e-9);
      console.log(`rates: ${taken} tokens in ${elapsedMs} ms, limit ${figures.max} a second and ${figures.burst}`);
    } finally {
      await ground.leave();
    }
  });

  it("that wait for their turns keep it together, and use it", async () => {
    const ground = await make();
    try {
      const figures = { max: 100, perMs: 1000, burst: 4 };
      const { taken, elapsedMs } = await takeTogether(ground, "wait", figures);
      expect(taken).toBeLessThanOrEqual(figures.burst + (figures.max * elapsedMs) / figures.perMs);
      expect(taken).toBeGreaterThan((figures.max * FOR_MS) / figures.perMs / 2);
    } finally {
      await ground.leave();
    }
  });
});

describe("the check of the windows", () => {
  const figures = { max: 1, perMs: 100, burst: 2 };
  it.each([
    { rule: "a burst is right", grants: [0, 0], over: 0 },
    { rule: "one more immediately is not", grants: [0, 0, 0], over: 1 },
    { rule: "one more after its time is right", grants: [0, 0, 100], over: 0 },
    { rule: "one more a little early is not", grants: [0, 0, 90], over: 0.1 },
    { rule: "what was too much in between is seen", grants: [0, 1000, 1000, 1000, 5000], over: 1 },
  ])("$rule", ({ grants, over }) => {
    const found = worst(
      grants.map((atMs) => ({ atMs, count: 1 })),
      figures,
    );
    expect(found).toBeCloseTo(over, 9);
  });
});
