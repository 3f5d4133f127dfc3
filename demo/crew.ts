/**
 * The processes of the demonstration. A place is a worker or a web process that is started again, as a new process, when it dies.
 *
 * Guarantees: a process that ended without having been killed by us is recorded as an accident, with the end of its stderr.
 * Out of scope: which process is killed and when (chaos.ts), and what the processes do (worker.ts, web.ts).
 */

import { type ChildProcess, fork } from "node:child_process";
import { join } from "node:path";

export type PlaceState = "starting" | "working" | "killed" | "frozen" | "stopping" | "gone";

/** How long a place stays empty, so that it can be seen. */
const EMPTY_MS = 700;
const STOP_PATIENCE_MS = 10_000;

export interface PlaceOptions<Message> {
  readonly name: string;
  readonly script: "worker.ts" | "web.ts";
  /** Called for each new process. */
  readonly args: (life: number) => readonly string[];
  readonly onMessage: (message: Message) => void;
}

/** A worker or a web process, with its restarts. */
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
    const { script, args, onMessage } = this.#options;
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
      // A message that a process sent before it was killed may arrive after it.
      if (this.state !== "killed") onMessage(message as Message);
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

  /** The process has reported that it is ready, or that it is frozen. The report of a process that is stopping may come late. */
  is(state: "working" | "frozen"): void {
    if (!this.#isOver) this.state = state;
  }

  /** Sends a message to the process, if there is one. */
  send(message: object): void {
    if (this.#child?.connected) this.#child.send(message, () => {});
  }

  /** SIGKILL: the process cannot react to it. */
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

  /** Lets the process finish its current work, and waits until it has ended. */
  async stop(): Promise<void> {
    this.#isOver = true;
    clearTimeout(this.#restart);
    this.thaw();
    if (this.state === "working" || this.state === "starting") {
      this.state = "stopping";
      this.send({ is: "stop" });
    }
    const patience = setTimeout(() => this.#child?.kill("SIGKILL"), STOP_PATIENCE_MS);
    await this.#closed;
    clearTimeout(patience);
  }

  /** Kills the process immediately: for the end of the program. */
  end(): void {
    this.#isOver = true;
    clearTimeout(this.#restart);
    this.state = "gone";
    this.#child?.kill("SIGKILL");
  }
}
