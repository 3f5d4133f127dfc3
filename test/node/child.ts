/**
 * Child processes for tests: TypeScript programs, run by this Node, that communicate in lines.
 *
 * A child prints a line for everything its parent must know, and reads lines from its standard input. Compiled code is cached where Node
 * caches it, so that a start takes about 60 ms. Children that are left when their parent ends are ended with it.
 *
 * Out of scope: the content of the lines. It knows no test runner, so that scripts can use it too.
 */

import { type ChildProcess, spawn } from "node:child_process";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { createInterface } from "node:readline";

export interface Ending {
  readonly code: number | null;
  readonly signal: string | null;
}

export interface SpawnOptions {
  readonly env?: Readonly<Record<string, string>> | undefined;
  /** Options of Node itself. */
  readonly nodeArgs?: readonly string[] | undefined;
}

/** Starts a program in a process of its own, with pipes for all three of its streams. */
export function spawnNode(file: string, args: readonly string[], options: SpawnOptions = {}): ChildProcess {
  const { env = {}, nodeArgs = [] } = options;
  const child = spawn(process.execPath, ["--disable-warning=ExperimentalWarning", ...nodeArgs, file, ...args], {
    env: { ...process.env, NODE_COMPILE_CACHE: join(tmpdir(), "node-compile-cache"), NODE_OPTIONS: "", ...env },
    stdio: ["pipe", "pipe", "pipe"],
  });
  // The child may be dead before it reads; that shows in what it says, not here.
  child.stdin.on("error", () => {});
  started.add(child);
  child.on("close", () => started.delete(child));
  return child;
}

const started = new Set<ChildProcess>();
process.on("exit", () => {
  for (const child of started) child.kill("SIGKILL");
});

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

  /** The lines that were not asked for yet. */
  rest(): readonly string[] {
    return this.#said.splice(0);
  }

  tell(line: string): void {
    this.#process.stdin?.write(`${line}\n`);
  }

  signal(signal: NodeJS.Signals): void {
    this.#process.kill(signal);
  }

  /** Ends it as a power cut would: nothing of it runs any more. */
  async kill(): Promise<Ending> {
    this.signal("SIGKILL");
    return this.ended;
  }

  get complaints(): string {
    return this.#complaints;
  }
}
