/**
 * The examples: each file of this folder is run as a user would run it, and must print what it says it prints.
 *
 * Goal: no sample in the documentation is wrong, because the samples are these files.
 * Method: an example ends in a comment block, `// Output:` and then one comment line for each line printed. The file runs
 * in a process and an empty folder of its own, with `pawl` resolved to the sources, and its standard output is compared. An example that
 * reads `DATABASE_URL` gets an empty PostgreSQL database.
 *
 * The sources are bundled first, once for all examples: a process that reads some hundred files takes four times as long to start.
 */

import { spawn } from "node:child_process";
import { once } from "node:events";
import { mkdtempSync, readdirSync, readFileSync, rmSync, symlinkSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { text } from "node:stream/consumers";
import { pathToFileURL } from "node:url";
import { rolldown } from "rolldown";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { freshDatabase } from "../test/postgres/server.ts";

const root = dirname(import.meta.dirname);
const bundle = mkdtempSync(join(tmpdir(), "pawl-bundle-"));
const hook = join(bundle, "hook.mjs");
beforeAll(async () => {
  const { name, exports } = JSON.parse(readFileSync(join(root, "package.json"), "utf8")) as Manifest;
  const sources = Object.entries(exports).map(([path, entry]) => [
    `${name}${path.slice(1)}`,
    join(root, entry["pawl-source"]),
  ]);
  const input = Object.fromEntries(sources);
  const bundled = await rolldown({ input, platform: "node", external: /^[^./]/ });
  await bundled.write({
    dir: bundle,
    format: "esm",
    entryFileNames: "[name].mjs",
    chunkFileNames: "[name]-[hash].mjs",
  });
  await bundled.close();
  const urls = Object.keys(input).map((name) => [name, pathToFileURL(join(bundle, `${name}.mjs`)).href]);
  symlinkSync(join(root, "node_modules"), join(bundle, "node_modules"));
  writeFileSync(hook, hookTo(Object.fromEntries(urls)));
});
afterAll(() => rmSync(bundle, { recursive: true, force: true }));

interface Manifest {
  readonly name: string;
  readonly exports: Readonly<Record<string, { readonly "pawl-source": string }>>;
}

/** A module that makes these names mean these files, in the process that imports it first. */
function hookTo(urls: Readonly<Record<string, string>>): string {
  return `import { registerHooks } from "node:module";
const urls = ${JSON.stringify(urls)};
registerHooks({
  resolve: (name, context, next) =>
    Object.hasOwn(urls, name) ? { url: urls[name], shortCircuit: true } : next(name, context),
});
`;
}

const examples = readdirSync(import.meta.dirname).filter((name) => name.endsWith(".ts") && !name.endsWith(".test.ts"));

describe("examples", () => {
  it("there are some", () => {
    expect(examples).not.toEqual([]);
  });

  it.each(examples)("%s prints what it says", async (name) => {
    await checkExample(join(import.meta.dirname, name));
  });
});

describe("the check of the examples", () => {
  const rows = [
    {
      rule: "the right output passes",
      source: `console.log("a\\n\\nb");\n\n// Output:\n// a\n//\n// b\n`,
      fails: null,
    },
    { rule: "a wrong line fails", source: `console.log("a");\n\n// Output:\n// b\n`, fails: /a/ },
    { rule: "a missing line fails", source: `console.log("a");\n\n// Output:\n// a\n// b\n`, fails: /b/ },
    { rule: "a line too many fails", source: `console.log("a\\nb");\n\n// Output:\n// a\n`, fails: /b/ },
    { rule: "an exit code other than 0 fails", source: "process.exitCode = 3;\n\n// Output:\n", fails: /exit code 3/ },
    { rule: "an error fails", source: `throw new Error("oh no");\n\n// Output:\n`, fails: /oh no/ },
    { rule: "an example without output block fails", source: `console.log("a");\n`, fails: /no output block/ },
    {
      rule: "a block that is not at the end is none",
      source: `// Output:\n// a\nconsole.log("a");\n`,
      fails: /no output/,
    },
    {
      rule: "an example that reads DATABASE_URL gets a database",
      source: `console.log(process.env["DATABASE_URL"].split(":")[0]);\n\n// Output:\n// postgres\n`,
      fails: null,
    },
    {
      rule: "an example that does not gets none",
      source: "console.log(Object.keys(process.env).filter((name) => /^DATABASE/.test(name)));\n\n// Output:\n// []\n",
      fails: null,
    },
  ];
  it.each(rows)("$rule", async ({ source, fails }) => {
    const folder = mkdtempSync(join(tmpdir(), "pawl-planted-"));
    try {
      const file = join(folder, "planted.mts");
      writeFileSync(file, source);
      if (fails === null) await checkExample(file);
      else await expect(checkExample(file)).rejects.toThrow(fails);
    } finally {
      rmSync(folder, { recursive: true, force: true });
    }
  });
});

/** Only ends an example that hangs. */
const HANGS_AFTER_MS = 240_000;

async function checkExample(file: string): Promise<void> {
  const source = readFileSync(file, "utf8");
  const expected = outputBlockOf(source);
  if (expected === null) throw new Error(`${file} has no output block: end it with "// Output:" and what it prints`);
  const database = source.includes("DATABASE_URL") ? await freshDatabase() : undefined;
  const folder = mkdtempSync(join(tmpdir(), "pawl-example-"));
  try {
    const { DATABASE_URL: _, ...env } = process.env;
    const child = spawn(process.execPath, [`--import=${pathToFileURL(hook)}`, "--conditions=pawl-source", file], {
      cwd: folder,
      env: { ...env, ...(database === undefined ? {} : { DATABASE_URL: database.url }) },
      stdio: ["ignore", "pipe", "pipe"],
      timeout: HANGS_AFTER_MS,
    });
    const [stdout, stderr, [status, signal]] = await Promise.all([
      text(child.stdout),
      text(child.stderr),
      once(child, "close"),
    ]);
    if (status !== 0) throw new Error(`${file} ended with ${signal ?? `exit code ${status}`}:\n${stderr}`);
    expect(stdout.trimEnd().split("\n")).toEqual(expected);
  } finally {
    rmSync(folder, { recursive: true, force: true });
    await database?.drop();
  }
}

/** The lines that the example says it prints, or null when it does not say. */
function outputBlockOf(source: string): string[] | null {
  const block = /^\/\/ Output:\n((?:\/\/.*\n?)*)\s*(?![\s\S])/m.exec(source)?.[1];
  return block === undefined
    ? null
    : block
        .trimEnd()
        .split("\n")
        .map((line) => line.replace(/^\/\/ ?/, ""));
}
