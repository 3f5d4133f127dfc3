// Goal: what the documents say is there is there.
// Method: every TypeScript block is part of an example that the tests run; every path, every heading that is linked and every named
// test exists; every npm script that is mentioned can be run; every figure in the README's tables of speed is one that was saved.

import { existsSync, globSync, readFileSync } from "node:fs";
import { dirname, join, resolve } from "node:path";
import { describe, expect, test } from "vitest";

const root = resolve(import.meta.dirname, "../..");
const read = (path: string) => readFileSync(join(root, path), "utf8");
const documents = [
  "README.md",
  "ARCHITECTURE.md",
  "GUARANTEES.md",
  "CHANGELOG.md",
  "CONTRIBUTING.md",
  "SECURITY.md",
  ...globSync("docs/**/*.md", { cwd: root }),
];
const examples = globSync("examples/*.ts", { cwd: root }).map(read);

/** Lines without their indentation, so that a block may be shown further left than it stands. */
const lines = (text: string) => text.split("\n").map((line) => line.trim());

/** How GitHub names the headings of a page. */
const anchorsOf = (text: string): readonly string[] =>
  [...text.matchAll(/^#+ (.+)$/gm)].map(([, heading = ""]) =>
    heading
      .toLowerCase()
      .replace(/[^\p{L}\p{N}_ -]/gu, "")
      .replaceAll(" ", "-"),
  );

const FIGURE = /\d[\d,]*(?:\.\d+)?/g;
type Report = { results: readonly Record<"ours" | "base", { median: number }>[] };

const isShown = (block: string, source: string) => lines(source).join("\n").includes(lines(block.trim()).join("\n"));

describe.each(documents)("%s", (document) => {
  const text = read(document);

  test("shows only code that an example runs", () => {
    for (const [, block = ""] of text.matchAll(/```ts\n([\s\S]*?)```/g))
      expect(
        examples.some((example) => isShown(block, example)),
        block,
      ).toBe(true);
  });

  test("leads to files that are there", () => {
    for (const [, target = ""] of text.matchAll(/\]\(([^)#]+)\)/g))
      expect(existsSync(join(root, dirname(document), target)), target).toBe(true);
    for (const [, path = ""] of text.matchAll(/`((?:src|test|docs|examples|bench|scripts|demo)\/[\w./-]*)`/g))
      expect(existsSync(join(root, path)), path).toBe(true);
  });

  test("leads to headings that are there", () => {
    for (const [, target = "", anchor = ""] of text.matchAll(/\]\(([^)#]*)#([^)]+)\)/g)) {
      const path = target === "" ? document : join(dirname(document), target);
      expect(anchorsOf(read(path)), `${path}#${anchor}`).toContain(anchor);
    }
  });

  test("names only npm scripts that exist", () => {
    const { scripts } = JSON.parse(read("package.json")) as { scripts: Record<string, string> };
    for (const [, script = ""] of text.matchAll(/npm (?:run )?(start|test|(?<=run )\w+(?::\w+)*)/g))
      expect(Object.keys(scripts), script).toContain(script);
  });
});

test("each promise names a test that is in the file it names", () => {
  const rows = read("GUARANTEES.md").matchAll(/^\| (G\d+) \|.*$/gm);
  const promises = [...rows].map(([row, number]) => ({ row, number }));
  expect(promises.length).toBeGreaterThan(9);
  for (const { row, number } of promises) {
    const named = [...row.matchAll(/`([\w./-]+\.ts)` "([^"]+)"/g)];
    expect(named.length, number).toBeGreaterThan(0);
    for (const [, path = "", name = ""] of named) expect(read(path), `${number}: ${path}`).toContain(name);
  }
});

test("the figures of the README are those of the saved benchmarks", () => {
  const { sqlite, postgres } = JSON.parse(read("docs/bench/results.json")) as Record<string, Report>;
  const medians = [sqlite, postgres].flatMap((store) => store?.results ?? []).flatMap(({ ours, base }) => [ours, base]);
  const saved = new Set([
    ...medians.flatMap(({ median }) => [Math.round(median).toLocaleString("en-US"), median.toFixed(2)]),
    ...(read("bench/peers/results.md").match(FIGURE) ?? []),
  ]);
  const section = /^## How fast it is\n([\s\S]*?)^## /m.exec(read("README.md"))?.[1] ?? "";
  const figures = [...section.matchAll(/^\|.*$/gm)]
    .flatMap(([row]) => row.split("|").slice(2))
    .flatMap((cell) => (/^ [\d,.]+(?: ms)? $/.test(cell) ? (cell.match(FIGURE) ?? []) : []));
  expect(figures.length).toBeGreaterThan(10);
  for (const figure of figures) expect(saved, figure).toContain(figure);
});

test("a block that no example has would be noticed", () => {
  expect(isShown("const a = 1;\nconst b = 3;", "const a = 1;\n  const b = 2;")).toBe(false);
  expect(isShown("const a = 1;\n  const b = 2;", "  const a = 1;\nconst b = 2;")).toBe(true);
});

test("a heading that is not there would be noticed", () => {
  expect(anchorsOf("# A page\n\n## Replay, and how to change code\n")).toEqual([
    "a-page",
    "replay-and-how-to-change-code",
  ]);
});
