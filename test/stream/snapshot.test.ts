/**
 * Goal: an event is what it was when it was made. Its schema has checked that, and its personal fields belong to the person of that moment; a caller that
 * uses its object again afterwards, as a loop does, changes nothing.
 */

import { expect, test } from "vitest";
import { event } from "../../src/index.ts";
import { openTest } from "../../src/testing/index.ts";
import { all } from "./kit.ts";

const Counted = event<unknown>("Counted");

test("a change after an event was made is not appended", async () => {
  await using pawl = openTest();
  const reused = { n: 0, list: [{ deep: 1 }], at: new Date(5), tags: new Set(["a"]) };
  const made = [];
  for (let n = 1; n <= 2; n++) {
    reused.n = n;
    made.push(Counted(reused));
  }
  const appending = pawl.stream("s").append(made);
  reused.n = -1;
  reused.list[0] = { deep: -1 };
  reused.at.setTime(9);
  reused.tags.add("b");
  await appending;
  const stored = { list: [{ deep: 1 }], at: new Date(5), tags: new Set(["a"]) };
  expect((await all(pawl.stream("s").read())).map(({ data }) => data)).toEqual([
    { n: 1, ...stored },
    { n: 2, ...stored },
  ]);
});

test("personal fields belong to the person whom the event was made for", async () => {
  const Signed = event("Signed", {
    personal: { subject: (who: { id: string; email: string }) => who.id, fields: ["email"] },
  });
  await using pawl = openTest({ actions: { keys: { current: "k", ring: { k: new Uint8Array(32).fill(1) } } } });
  const reused = { id: "", email: "" };
  const made = ["ann", "bob"].map((id) => Signed(Object.assign(reused, { id, email: `${id}@example.org` })));
  await pawl.stream("s").append(made);
  await pawl.forget("bob");
  const [first, second] = await all(pawl.stream("s").read({ events: [Signed] }));
  expect(first?.data).toEqual({ id: "ann", email: "ann@example.org" });
  expect(second?.data.id).toBe("bob");
  expect(second?.data.email).not.toBe("bob@example.org");
});

test("what cannot be stored is refused with the reason that it had", async () => {
  await using pawl = openTest();
  const circle: Record<string, unknown> = {};
  circle["self"] = circle;
  const sparse: number[] = [];
  sparse[3] = 1;
  for (const data of [circle, sparse, { [Symbol("a")]: 1 }, new (class Odd {})()])
    await expect((async () => pawl.stream("s").append([Counted(data)]))()).rejects.toMatchObject({
      code: "invalid_value",
    });
  const odd = JSON.parse('{"__proto__": {"a": 1}}') as object;
  await pawl.stream("s").append([Counted(odd)]);
  const [first] = await all(pawl.stream("s").read());
  expect(JSON.stringify(first?.data)).toBe(JSON.stringify(odd));
});
