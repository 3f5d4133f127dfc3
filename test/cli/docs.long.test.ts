// Goal: what docs/cli.md shows works as it is shown.
// Method: the lines of its shell blocks run in order in one empty folder, each as a process of its own, with the exit code 0; doctor finds the run that no worker takes
// only after a minute, so it ends with 0 as well. The completion script of bash is run by bash.

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
  // As npx does: the program behind the name.
  const pawl = `npx() { shift; "${process.execPath}" --conditions=pawl-source "${BIN}" "$@"; }`;
  const marked = lines.map((line) => `echo "> ${line.replaceAll(/["$`\\]/g, "")}" >&2; ${line} || exit 1`);
  const ended = spawnSync("bash", ["-c", [pawl, ...marked].join("\n")], {
    cwd: folder,
    encoding: "utf8",
    env: { ...process.env, PAWL_URL: "", PAWL_STORE: "", NODE_OPTIONS: "" },
  });
  expect(ended.status, `${ended.stdout}\n${ended.stderr}`).toBe(0);
  expect(readdirSync(folder)).toEqual(expect.arrayContaining(["pawl-backup.db", "pawl.db", "runs.jsonl", "shop"]));
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
  expect(completed(["pawl", "locks", "list", "--kind", "se"])).toEqual(["semaphore"]);
  const help = (await call(["--help"])).out;
  const names = [...help.matchAll(/^ {2}([a-z]+) /gm)].map(([, name = ""]) => name).filter((name) => name !== "help");
  expect(names.length).toBeGreaterThan(15);
  for (const shell of ["bash", "zsh", "fish"]) {
    const script = (await call(["completion", shell])).out;
    expect(names.filter((name) => !script.includes(name))).toEqual([]);
  }
});
