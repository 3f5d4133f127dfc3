/**
 * Makes the package as npm would publish it, and a project that has installed it, without the network.
 *
 * The repository is copied to a temporary folder and built and packed there, so that a `dist` or stray file of the
 * developer neither helps nor harms. The tarball is unpacked by hand into the node_modules of an empty project, which
 * gets the package's own dependencies from ours and nothing else but the types of Node: peers stay absent unless asked for.
 */

import { spawnSync } from "node:child_process";
import { cpSync, mkdirSync, readdirSync, readFileSync, symlinkSync, writeFileSync } from "node:fs";
import { basename, dirname, join, resolve } from "node:path";
import { gunzipSync } from "node:zlib";

export const root = resolve(import.meta.dirname, "../..");
const tsc = join(root, "node_modules/typescript/bin/tsc");

export type Manifest = {
  readonly exports: Record<string, Record<string, string>>;
  readonly scripts?: Record<string, string>;
  readonly dependencies?: Record<string, string>;
};

export type Outcome = { readonly code: number | null; readonly output: string };

export function run(command: string, args: readonly string[], cwd: string): Outcome {
  const shell = process.platform === "win32" && command === "npm";
  const { status, stdout, stderr, error } = spawnSync(command, args, { cwd, shell, encoding: "utf8" });
  return { code: status, output: `${stdout ?? ""}${stderr ?? ""}${error?.message ?? ""}` };
}

export function runTsc(args: readonly string[], cwd: string): Outcome {
  return run(process.execPath, [tsc, ...args], cwd);
}

/** Builds and packs a copy of the repository below `folder`; returns the tarball's path, and its files by their paths. */
export function packRepository(folder: string): { readonly tarball: string; readonly files: Map<string, Buffer> } {
  const copy = join(folder, "repository");
  const leftOut = new Set(["node_modules", ".git", "dist", "out"]);
  cpSync(root, copy, { recursive: true, filter: (path) => !leftOut.has(basename(path)) });
  symlinkSync(join(root, "node_modules"), join(copy, "node_modules"), "junction");
  succeed(runTsc(["-p", "tsconfig.build.json"], copy));
  succeed(run("npm", ["pack", "--ignore-scripts", "--pack-destination", folder], copy));
  const name = readdirSync(folder).find((entry) => entry.endsWith(".tgz"));
  if (name === undefined) throw new Error("npm pack made no tarball");
  const tarball = join(folder, name);
  return { tarball, files: readTar(gunzipSync(readFileSync(tarball))) };
}

/** A project in `folder` that has installed the package; its sources are those of test/package/consumer. */
export function installInto(folder: string, files: ReadonlyMap<string, Buffer>, peers: readonly string[] = []): void {
  const home = join(folder, "node_modules/pawl");
  for (const [path, content] of files) {
    mkdirSync(dirname(join(home, path)), { recursive: true });
    writeFileSync(join(home, path), content);
  }
  const { dependencies = {} } = manifestOf(files);
  for (const name of ["@types/node", ...Object.keys(dependencies), ...peers]) {
    mkdirSync(dirname(join(folder, "node_modules", name)), { recursive: true });
    symlinkSync(join(root, "node_modules", name), join(folder, "node_modules", name), "junction");
  }
  writeFileSync(join(folder, "package.json"), JSON.stringify({ private: true, type: "module" }));
  cpSync(join(import.meta.dirname, "consumer"), folder, { recursive: true });
}

/** Runs the command of a package that we have installed. */
export function runTool(packageName: string, command: string, args: readonly string[], cwd: string): Outcome {
  const home = join(root, "node_modules", packageName);
  const { bin } = JSON.parse(readFileSync(join(home, "package.json"), "utf8")) as Tool;
  const script = typeof bin === "string" ? bin : bin[command];
  if (script === undefined) throw new Error(`${packageName} has no command ${command}`);
  return run(process.execPath, [join(home, script), ...args], cwd);
}

type Tool = { readonly bin: string | Record<string, string> };

export function manifestOf(files: ReadonlyMap<string, Buffer>): Manifest {
  const manifest = files.get("package.json");
  if (manifest === undefined) throw new Error("the tarball has no package.json");
  return JSON.parse(manifest.toString("utf8"));
}

function succeed({ code, output }: Outcome): void {
  if (code !== 0) throw new Error(`exit code ${code}:\n${output}`);
}

/** Reads the plain files of a tar archive: headers of 512 bytes, contents padded to 512, paths below `package/`. */
function readTar(archive: Buffer): Map<string, Buffer> {
  const files = new Map<string, Buffer>();
  const text = (start: number, length: number) => archive.toString("utf8", start, start + length).replace(/\0.*$/s, "");
  for (let at = 0; at + 512 <= archive.length && archive[at] !== 0; ) {
    const size = Number.parseInt(text(at + 124, 12), 8);
    const kind = text(at + 156, 1);
    const path = [text(at + 345, 155), text(at, 100)].filter((part) => part !== "").join("/");
    if (kind !== "0" || !path.startsWith("package/")) throw new Error(`unexpected entry ${path} of kind "${kind}"`);
    files.set(path.slice("package/".length), archive.subarray(at + 512, at + 512 + size));
    at += 512 + Math.ceil(size / 512) * 512;
  }
  return files;
}
