/**
 * The crew: places that are filled by one process after another. A place whose process dies gets a new one.
 *
 * Promises: a process that we did not kill and that ended all the same is kept as an accident, with what it said last.
 * Leaves out: whom to kill and when (chaos.ts), and what the processes do (worker.ts, web.ts).
 */

import { type ChildProcess, fork } from "node:child_process";
import { join } from "node:path";

export type PlaceState = "starting" | "working" | "killed" | "frozen" | "stopping" | "gone";

/** How long a place stays empty, so that one sees it. */
const EMPTY_MS = 700;
const STOP_PATIENCE_MS = 10_000;

export interface PlaceOptions<Message> {
  readonly name: string;
  readonly script: "worker.ts" | "web.ts";
  /** Asked anew for each process. */
  readonly args: (life: number) => readonly string[];
  readonly hear: (message: Message) => void;
}

/** One place in the crew. */
export class Place<Message = unknown> {
  readonly name: string;
  readonly #options: PlaceOptions<Message>;
  #child: ChildProcess | undefined;
  #lives = 0;
  #restart: NodeJS.Timeout | undefined;
  #closed: Promise<void> = Promise.resolve();
  #isOver = false;
  state: PlaceState = "starting";
  killCount = 0;
  /** Processes that ended by themselves: there should be none. */
  readonly accidents: string[] = [];

  constructor(options: PlaceOptions<Message>) {
    this.name = options.name;
    this.#options = options;
    this.#start();
  }

  get pid(): number | undefined {
    return this.#child?.pid;
  }

  #start(): void {
    const { script, args, hear } = this.#options;
    this.#lives += 1;
    this.state = "starting";
    const child = fork(join(import.meta.dirname, script), args(this.#lives), {
      stdio: ["ignore", "ignore", "pipe", "ipc"],
    });
    this.#child = child;
    let said = "";
    child.stderr?.on("data", (chunk: Buffer) => {
      said = `${said}${chunk}`.slice(-4_000);
    });
    child.on("error", (error) => {
      said += error.message;
    });
    child.on("message", (message) => {
      // What a process said before it was killed may arrive after.
      if (this.state !== "killed") hear(message as Message);
    });
    this.#closed = new Promise((resolve) => {
      child.once("close", (code, signal) => {
        const wasMeant = this.state === "killed" || this.state === "gone" || (this.state === "stopping" && code === 0);
        if (!wasMeant)
          this.accidents.push(
            `${this.name} (pid ${child.pid}) ended with ${signal ?? `exit code ${code}`}: ${said.trim()}`,
          );
        this.state = this.#isOver ? "gone" : "killed";
        if (!this.#isOver) this.#restart = setTimeout(() => this.#start(), EMPTY_MS);
        resolve();
      });
    });
  }

  /** The process has said that it is ready, or that it is frozen; one that was told to stop may say so a little late. */
  is(state: "working" | "frozen"): void {
    if (!this.#isOver) this.state = state;
  }

  /** Says something to the process, if there is one. */
  tell(message: object): void {
    if (this.#child?.connected) this.#child.send(message, () => {});
  }

  /** SIGKILL: the process has no chance to do anything about it. */
  kill(): void {
    this.state = "killed";
    this.killCount += 1;
    this.#child?.kill("SIGKILL");
  }

  thaw(): void {
    if (this.state !== "frozen") return;
    this.state = "working";
    this.#child?.kill("SIGCONT");
  }

  /** Lets the process finish what it has in hand, and waits until it has ended. */
  async stop(): Promise<void> {
    this.#isOver = true;
    clearTimeout(this.#restart);
    this.thaw();
    if (this.state === "working" || this.state === "starting") {
      this.state = "stopping";
      this.tell({ is: "stop" });
    }
    const patience = setTimeout(() => this.#child?.kill("SIGKILL"), STOP_PATIENCE_MS);
    await this.#closed;
    clearTimeout(patience);
  }

  /** At once, whatever it does: for the end of the program. */
  end(): void {
    this.#isOver = true;
    clearTimeout(this.#restart);
    this.state = "gone";
    this.#child?.kill("SIGKILL");
  }
}
