// Goal: the batcher's cost grows with the number of callers, not with its square, and no list of them is passed as arguments.

import { expect, test } from "vitest";
import { a, add } from "../../test/kernel/batches.ts";
import { bench } from "../../test/kernel/kit.ts";

test("two hundred thousand callers at once are all answered", async () => {
  const { kernel } = bench({ patienceMs: 3_600_000 });
  const calls = Array.from({ length: 200_000 }, () => kernel.transact(add(a), [a]));
  expect((await Promise.all(calls)).at(-1)).toBe(200_000);
});
