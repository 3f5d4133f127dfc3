/**
 * The package as users get it: built, packed, unpacked into an empty project, type-checked and imported there.
 *
 * Goal: what is published works without this repository, has types without holes, and nothing that is not meant for users.
 * Method: the real tarball (tarball.ts). The project's sources are in consumer/: what must compile, and, under
 * `@ts-expect-error`, what must not; strict, and with the declarations of the package checked too.
 */

import { cpSync, mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { parseAst } from "rolldown/parseAst";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import type { Manifest, Outcome } from "./tarball.ts";
import { installInto, manifestOf, packRepository, root, run, runTsc } from "./tarball.ts";

/** A runtime dependency is a promise to every user: adding one here is meant to be a decision. */
const agreedDependencies: readonly string[] = [];

/** What users bring themselves, and only if they use it: nothing of it may be needed to import the package. */
const agreedPeers: readonly string[] = ["@opentelemetry/api", "pg"];

/** The entry points that are of use only with a peer, and which. All others are imported where there is none. */
const agreedNeeds: Record<string, readonly string[]> = { "./otel": ["@opentelemetry/api"] };

const documents = ["README.md", "GUARANTEES.md", "CHANGELOG.md", "LICENSE", "package.json"];

const folder = mkdtempSync(join(tmpdir(), "pawl-package-"));
const project = join(folder, "project");
let files = new Map<string, Buffer>();
let manifest: Manifest & Peers = { exports: {} };

beforeAll(() => {
  files = packRepository(folder);
  manifest = manifestOf(files);
  mkdirSync(project);
  installInto(project, files);
}, 120_000);

afterAll(() => rmSync(folder, { recursive: true, force: true }));

describe("the tarball", () => {
  it("holds the build, the documents and nothing else", () => {
    const strangers = [...files.keys()].filter((path) => !documents.includes(path) && !path.startsWith("dist/"));
    expect(strangers).toEqual([]);
    expect([...files.keys()]).toEqual(expect.arrayContaining(["dist/index.js", "dist/index.d.ts", "LICENSE"]));
  });

  it("holds compiled files only, and no tests", () => {
    const built = [...files.keys()].filter((path) => path.startsWith("dist/"));
    expect(built.filter((path) => !/\.(?:js|d\.ts)$/.test(path) || /\.test\./.test(path))).toEqual([]);
  });

  it("runs nothing when it is installed", () => {
    const scripts = Object.keys(manifest.scripts ?? {});
    expect(scripts.filter((name) => /^(?:pre|post)?(?:install|prepare)$/.test(name))).toEqual([]);
  });

  it("is built anew before it is packed", () => {
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
  it("accept what is right and refuse what is wrong, in a strict project", () => {
    expect(runTsc(["-p", "."], project)).toEqual({ code: 0, output: "" });
  });

  it("are really looked at: a name that is not exported does not compile", () => {
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

  it("./middleware has types that fit those of the frameworks, as the examples use them", () => {
    const home = mkdtempSync(join(folder, "with-frameworks-"));
    installInto(home, files, ["@types/express", "express", "fastify", "hono", "@trpc/server"]);
    const examples = readdirSync(join(root, "examples")).filter((name) => name.startsWith("middleware-"));
    expect(examples.length).toBeGreaterThan(4);
    for (const name of examples) cpSync(join(root, "examples", name), join(home, name));
    // The frameworks' own declarations are not ours to check.
    expect(runTsc(["-p", ".", "--skipLibCheck"], home)).toEqual({ code: 0, output: "" });
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
