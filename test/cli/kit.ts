/**
 * Shared by the tests of the command line: running it in this process, which is quick, and as a process of its own, which is how it is used; and a store with
 * something of everything in it.
 */

import { spawn } from "node:child_process";
import { join } from "node:path";
import { text } from "node:stream/consumers";
import { expect } from "vitest";
import { main } from "../../src/cli/main.ts";
import type { Io } from "../../src/cli/session.ts";
import { event, NonRetryableError, open, projection, reaction, schedule, signal, workflow } from "../../src/index.ts";
import { Child, spawnNode } from "../node/child.ts";
import { CASES, type Case } from "./cases.ts";

export const BIN = join(import.meta.dirname, "../../src/cli/bin.ts");

const SOURCES = ["--conditions=pawl-source"];

export interface Ended {
  readonly code: number | null;
  readonly out: string;
  readonly err: string;
}

export interface CallOptions {
  /** The streams are terminals of this width. */
  readonly width?: number;
  readonly env?: Readonly<Record<string, string>>;
  /** Ends `--watch`. */
  readonly interruption?: AbortSignal;
  readonly onOut?: (text: string) => void;
}

/** Runs a command line in this process. */
export async function call(args: readonly string[], options: CallOptions = {}): Promise<Ended> {
  const { width, env = {}, interruption = new AbortController().signal, onOut } = options;
  let out = "";
  let err = "";
  const sink = (add: (text: string) => void) => ({
    write: (text: string, written?: () => void) => {
      add(text);
      written?.();
    },
    ...(width === undefined ? {} : { isTTY: true, columns: width, rows: 40 }),
  });
  const io: Io = {
    out: sink((text) => {
      out += text;
      onOut?.(text);
    }),
    err: sink((text) => {
      err += text;
    }),
    stdin: { isTTY: false },
    env,
    interruption: () => interruption,
    pause: () => new Promise((resolve) => setTimeout(resolve, 5)),
  };
  const code = await main(args, io);
  return { code, out, err };
}

/** The same with its output connected to what `shell` says, as ">/dev/full" or "| head -c 0"; the code is that of `pawl`. */
export function runInShell(args: readonly string[], shell: string): Promise<Ended> {
  const line = `{ "$0" "$@"; echo "code $?" >&2; } ${shell}`;
  const child = spawn("sh", [
    "-c",
    line,
    process.execPath,
    "--disable-warning=ExperimentalWarning",
    ...SOURCES,
    BIN,
    ...args,
  ]);
  const [out, err] = [child.stdout, child.stderr].map((stream) => text(stream));
  return Promise.all([out, err]).then(([out = "", err = ""]) => {
    const [, said = "", code] = /^([\s\S]*)code (\d+)\n$/.exec(err) ?? [];
    return { code: Number(code), out, err: said };
  });
}

/** Runs a command line as a process of its own, from the sources. */
export function run(
  args: readonly string[],
  options: { readonly env?: Readonly<Record<string, string>> } = {},
): Promise<Ended> {
  const child = spawnNode(BIN, args, { nodeArgs: SOURCES, env: options.env });
  let out = "";
  let err = "";
  child.stdout?.on("data", (text) => {
    out += text;
  });
  child.stderr?.on("data", (text) => {
    err += text;
  });
  child.stdin?.end();
  return new Promise((resolve) => child.on("close", (code) => resolve({ code, out, err })));
}

export interface Served {
  readonly child: Child;
  readonly url: string;
  readonly store: string;
  readonly key: string | null;
  readonly work: readonly string[] | null;
  readonly machines: readonly string[];
}

/** Starts `pawl serve` on any free port, as a process. */
export async function served(args: readonly string[], env?: Readonly<Record<string, string>>): Promise<Served> {
  const process = spawnNode(BIN, ["serve", "--json", "--port", "0", ...args], { nodeArgs: SOURCES, env });
  const child = new Child(process, "pawl serve");
  const [started] = linesOf(await child.line());
  return { child, ...(started as unknown as Omit<Served, "child">) };
}

/** The documents of JSON Lines. */
export const linesOf = (out: string): readonly Record<string, unknown>[] =>
  out
    .split("\n")
    .filter((line) => line !== "")
    .map((line) => JSON.parse(line) as Record<string, unknown>);

/** A key ring, so that tasks can wait for signals. */
export const KEYS = { PAWL_KEYS: `k1:${Buffer.alloc(32, 1).toString("base64")}` };

/** Runs the command lines with `--json`, after these options, and checks how each ends. */
export async function expectCases(
  options: readonly string[],
  execute: (args: readonly string[]) => Promise<Ended>,
  cases: readonly Case[] = CASES,
): Promise<void> {
  const saved = new Map<string, string>();
  for (const { args, code = 0, json, saves = {} } of cases) {
    const line = args.map((arg) => (arg.startsWith("$") ? (saved.get(arg.slice(1)) ?? arg) : arg));
    const ended = await execute([...options, "--json", ...line]);
    const shown = `pawl --json ${line.join(" ")}\n${ended.out}${ended.err}`;
    expect(ended.code, shown).toBe(code);
    if (code !== 0) expect(ended.err.trimEnd().split("\n"), shown).toHaveLength(1);
    const documents = linesOf(ended.out);
    if (json !== undefined) expect(documents, shown).toContainEqual(expect.objectContaining(json));
    for (const [name, field] of Object.entries(saves)) saved.set(name, String(documents[0]?.[field]));
  }
}

const go = signal<{ by: string }>("go");

const approve = workflow("approve", async (ctx, order: { id: number }) => {
  await ctx.step("charge", () => `receipt-${order.id}`);
  return ctx.lock("account/42", async () => (await ctx.waitForSignal(go)).value.by);
});
const fails = workflow("fails", async (ctx) => {
  await ctx.step("pay", () => {
    throw new NonRetryableError("no money\u202e\u001b[31m");
  });
});
const done = workflow("done", async () => ({ ok: true }));
/** What JSON has not. */
const types = () => ({
  at: new Date("2030-01-01"),
  big: 12n,
  map: new Map([["a", undefined]]),
  set: new Set([Number.NaN]),
  bytes: new Uint8Array([1, 2]),
  literal: { $date: 1 },
});
const typed = workflow("typed", async () => types());

const Deposited = event<{ amount: number }>("Deposited");
const mail = reaction("mail", { on: [Deposited], target: (e) => e.stream, retry: { attempts: 1 } }, async () => {
  throw new Error("smtp is down");
});
const nightly = schedule("nightly", { cron: "0 3 * * *" }, done);

const sums = projection("sums", { on: [Deposited] }, (row: number | undefined, e) => {
  if (e.data.amount === 5) throw new Error("cannot add 5");
  return (row ?? 0) + e.data.amount;
});

export const definitions = [approve, fails, done, typed, mail, nightly, sums];

/** Fills a store: runs in four states, of which one holds a lock and one waits for it, a schedule, a stream, a blocked target, an action and a slot. */
export async function fill(store: string): Promise<void> {
  await using pawl = await open(store, { logger: false });
  const worker = pawl.work(definitions);
  await worker.ready;
  const until = async (isSo: () => Promise<boolean>): Promise<void> => {
    while (!(await isSo())) await new Promise((resolve) => setTimeout(resolve, 10));
  };
  const isWaiting = async (id: string): Promise<boolean> => (await pawl.run(id).status()).status === "waiting";
  await pawl.start(approve, { id: 1 }, { id: "a-1", tags: ["vip"] });
  await until(() => isWaiting("a-1"));
  await pawl.start(approve, { id: 2 }, { id: "a-2" });
  await until(() => isWaiting("a-2"));
  const runs = [
    await pawl.start("fails", undefined, { id: "f-1" }),
    await pawl.start("done", undefined, { id: "d-1" }),
    await pawl.start("typed", undefined, { id: "types-2" }),
  ];
  await Promise.allSettled(runs.map((one) => one.result()));
  await pawl.start("nobody", { a: 1 }, { id: "n-1" });
  await until(async () => (await pawl.projection(sums).status()).live !== null);
  await pawl.stream("account-1").append([Deposited({ amount: 10 }), Deposited({ amount: 5 })]);
  await pawl.actions.create({ id: "coupon-1", owner: "ann" });
  await pawl.slot<number>("visits", { initial: 0 }).update((n) => n + 1);
  await pawl.slot<unknown>("types", { initial: 0 }).set(types());
  await until(async () => (await pawl.reactions.targets("mail", { status: "blocked" })).targets.length > 0);
  await until(async () => (await pawl.projection(sums).status()).live?.failure != null);
  await worker.stop();
}
