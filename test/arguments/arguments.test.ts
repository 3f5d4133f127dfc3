/**
 * Goal: every argument of every public function refuses what it cannot use, with a typed error, before anything is written.
 * Method: one table (`table.ts`). It is compared with the exported types as the compiler sees them, so that nothing is missing; then each
 * argument, and each field of each option, gets every bad value of its kind, while all others are good, and each options object gets an
 * option that does not exist. What comes back must be a refusal with a code, soon; everything that is stored is compared before and after.
 */

import { describe, expect, test } from "vitest";
import { attack } from "./attack.ts";
import { ENTRIES, type EntryPoint } from "./entries.ts";
import { surfaceOf } from "./surface.ts";
import type { Kind } from "./table.ts";

/** The table as texts, like those of the surface. */
function tabled({ owners, remote = {} }: EntryPoint): string[] {
  const paths: string[] = [];
  const fields = (path: string, kind: Kind): void => {
    paths.push(path);
    if (typeof kind === "object" && kind.isUnlisted !== true)
      for (const [name, field] of Object.entries(kind.fields)) fields(`${path}.${name}`, field);
  };
  for (const [owner, { rows }] of Object.entries({ ...owners, ...remote }))
    for (const [name, row] of Object.entries(rows))
      for (const { takes } of [row, ...(row.overloads ?? [])]) {
        const called = owner === "" ? name : `${owner}.${name}`;
        if (Object.keys(takes).length === 0) paths.push(`${called}()`);
        for (const [parameter, kind] of Object.entries(takes)) fields(`${called}(${parameter})`, kind);
      }
  return paths;
}

/** Executors and the like are handed in whole: their members are not the caller's to fill in. */
const isWhole = (path: string): boolean => /\((executor|sql)\)\./.test(path);

const ownerOf = (path: string): string => /^[^.(]*/.exec(path)?.[0] ?? "";
const calledOf = (path: string): string => path.slice(0, path.indexOf("("));

test("the table has every argument and every option of what is exported, and nothing else", () => {
  const surface = surfaceOf(ENTRIES.map(({ path }) => path));
  for (const entry of ENTRIES) compare(entry, surface.get(entry.path) ?? []);
  expect(surface.get("src/index.ts")?.length).toBeGreaterThan(850);
});

function compare(entry: EntryPoint, exported: readonly string[]): void {
  const { elsewhere, engine, besides } = entry;
  const expected = exported.filter(
    (path) => !Object.hasOwn(elsewhere, ownerOf(path)) && !engine.has(calledOf(path)) && !isWhole(path),
  );
  const table = tabled(entry);
  expect(expected.filter((path) => !table.includes(path))).toEqual(besides);
  expect(table.filter((path) => !expected.includes(path))).toEqual([]);
  // A reason that is needed no longer would hide what comes later.
  const owners = new Set(exported.map(ownerOf));
  expect(Object.keys(elsewhere).filter((name) => !owners.has(name))).toEqual([]);
}

const owners = ENTRIES.flatMap(({ path, module, owners }) =>
  Object.entries(owners).map(([name, owner]) => {
    const rows = Object.entries(owner.rows).filter(([, { takes }]) => Object.keys(takes).length > 0);
    return { name: name === "" ? path : name, module, owner, rows };
  }),
).filter(({ rows }) => rows.length > 0);

describe.each(owners)("arguments of $name", ({ module, owner, rows }) => {
  test.each(rows)("%s refuses every bad value, and writes nothing", async (name, row) => {
    const found = await attack(module, owner, name, row);
    if (found.length > 0) expect.fail(found.join("\n"));
  });
});
