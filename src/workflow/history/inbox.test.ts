/**
 * Goal: who receives which signal is what a look at every message and every wait would say.
 * Method: random waits and messages beside the plain rule: the oldest message first, of its waits those of the latest turn first, and of one
 * turn the first that was asked for.
 */

import { expect, test } from "vitest";
import { Random } from "../../testing/sim/random.ts";
import { type InboxMessage, Mail, SignalWaits } from "./inbox.ts";

interface Wait {
  readonly order: number;
  readonly turn: number;
  readonly plan: { readonly kind: "signal"; readonly names: readonly string[] };
}

const NAMES = ["a", "b", "c"];

test("waits are found by name, the latest turn first", () => {
  const random = new Random(5);
  for (let round = 0; round < 100; round++) {
    const waits = new SignalWaits<Wait>();
    const plain: Wait[] = [];
    let turn = 0;
    for (let order = 0; order < 60; order++) {
      if (random.below(3) === 0) turn += 1;
      const names = NAMES.filter(() => random.below(2) === 0);
      const wait: Wait = { order, turn, plan: { kind: "signal", names: names.length === 0 ? ["a", "a"] : names } };
      waits.add(wait);
      plain.push(wait);
      while (plain.length > 0 && random.below(2) === 0) {
        const [gone] = plain.splice(random.below(plain.length), 1);
        if (gone !== undefined) waits.delete(gone);
      }
      for (const name of NAMES) {
        const expected = plain
          .filter(({ plan }) => plan.names.includes(name))
          .sort((one, other) => other.turn - one.turn || one.order - other.order);
        expect([...waits.of(name)]).toEqual(expected);
        expect(waits.countOf(name)).toBe(expected.length);
        expect([...waits.names()].includes(name)).toBe(expected.length > 0);
      }
    }
  }
});

test("messages of a name come out in the order they were sent, also those that were put back", () => {
  const random = new Random(6);
  const mail = new Mail();
  let plain: InboxMessage[] = [];
  const taken: InboxMessage[] = [];
  for (let version = 1; version <= 3000; version++) {
    const message = { version, word: "signal", name: NAMES[random.below(3)] ?? "a", data: null };
    mail.add(message);
    plain.push(message);
    for (const name of NAMES) {
      const expected = plain.filter((one) => one.name === name);
      expect(mail.peek(name, 3)).toEqual(expected.slice(0, 3));
      if (expected[0] === undefined || random.below(2) === 0) continue;
      mail.take(name);
      taken.push(expected[0]);
      plain = plain.filter((one) => one !== expected[0]);
    }
    const back = random.below(10) === 0 ? taken.pop() : undefined;
    if (back === undefined) continue;
    mail.add(back);
    plain = [...plain, back].sort((one, other) => one.version - other.version);
  }
});
