/**
 * The package as users get it: built, packed, unpacked into an empty project, type-checked and imported there.
 *
 * Goal: what is published works without this repository, has types without holes, and nothing that is not meant for users.
 * Method: the real tarball (tarball.ts). The project's sources are in consumer/: what must compile, and, under
 * `@ts-expect-error`, what must not; strict, for ES2022, and with the declarations of the package checked too. publint and
 * "are the types wrong" look at the same tarball. Everything is packed once.
 */

import { cpSync, mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { parseAst } from "rolldown/parseAst";
import { afterAll, beforeAll, describe, expect, it, vi } from "vitest";
import { findDeadLinks, linksOf } from "./links.ts";
import type { Manifest, Outcome } from "./tarball.ts";
import { installInto, manifestOf, packRepository, root, run, runTool, runTsc } from "./tarball.ts";

/** A runtime dependency is a promise to every user: adding one here is meant to be a decision. */
const agreedDependencies: readonly string[] = [
  "@hono/node-server",
  "@hono/zod-openapi",
  "commander",
  "croner",
  "hono",
  "zod",
];

/** What users bring themselves, and only if they use it: nothing of it may be needed to import the package. */
const agreedPeers: readonly string[] = ["@opentelemetry/api", "pg"];

/** The entry points that are of use only with a peer, and which. All others are imported where there is none. */
const agreedNeeds: Record<string, readonly string[]> = { "./otel": ["@opentelemetry/api"] };

const documents = [
  "README.md",
  "ARCHITECTURE.md",
  "CHANGELOG.md",
  "CONTRIBUTING.md",
  "GUARANTEES.md",
  "LICENSE",
  "SECURITY.md",
  "package.json",
];

/** The packages of others that the examples use. */
const usedByExamples = [
  "@opentelemetry/api",
  "@opentelemetry/sdk-metrics",
  "@opentelemetry/sdk-trace",
  "@trpc/server",
  "@types/express",
  "@types/pg",
  "drizzle-orm",
  "express",
  "fastify",
  "knex",
  "kysely",
  "pg",
  "typeorm",
];

const folder = mkdtempSync(join(tmpdir(), "pawl-package-"));
const project = join(folder, "project");
// Compilers, on a machine that may be busy with something else.
vi.setConfig({ testTimeout: 600_000 });

let tarball = "";
let files = new Map<string, Buffer>();
let manifest: Manifest & Peers = { exports: {} };

beforeAll(() => {
  ({ tarball, files } = packRepository(folder));
  manifest = manifestOf(files);
  mkdirSync(project);
  installInto(project, files);
}, 600_000);

afterAll(() => rmSync(folder, { recursive: true, force: true }));

describe("the tarball", () => {
  it("holds the build, the documents, the examples and nothing else", () => {
    const strangers = [...files.keys()].filter(
      (path) => !documents.includes(path) && !/^(?:dist\/|docs\/|examples\/[\w-]+\.ts$)/.test(path),
    );
    expect(strangers).toEqual([]);
    expect([...files.keys()]).toEqual(expect.arrayContaining(["dist/index.js", "dist/index.d.ts", ...documents]));
  });

  it("has no dead link", () => {
    const texts = new Map([...files].map(([path, content]) => [path, content.toString("utf8")]));
    expect(linksOf(texts.get("README.md") ?? "").length).toBeGreaterThan(10);
    expect(findDeadLinks(texts)).toEqual([]);
  });

  it("has what its manifest should say", () => {
    const { version, description = "", keywords = [] } = manifest;
    expect(version).toBe(JSON.parse(readFileSync(join(root, "package-lock.json"), "utf8")).version);
    expect(files.get("CHANGELOG.md")?.toString("utf8")).toMatch(new RegExp(`^## ${version}\\b`, "m"));
    const subjects = /workflow|lock|idempoten|one-time action|state machine|sqlite|postgresql/gi;
    for (const text of [description, keywords.join(" ")])
      expect(new Set(text.toLowerCase().match(subjects)).size, text).toBe(7);
  });

  it("has nothing to criticize for publint", () => {
    const { code, output } = runTool("publint", "publint", ["run", tarball, "--strict"], folder);
    expect({ code, output }).toEqual({ code: 0, output: expect.stringContaining("All good!") });
  });

  // The package is ESM only: a project without "exports" (node10) or a require that is not Node's own does not find it.
  it('has nothing to criticize for "are the types wrong"', () => {
    const args = [tarball, "--profile", "esm-only", "--no-definitely-typed", "--no-color", "--no-emoji"];
    const { code, output } = runTool("@arethetypeswrong/cli", "attw", args, folder);
    expect(code, output).toBe(0);
    for (const [entry] of entries()) expect(output).toContain(`"pawl${entry.slice(1)}"`);
  });

  it("holds compiled files only, and no tests", () => {
    const built = [...files.keys()].filter((path) => path.startsWith("dist/"));
    expect(built.filter((path) => !/\.(?:js|d\.ts)$/.test(path) || /\.test\./.test(path))).toEqual([]);
  });

  it("runs nothing when it is installed", () => {
    const scripts = Object.keys(manifest.scripts ?? {});
    expect(scripts.filter((name) => /^(?:pre|post)?(?:install|prepare)$/.test(name))).toEqual([]);
  });

  it("is built again before it is packed", () => {
    expect(manifest.scripts?.["prepack"]).toBe(manifest.scripts?.["build"]);
  });

  it("depends on what was agreed", () => {
    expect(Object.keys(manifest.dependencies ?? {})).toEqual(agreedDependencies);
  });

  it("leaves it to the user to install peers", () => {
    const { peerDependencies = {}, peerDependenciesMeta = {} } = manifest;
    expect(Object.keys(peerDependencies)).toEqual(agreedPeers);
    expect(agreedPeers.filter((name) => peerDependenciesMeta[name]?.optional !== true)).toEqual([]);
  });
});

describe("the types", () => {
  it("accept what is right and refuse what is wrong, in a strict project for ES2022", () => {
    expect(runTsc(["-p", "."], project)).toEqual({ code: 0, output: "" });
  });

  it("do so too where a bundler resolves the modules", () => {
    const home = projectWith("./otel");
    const imports = Object.keys(manifest.exports).map(
      (entry, i) => `export * as e${i} from "pawl${entry.slice(1)}";\n`,
    );
    writeFileSync(join(home, "entries.ts"), imports.join(""));
    const bundler = ["--module", "esnext", "--moduleResolution", "bundler"];
    expect(runTsc(["-p", ".", ...bundler], home)).toEqual({ code: 0, output: "" });
  });

  // The compiler is the one that "are the types wrong" brings.
  it("compile with TypeScript 5.6 too", () => {
    const home = projectWith("./otel");
    writeFileSync(
      join(home, "otel.ts"),
      `export * as otel from "pawl/otel";\nexport * as http from "pawl/middleware";\nexport * as client from "pawl/client";\nexport * as webhook from "pawl/webhook";\n`,
    );
    const older = join(root, "node_modules/@arethetypeswrong/core/node_modules/typescript/bin/tsc");
    expect(run(process.execPath, [older, "--version"], home).output).toMatch(/^Version 5\.6\./);
    expect(run(process.execPath, [older, "-p", "."], home)).toEqual({ code: 0, output: "" });
  });

  it("are really checked: a name that is not exported does not compile", () => {
    const planted = join(folder, "planted");
    mkdirSync(planted);
    installInto(planted, files);
    writeFileSync(join(planted, "planted.ts"), `import { noSuchName } from "pawl";\nnoSuchName();\n`);
    const { code, output } = runTsc(["-p", "."], planted);
    expect(code).not.toBe(0);
    expect(output).toMatch(/planted\.ts.*noSuchName/);
  });

  it("have no any", () => {
    const declarations = [...files].filter(([path]) => path.endsWith(".d.ts"));
    const holes = declarations.flatMap(([path, content]) =>
      findAny(content.toString("utf8")).map((at) => `${path}:${at}`),
    );
    expect(holes).toEqual([]);
  });

  it("an any would be found", () => {
    const declaration = `/** any */\nexport declare const any: "any";\nexport type A = { any?: string[] };\n`;
    expect(findAny(declaration)).toEqual([]);
    expect(findAny(`${declaration}export declare function f(x: any): Promise<any[]>;\n`)).toEqual([4, 4]);
  });
});

describe("the entry points", () => {
  it("have types and code in the tarball, and our own condition leads nowhere in it", () => {
    expect(Object.keys(manifest.exports)).toContain(".");
    for (const [entry, { types = "", default: code = "", "pawl-source": source = "", ...others }] of entries()) {
      expect([...files.keys()], entry).toEqual(expect.arrayContaining([types.slice(2), code.slice(2)]));
      expect([...files.keys()], entry).not.toContain(source.slice(2));
      expect(others, entry).toEqual({});
    }
  });

  it("can all be imported by Node", () => {
    for (const [entry] of entries()) {
      const home = entry in agreedNeeds ? projectWith(entry) : project;
      expect(importIn(home, entry), entry).toEqual({ code: 0, output: "" });
    }
  });

  it("load no packages but those that they are about", () => {
    const loaded = Object.fromEntries(
      entries().map(([entry]) => {
        const home = entry in agreedNeeds ? projectWith(entry) : project;
        return [entry, loadedBy(home, entry)];
      }),
    );
    expect(loaded).toEqual({
      ".": ["croner"],
      "./client": [],
      "./middleware": [],
      "./otel": ["@opentelemetry/api"],
      "./server": expect.arrayContaining(["@hono/node-server", "@hono/zod-openapi", "hono", "zod"]),
      "./testing": ["croner"],
      "./webhook": [],
    });
    expect(loaded["./server"]).not.toContain("commander");
  });

  it.each(Object.entries(agreedNeeds))("%s names what it needs where that is missing", (entry, [peer = ""]) => {
    const { code, output } = importIn(project, entry);
    expect(code).not.toBe(0);
    expect(output).toContain(`Cannot find package '${peer}'`);
  });

  it("./otel has types that fit those of OpenTelemetry and of the worker", () => {
    const home = projectWith("./otel");
    const source = `
      import { trace } from "@opentelemetry/api";
      import { open, workflow } from "pawl";
      import { type Telemetry, telemetry, traceIdOf } from "pawl/otel";
      await using pawl = await open("memory:");
      const on: Telemetry = telemetry({ tracerProvider: trace.getTracerProvider(), attributes: { region: "eu" } });
      pawl.work([workflow("order", async () => {})], { on });
      export const id: string = traceIdOf("order", "order-1");
      // @ts-expect-error
      telemetry({ tracerProvider: 1 });
    `;
    writeFileSync(join(home, "telemetry.ts"), source);
    expect(runTsc(["-p", "."], home)).toEqual({ code: 0, output: "" });
  });
});

describe("the program", () => {
  it("runs from an installed package, and its starter runs too", () => {
    const { bin } = manifest as { readonly bin?: Readonly<Record<string, string>> };
    expect(bin).toEqual({ pawl: "dist/cli/bin.js" });
    expect(files.get("dist/cli/bin.js")?.toString("utf8")).toMatch(/^#!\/usr\/bin\/env node\n/);
    const home = mkdtempSync(join(folder, "with-program-"));
    installInto(home, files);
    const pawl = (...args: readonly string[]) =>
      run(process.execPath, ["node_modules/pawl/dist/cli/bin.js", ...args], home);
    expect(pawl("--version")).toEqual({ code: 0, output: expect.stringContaining(String(manifest.version)) });
    expect(pawl("init", "shop").code).toBe(0);
    expect(pawl("runs")).toEqual({ code: 5, output: expect.stringContaining("(database_not_found)") });
    const started = run(process.execPath, ["--disable-warning=ExperimentalWarning", "shop/app.ts"], home);
    expect(started, started.output).toMatchObject({ code: 0, output: expect.stringContaining("shipping order-1") });
    expect(pawl("runs").output).toMatch(/order-1 +fulfil +completed/);
  });
});

describe("the examples", () => {
  const names = () => [...files.keys()].filter((path) => path.startsWith("examples/"));

  it("use the package as its users do, and no file of the repository", () => {
    expect(names().length).toBeGreaterThan(50);
    for (const path of names()) {
      const source = files.get(path)?.toString("utf8") ?? "";
      expect(source, path).toMatch(/from "pawl(?:\/\w+)?"/);
      expect(source, path).not.toMatch(/(?:from|import|import\() ?"\./);
    }
  });

  it("compile against the package and against the frameworks that they use", () => {
    const home = mkdtempSync(join(folder, "with-examples-"));
    installInto(home, files, usedByExamples);
    for (const path of names()) cpSync(join(home, "node_modules/pawl", path), join(home, path));
    // The frameworks' own declarations are not ours to check. Some examples use Promise.withResolvers, which ES2024 has.
    const { code, output } = runTsc(["-p", ".", "--skipLibCheck", "--lib", "es2024"], home);
    expect(code, output).toBe(0);
  });

  it("run on the package, compiled for ES2022", () => {
    const home = mkdtempSync(join(folder, "with-output-"));
    installInto(home, files);
    const source = files.get("examples/workflow-order.ts")?.toString("utf8") ?? "";
    writeFileSync(join(home, "example.ts"), source);
    expect(runTsc(["-p", ".", "--noEmit", "false"], home)).toEqual({ code: 0, output: "" });
    const { code, output } = run(process.execPath, ["--disable-warning=ExperimentalWarning", "example.js"], home);
    const said = source.split("// Output:\n")[1]?.replace(/^\/\/ ?/gm, "");
    expect({ code, output }).toEqual({ code: 0, output: said });
  });
});

describe("the lock file", () => {
  const text = readFileSync(join(root, "package-lock.json"), "utf8");

  it("names no registry", () => {
    expect(text).not.toMatch(/"resolved": "\w+:\/\//);
  });

  // npm leaves out what the registry does not have at that moment, and `npm ci` then refuses the file on every machine.
  it("has the optional packages of every platform", () => {
    expect(findUnlocked(JSON.parse(text))).toEqual([]);
  });

  it("a missing optional package would be found", () => {
    const packages = {
      "": {},
      "node_modules/a": { optionalDependencies: { b: "1", c: "1", d: "1" } },
      "node_modules/b": {},
      "node_modules/a/node_modules/c": {},
    };
    expect(findUnlocked({ packages })).toEqual(["node_modules/a needs d"]);
  });

  // A script that runs on one machine and is refused on another would make two kinds of installs.
  it("has no package whose install script may run", () => {
    const { allowScripts } = JSON.parse(readFileSync(join(root, "package.json"), "utf8"));
    expect(findScripts(JSON.parse(text), allowScripts)).toEqual([]);
  });

  it("an install script would be found, under the package's own name", () => {
    const packages = {
      "": { name: "pawl", hasInstallScript: true },
      "node_modules/a": {},
      "node_modules/b": { hasInstallScript: true },
      "node_modules/alias": { name: "@c/c", hasInstallScript: true },
      "node_modules/a/node_modules/@d/d": { hasInstallScript: true },
    };
    expect(findScripts({ packages }, { "@c/c": false, "@d/d": true })).toEqual(["pawl", "b", "@d/d"]);
  });
});

type Peers = {
  readonly version?: string;
  readonly description?: string;
  readonly keywords?: readonly string[];
  readonly peerDependencies?: Record<string, string>;
  readonly peerDependenciesMeta?: Record<string, { readonly optional?: boolean }>;
};

type Locked = {
  readonly name?: string;
  readonly hasInstallScript?: boolean;
  readonly optionalDependencies?: Record<string, string>;
};

type Lock = { readonly packages: Record<string, Locked> };

/** Optional dependencies that the lock file names but does not hold. */
function findUnlocked({ packages }: Lock): string[] {
  return Object.entries(packages).flatMap(([place, { optionalDependencies = {} }]) =>
    Object.keys(optionalDependencies)
      .filter((name) => !(`node_modules/${name}` in packages || `${place}/node_modules/${name}` in packages))
      .map((name) => `${place} needs ${name}`),
  );
}

/** Packages with an install script that package.json does not refuse to run. */
function findScripts({ packages }: Lock, allowScripts: Record<string, boolean>): string[] {
  return Object.entries(packages)
    .filter(([, { hasInstallScript = false }]) => hasInstallScript)
    .map(([place, { name }]) => name ?? place.replace(/^.*node_modules\//, ""))
    .filter((name) => allowScripts[name] !== false);
}

/** A project that has installed the package, and the peers that this entry point needs. */
function projectWith(entry: string): string {
  const home = mkdtempSync(join(folder, "with-peers-"));
  installInto(home, files, agreedNeeds[entry]);
  return home;
}

/** Imports an entry point in a project's folder, and finds something in it. */
function importIn(home: string, entry: string): Outcome {
  const specifier = `pawl${entry.slice(1)}`;
  const script = `const names = Object.keys(await import("${specifier}")); if (names.length === 0) process.exit(9);`;
  return run(process.execPath, ["--disable-warning=ExperimentalWarning", "--input-type=module", "-e", script], home);
}

/** The packages of others that an entry point loads. */
function loadedBy(home: string, entry: string): unknown {
  const script = `
    import { registerHooks } from "node:module";
    const loaded = new Set();
    registerHooks({
      resolve(specifier, context, next) {
        const found = next(specifier, context);
        const [, name] = /.*\\/node_modules\\/((?:@[^/]+\\/)?[^/]+)/.exec(found.url) ?? [];
        if (name !== undefined && name !== "pawl") loaded.add(name);
        return found;
      },
    });
    await import("pawl${entry.slice(1)}");
    console.log(JSON.stringify([...loaded].sort()));`;
  const { code, output } = run(
    process.execPath,
    ["--disable-warning=ExperimentalWarning", "--input-type=module", "-e", script],
    home,
  );
  expect(code, output).toBe(0);
  return JSON.parse(output);
}

function entries(): [string, Record<string, string>][] {
  return Object.entries(manifest.exports);
}

/** The lines of a declaration file on which the type `any` stands. */
function findAny(declaration: string): number[] {
  const lines: number[] = [];
  const visit = (value: unknown): void => {
    if (typeof value !== "object" || value === null) return;
    if ("type" in value && value.type === "TSAnyKeyword" && "start" in value && typeof value.start === "number") {
      lines.push(declaration.slice(0, value.start).split("\n").length);
    }
    Object.values(value).forEach(visit);
  };
  visit(parseAst(declaration, { lang: "dts" }));
  return lines;
}
