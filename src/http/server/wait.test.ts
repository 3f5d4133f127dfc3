/** Places for requests that wait: as many as may, shared by tenants and keys. */

import { expect, test } from "vitest";
import { Waiting } from "./wait.ts";

/** Requests by these readers ("tenant/key"), one after the other. Returns which were refused, and which ended for another, each by its number. */
function entered(readers: readonly string[], most = 4, mostPerKey = 100) {
  const waiting = new Waiting(most, mostPerKey);
  const [refused, displaced]: [number[], number[]] = [[], []];
  const leaves = readers.map((one, i) => {
    const [namespace = "", keyId = null] = one.split("/");
    const leave = waiting.enter({ namespace, keyId }, () => void displaced.push(i));
    if (leave === undefined) refused.push(i);
    return leave;
  });
  return { refused, displaced, waiting, leaves };
}

const rules = [
  { rule: "a tenant alone may have all places", readers: "a a a a a", refused: [4], displaced: [] },
  {
    rule: "one that has fewer gets the oldest of the one that has the most",
    readers: "a a a a b",
    refused: [],
    displaced: [0],
  },
  { rule: "until they have as many", readers: "a a a a b b b", refused: [6], displaced: [0, 1] },
  {
    rule: "one that was displaced does not displace in turn",
    readers: "a a a a b b a a",
    refused: [6, 7],
    displaced: [0, 1],
  },
  { rule: "one place more is not taken", readers: "a a b b c c", refused: [5], displaced: [0] },
  {
    rule: "keys of one tenant displace none of each other",
    readers: "a/1 a/1 a/1 a/1 a/2",
    refused: [4],
    displaced: [],
  },
  { rule: "a key has at most its share", readers: "a/1 a/1 a/1 a/2", mostPerKey: 2, refused: [2], displaced: [] },
  { rule: "and displaces none beyond it", readers: "b/2 b/2 a/1 a/1 a/1", mostPerKey: 2, refused: [4], displaced: [] },
] as const;

test.each(rules)("$rule", ({ readers, refused, displaced, ...more }) => {
  const mostPerKey = "mostPerKey" in more ? more.mostPerKey : undefined;
  expect(entered(readers.split(" "), 4, mostPerKey)).toMatchObject({ refused, displaced });
});

test("a place is freed once, whether or not it was needed for another tenant", () => {
  const { waiting, leaves } = entered(["a/1", "a/1", "a/1", "a/1", "b/2"]);
  expect(waiting.count).toBe(4);
  for (const leave of [...leaves, ...leaves]) leave?.();
  expect(waiting.count).toBe(0);
  for (let i = 0; i < 4; i++) expect(waiting.enter({ namespace: "a", keyId: "1" }, () => {})).toBeDefined();
});
