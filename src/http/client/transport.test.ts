import { expect, test } from "vitest";
import { path } from "./transport.ts";

test.each([
  { rule: "a slash is a character of the id", parts: ["runs", "a/b"], is: "/runs/a%2Fb" },
  { rule: "so is what looks escaped", parts: ["runs", "%2F"], is: "/runs/%252F" },
  { rule: "dots among others are left", parts: ["runs", "..."], is: "/runs/..." },
])("$rule", ({ parts, is }) => expect(path(...parts)).toBe(is));

// Anything that reads a URL makes another path of these, also of "%2E%2E".
test.each([".", ".."])("an id %j is refused, because it would be the path of another route", (id) => {
  expect(() => path("runs", id, "events")).toThrow(/no URL can have it/);
});
