/**
 * What the tests of real SQLite files share: a folder that goes away, child processes that speak in lines, and the raw
 * look at a file.
 *
 * A child is a TypeScript program of `children/`, run by this Node. It says a line for everything its parent must know,
 * and hears lines on its standard input. Compiled code is kept where Node keeps it, so that a start takes about 60 ms.
 */

import { type ChildProcess, spawn } from "node:child_process";
import { existsSync, mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { createInterface } from "node:readline";
import { DatabaseSync } from "node:sqlite";
import { afterAll } from "vitest";

/** A folder of its own for a test file, removed after its last test; in memory where the disk plays no part. */
export function scratchFolder(where: "on disk" | "in memory" = "on disk"): string {
  const parent = where === "in memory" && existsSync("/dev/shm") ? "/dev/shm" : tmpdir();
  const folder = mkdtempSync(join(parent, "pawl-sqlite-"));
  afterAll(() => rmSync(folder, { recursive: true, force: true, maxRetries: 3 }));
  return folder;
}

export interface Ending {
  readonly code: number | null;
  readonly signal: string | null;
}

/** A running child, with what it said so far. */
export class Child {
  readonly #process: ChildProcess;
  readonly #name: string;
  readonly #said: string[] = [];
  #complaints = "";
  #heard: (() => void) | undefined;
  #ending: Ending | undefined;
  readonly ended: Promise<Ending>;

  constructor(process: ChildProcess, name: string) {
    this.#process = process;
    this.#name = name;
    // The child may be dead before it reads; that shows in what it says, not here.
    process.stdin?.on("error", () => {});
    process.stderr?.on("data", (text) => {
      this.#complaints += text;
    });
    if (process.stdout !== null)
      createInterface({ input: process.stdout }).on("line", (line) => {
        this.#said.push(line);
        this.#heard?.();
      });
    this.ended = new Promise((resolve) => {
      process.on("close", (code, signal) => {
        this.#ending = { code, signal };
        this.#heard?.();
        resolve(this.#ending);
      });
    });
  }

  /** The next line; a child that ends without one has failed. */
  async line(): Promise<string> {
    for (;;) {
      const line = this.#said.shift();
      if (line !== undefined) return line;
      if (this.#ending !== undefined)
        throw new Error(`${this.#name} ended with ${JSON.stringify(this.#ending)}: ${this.#complaints}`);
      await new Promise<void>((resolve) => {
        this.#heard = resolve;
      });
    }
  }

  tell(line: string): void {
    this.#process.stdin?.write(`${line}\n`);
  }

  /** Ends it as a power cut would: nothing of it runs any more. */
  async kill(): Promise<Ending> {
    this.#process.kill("SIGKILL");
    return this.ended;
  }

  get complaints(): string {
    return this.#complaints;
  }
}

/** Starts a program of `children/`. Whatever is left of it when the tests end is ended with them. */
export function startChild(program: string, args: readonly string[]): Child {
  const file = join(import.meta.dirname, "children", program);
  const child = spawn(process.execPath, ["--disable-warning=ExperimentalWarning", file, ...args], {
    env: { ...process.env, NODE_COMPILE_CACHE: join(tmpdir(), "node-compile-cache"), NODE_OPTIONS: "" },
    stdio: ["pipe", "pipe", "pipe"],
  });
  started.add(child);
  child.on("close", () => started.delete(child));
  return new Child(child, program);
}

const started = new Set<ChildProcess>();
process.on("exit", () => {
  for (const child of started) child.kill("SIGKILL");
});

/** What SQLite itself says of the file: "ok", or what is wrong with it. */
export function integrityOf(path: string): string {
  const db = new DatabaseSync(path);
  try {
    return allOf(db, "pragma integrity_check")
      .map((row) => String(row["integrity_check"]))
      .join("; ");
  } finally {
    db.close();
  }
}

export function allOf(db: DatabaseSync, sql: string, ...values: (string | number)[]): Record<string, unknown>[] {
  return db.prepare(sql).all(...values);
}

/** What stands in the slots of the file, by name, in one snapshot. */
export function slotsIn(db: DatabaseSync): Map<string, unknown> {
  const rows = allOf(db, "select key, value from pawl_now where namespace = 'default' and space = 'slot'");
  return new Map(rows.map((row) => [String(row["key"]), JSON.parse(String(row["value"]))]));
}

export const sleep = (ms: number): Promise<void> => new Promise((resolve) => setTimeout(resolve, ms));

export function median(numbers: readonly number[]): number {
  const sorted = numbers.toSorted((a, b) => a - b);
  return sorted[Math.floor(sorted.length / 2)] ?? Number.NaN;
}
