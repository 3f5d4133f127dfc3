/**
 * The demonstration: it runs to its verdict, it hurts the processes in it, and leaves nothing behind.
 *
 * Goal: what a newcomer sees first works.
 * Method: a short run as a child process, and one that is interrupted, checked by what they print and leave behind.
 */

import { spawn, spawnSync } from "node:child_process";
import { existsSync, mkdtempSync, readdirSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, beforeAll, describe, expect, it } from "vitest";

const demo = join(import.meta.dirname, "../../demo");
const flags = ["--conditions=pawl-source", "--disable-warning=ExperimentalWarning"];

/** Each of them takes a few seconds. */
const MOST_RUNS = 6;

let folder = "";
beforeAll(() => {
  folder = mkdtempSync(join(tmpdir(), "pawl-demo-test-"));
});
afterAll(() => rmSync(folder, { recursive: true, force: true }));

/** The demonstration puts its own folder into the one named here, so that one sees what it leaves behind. */
function runDemo(args: readonly string[]) {
  const temp = mkdtempSync(join(folder, "tmp-"));
  const result = spawnSync(process.execPath, [...flags, join(demo, "main.ts"), ...args], {
    encoding: "utf8",
    env: { ...process.env, TMPDIR: temp, TEMP: temp, TMP: temp },
    timeout: 280_000,
  });
  return { ...result, temp };
}

describe("the demonstration", () => {
  it("ends with a verdict after processes were killed, and its database can be looked into", () => {
    const database = join(folder, "kept.db");
    const { status, stdout, stderr, temp } = runDemo(["--seconds", "5", "--db", database]);
    expect({ status, stderr }, stdout).toEqual({ status: 0, stderr: "" });
    expect(stdout).toContain("NOTHING LOST, NOTHING DONE TWICE");
    expect(stdout.match(/✓/g)).toHaveLength(9);
    expect(stdout).not.toContain("✗");
    expect(stdout).toMatch(/every order was charged +100 of 100/);
    expect(numberAfter(stdout, "processes killed")).toBeGreaterThanOrEqual(2);
    expect(numberAfter(stdout, "orders taken over")).toBeGreaterThanOrEqual(1);
    expect(numberAfter(stdout, "duplicate deliveries ignored")).toBeGreaterThanOrEqual(20);
    expect(stdout).not.toContain("\u001b");
    expect(readdirSync(temp)).toEqual([]);

    const look = (query: string) =>
      spawnSync(process.execPath, [...flags, join(demo, "look.ts"), database, query], { encoding: "utf8" });
    expect(look("select count(*) as found from pawl_past where name = 'charged'").stdout).toMatch(/\b100\b/);

    const again = runDemo(["--db", database]);
    expect(again).toMatchObject({ status: 2, stdout: expect.stringContaining("is there already") });
  });

  // In a short run one worker is frozen, and it may be killed before it commits, so this may take another run.
  it.runIf(process.platform !== "win32")("refuses the late commit of a worker that was frozen", () => {
    const refused = (): number => {
      const { status, stdout, stderr } = runDemo(["--seconds", "5"]);
      expect({ status, stderr }, stdout).toEqual({ status: 0, stderr: "" });
      return numberAfter(stdout, "late commits refused");
    };
    expect(Array.from({ length: MOST_RUNS }).some(() => refused() > 0)).toBe(true);
  });

  it("leaves neither processes nor files when it is interrupted", async () => {
    const temp = mkdtempSync(join(folder, "tmp-"));
    const child = spawn(process.execPath, [...flags, join(demo, "main.ts")], {
      env: { ...process.env, TMPDIR: temp, TEMP: temp, TMP: temp },
      stdio: ["ignore", "pipe", "inherit"],
    });
    let said = "";
    child.stdout.on("data", (chunk: Buffer) => {
      said += chunk;
    });
    await expect.poll(() => [readdirSync(temp).length, processesOn(temp)]).toEqual([1, 6]);
    await new Promise((resolve) => setTimeout(resolve, 2_000));
    child.kill("SIGINT");
    const code = await new Promise((resolve) => child.once("close", resolve));
    expect({ code, left: readdirSync(temp) }).toEqual({ code: 130, left: [] });
    // Soon, because one that was forgotten ends as well, once it misses its files.
    await expect.poll(() => processesOn(temp), { timeout: 500 }).toBe(0);
    expect(said).toMatch(/^Stopped; nothing was left behind\.$/m);
  });
});

/** How many processes were started with something in this folder; one that has ended has no command line any more. */
function processesOn(folder: string): number {
  const commands = existsSync("/proc/self/cmdline")
    ? readdirSync("/proc")
        .filter((name) => /^\d+$/.test(name))
        .map(commandOf)
    : spawnSync("ps", ["-A", "-ww", "-o", "args="], { encoding: "utf8" }).stdout.split("\n");
  return commands.filter((command) => command.includes(folder)).length;
}

function commandOf(pid: string): string {
  try {
    return readFileSync(`/proc/${pid}/cmdline`, "utf8");
  } catch {
    return "";
  }
}

/** The number at the end of a line, after this label. */
const numberAfter = (text: string, label: string): number =>
  Number(new RegExp(`${label} +([\\d,]+)$`, "m").exec(text)?.[1]);
