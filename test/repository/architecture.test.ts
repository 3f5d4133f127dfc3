/**
 * The architecture: which folder of src/ may import which, and where time and randomness may come from.
 *
 * Goal: the one-way street kernel ← capabilities ← workflow ← http ← console stays one-way, in types too, because code
 * in the wrong direction often starts with a type.
 * Method: parse the real files and check every import against one table. Ambient time and randomness are banned by lint rules;
 * here those rules are run on planted sources. Each rule below has a planted violation that must be caught.
 *
 * Out of scope: test files, which may import what they test.
 */

import { spawnSync } from "node:child_process";
import { copyFileSync, mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { isBuiltin } from "node:module";
import { tmpdir } from "node:os";
import { dirname, join, posix, resolve } from "node:path";
import { parseAst } from "rolldown/parseAst";
import { describe, expect, it } from "vitest";

const root = resolve(import.meta.dirname, "../..");

const capabilities = ["slot", "lock", "rate", "action", "idempotency", "machine", "stream"];
const stores = ["stores/memory", "stores/sqlite", "stores/postgres"];
const inside = ["kernel", ...capabilities, "workflow", "schedule", "task"];

/** What each folder may import besides itself. `top` is the files of src/ itself: `open.ts` and `index.ts`. */
const mayImport: Record<string, readonly string[]> = {
  kernel: [],
  ...Object.fromEntries(capabilities.map((capability) => [capability, ["kernel"]])),
  ...Object.fromEntries(stores.map((store) => [store, ["kernel"]])),
  node: ["kernel"],
  workflow: ["kernel", ...capabilities],
  schedule: ["kernel", "workflow"],
  task: ["kernel", ...capabilities, "workflow", "schedule"],
  http: inside,
  // The types of all that the handle has; a bundle of it shows that it has no code of theirs (test/client/bundle.test.ts).
  "http/client": [...inside, "http", "top"],
  console: ["http"],
  otel: ["kernel", "workflow", "node"],
  testing: [...inside, ...stores, "node", "top"],
  cli: [...inside, ...stores, "node", "top", "http", "http/client", "console", "testing"],
  top: [...inside, ...stores, "node", "http", "console", "testing"],
};

/** Modules that only these folders may use. */
const reserved: Record<string, readonly string[]> = {
  "node:sqlite": ["stores/sqlite", "testing"],
  // Whoever does not use telemetry does not need the package.
  "@opentelemetry/api": ["otel"],
  croner: ["schedule"],
  hono: ["http"],
  "@hono/node-server": ["http"],
  "@hono/zod-openapi": ["http"],
  zod: ["http"],
  commander: ["cli"],
};

/** Files that load what the user names on the command line. */
const loadsUserCode: readonly string[] = ["cli/user-code.ts"];

type Sources = ReadonlyMap<string, string>;
type Import = { specifier: string | null; typeOnly: boolean };

describe("imports", () => {
  const { dependencies = {}, peerDependencies = {} } = packageJson();
  const declared = [...Object.keys(dependencies), ...Object.keys(peerDependencies)];

  it("the files of src/ import in one direction and without cycles", () => {
    const sources = readSources(join(root, "src"));
    expect(sources.size).toBeGreaterThan(0);
    expect(findBreaches(sources, declared)).toEqual([]);
  });

  const base = {
    "kernel/a.ts": "export type A = 1; export const a = 1;",
    "slot/a.ts": "export type A = 1; export const a = 1;",
    "stores/sqlite/a.ts": "export const a = 1;",
    "http/a.ts": "export const a = 1;",
    "testing/a.ts": "export const a = 1;",
  };
  const breaches = [
    {
      rule: "the kernel imports no capability",
      says: "kernel may not import slot",
      "kernel/b.ts": `import { a } from "../slot/a.ts";`,
    },
    {
      rule: "a type import counts too",
      says: "kernel may not import slot",
      "kernel/b.ts": `import type { A } from "../slot/a.ts";`,
    },
    {
      rule: "an inline type import counts too",
      says: "kernel may not import slot",
      "kernel/b.ts": `export type B = import("../slot/a.ts").A;`,
    },
    {
      rule: "a re-export counts too",
      says: "kernel may not import slot",
      "kernel/b.ts": `export { a } from "../slot/a.ts";`,
    },
    {
      rule: "a re-export of everything counts too",
      says: "kernel may not import slot",
      "kernel/b.ts": `export * from "../slot/a.ts";`,
    },
    {
      rule: "an import at run time counts too",
      says: "kernel may not import slot",
      "kernel/b.ts": `export const b = () => import("../slot/a.ts");`,
    },
    {
      rule: "the kernel does not know real time",
      says: "kernel may not import node",
      "kernel/b.ts": `import "../node/b.ts";`,
      "node/b.ts": "",
    },
    {
      rule: "capabilities do not import each other",
      says: "lock may not import slot",
      "lock/b.ts": `import { a } from "../slot/a.ts";`,
    },
    {
      rule: "a capability knows no store",
      says: "slot may not import stores/sqlite",
      "slot/b.ts": `import { a } from "../stores/sqlite/a.ts";`,
    },
    {
      rule: "a store knows no capability",
      says: "stores/memory may not import slot",
      "stores/memory/b.ts": `import { a } from "../../slot/a.ts";`,
    },
    {
      rule: "a store knows no other store",
      says: "stores/memory may not import stores/sqlite",
      "stores/memory/b.ts": `import { a } from "../sqlite/a.ts";`,
    },
    {
      rule: "real time and chance know only the kernel",
      says: "node may not import slot",
      "node/b.ts": `import { a } from "../slot/a.ts";`,
    },
    {
      rule: "workflows do not know HTTP",
      says: "workflow may not import http",
      "workflow/b.ts": `import { a } from "../http/a.ts";`,
    },
    {
      rule: "HTTP does not know the console",
      says: "http may not import console",
      "http/b.ts": `import "../console/b.ts";`,
      "console/b.ts": "",
    },
    {
      rule: "the server does not know its client",
      says: "http may not import http/client",
      "http/b.ts": `import "./client/b.ts";`,
      "http/client/b.ts": "",
    },
    {
      rule: "the console speaks only to HTTP",
      says: "console may not import kernel",
      "console/b.ts": `import { a } from "../kernel/a.ts";`,
    },
    {
      rule: "testing does not know HTTP",
      says: "testing may not import http",
      "testing/b.ts": `import { a } from "../http/a.ts";`,
    },
    {
      rule: "shipped code does not know testing",
      says: "workflow may not import testing",
      "workflow/b.ts": `import { a } from "../testing/a.ts";`,
    },
    {
      rule: "a folder that is not in the table is refused",
      says: "misc has no place",
      "misc/b.ts": `import { a } from "../kernel/a.ts";`,
    },
    { rule: "an import stays inside src/", says: "no file of src/", "kernel/b.ts": `import "../../bench/main.ts";` },
    { rule: "an import names its file", says: "no file of src/", "kernel/b.ts": `import { a } from "./a";` },
    {
      rule: "an import whose target is computed is refused",
      says: "plain string",
      "kernel/b.ts": "export const b = (x) => import(x);",
    },
    {
      rule: "a package that is not declared is refused",
      says: "undeclared is not in",
      "http/b.ts": `import { Hono } from "undeclared";`,
    },
    {
      rule: "a part of an undeclared package is refused",
      says: "@some/undeclared is not in",
      "http/b.ts": `import "@some/undeclared/part";`,
    },
    {
      rule: "a development dependency is refused",
      says: "vitest is not in",
      "kernel/b.ts": `import { expect } from "vitest";`,
    },
    {
      rule: "a built-in module is named with node:",
      says: "write node:path",
      "kernel/b.ts": `import { join } from "path";`,
    },
    {
      rule: "only the SQLite store uses SQLite",
      says: "kernel may not use node:sqlite",
      "kernel/b.ts": `import { DatabaseSync } from "node:sqlite";`,
    },
    {
      rule: "only telemetry uses OpenTelemetry",
      says: "workflow may not use @opentelemetry/api",
      "workflow/b.ts": `import { trace } from "@opentelemetry/api";`,
    },
    {
      rule: "workflows do not know telemetry",
      says: "workflow may not import otel",
      "workflow/b.ts": `import "../otel/b.ts";`,
      "otel/b.ts": "",
    },
    {
      rule: "what users import first does not know telemetry",
      says: "top may not import otel",
      "index.ts": `export * from "./otel/b.ts";`,
      "otel/b.ts": "",
    },
    { rule: "a cycle of two", says: "a cycle", "kernel/b.ts": `import "./c.ts";`, "kernel/c.ts": `import "./b.ts";` },
    { rule: "a file that imports itself", says: "a cycle", "kernel/b.ts": `import "./b.ts";` },
    {
      rule: "a cycle of three",
      says: "a cycle",
      "kernel/b.ts": `import "./c.ts";`,
      "kernel/c.ts": `export * from "./d.ts";`,
      "kernel/d.ts": `import { b } from "./b.ts";`,
    },
  ];
  it.each(breaches)("a breach is caught: $rule", ({ rule: _, says, ...planted }) => {
    expect(findBreaches(sourcesOf({ ...base, ...planted }), ["hono"])).toEqual([expect.stringContaining(says)]);
  });

  const rights = [
    { rule: "a capability imports the kernel", "slot/b.ts": `import { a } from "../kernel/a.ts";` },
    { rule: "a folder imports itself", "kernel/b.ts": `import { a } from "./a.ts";` },
    { rule: "a workflow imports a capability", "workflow/b.ts": `import { a } from "../slot/a.ts";` },
    { rule: "HTTP imports a capability", "http/b.ts": `import { a } from "../slot/a.ts";` },
    { rule: "a declared package", "http/b.ts": `import { Hono } from "hono"; import { c } from "hono/cors";` },
    { rule: "a built-in module", "kernel/b.ts": `import { createHash } from "node:crypto";` },
    { rule: "SQLite in its store", "stores/sqlite/b.ts": `import { DatabaseSync } from "node:sqlite";` },
    { rule: "the top imports everything", "open.ts": `import "./http/a.ts"; import "./stores/sqlite/a.ts";` },
    {
      rule: "a cycle of types only",
      "kernel/b.ts": `import type { C } from "./c.ts"; export type B = C;`,
      "kernel/c.ts": `import { b } from "./b.ts"; export type C = 1;`,
    },
  ];
  it.each(rights)("what is right passes: $rule", ({ rule: _, ...planted }) => {
    expect(findBreaches(sourcesOf({ ...base, ...planted }), ["hono"])).toEqual([]);
  });
});

describe("ambient time and chance", () => {
  const uses = [
    ["Date.now", "export const x = Date.now();"],
    ["optional Date.now", "export const x = Date?.now();"],
    ["Date.now handed on", "export const x = Date.now;"],
    ["Date taken apart", "export const { now } = Date;"],
    ["new Date()", "export const x = new Date();"],
    ["Date()", "export const x = Date();"],
    ["Math.random", "export const x = Math.random();"],
    ["Math taken apart", "export const { random } = Math;"],
    ["performance.now", "export const x = performance.now();"],
    ["process.hrtime", "export const x = process.hrtime.bigint();"],
    ["setTimeout", "setTimeout(() => {}, 1);"],
    ["setInterval", "setInterval(() => {}, 1);"],
    ["setImmediate", "setImmediate(() => {});"],
    ["a global by its full name", "globalThis.setTimeout(() => {}, 1);"],
    ["crypto.randomUUID", "export const x = crypto.randomUUID();"],
    ["crypto.getRandomValues", "export const x = crypto.getRandomValues(new Uint8Array(1));"],
    ["randomUUID of node:crypto", `import { randomUUID } from "node:crypto"; export const x = randomUUID();`],
    ["randomBytes of node:crypto", `import { randomBytes } from "node:crypto"; export const x = randomBytes(1);`],
    ["randomInt of node:crypto", `import { randomInt } from "node:crypto"; export const x = randomInt(1);`],
    ["all of node:crypto", `import * as c from "node:crypto"; export const x = c.randomBytes(1);`],
    ["node:timers", `import { setTimeout as wait } from "node:timers/promises"; export const x = wait(1);`],
    ["node:perf_hooks", `import { performance as p } from "node:perf_hooks"; export const x = p.now();`],
    ["fetch", `export const x = fetch("http://localhost");`],
  ].map(([what = "", source = ""]) => ({ what, source }));
  const pure = [
    { what: "a date from a number", source: "export const x = new Date(0);" },
    { what: "Date.UTC and Date.parse", source: `export const x = Date.UTC(2000, 1) + Date.parse("2000-01-01");` },
    { what: "queueMicrotask", source: "queueMicrotask(() => {});" },
    { what: "hashes", source: `import { createHash } from "node:crypto"; export const x = createHash("sha256");` },
    { what: "an argument named fetch", source: "export const x = (fetch: () => void) => fetch();" },
  ];
  /** The folders that a use is planted in, and whether it is banned there. */
  const placesOf = (what: string) => ({
    src: true,
    "src/kernel": true,
    "src/slot": true,
    "src/stores/sqlite": true,
    "src/testing": what !== "setImmediate",
    "src/http/client": true,
    examples: true,
    "src/node": false,
    "src/http/platform": false,
    bench: false,
    demo: false,
    scripts: false,
    test: false,
  });
  const planted = [...uses, ...pure].flatMap(({ source }, index) =>
    Object.keys(placesOf("")).map((place): [string, string] => [`${place}/planted${index}.ts`, source]),
  );
  planted.push(["src/kernel/planted.test.ts", "export const x = Date.now();"]);
  const refused = lintPlanted(new Map(planted));
  const refusals = (index: number) =>
    Object.fromEntries(Object.keys(placesOf("")).map((place) => [place, refused.has(`${place}/planted${index}.ts`)]));

  it.each(uses.map((use, index) => ({ ...use, index })))("$what is for src/node/, tests and tools only", (use) => {
    expect(refusals(use.index)).toEqual(placesOf(use.what));
  });

  it.each(pure.map((use, index) => ({ ...use, index: uses.length + index })))("$what is free everywhere", (use) => {
    expect(Object.values(refusals(use.index))).not.toContain(true);
  });

  it("a test beside its code may use real time", () => {
    expect(refused.has("src/kernel/planted.test.ts")).toBe(false);
  });
});

/** Every way in which the given files break the rules, as sentences. Paths are relative to src/. */
function findBreaches(sources: Sources, declaredPackages: readonly string[]): string[] {
  const breaches: string[] = [];
  const runtimeEdges = new Map<string, string[]>();
  for (const [file, source] of sources) {
    const targets: string[] = [];
    runtimeEdges.set(file, targets);
    for (const { specifier, typeOnly } of importsOf(file, source)) {
      const verdict = judge(file, specifier, sources, declaredPackages);
      if (verdict !== null) breaches.push(`${file}: ${verdict}`);
      else if (specifier?.startsWith(".") && !typeOnly) targets.push(targetOf(file, specifier));
    }
  }
  return [...breaches, ...findCycles(runtimeEdges)];
}

/** Why `file` may not import `specifier`, or null when it may. */
function judge(file: string, specifier: string | null, sources: Sources, declared: readonly string[]): string | null {
  const from = layerOf(file);
  const allowed = mayImport[from];
  if (allowed === undefined) return `the folder ${from} has no place in the table of layers`;
  if (specifier === null) return loadsUserCode.includes(file) ? null : "the target of an import must be a plain string";
  if (specifier.startsWith(".")) {
    const target = targetOf(file, specifier);
    if (!sources.has(target)) return `${specifier} is no file of src/`;
    const to = layerOf(target);
    return to === from || allowed.includes(to) ? null : `${from} may not import ${to} (${specifier})`;
  }
  if (isBuiltin(specifier)) {
    if (!specifier.startsWith("node:")) return `write node:${specifier}`;
    return reserved[specifier]?.includes(from) === false ? `${from} may not use ${specifier}` : null;
  }
  const packageName = specifier.split("/", specifier.startsWith("@") ? 2 : 1).join("/");
  if (reserved[packageName]?.includes(from) === false) return `${from} may not use ${packageName}`;
  return declared.includes(packageName) ? null : `${packageName} is not in dependencies or peerDependencies`;
}

function layerOf(file: string): string {
  const [first = "", second = "", third] = file.split("/");
  if (second === "") return "top";
  const isPart = first === "stores" || (first === "http" && second === "client");
  return isPart && third !== undefined ? `${first}/${second}` : first;
}

function targetOf(file: string, specifier: string): string {
  return posix.join(posix.dirname(file), specifier);
}

/** All imports of a file, those at run time and those in types included. */
function importsOf(file: string, source: string): Import[] {
  const imports: Import[] = [];
  const visit = (value: unknown): void => {
    if (Array.isArray(value)) value.forEach(visit);
    if (!isNode(value)) return;
    switch (value["type"]) {
      case "ImportDeclaration":
        imports.push({ specifier: literal(value["source"]), typeOnly: value["importKind"] === "type" });
        break;
      case "ExportAllDeclaration":
      case "ExportNamedDeclaration":
        if (isNode(value["source"])) {
          imports.push({ specifier: literal(value["source"]), typeOnly: value["exportKind"] === "type" });
        }
        break;
      case "ImportExpression":
        imports.push({ specifier: literal(value["source"]), typeOnly: false });
        break;
      case "TSImportType":
        imports.push({ specifier: literal(value["source"]), typeOnly: true });
        break;
    }
    for (const child of Object.values(value)) visit(child);
  };
  visit(parseAst(source, { lang: file.endsWith(".tsx") ? "tsx" : "ts" }, file));
  return imports;
}

function isNode(value: unknown): value is Record<string, unknown> {
  return typeof value === "object" && value !== null && "type" in value;
}

function literal(node: unknown): string | null {
  return isNode(node) && typeof node["value"] === "string" ? node["value"] : null;
}

/** Walks depth first; an edge back to a file that is still open closes a cycle, which is told once. */
function findCycles(edges: ReadonlyMap<string, readonly string[]>): string[] {
  const cycles: string[] = [];
  const done = new Set<string>();
  const open: string[] = [];
  const visit = (file: string): void => {
    if (open.includes(file)) {
      cycles.push(`a cycle: ${[...open.slice(open.indexOf(file)), file].join(" → ")}`);
      return;
    }
    if (done.has(file)) return;
    done.add(file);
    open.push(file);
    edges.get(file)?.forEach(visit);
    open.pop();
  };
  for (const file of edges.keys()) visit(file);
  return cycles;
}

function readSources(folder: string): Sources {
  const names = readdirSync(folder, { recursive: true, encoding: "utf8" }).map((name) => name.replaceAll("\\", "/"));
  const files = names.filter((name) => /\.tsx?$/.test(name) && !/\.test\.tsx?$/.test(name));
  return new Map(files.map((file) => [file, readFileSync(join(folder, file), "utf8")]));
}

function sourcesOf(planted: Record<string, string | undefined>): Sources {
  return new Map(Object.entries(planted).map(([file, source]) => [file, source ?? ""]));
}

function packageJson(): { dependencies?: object; peerDependencies?: object } {
  return JSON.parse(readFileSync(join(root, "package.json"), "utf8"));
}

/** Lints the planted files by the rules of this repository, in a folder of their own; returns the files refused. */
function lintPlanted(planted: Sources): Set<string> {
  const folder = mkdtempSync(join(tmpdir(), "pawl-lint-"));
  try {
    for (const file of ["biome.json", "tools/lint/ambient.grit"]) {
      mkdirSync(dirname(join(folder, file)), { recursive: true });
      copyFileSync(join(root, file), join(folder, file));
    }
    for (const [file, source] of planted) {
      mkdirSync(dirname(join(folder, file)), { recursive: true });
      writeFileSync(join(folder, file), source);
    }
    const biome = join(root, "node_modules/@biomejs/biome/bin/biome");
    const args = [biome, "lint", "--vcs-enabled=false", "--reporter=github", "--max-diagnostics=none", "."];
    const { stdout, stderr } = spawnSync(process.execPath, args, { cwd: folder, encoding: "utf8" });
    if (!stdout.includes("::error")) throw new Error(`biome found nothing, or did not run: ${stderr}`);
    const refusals = stdout.matchAll(/title=(?:plugin|lint\/style\/noRestricted\w+),file=([^,]+),/g);
    return new Set([...refusals].map(([, file = ""]) => resolve(file).slice(resolve(folder).length + 1)));
  } finally {
    rmSync(folder, { recursive: true, force: true });
  }
}
