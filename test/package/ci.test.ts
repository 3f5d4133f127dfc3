// Goal: the workflow of GitHub Actions runs what we run, on Node versions that package.json supports.
// Method: its text is read, as it cannot be run here; and the choice of a Node that it relies on is tried.

import { spawnSync } from "node:child_process";
import { existsSync, readFileSync } from "node:fs";
import { join, resolve } from "node:path";
import { describe, expect, test } from "vitest";

const root = resolve(import.meta.dirname, "../..");
const read = (path: string) => readFileSync(join(root, path), "utf8");
const workflow = read(".github/workflows/ci.yml");
const range: string = JSON.parse(read("package.json")).engines.node;

/** The values of a list of the matrix: `name: [a, "b"]`. */
const listOf = (name: string): string[] => {
  const [, list = ""] = new RegExp(`^ +${name}: \\[(.*)\\]$`, "m").exec(workflow) ?? [];
  return list.split(",").map((value) => value.trim().replaceAll('"', ""));
};

const numbersOf = (version: string) => version.split(".").map((part) => (part === "x" ? 1_000_000 : Number(part)));

/** Whether a version, or the newest one of a line ("24.x"), is in a range of `>=` and `<`. */
function isIn(version: string, wanted: string): boolean {
  return wanted.split("||").some((all) =>
    all
      .trim()
      .split(/\s+/)
      .every((comparator) => {
        const [, operator = "", bound = ""] = /^(>=|<)([\d.]+)$/.exec(comparator) ?? [];
        const bounds = numbersOf(bound);
        const difference = numbersOf(version)
          .map((part, i) => part - (bounds[i] ?? 0))
          .find((d) => d !== 0);
        if (operator === ">=") return (difference ?? 0) >= 0;
        return operator === "<" && (difference ?? 0) < 0;
      }),
  );
}

describe("the workflow", () => {
  test("runs .ci/run, on the Node of the matrix", () => {
    expect(existsSync(join(root, ".ci/run"))).toBe(true);
    expect(workflow).toMatch(/^ +- run: PAWL_NODE="\$\(command -v node\)" \.ci\/run$/m);
    expect(workflow).toMatch(/^ +node-version: \$\{\{ matrix\.node \}\}$/m);
    expect(workflow).toMatch(/^ +runs-on: \$\{\{ matrix\.os \}\}$/m);
    expect(workflow).not.toMatch(/\t|continue-on-error/);
  });

  test("runs on Linux and macOS", () => {
    expect(listOf("os")).toEqual(["ubuntu-latest", "macos-latest"]);
  });

  test("has supported versions of Node only, and the oldest of each line", () => {
    const versions = listOf("node");
    expect(versions.filter((version) => !isIn(version, range))).toEqual([]);
    const oldest = [...range.matchAll(/>=([\d.]+)/g)].map(([, bound = ""]) => [...numbersOf(bound), 0].slice(0, 3));
    expect(oldest.length).toBeGreaterThan(1);
    for (const bound of oldest) expect(versions).toContain(bound.join("."));
  });

  test("a version that is not supported would be found", () => {
    const versions = ["20.x", "22.22.2", "22.22.3", "22.x", "23.1.0", "24.14.9", "24.15.0", "24.x", "26.x"];
    expect(versions.filter((version) => !isIn(version, ">=22.22.3 <23 || >=24.15"))).toEqual([
      "20.x",
      "22.22.2",
      "23.1.0",
      "24.14.9",
    ]);
  });
});

describe("PAWL_NODE", () => {
  const check = (node: string) =>
    spawnSync(process.execPath, [join(root, "scripts/run.mjs"), "check", "--version"], {
      env: { ...process.env, PAWL_NODE: node },
      encoding: "utf8",
    });

  test("that is no Node is refused before anything is run", () => {
    const { status, stdout, stderr } = check(join(root, "package.json"));
    expect({ status, stdout }).toEqual({ status: 1, stdout: "" });
    expect(stderr).toContain("is no Node that runs");
  });
});
