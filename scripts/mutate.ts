/**
 * `npm run mutate`: removes every guard of every `decide.ts` in turn, and changes every comparison at its boundary, to see that a test
 * fails. Mutants that no test detects are listed at the end, and the command fails.
 *
 *   npm run mutate -- src/stream         those of one folder
 *
 * Each mutant is made in a copy of the tree; the `decide.test.ts` in the same folder runs against it.
 */

import { spawnSync } from "node:child_process";
import { cpSync, globSync, mkdtempSync, readFileSync, rmSync, symlinkSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join, resolve } from "node:path";
import { parseAst } from "rolldown/parseAst";

const root = resolve(import.meta.dirname, "..");

interface Mutant {
  readonly file: string;
  readonly what: string;
  readonly source: string;
}

interface Node {
  readonly type: string;
  readonly start: number;
  readonly end: number;
  readonly [field: string]: unknown;
}

const OPERATORS: Readonly<Record<string, readonly string[]>> = {
  "<": ["<=", ">="],
  "<=": ["<", ">"],
  ">": [">=", "<="],
  ">=": [">", "<"],
  "===": ["!=="],
  "!==": ["==="],
  "+": ["-"],
};

function mutantsOf(file: string): Mutant[] {
  const source = readFileSync(join(root, file), "utf8");
  const line = (at: number) => source.slice(0, at).split("\n").length;
  const change = (start: number, end: number, to: string, what: string): Mutant => ({
    file,
    what: `${file}:${line(start)} ${what}`,
    source: source.slice(0, start) + to + source.slice(end),
  });
  const mutants: Mutant[] = [];
  visit(parseAst(source, { lang: "ts" }) as unknown as Node, (node) => {
    if (node.type === "IfStatement") {
      const test = node["test"] as Node;
      mutants.push(change(node.start, node.end, "", `guard removed: if (${source.slice(test.start, test.end)})`));
      mutants.push(
        change(test.start, test.end, "true", `guard always taken: if (${source.slice(test.start, test.end)})`),
      );
    }
    if (node.type === "BinaryExpression") {
      const left = node["left"] as Node;
      const right = node["right"] as Node;
      const operator = String(node["operator"]);
      for (const other of OPERATORS[operator] ?? [])
        mutants.push(
          change(
            left.end,
            right.start,
            ` ${other} `,
            `${source.slice(node.start, node.end)}: ${operator} made ${other}`,
          ),
        );
    }
    if (node.type === "CallExpression" && /^Math\.(max|min)\(/.test(source.slice(node.start)))
      for (const argument of node["arguments"] as Node[])
        mutants.push(
          change(
            node.start,
            node.end,
            source.slice(argument.start, argument.end),
            `${source.slice(node.start, node.end)}: only one side`,
          ),
        );
    if (node.type === "ConditionalExpression")
      for (const side of ["consequent", "alternate"]) {
        const branch = node[side] as Node;
        mutants.push(
          change(
            node.start,
            node.end,
            source.slice(branch.start, branch.end),
            `${source.slice(node.start, node.end)}: only ${side}`,
          ),
        );
      }
  });
  return mutants;
}

function visit(node: Node, see: (node: Node) => void): void {
  see(node);
  for (const value of Object.values(node))
    for (const child of Array.isArray(value) ? value : [value])
      if (typeof child === "object" && child !== null && "type" in child) visit(child as Node, see);
}

const copy = mkdtempSync(join(tmpdir(), "pawl-mutate-"));
try {
  for (const part of ["src", "test", "package.json", "tsconfig.json", "vitest.config.ts"])
    cpSync(join(root, part), join(copy, part), { recursive: true });
  symlinkSync(join(root, "node_modules"), join(copy, "node_modules"));
  const [, , folder = ""] = process.argv;
  const files = globSync("src/**/decide.ts", { cwd: root })
    .filter((file) => file.startsWith(folder))
    .sort();
  if (files.length === 0) throw new Error(`there is no decide.ts to mutate in "${folder}"`);
  const test = (file: string) =>
    spawnSync(
      process.execPath,
      [join(root, "node_modules/vitest/vitest.mjs"), "run", join(dirname(file), "decide.test.ts"), "--bail=1"],
      {
        cwd: copy,
        stdio: "pipe",
        timeout: 120_000,
      },
    ).status;
  const survivors: string[] = [];
  let count = 0;
  for (const file of files) {
    if (test(file) !== 0) throw new Error(`the tests of ${file} fail without a mutation: fix them first`);
    const original = readFileSync(join(root, file), "utf8");
    for (const mutant of mutantsOf(file)) {
      count += 1;
      writeFileSync(join(copy, file), mutant.source);
      const isKilled = test(file) !== 0;
      if (!isKilled) survivors.push(mutant.what);
      console.log(`${isKilled ? "killed  " : "SURVIVED"} ${mutant.what}`);
    }
    writeFileSync(join(copy, file), original);
  }
  console.log(
    `\n${count} mutants in ${files.join(", ")}: ${count - survivors.length} killed, ${survivors.length} survived`,
  );
  for (const survivor of survivors) console.log(`  ${survivor}`);
  process.exitCode = survivors.length === 0 ? 0 : 1;
} finally {
  rmSync(copy, { recursive: true, force: true });
}
