/** The programs of PostgreSQL that npm brought, made ready to run: initdb, pg_ctl and postgres of each version. */

import { spawn, spawnSync } from "node:child_process";
import { once } from "node:events";
import * as fs from "node:fs";
import { createRequire } from "node:module";
import * as path from "node:path";
import { copyTree, home, makeOwnedFolder, readIfThere, sharedServerVariable } from "./home.ts";

export type PostgresVersion = 14 | 15 | 16 | 17 | 18;

const platform = `${process.platform === "win32" ? "windows" : process.platform}-${process.arch}`;

export type Programs = {
  readonly version: PostgresVersion;
  readonly environment: NodeJS.ProcessEnv;
  /** A data folder fresh from initdb, to be copied. */
  readonly template: string;
  path(name: "initdb" | "pg_ctl" | "postgres"): string;
};

const prepared = new Map<PostgresVersion, Promise<Programs>>();

export function preparePrograms(version: PostgresVersion): Promise<Programs> {
  const programs = prepared.get(version) ?? makePrograms(version);
  prepared.set(version, programs);
  return programs;
}

async function makePrograms(version: PostgresVersion): Promise<Programs> {
  const native = findNative(version);
  if (native === null) {
    throw new Error(
      `There is no PostgreSQL ${version} for ${platform} in node_modules. Run npm ci; if tools/postgres/package.json ` +
        "has none for this platform, name a server of your own for the tests that can share one: PAWL_TEST_POSTGRES=<url>.",
    );
  }
  const folder = path.join(home().folder, `version-${version}`);
  makeOwnedFolder(folder);
  let programs = linkPrograms(version, native, folder);
  if (!canRun(programs)) {
    // The owner of the home cannot reach node_modules, for example when it is in the home folder of root.
    const copy = path.join(folder, "copy");
    await copyTree(native, copy);
    programs = linkPrograms(version, copy, folder);
  }
  const made = await askForTemplate(version);
  if (made !== null) return { ...programs, template: made };
  const flags = [
    "--username=postgres",
    "--auth=trust",
    "--encoding=UTF8",
    "--locale=C",
    "--data-checksums",
    "--no-sync",
  ];
  const initdb = spawn(programs.path("initdb"), ["-D", programs.template, ...flags], {
    ...home().owner,
    cwd: folder,
    env: programs.environment,
    stdio: ["ignore", "pipe", "pipe"],
  });
  const said: string[] = [];
  for (const stream of [initdb.stdout, initdb.stderr]) {
    stream.setEncoding("utf8").on("data", (text: string) => said.push(text));
  }
  const [code] = await once(initdb, "close");
  if (code !== 0) throw new Error(`initdb of PostgreSQL ${version} failed:\n${said.join("")}`);
  return programs;
}

let asks = true;

/** Called by the process that others ask for templates. */
export function makeTemplates(): void {
  asks = false;
}

/** The template of the test run, which the keeper of the shared server (setup.ts) makes once for all processes; null where there is no keeper. */
async function askForTemplate(version: PostgresVersion): Promise<string | null> {
  const keeper = process.env[sharedServerVariable];
  if (!asks || keeper === undefined) return null;
  const answer = await fetch(`${keeper}/template/${version}`);
  const text = await answer.text();
  if (!answer.ok) throw new Error(text);
  return text;
}

/** The folder of the npm package with the programs of this version for this platform, if it is installed. */
export function findNative(version: PostgresVersion): string | null {
  try {
    const entry = createRequire(import.meta.url).resolve(`postgres-${version}-${platform}`);
    return path.join(path.dirname(path.dirname(entry)), "native");
  } catch {
    return null;
  }
}

/** Links the libraries under the names that the programs ask for, and has the programs look there. */
function linkPrograms(version: PostgresVersion, native: string, folder: string): Programs {
  const libraries = path.join(folder, "libraries");
  fs.rmSync(libraries, { recursive: true, force: true });
  makeOwnedFolder(libraries);
  for (const { source, target } of readLinks(native)) {
    const link = path.join(libraries, path.basename(target));
    fs.symlinkSync(path.join(native, "lib", path.basename(source)), link);
  }
  const environment = Object.fromEntries(
    Object.entries(process.env).filter(([name]) => !/^(?:PG|LC_|LANG)/.test(name)),
  );
  const variable = process.platform === "darwin" ? "DYLD_FALLBACK_LIBRARY_PATH" : "LD_LIBRARY_PATH";
  return {
    version,
    path: (name) => path.join(native, "bin", process.platform === "win32" ? `${name}.exe` : name),
    environment: { ...environment, LC_ALL: "C", [variable]: [libraries, path.join(native, "lib")].join(":") },
    template: path.join(folder, "template"),
  };
}

/** What the package's own install script would have linked. */
function readLinks(native: string): { source: string; target: string }[] {
  const list: unknown = JSON.parse(readIfThere(path.join(native, "pg-symlinks.json")) || "[]");
  const isLink = (link: unknown): link is { source: string; target: string } =>
    typeof link === "object" &&
    link !== null &&
    "source" in link &&
    "target" in link &&
    typeof link.source === "string" &&
    typeof link.target === "string";
  if (!Array.isArray(list) || !list.every(isLink)) throw new Error(`cannot read the list of links in ${native}`);
  return list.filter(({ target }) => path.posix.dirname(target) === "native/lib");
}

function canRun(programs: Programs): boolean {
  const { folder, owner } = home();
  const options = { ...owner, cwd: folder, env: programs.environment };
  return spawnSync(programs.path("postgres"), ["--version"], options).status === 0;
}
