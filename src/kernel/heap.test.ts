/**
 * Goal: a heap gives its items back in order. Method: random items, put in and taken out in turns, beside a sorted list.
 */

import { expect, test } from "vitest";
import { Random } from "../testing/sim/random.ts";
import { Heap } from "./heap.ts";

test("the least comes out first", () => {
  const random = new Random(3);
  for (let round = 0; round < 200; round++) {
    const heap = new Heap<number>((one, other) => one < other);
    let items: number[] = [];
    for (let turn = 0; turn < 100; turn++) {
      if (random.below(3) > 0) {
        const item = random.below(50);
        heap.push(item);
        items = [...items, item].sort((one, other) => one - other);
      } else expect(heap.pop()).toBe(items.shift());
      expect(heap.first).toBe(items[0]);
    }
  }
});
