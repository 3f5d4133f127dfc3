/**
 * The watchdog: a thread that ends the process when its event loop is blocked for too long, and reports whose code was running.
 *
 * Code that blocks the event loop cannot be stopped from inside: no timer fires, no lease is renewed, no event is delivered. So a timer
 * increments a heartbeat in shared memory, and a thread polls it. When it has not changed for the whole limit, the thread writes one line
 * to standard error and kills the process; other processes then take over its work. The limit is counted in the thread's own polls, not by a
 * clock: a process that was stopped, or whose machine slept, has not polled either, so that this is no false alarm.
 *
 * Guarantees: it never fires before the limit, and fires within about a third more (or a few milliseconds more, if that is longer); it
 * keeps no process alive; it writes its line if standard error accepts it within a second, and ends the process in any case. While
 * the inspector is open it does nothing, because a breakpoint blocks the loop too. If no thread can be started, work continues without it.
 * Out of scope: code that does not block the loop but never settles, and the choice of the limit. A thread of the application that
 * imports this has its own watchdog, which ends the whole process too.
 */

import { Worker } from "node:worker_threads";
import { InvalidArgumentError } from "../kernel/errors.ts";
import type { Watchdog } from "../kernel/ports.ts";

export interface WatchdogOptions {
  /** How long the event loop may be blocked. */
  readonly limitMs: number;
}

/** The cells of the shared memory. The thread waits on `settings`, so that a change wakes it. */
const AT = {
  settings: 0,
  stopped: 1,
  limitMs: 2,
  pollMs: 3,
  heartbeat: 4,
  debugged: 5,
  labelVersion: 6,
  labelBytes: 7,
} as const;
const LABEL_START = Int32Array.BYTES_PER_ELEMENT * Object.keys(AT).length;
const LABEL_MAX_BYTES = 512;

const POLLS_PER_LIMIT = 8;
/** A process with a long limit is still polled every second, so that it is not ended much later than the limit. */
const LONGEST_POLL_MS = 1000;
const LONGEST_LIMIT_MS = 2 ** 31 - 1;

/**
 * The code of the thread. It is a string, which works from sources, from the built package and from a bundle.
 *
 * Two polls are added to the limit: one because the loop may have been free for a while after its last heartbeat, and one for late
 * timers. The line is written asynchronously: the reader of standard error may be what is blocked, and a thread that waits for it would end
 * nothing. The kill is not enough for the first process of a container, to which Linux delivers no signal from within that it does not
 * handle; that one is made to exit through the inspector, which can interrupt JavaScript but not a system call.
 */
const THREAD = `
"use strict";
const { workerData } = process.getBuiltinModule("node:worker_threads");
const fs = process.getBuiltinModule("node:fs");
const { shared, AT, LABEL_START } = workerData;
const cells = new Int32Array(shared, 0, LABEL_START / 4);
const read = (at) => Atomics.load(cells, at);

let heartbeat;
let unchanged = 0;
while (read(AT.stopped) === 0) {
  const settings = read(AT.settings);
  const pollMs = read(AT.pollMs);
  const slept = Atomics.wait(cells, AT.settings, settings, pollMs) === "timed-out";
  const current = read(AT.heartbeat);
  unchanged = slept && current === heartbeat && read(AT.debugged) === 0 ? unchanged + 1 : 0;
  heartbeat = current;
  if (unchanged * pollMs < read(AT.limitMs) + 2 * pollMs) continue;
  endProcess(read(AT.limitMs));
  break;
}

function endProcess(limitMs) {
  const label = readLabel();
  const what = label === "" ? "no run was executing" : JSON.stringify(label) + " was executing";
  const line = "Pawl: the event loop of process " + process.pid + " was blocked for " + limitMs + " ms while " + what +
    "; the process is killed, so that other processes continue its work.\\n";
  report(line, 1000, () => {
    process.kill(process.pid, "SIGKILL");
    setTimeout(exitByInspector, 200);
  });
}

function exitByInspector() {
  try {
    const { Session } = process.getBuiltinModule("node:inspector");
    const session = new Session();
    session.connectToMainThread();
    session.post("Runtime.evaluate", { expression: "process.reallyExit(137)" });
    // The exit waits for connected sessions.
    setTimeout(() => session.disconnect(), 100);
  } catch {}
  setTimeout(() => report("Pawl: process " + process.pid + " is the first of its container and cannot be killed from within: " +
    "restart it, and run it under an init process (docker run --init).\\n", 1000, () => {}), 2000);
}

/** Calls back once, when the line is written or after the timeout. */
function report(line, timeoutMs, then) {
  const once = () => { const next = then; then = () => {}; next(); };
  setTimeout(once, timeoutMs);
  const write = () => fs.write(2, line, (error) => error?.code === "EAGAIN" ? setTimeout(write, 10) : once());
  write();
}

/**
 * Reads again while it changes: a loop that is blocked by microtasks still changes it, and its thread may have been suspended in the
 * middle of a change.
 */
function readLabel() {
  for (let tries = 300; ; tries -= 1) {
    const version = read(AT.labelVersion);
    const bytes = Buffer.from(new Uint8Array(shared, LABEL_START, read(AT.labelBytes)));
    if (tries === 0 || (version % 2 === 0 && version === read(AT.labelVersion))) return bytes.toString();
    Atomics.wait(cells, AT.settings, read(AT.settings), tries % 3);
  }
}
`;

/** The originals: with fake timers that a test installs later, the loop would look blocked. */
const { setInterval: startInterval, clearInterval: endInterval } = globalThis;
const encoder = new TextEncoder();

class Thread {
  readonly #cells: Int32Array;
  readonly #labelBytes: Uint8Array;
  readonly #inspector = inspectorOrNone();
  #label: string | undefined;
  #limitMs = 0;
  #timer: NodeJS.Timeout | undefined;

  constructor(limitMs: number, failed: (thread: Thread, error: unknown) => void) {
    const shared = new SharedArrayBuffer(LABEL_START + LABEL_MAX_BYTES);
    this.#cells = new Int32Array(shared, 0, LABEL_START / Int32Array.BYTES_PER_ELEMENT);
    this.#labelBytes = new Uint8Array(shared, LABEL_START);
    this.limit(limitMs);
    try {
      const worker = new Worker(THREAD, {
        eval: true,
        // Not those of the process, which may preload modules in every thread.
        execArgv: [],
        env: {},
        // Separate and unused: shared with the process, they would make writes to its pipes asynchronous.
        stdout: true,
        stderr: true,
        name: "pawl watchdog",
        workerData: { shared, AT, LABEL_START },
      });
      worker.unref();
      worker.on("error", (error) => failed(this, error));
    } catch (error) {
      this.end();
      throw error;
    }
  }

  limit(limitMs: number): void {
    if (limitMs === this.#limitMs) return;
    this.#limitMs = limitMs;
    const pollMs = Math.min(Math.ceil(limitMs / POLLS_PER_LIMIT), LONGEST_POLL_MS);
    Atomics.store(this.#cells, AT.limitMs, limitMs);
    Atomics.store(this.#cells, AT.pollMs, pollMs);
    this.#heartbeat();
    this.#wake();
    endInterval(this.#timer);
    this.#timer = startInterval(() => this.#heartbeat(), pollMs).unref();
  }

  /**
   * The heartbeat also says whether the inspector is open, because the thread can see only its own. A debugger can attach only while it is
   * open, and a loop at a breakpoint was free when it was opened, at the last heartbeat or before. Only an inspector that a signal opens
   * while the loop is already blocked comes too late.
   */
  #heartbeat(): void {
    Atomics.store(this.#cells, AT.debugged, this.#inspector?.url() === undefined ? 0 : 1);
    Atomics.add(this.#cells, AT.heartbeat, 1);
  }

  /** Takes 0.2 to 0.6 µs for a new label, the most for one just concatenated, and some 20 ns for the current one. */
  setLabel(label: string | undefined): void {
    if (label === this.#label) return;
    this.#label = label;
    // Odd while it changes.
    Atomics.add(this.#cells, AT.labelVersion, 1);
    this.#cells[AT.labelBytes] = label === undefined ? 0 : encoder.encodeInto(label, this.#labelBytes).written;
    Atomics.add(this.#cells, AT.labelVersion, 1);
  }

  /** Clears the label, unless it has been changed since. */
  clearLabel(label: string | undefined): void {
    if (label === this.#label) this.setLabel(undefined);
  }

  end(): void {
    endInterval(this.#timer);
    Atomics.store(this.#cells, AT.stopped, 1);
    this.#wake();
  }

  #wake(): void {
    Atomics.add(this.#cells, AT.settings, 1);
    Atomics.notify(this.#cells, AT.settings);
  }
}

/** Some builds of Node have no inspector; an import would fail there. */
function inspectorOrNone(): typeof import("node:inspector") | undefined {
  try {
    return process.getBuiltinModule("node:inspector");
  } catch {
    return undefined;
  }
}

/** The options of all watchdogs in use, each a separate object. */
const active = new Set<WatchdogOptions>();
let thread: Thread | undefined;
let isWarned = false;

/** Starts the process's watchdog. All callers share one thread, with the shortest limit; it ends when all of them have stopped. */
export function startWatchdog(options: WatchdogOptions): Watchdog {
  const { limitMs } = options;
  if (!(limitMs > 0 && limitMs <= LONGEST_LIMIT_MS))
    throw new InvalidArgumentError("limitMs", `must be above 0 and at most ${LONGEST_LIMIT_MS}`);
  const mine = { limitMs: Math.ceil(limitMs) };
  let lastLabel: string | undefined;
  let isStopped = false;
  active.add(mine);
  updateThread();
  return {
    running(label) {
      if (isStopped) return;
      lastLabel = label;
      thread?.setLabel(label);
    },
    stop() {
      if (isStopped) return;
      isStopped = true;
      active.delete(mine);
      thread?.clearLabel(lastLabel);
      updateThread();
    },
  };
}

/** Starts or ends the thread, or changes its limit, as the active watchdogs need. */
function updateThread(): void {
  if (active.size === 0) {
    thread?.end();
    thread = undefined;
    return;
  }
  const limitMs = Math.min(...[...active].map((one) => one.limitMs));
  try {
    if (thread === undefined) thread = new Thread(limitMs, threadFailed);
    else thread.limit(limitMs);
  } catch (error) {
    warn(error);
  }
}

function threadFailed(which: Thread, error: unknown): void {
  which.end();
  if (which !== thread) return;
  thread = undefined;
  warn(error);
}

function warn(error: unknown): void {
  if (isWarned) return;
  isWarned = true;
  const reason = error instanceof Error ? error.message : String(error);
  process.emitWarning(
    `No watchdog: its thread could not run (${reason}), so code that blocks the event loop will not be noticed`,
    { type: "PawlWarning", code: "no_watchdog" },
  );
}
