// Goal: a change of a line that a planted bug or a guard names fails in `npm test`, and not only in the long suite.
// Method: the text that each of them replaces must be in its file exactly once.

import { readFileSync } from "node:fs";
import { join, resolve } from "node:path";
import { expect, test } from "vitest";
import { guards } from "../postgres/guards.ts";
import { bugs } from "../simulation/bugs.ts";
import { guards as streamGuards } from "../stream/guards.ts";

const src = resolve(import.meta.dirname, "../../src");
const edits = [...guards, ...streamGuards, ...bugs].flatMap(({ name, edits }) =>
  edits.map((edit) => ({ name, ...edit })),
);

test("every planted bug and every guard has its place in the source, once", () => {
  expect(edits.length).toBeGreaterThan(200);
  const counts = edits.map(({ name, file, from }) => ({
    name,
    file,
    count: readFileSync(join(src, file), "utf8").split(from).length - 1,
  }));
  expect(counts.filter(({ count }) => count !== 1)).toEqual([]);
});
