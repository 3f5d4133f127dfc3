/**
 * A worker among whose runs some are poison: they end the process, or never end, each in its own way.
 */

import { open, type Workflow, workflow } from "../../../src/index.ts";

/** The ways, with the expected outcome of the run. */
export const POISONS = {
  throws: "failed",
  "gives what cannot be stored": "failed",
  "gives what cannot be stored in a step": "failed",
  "rejects and nobody hears": "parked",
  "never settles": "parked",
  "runs out of memory": "parked",
  exits: "parked",
  "exits in a step": "parked",
  blocks: "parked",
  "exits in its key": "parked",
  "rejects in its key": "failed",
} as const;

export type Poison = keyof typeof POISONS;

export const good: Workflow<number, number> = workflow("good", async (ctx, n: number) => {
  let sum = n;
  for (let i = 0; i < 5; i++) {
    sum += await ctx.step("add", () => 1);
    await ctx.sleep(20);
  }
  return sum;
});

export const poison: Workflow<Poison, unknown> = workflow({ name: "poison", tries: 3 }, async (ctx, kind: Poison) => {
  await ctx.step("before", () => kind);
  switch (kind) {
    case "throws":
      throw new Error("poison");
    case "gives what cannot be stored":
      return () => {};
    case "gives what cannot be stored in a step":
      return ctx.step("gives", () => Symbol("no text"));
    case "rejects and nobody hears":
      void Promise.reject(new Error("nobody hears this"));
      return new Promise(() => {});
    case "never settles":
      return new Promise(() => {});
    case "runs out of memory": {
      const kept: number[][] = [];
      for (;;) kept.push(Array.from({ length: 100_000 }, Math.random));
    }
    case "exits":
      return process.exit(1);
    case "exits in a step":
      return ctx.step("exits", () => process.exit(1));
    case "blocks":
      for (;;);
    default:
      return kind;
  }
});

/** Poison before its code begins: a worker computes the key of a run that was started by its name. */
export const keyed: Workflow<Poison, unknown> = workflow(
  { name: "keyed", tries: 3, concurrency: { max: 1, key: (kind: Poison) => poisonedKey(kind) as string } },
  async () => {},
);

/** Poisons of `keyed`. */
export const isInKey = (kind: Poison): boolean => kind.endsWith("in its key");

function poisonedKey(kind: Poison): unknown {
  return kind === "exits in its key" ? process.exit(1) : Promise.reject(new Error("nobody hears this"));
}

const [store, namespace] = process.argv.slice(2);
if (import.meta.main && store !== undefined && namespace !== undefined) {
  const pawl = await open(store, { namespace });
  pawl.work([good, poison, keyed], { lease: "1s", watchdog: "500ms" });
  process.stdin.once("end", () => void pawl.close()).resume();
}
