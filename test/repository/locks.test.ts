// Goal: `npm ci` works with the lock files of the repository, on every platform and with every registry.
// Method: what a package depends on, packages of other platforms included, is looked up in the lock file as npm does; no entry names a registry.

import { globSync, readFileSync } from "node:fs";
import { join, resolve } from "node:path";
import { describe, expect, test } from "vitest";

const root = resolve(import.meta.dirname, "../..");

type Dependencies = Readonly<Record<string, string>>;
interface Entry {
  readonly version?: string;
  readonly resolved?: string;
  readonly link?: boolean;
  readonly dependencies?: Dependencies;
  readonly devDependencies?: Dependencies;
  readonly optionalDependencies?: Dependencies;
}
type Lock = Readonly<Record<string, Entry>>;

/** A dependency is found beside the package, or beside one of those that it lies in. */
function isThere(lock: Lock, from: string, name: string): boolean {
  for (let at = from; ; at = at.slice(0, Math.max(0, at.lastIndexOf("node_modules/") - 1))) {
    if (lock[`${at === "" ? "" : `${at}/`}node_modules/${name}`] !== undefined) return true;
    if (!at.includes("node_modules/")) return lock[`node_modules/${name}`] !== undefined;
  }
}

const missingIn = (lock: Lock): readonly string[] =>
  Object.entries(lock).flatMap(([at, { dependencies, devDependencies, optionalDependencies }]) =>
    Object.keys({ ...dependencies, ...devDependencies, ...optionalDependencies })
      .filter((name) => !isThere(lock, at, name))
      .map((name) => `${name}, of ${at}`),
  );

const locks = globSync("{package-lock.json,bench/*/package-lock.json}", { cwd: root });

test("there are lock files", () => {
  expect(locks).toEqual(expect.arrayContaining(["package-lock.json", "bench/peers/package-lock.json"]));
});

describe.each(locks)("%s", (path) => {
  const { packages } = JSON.parse(readFileSync(join(root, path), "utf8")) as { packages: Lock };

  test("has all that is depended on, also on other platforms", () => {
    expect(missingIn(packages)).toEqual([]);
  });

  test("names no registry", () => {
    const from = Object.values(packages).filter(({ link, resolved }) => link !== true && resolved !== undefined);
    expect(from).toEqual([]);
  });
});

test("what is missing is noticed", () => {
  const optionalDependencies = { "for-darwin": "1.0.0", "for-linux": "1.0.0" };
  const lock = {
    "": { dependencies: { a: "1" } },
    "node_modules/a": { optionalDependencies },
    "node_modules/for-linux": {},
  };
  expect(missingIn(lock)).toEqual(["for-darwin, of node_modules/a"]);
  expect(missingIn({ ...lock, "node_modules/a/node_modules/for-darwin": {} })).toEqual([]);
});
