// Goal: every command does what its help says, on a store, for people and for programs.
// Method: a store with something of everything in it, and the command lines of `cases.ts` one after another in this process, each once as a table and, where it only
// reads, once more with --json. PostgreSQL and processes are in stores.long.test.ts, a server is in server.test.ts.

import { execFileSync } from "node:child_process";
import { createHash } from "node:crypto";
import {
  cpSync,
  existsSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  rmSync,
  statSync,
  symlinkSync,
  writeFileSync,
} from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import type { Command } from "commander";
import { afterAll, beforeAll, describe, expect, it, vi } from "vitest";
import { stateShown } from "../../src/cli/commands/schedules.ts";
import { program } from "../../src/cli/main.ts";
import { bytesShown } from "../../src/cli/output.ts";
import { event, jsonLinesArchive, open, reaction, workflow } from "../../src/index.ts";
import { endRun, withoutStack } from "../../src/workflow/runs/end.ts";
import { startRun } from "../../src/workflow/runs/start.ts";
import { runAt } from "../../src/workflow/stored.ts";
import { spawnNode } from "../node/child.ts";
import { CASES } from "./cases.ts";
import { BIN, call, expectCases, fill, KEYS, linesOf, runInShell } from "./kit.ts";

let folder = "";
let filled = "";
beforeAll(async () => {
  folder = mkdtempSync(join(tmpdir(), "pawl-cli-"));
  filled = join(folder, "filled.db");
  await fill(filled);
});
afterAll(() => rmSync(folder, { recursive: true, force: true }));

let copies = 0;
function copyOf(file: string): string {
  copies += 1;
  const copy = join(folder, `copy-${copies}.db`);
  cpSync(file, copy);
  return copy;
}

const leavesOf = (command: Command, path: readonly string[] = []): readonly string[] =>
  command.commands.length === 0
    ? [path.join(" ")]
    : command.commands.flatMap((one) => leavesOf(one, [...path, one.name()]));

const tree = program(async () => {});

it("every command has a test", () => {
  const apart = ["serve", "init", "doctor", "backup", "completion"];
  const untested = leavesOf(tree).filter(
    (path) => !apart.includes(path) && !CASES.some(({ args }) => args.join(" ").startsWith(path)),
  );
  expect(untested).toEqual([]);
});

it("dead tasks that cannot be read are said, as lists say them, and the others begin again", async () => {
  const store = copyOf(filled);
  const pawl = await open(store, { logger: false });
  const end = (id: string) =>
    pawl.kernel.transact(
      (tx) => {
        // As an older version stored it, which did not check what is started by its name.
        const old = { id, workflow: "pawl.task", input: { target: "x" }, fingerprint: null, timeoutMs: null };
        if (id === "bad") startRun(tx, { ...old, ifExists: "join" });
        endRun(tx, tx.record(runAt(id)), id, "failed", { error: withoutStack(new Error("no")) });
      },
      [runAt(id)],
    );
  await pawl.tasks.create({ id: "dead", targetUrl: "https://example.com/", delay: "1 day" });
  for (const id of ["dead", "bad"]) await end(id);
  await pawl.close();
  const redriven = await call(["--store", store, "tasks", "redrive", "--status", "failed"], { env: KEYS });
  expect(redriven).toMatchObject({ code: 0, out: "1 task begins again\n" });
  expect(redriven.err).toMatch(/^cannot be read: bad: /);
  const listed = await call(["--store", store, "tasks", "--status", "failed"], { env: KEYS });
  expect(listed.err).toContain(redriven.err);
});

it("every command has a help text with its global options", async () => {
  for (const path of leavesOf(tree)) {
    const { code, out } = await call([...path.split(" "), "--help"]);
    expect({ path, code }).toEqual({ path, code: 0 });
    expect(out, path).toMatch(new RegExp(`^Usage: pawl ${path}`));
    expect(out, path).toContain("--json");
  }
});

it("a group says which of its commands it is without one", async () => {
  expect((await call(["tasks", "--help"])).out).toContain(
    "pawl tasks is pawl tasks list, and takes its options: pawl tasks list --help",
  );
});

it("the commands, as tables", async () => {
  const store = copyOf(filled);
  for (const { args, code = 0, says = /^/ } of CASES) {
    if (args.some((arg) => arg.startsWith("$"))) continue;
    const ended = await call(["--store", store, ...args], { env: KEYS });
    const shown = `pawl ${args.join(" ")}\n${ended.out}${ended.err}`;
    expect(ended.code, shown).toBe(code);
    expect(code === 0 ? ended.out : ended.err, shown).toMatch(says);
    expect(ended.out + ended.err, shown).not.toContain("\u001b");
  }
});

it("the commands, as JSON", async () => {
  await expectCases(["--store", copyOf(filled)], (args) => call(args, { env: KEYS }));
});

describe("a database that is not there", () => {
  it("is not created by a command, which says so", async () => {
    for (const { args, code = 0 } of CASES.filter(
      ({ args, code }) => code !== 2 && !args.join(" ").startsWith("keys create"),
    )) {
      const store = join(folder, "missing.db");
      const ended = await call(["--store", store, "--yes", ...args]);
      expect({ args, code: ended.code, exists: existsSync(store) }).toEqual({ args, code: 5, exists: false });
      expect(ended.err, `${args.join(" ")}: ${code}`).toContain("(database_not_found)");
    }
  });

  it("may be a file of another program, which stays as it is", async () => {
    const store = join(folder, "other.db");
    writeFileSync(store, "this is a text\n".repeat(100));
    const ended = await call(["--store", store, "runs"]);
    expect(ended).toMatchObject({ code: 1, err: expect.stringContaining("(store_corrupt)") });
    expect(readFileSync(store, "utf8")).toBe("this is a text\n".repeat(100));
  });
});

describe("commands that only read", () => {
  const reading = CASES.filter(
    ({ args: [first = "", second = ""], code = 0 }) =>
      code === 0 &&
      (["runs", "why", "export", "migrate"].includes(first) ||
        ["show", "history", "list", "read", "targets", "dead-letters", "preview", "paused"].includes(second)),
  );

  it("change no byte of the database, and leave no file beside it", async () => {
    const alone = mkdtempSync(join(folder, "alone-"));
    const store = join(alone, "pawl.db");
    cpSync(filled, store);
    const hash = () => createHash("sha256").update(readFileSync(store)).digest("hex");
    const before = hash();
    expect(reading.length).toBeGreaterThan(20);
    for (const { args } of [...reading, { args: ["doctor"] }]) await call(["--store", store, ...args]);
    expect({ hash: hash(), files: readdirSync(alone) }).toEqual({ hash: before, files: ["pawl.db"] });
  });

  it("refuse a database that this release would first migrate, and migrate --plan says what it would do", async () => {
    const store = copyOf(filled);
    const { DatabaseSync } = await import("node:sqlite");
    const db = new DatabaseSync(store);
    db.exec("drop table pawl_followed; update pawl_meta set number = 2 where name = 'schema'");
    db.close();
    expect(await call(["--store", store, "runs"])).toMatchObject({
      code: 1,
      err: expect.stringContaining("(schema_outdated)"),
    });
    const plan = await call(["--store", store, "migrate", "--plan"]);
    expect(plan.out).toMatch(/from schema 2 to 3\n[\s\S]*create table pawl_followed/);
    expect(await call(["--store", store, "doctor"])).toMatchObject({
      code: 0,
      out: expect.stringContaining("this release has 3"),
    });
    expect(await call(["--store", store, "runs"])).toMatchObject({ code: 1 });
    expect(await call(["--store", store, "migrate"])).toMatchObject({
      code: 0,
      out: expect.stringContaining("from schema 2 to 3"),
    });
    expect(await call(["--store", store, "runs"])).toMatchObject({ code: 0 });
  });
});

it("an older Node gets one line, which says what is needed, whatever the command", async () => {
  const pretend = 'data:text/javascript,Object.defineProperty(process.versions,"node",{value:"20.20.2"})';
  for (const args of [["--help"], ["doctor"]]) {
    const child = spawnNode(BIN, args, { nodeArgs: ["--conditions=pawl-source", "--import", pretend] });
    const said: string[] = [];
    for (const stream of [child.stdout, child.stderr]) stream?.on("data", (text) => said.push(String(text)));
    expect([await new Promise((resolve) => child.on("close", resolve)), said.join("")]).toEqual([
      1,
      "pawl: Pawl needs Node 22 from 22.22.3 on, or Node 24.15 or later, and this is Node 20.20.2 (unsupported_node)\n",
    ]);
  }
});

describe("output that cannot be written", () => {
  it.runIf(existsSync("/dev/full"))("is an error, of one line", async () => {
    const store = copyOf(filled);
    for (const args of [["--help"], ["--store", store, "runs"], ["--store", store, "export", "runs"]])
      expect(await runInShell(args, ">/dev/full"), args.join(" ")).toEqual({
        code: 1,
        out: "",
        err: expect.stringMatching(
          /^pawl: the output could not be written: [^\n]*no space left[^\n]* \(output_failed\)\n$/,
        ),
      });
  });

  it("because its reader has read enough is none", async () => {
    const store = copyOf(filled);
    expect(await runInShell(["--store", store, "runs"], "| true")).toEqual({ code: 0, out: "", err: "" });
  });
});

describe("on a terminal", () => {
  it("tables are cut to its width, in color, and without color if that is asked", async () => {
    const store = copyOf(filled);
    const colored = await call(["--store", store, "runs"], { width: 60 });
    expect(colored.out).toContain("\u001b[31mfailed");
    const plain = await call(["--store", store, "runs"], { width: 60, env: { NO_COLOR: "1" } });
    expect(plain.out).not.toContain("\u001b");
    for (const line of plain.out.split("\n")) expect(line.length, line).toBeLessThanOrEqual(60);
    expect((await call(["--store", store, "--no-color", "runs"], { width: 60 })).out).toBe(plain.out);
  });

  it("ids are whole, however long they are, so that they can be given to the next command", async () => {
    const store = copyOf(filled);
    const id = `every-some/${"long".repeat(20)}/2026-11-19T03:40:00.000Z`;
    await call(["--store", store, "run", "start", "nobody", "--id", id]);
    const created = await call([
      "--store",
      store,
      "--json",
      "keys",
      "create",
      "a key",
      "--scope",
      "read,write,operate",
    ]);
    const table = async (...args: readonly string[]) => (await call(["--store", store, ...args], { width: 60 })).out;
    expect(await table("runs")).toContain(`${id}  nobody`);
    expect(await table("keys")).toContain(`${linesOf(created.out)[0]?.["id"]}  `);
  });

  it("says on stderr that a list is empty, and with --json nothing", async () => {
    const store = copyOf(filled);
    expect(await call(["--store", store, "runs", "--tag", "none"], { width: 80 })).toMatchObject({
      out: "",
      err: "no runs\n",
    });
    expect(await call(["--store", store, "runs", "--tag", "none"])).toEqual({ code: 0, out: "", err: "no runs\n" });
    expect(await call(["--store", store, "--json", "runs", "--tag", "none"])).toEqual({ code: 0, out: "", err: "" });
  });
});

describe("where user code threw", () => {
  it("is shown of runs, projections and targets, and in JSON", async () => {
    const shown = (...args: readonly string[]) => call(["--store", filled, ...args]);
    expect((await shown("run", "show", "f-1")).out).toMatch(/^stack of error:\n {2}at [^\n]*test\/cli\/kit\.ts:\d+/m);
    const [run] = linesOf((await shown("--json", "run", "show", "f-1")).out);
    expect(run?.["stack"]).toMatch(/^at [^\n]*kit\.ts/);
    expect((await shown("projections", "show", "sums")).out).toMatch(/^stack of what readers see:\n {2}at .*kit\.ts:/m);
    const [target] = linesOf((await shown("--json", "reactions", "targets", "mail")).out);
    expect(target?.["lastError"]).toMatchObject({ stack: expect.stringMatching(/^at .*kit\.ts:/) });
  });
});

describe("--watch", () => {
  it("shows each change once as JSON, and ends when the run has ended", async () => {
    const store = copyOf(filled);
    await using pawl = await open(store, { logger: false });
    let changed = false;
    const watching = await call(["--store", store, "--json", "--watch", "run", "show", "n-1"], {
      onOut: () => {
        if (!changed) void pawl.run("n-1").cancel();
        changed = true;
      },
    });
    const seen = linesOf(watching.out).map(({ status }) => status);
    expect({ code: watching.code, first: seen[0], last: seen.at(-1) }).toEqual({
      code: 0,
      first: "pending",
      last: "canceled",
    });
    expect(new Set(watching.out.split("\n")).size).toBe(watching.out.split("\n").length);
  });

  it("a list is watched until it is interrupted", async () => {
    const stop = new AbortController();
    const store = copyOf(filled);
    const watching = await call(["--store", store, "--watch", "runs"], {
      interruption: stop.signal,
      onOut: () => stop.abort(),
    });
    expect(watching).toMatchObject({ code: 0, out: expect.stringContaining("a-1") });
  });

  it("on a terminal, a row is a line of the screen, also one that is wider", async () => {
    const stop = new AbortController();
    const { out } = await call(["--store", copyOf(filled), "--watch", "runs"], {
      width: 20,
      interruption: stop.signal,
      onOut: () => stop.abort(),
    });
    expect(out.replaceAll("\u001b", "ESC")).toMatch(/^ESC\[HESC\[\?7l[\s\S]*a-1[\s\S]*ESC\[\?7hESC\[J$/);
  });
});

describe("doctor", () => {
  it("ends with 1 where something is stuck, and says what", async () => {
    const ended = await call(["--store", filled, "--json", "doctor"]);
    const findings = linesOf(ended.out);
    expect(ended).toMatchObject({ code: 1, err: expect.stringContaining("(unhealthy)") });
    expect(findings).toContainEqual({
      check: "reactions",
      status: "problem",
      says: expect.stringContaining("smtp is down"),
    });
    expect(findings).toContainEqual({
      check: "projections",
      status: "problem",
      says: "sums does not get ahead at event 2 of account-1: cannot add 5; pawl projections show sums",
    });
    expect(findings.filter(({ status }) => status === "ok").map(({ check }) => check)).toEqual([
      "store",
      "versions",
      "schema",
      "durable",
      "intact",
      "clock",
      "size",
    ]);
  });

  it("and why name commands, and not calls of the library", async () => {
    const store = join(folder, "parked.db");
    {
      let began = 0;
      const pay = workflow("pay", async (ctx) => {
        await ctx.step.atMostOnce("pay it", () => {
          began += 1;
          return new Promise(() => {});
        });
      });
      await using first = await open(store, { logger: false });
      const lost = first.work([pay], { lease: "1s" });
      await first.start(pay, undefined, { id: "r 1" });
      await expect.poll(() => began).toBe(1);
      await lost.stop({ timeout: 1 });
      await using pawl = await open(store, { logger: false });
      pawl.work([pay]);
      await expect.poll(async () => (await pawl.run("r 1").status()).status, { timeout: 12_000 }).toBe("parked");
      await pawl.workflows.pause("two words");
      await pawl.start("two words", undefined, { id: "p-1" });
    }
    const resolve = "find out, then pawl run resolve 'r 1' 'pay it' with --value <json> or --not-done";
    const resume = "until pawl workflows resume 'two words'";
    expect((await call(["--store", store, "why", "r 1"])).out).toContain(resolve);
    expect((await call(["--store", store, "why", "p-1"])).out).toContain(resume);
    expect((await call(["--store", store, "runs", "--status", "parked"])).out).toContain(resolve);
    const { out } = await call(["--store", store, "doctor"]);
    expect(out).toContain(resolve);
    expect(out).toContain(resume);
    expect((await call(["--store", filled, "doctor"])).out).toMatch(
      /1 target of mail is blocked[^\n]*smtp is down; then pawl reactions unblock mail --status blocked$/m,
    );
  });

  it("counts what is in the log of SQLite among the size", async () => {
    const store = join(folder, "logged.db");
    await using pawl = await open(store, { logger: false });
    await pawl.slot<string>("large", { initial: "" }).set("x".repeat(500_000));
    const wal = statSync(`${store}-wal`).size;
    const size = linesOf((await call(["--store", store, "--json", "doctor"])).out).find(
      ({ check }) => check === "size",
    );
    expect(wal).toBeGreaterThan(500_000);
    expect(size?.["says"]).toContain(
      `${bytesShown(statSync(store).size + wal)}, of which ${bytesShown(wal)} are in its log (-wal); records`,
    );
  });

  it("ends with 0 where nothing is", async () => {
    const store = join(folder, "sound.db");
    await (await open(store))
      .slot<number>("n", { initial: 0 })
      .set(1)
      .then(() => {});
    expect(await call(["--store", store, "doctor"])).toMatchObject({ code: 0, err: "" });
  });
});

describe("backup", () => {
  it("makes a copy that is complete while others write, and never replaces a file", async () => {
    const store = copyOf(filled);
    const to = join(folder, "backup.db");
    await using pawl = await open(store, { logger: false });
    const slot = pawl.slot<number>("busy", { initial: 0 });
    let isOver = false;
    const writing = (async () => {
      while (!isOver) await slot.update((n) => n + 1);
    })();
    const made = await call(["--store", store, "--json", "backup", to]);
    isOver = true;
    await writing;
    expect(made).toMatchObject({ code: 0, err: "" });
    expect((await call(["--store", to, "runs"])).out).toBe((await call(["--store", store, "runs"])).out);
    expect(linesOf(made.out)).toMatchObject([{ keyFile: null }]);
    expect(await call(["--store", store, "backup", to])).toMatchObject({
      code: 4,
      err: expect.stringContaining("(file_exists)"),
    });
    writeFileSync(`${store}.keys`, JSON.stringify({ keys: KEYS.PAWL_KEYS, webhookSecrets: [] }), { mode: 0o600 });
    expect((await call(["--store", store, "backup", `${to}.2`])).out).toContain(`not in it: ${store}.keys`);
    expect(readdirSync(folder).filter((name) => name.includes(".part"))).toEqual([]);
  });

  it("is restored by the steps of docs/cli.md, also where the log of a process that was killed is left", async () => {
    const home = mkdtempSync(join(folder, "home-"));
    const killed = mkdtempSync(join(folder, "killed-"));
    await using pawl = await open(join(home, "pawl.db"), { logger: false });
    const slot = pawl.slot<number>("n", { initial: 0 });
    await slot.set(1);
    await call(["--store", join(home, "pawl.db"), "backup", join(home, "pawl-backup.db")]);
    for (let n = 2; n < 50; n += 1) await slot.set(n);
    cpSync(home, killed, { recursive: true });
    expect(readdirSync(killed)).toContain("pawl.db-wal");
    const page = readFileSync(join(import.meta.dirname, "../../docs/cli.md"), "utf8");
    const [, steps = ""] = /## Backups[\s\S]*?```sh\n([\s\S]*?)npx pawl doctor\n```/.exec(page) ?? [];
    execFileSync("sh", ["-ec", steps], { cwd: killed });
    const store = ["--store", join(killed, "pawl.db"), "--json"];
    expect(await call([...store, "doctor"])).toMatchObject({ code: 0 });
    expect(linesOf((await call([...store, "export", "slots"])).out)).toMatchObject([{ name: "n", value: 1 }]);
  });

  it("of PostgreSQL names the command, without the password on its command line", async () => {
    const url = "postgres://ann:se%20cret@db.example:5433/shop?sslmode=require";
    const { out } = await call(["--store", url, "backup", "it's.dump", "--print"]);
    expect(out).toBe(
      "PGPASSWORD=… pg_dump --format=custom --schema=pawl '--file=it'\\''s.dump' 'postgres://ann@db.example:5433/shop?sslmode=require'\n",
    );
    const missing = await call(["--store", url, "backup", join(folder, "x.dump")], { env: { PATH: folder } });
    expect(missing).toMatchObject({ code: 1, err: expect.stringContaining("(pg_dump_missing)") });
    expect(missing.err).not.toContain("cret");
  });
});

describe("export --out", () => {
  it("writes a file that the library imports, and never replaces one", async () => {
    const file = join(folder, "streams.jsonl");
    expect(await call(["--store", filled, "export", "streams", "--out", file])).toMatchObject({
      code: 0,
      out: expect.stringContaining("2 events"),
    });
    await using pawl = await open("memory:");
    expect(await pawl.streams.import(file)).toMatchObject({ streams: 1, events: 2 });
    expect(await call(["--store", filled, "export", "runs", "--out", file])).toMatchObject({
      code: 4,
      err: expect.stringContaining("(file_exists)"),
    });
  });
});

it("an export of streams of which some are archived has what is there, says so, and ends with 1", async () => {
  const store = join(folder, "archived.db");
  const noted = event("Noted");
  {
    await using pawl = await open(store, { archive: jsonLinesArchive(join(folder, "archived")), logger: false });
    await pawl.stream("a").append([noted(), noted()]);
    await pawl.stream("b").append([noted()]);
    await pawl.streams.close("a");
  }
  {
    await using pawl = await open(store, { logger: false });
    await expect(pawl.streams.export({ prefix: "" }, join(folder, "no.jsonl"))).rejects.toMatchObject({
      code: "events_archived",
    });
  }
  const file = join(folder, "kept.jsonl");
  const ended = await call(["--store", store, "--json", "export", "streams", "--out", file]);
  expect(ended).toMatchObject({
    code: 1,
    err: expect.stringMatching(/^stream a begins at event 3: .*\n.*\(events_archived\)\n$/),
  });
  expect(linesOf(ended.out)).toEqual([
    { file, what: "streams", count: 2, partial: [{ stream: "a", firstVersion: 3 }] },
  ]);
  expect(linesOf(readFileSync(file, "utf8"))).toMatchObject([
    { stream: "a", version: 3 },
    { stream: "b", version: 1 },
  ]);
});

it("a schedule that is paused says so, also where no worker declares it", () => {
  const paused = { since: "2030-01-01T00:00:00.000Z", reason: null };
  expect(stateShown({ state: "undeclared", paused })).toBe("paused, undeclared");
  expect(stateShown({ state: "undeclared", paused: null })).toBe("undeclared");
  expect(stateShown({ state: "paused", paused })).toBe("paused");
});

it("a list of a namespace that has nothing names it", async () => {
  expect((await call(["--store", filled, "--namespace", "tpyo", "runs"])).err).toBe("no runs in namespace tpyo\n");
});

it("a run of a workflow that has no other says what it waits for", async () => {
  const store = copyOf(filled);
  const start = (name: string) => call(["--store", store, "run", "start", name]);
  expect((await start("fulfill")).err).toBe(
    "it is the only run of fulfill, and begins when a worker works on a workflow of that name\n",
  );
  expect((await start("fulfill")).err).toBe("");
});

it("a stream of personal events without its key names where a command has keys from", async () => {
  const store = join(folder, "personal.db");
  const personal = { subject: (data: { id: string; name: string }) => data.id, fields: ["name"] as const };
  {
    await using pawl = await open(store, {
      actions: { keys: { current: "k1", ring: { k1: Buffer.alloc(32, 1) } } },
      logger: false,
    });
    await pawl.stream("s").append([event("Named", { personal })({ id: "1", name: "Ann" })]);
  }
  const ended = await call(["--store", store, "streams", "read", "s"]);
  expect(ended.code).not.toBe(0);
  expect(ended.err).toMatch(/PAWL_KEYS/);
});

it("targets that a worker has are listed by their status, with the worker", async () => {
  await using pawl = await open(join(folder, "running.db"), { logger: false });
  const noted = event("Noted");
  const slow = reaction("slow", { on: [noted] }, ({ stream }, { abortSignal }) =>
    stream === "b" ? new Promise<void>((resolve) => abortSignal.addEventListener("abort", () => resolve())) : undefined,
  );
  const worker = pawl.work([slow]);
  for (const stream of ["a", "b"]) await pawl.stream(stream).append([noted()]);
  const list = (status: string) =>
    call(["--store", join(folder, "running.db"), "--json", "reactions", "targets", "slow", "--status", status]);
  const found = async (status: string) => linesOf((await list(status)).out).map(({ target }) => target);
  await expect.poll(() => found("running"), { timeout: 60_000 }).toEqual(["b"]);
  await expect.poll(() => found("idle"), { timeout: 60_000 }).toEqual(["a"]);
  await worker.stop({ timeout: 0 });
});

it("who holds a lock in plain code is said", async () => {
  const store = copyOf(filled);
  await using pawl = await open(store, { logger: false });
  await pawl.mutex("plain").acquire();
  expect((await call(["--store", store, "locks", "show", "plain"])).out).toMatch(/^\S+ +plain code /m);
});

it("a backup has a file with a name, in a folder that exists", async () => {
  expect(await call(["--store", filled, "backup", ""])).toMatchObject({ code: 2 });
  const file = join(folder, "none", "b.db");
  expect(await call(["--store", filled, "backup", file])).toMatchObject({
    code: 2,
    err: expect.stringContaining(file),
  });
});

it("init of a folder that cannot be made ends", async () => {
  expect(await call(["init", "/proc/pawl/x"])).toMatchObject({ code: 1, err: expect.stringContaining("/proc/pawl") });
});

describe("init", () => {
  const inits = [
    { rule: "an empty folder gets a package.json of modules", manifest: undefined, file: "app.ts" },
    { rule: "a folder of npm init gets a file that is a module", manifest: { type: "commonjs" }, file: "app.mts" },
    { rule: "so does one that says nothing", manifest: {}, file: "app.mts" },
    { rule: "a folder of modules keeps its package.json", manifest: { type: "module" }, file: "app.ts" },
  ];
  it.each(inits)("$rule, and it runs at once", async ({ manifest, file }) => {
    const home = mkdtempSync(join(folder, "init-"));
    const given = manifest === undefined ? undefined : JSON.stringify(manifest);
    if (given !== undefined) writeFileSync(join(home, "package.json"), given);
    const { code, out } = await call(["--json", "init", home]);
    expect(code).toBe(0);
    expect(linesOf(out)[0]?.["next"]).toContain(`node ${file}`);
    expect(readFileSync(join(home, file), "utf8")).toContain(`node ${file} `);
    const wanted = JSON.parse(readFileSync(join(home, "package.json"), "utf8"));
    if (given !== undefined) expect(JSON.stringify(wanted)).toBe(given);
    else expect(wanted).toMatchObject({ type: "module", devDependencies: { typescript: expect.anything() } });
    expect(JSON.parse(readFileSync(join(home, "tsconfig.json"), "utf8"))).toMatchObject({
      compilerOptions: { module: "nodenext" },
    });
    expect(await call(["init", home])).toMatchObject({ code: 4, err: expect.stringContaining("(file_exists)") });
    mkdirSync(join(home, "node_modules"));
    symlinkSync(join(import.meta.dirname, "../.."), join(home, "node_modules/pawl"), "dir");
    const child = spawnNode(join(home, file), [], { nodeArgs: ["--conditions=pawl-source", "--check"] });
    const errors: string[] = [];
    child.stderr?.on("data", (text) => errors.push(String(text)));
    expect([await new Promise((resolve) => child.on("close", resolve)), errors.join("")]).toEqual([0, ""]);
  });
});

describe("keys", () => {
  it("of a namespace are kept by the server, and not in that namespace", async () => {
    const store = ["--store", copyOf(filled)];
    const create = ["keys", "create", "x", "--scope", "read"];
    expect(await call([...store, "--namespace", "acme", ...create])).toMatchObject({
      code: 2,
      out: "",
      err: expect.stringMatching(/give --for-namespace acme instead[^\n]*\(invalid_usage\)\n$/),
    });
    const { code, err, out } = await call([...store, ...create, "--for-namespace", "acme"]);
    expect({ code, err }).toEqual({
      code: 0,
      err: expect.stringMatching(/^key (\S{16}) with read for namespace acme; it is shown only now:\n$/),
    });
    expect(out).toContain(/^key (\S+)/.exec(err)?.[1]);
    expect((await call([...store, "--namespace", "acme", "keys"])).err).toContain("--for-namespace lists those");
    expect((await call([...store, "keys", "list", "--for-namespace", "acme"])).out).toContain("acme");
    // A server of `pawl serve --namespace acme` keeps its keys there.
    const both = ["--namespace", "acme", ...create, "--for-namespace", "acme"];
    expect(await call([...store, ...both])).toMatchObject({ code: 0 });
    expect((await call([...store, "--namespace", "acme", "keys"])).out).toContain("acme");
  });

  it("that are rotated say for how long the old one is accepted", async () => {
    const store = ["--store", copyOf(filled)];
    const { out } = await call([...store, "--json", "keys", "create", "x", "--scope", "read"]);
    const rotate = [...store, "keys", "rotate", String(linesOf(out)[0]?.["id"])];
    expect((await call([...rotate, "--grace", "2h"])).err).toContain("the old one is accepted for 2h more");
    expect((await call(rotate)).err).toContain("the old one has ended");
  });
});

describe("a key file that cannot be read", () => {
  it("is missed only by what needs it, which names it", async () => {
    const store = copyOf(filled);
    // As another user's file, also for root.
    mkdirSync(`${store}.keys`, { mode: 0o700 });
    for (const args of [["runs"], ["actions"], ["tasks", "create", "https://example.com/a"], ["doctor"]])
      expect((await call(["--store", store, ...args])).err, args.join(" ")).not.toContain(".keys");
    expect(await call(["--store", store, "runs"])).toMatchObject({ code: 0 });
    expect(
      await call(["--store", store, "tasks", "create", "https://example.com/b", "--wait-for-signal"]),
    ).toMatchObject({
      code: 1,
      err: expect.stringMatching(/needs a key[^\n]*copy-\d+\.db\.keys cannot be read[^\n]* \(keys_missing\)\n$/),
    });
    expect(await call(["--store", store, "serve"])).toMatchObject({
      code: 1,
      err: expect.stringMatching(/copy-\d+\.db\.keys cannot be read[^\n]* \(keys_unreadable\)\n$/),
    });
  });
});

describe("--store and --url", () => {
  it("cannot be given together, and the command line counts before the environment", async () => {
    expect(await call(["--store", filled, "--url", "http://localhost", "runs"])).toMatchObject({ code: 2 });
    process.env["PAWL_URL"] = "http://localhost:1";
    try {
      expect(await call(["--store", filled, "runs"])).toMatchObject({ code: 0 });
    } finally {
      delete process.env["PAWL_URL"];
    }
  });

  it("a server takes no namespace, from wherever it is, as its API key decides", async () => {
    const server = ["--url", "http://localhost:1"];
    expect(await call([...server, "--namespace", "acme", "run", "cancel", "a-1"])).toMatchObject({
      code: 2,
      err: expect.stringMatching(/^pawl: --namespace has no effect [^\n]*API key decides[^\n]* \(invalid_usage\)\n$/),
    });
    vi.stubEnv("PAWL_NAMESPACE", "acme");
    try {
      expect(await call([...server, "runs"])).toMatchObject({
        code: 2,
        err: expect.stringContaining("PAWL_NAMESPACE"),
      });
      expect(await call(["--store", filled, "runs"])).toMatchObject({ code: 0, err: "no runs in namespace acme\n" });
    } finally {
      vi.unstubAllEnvs();
    }
  });

  it("what needs the database names the variable that names a server", async () => {
    vi.stubEnv("PAWL_URL", "http://localhost:1");
    try {
      const to = join(folder, "never.db");
      const ended = await call(["backup", to]);
      expect(ended).toMatchObject({ code: 2, err: expect.stringContaining("instead of PAWL_URL") });
    } finally {
      vi.unstubAllEnvs();
    }
    const given = await call(["--url", "http://localhost:1", "serve"]);
    expect(given.code).toBe(2);
    expect(given.err).toContain("instead of --url");
  });

  it("the environment cannot name both, unless the command line says which", async () => {
    vi.stubEnv("PAWL_URL", "http://localhost:1");
    vi.stubEnv("PAWL_STORE", filled);
    try {
      for (const args of [["runs"], ["doctor"], ["backup", join(folder, "never.db")]])
        expect(await call(args), args.join(" ")).toMatchObject({
          code: 2,
          out: "",
          err: expect.stringMatching(/^pawl: PAWL_STORE and PAWL_URL are both set[^\n]* \(invalid_usage\)\n$/),
        });
      expect(await call(["--store", filled, "runs"])).toMatchObject({ code: 0 });
      expect(await call(["--url", "http://localhost:1", "runs"])).toMatchObject({ code: 5 });
      expect(await call(["completion", "bash"])).toMatchObject({ code: 0 });
    } finally {
      vi.unstubAllEnvs();
    }
  });

  it("refuses a store in memory, and shows no password", async () => {
    expect(await call(["--store", "memory:", "runs"])).toMatchObject({
      code: 2,
      err: expect.stringContaining("(invalid_argument)"),
    });
    const refused = await call(["--store", "postgres://ann:secret@127.0.0.1:1/x", "runs"]);
    expect(refused).toMatchObject({ code: 5, err: expect.stringContaining("(store_unreachable)") });
    expect(refused.err).not.toContain("secret");
  });
});
