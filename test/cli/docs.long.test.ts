// Goal: what docs/cli.md shows works as it is shown.
// Method: the lines of its shell blocks run in order in one shell, which begins in an empty folder, as they stand; only npm finds Pawl here, and not in a registry. Each
// ends with the exit code 0. The completion script of bash is run by bash.

import { execFileSync, spawnSync } from "node:child_process";
import { mkdtempSync, readdirSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, beforeAll, expect, test } from "vitest";
import { BIN, call } from "./kit.ts";

const page = readFileSync(join(import.meta.dirname, "../../docs/cli.md"), "utf8");

let folder = "";
beforeAll(() => {
  folder = mkdtempSync(join(tmpdir(), "pawl-cli-docs-"));
});
afterAll(() => rmSync(folder, { recursive: true, force: true }));

test("every command of docs/cli.md runs", () => {
  const lines = [...page.matchAll(/```sh\n([\s\S]*?)```/g)].flatMap(([, block = ""]) => block.trim().split("\n"));
  expect(lines.length).toBeGreaterThan(10);
  const node = `node() { "${process.execPath}" --conditions=pawl-source "$@"; }`;
  // As npx does: the program behind the name.
  const npx = `npx() { shift; node "${BIN}" "$@"; }`;
  const npm = `npm() { mkdir node_modules && ln -s "${join(import.meta.dirname, "../..")}" node_modules/pawl; }`;
  const marked = lines.map((line) => `echo "> ${line.replaceAll(/["$`\\]/g, "")}" >&2; ${line} || exit 1`);
  const ended = spawnSync("bash", ["-c", [node, npx, npm, ...marked].join("\n")], {
    cwd: folder,
    encoding: "utf8",
    env: { ...process.env, PAWL_URL: "", PAWL_STORE: "", NODE_OPTIONS: "" },
  });
  expect(ended.status, `${ended.stdout}\n${ended.stderr}`).toBe(0);
  expect(ended.stdout).toMatch(/^order-1 +fulfil +completed/m);
  expect(ended.stdout).toContain("run order-2 is canceled");
  expect(readdirSync(folder)).toEqual(["shop"]);
  const made = readdirSync(join(folder, "shop"));
  expect(made).toEqual(expect.arrayContaining(["app.ts", "pawl-backup.db", "pawl.db", "runs.jsonl"]));
});

test("the completion of bash completes commands and options, and those of all shells know every command", async () => {
  const { out } = await call(["completion", "bash"]);
  const completed = (words: readonly string[]): readonly string[] => {
    const script = `${out}\nCOMP_WORDS=(${words.map((word) => `'${word}'`).join(" ")}); COMP_CWORD=${words.length - 1}; _pawl; echo "\${COMPREPLY[@]}"`;
    return execFileSync("bash", ["-c", script], { encoding: "utf8" }).trim().split(" ");
  };
  expect(completed(["pawl", "sch"])).toEqual(["schedules"]);
  expect(completed(["pawl", "run", "re"])).toEqual(["retry", "resolve"]);
  expect(completed(["pawl", "--json", "run", "cancel", "--f"])).toEqual(["--force"]);
  expect(completed(["pawl", "tasks", "--st"])).toEqual(["--status", "--store"]);
  expect(completed(["pawl", "locks", "list", "--kind", "se"])).toEqual(["semaphore"]);
  const help = (await call(["--help"])).out;
  const names = [...help.matchAll(/^ {2}([a-z]+) /gm)].map(([, name = ""]) => name).filter((name) => name !== "help");
  expect(names.length).toBeGreaterThan(15);
  for (const shell of ["bash", "zsh", "fish"]) {
    const script = (await call(["completion", shell])).out;
    expect(names.filter((name) => !script.includes(name))).toEqual([]);
  }
});
