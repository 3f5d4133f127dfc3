/**
 * The watchdog: a thread that ends the process when its event loop stands still for too long, and says whose code ran then.
 *
 * Code that never gives the loop back cannot be stopped from inside: no timer fires, no lease is renewed, nothing is told. So the
 * loop beats a counter in shared memory, a thread looks at it, and when it stood still for the whole limit the thread writes one
 * sentence to standard error and kills the process; its peers then take over what it held. Limits are counted in the thread's own
 * looks, not by a clock: a process that was stopped, or whose machine slept, has not looked either, and is no false alarm.
 *
 * Promises: it never barks before the limit, and does within a good third more (a few milliseconds more where that is longer); it
 * keeps no process alive; it says its sentence if standard error takes it within a second, and ends the process either way. A
 * process that can be debugged is left alone, as a breakpoint is no hang. Where no thread can be had, work goes on without.
 * Leaves out: code that gives the loop back but never settles, and what the limit should be. A thread of the application's own
 * that imports this has a watchdog of its own, which ends the whole process too.
 */

import { Worker } from "node:worker_threads";
import { InvalidArgumentError } from "../kernel/errors.ts";

export interface Watchdog {
  /** Says whose code runs from now on, for the report; cheap, called very often. Undefined: nobody's. */
  running(label: string | undefined): void;
  stop(): void;
}

export interface WatchdogOptions {
  /** How long the event loop may stand still. */
  readonly limitMs: number;
}

/** The shared words. The thread sleeps on `settings`, so that it hears of a change at once. */
const AT = {
  settings: 0,
  stopped: 1,
  limitMs: 2,
  lookMs: 3,
  beat: 4,
  debugged: 5,
  labelTurn: 6,
  labelBytes: 7,
} as const;
const LABEL_START = Int32Array.BYTES_PER_ELEMENT * Object.keys(AT).length;
const LABEL_MAX_BYTES = 512;

const LOOKS_PER_LIMIT = 8;
/** A process with a long limit is still looked at every second, so that what hangs is not left hanging much longer. */
const LONGEST_LOOK_MS = 1000;
const LONGEST_LIMIT_MS = 2 ** 31 - 1;

/**
 * What the thread runs. It is text, because that works from sources, from the built package and from a bundle alike.
 *
 * Two looks are added to the limit: one because the loop may have been free for a while after its last beat, and one for timers
 * that come late. The sentence is written beside the thread, not by it: whoever reads standard error may be what is stuck, and a
 * thread that waits for the reader ends nothing. The kill is not enough for the first process of a container, to which Linux
 * delivers no signal from within that it does not handle; that one is made to exit through the inspector, which can interrupt
 * JavaScript but not a system call.
 */
const THREAD = `
"use strict";
const { workerData } = process.getBuiltinModule("node:worker_threads");
const fs = process.getBuiltinModule("node:fs");
const { shared, AT, LABEL_START } = workerData;
const cells = new Int32Array(shared, 0, LABEL_START / 4);
const read = (at) => Atomics.load(cells, at);

let beat;
let still = 0;
while (read(AT.stopped) === 0) {
  const settings = read(AT.settings);
  const lookMs = read(AT.lookMs);
  const slept = Atomics.wait(cells, AT.settings, settings, lookMs) === "timed-out";
  const seen = read(AT.beat);
  still = slept && seen === beat && read(AT.debugged) === 0 ? still + 1 : 0;
  beat = seen;
  if (still * lookMs < read(AT.limitMs) + 2 * lookMs) continue;
  bark(read(AT.limitMs));
  break;
}

function bark(limitMs) {
  const label = readLabel();
  const who = label === "" ? "no run was at work" : JSON.stringify(label) + " was at work";
  const sentence = "Pawl: the event loop of process " + process.pid + " stood still for " + limitMs + " ms while " + who +
    "; the process is ended, so that its peers go on with the work.\\n";
  say(sentence, 1000, () => {
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
    // An exit waits for whoever is connected.
    setTimeout(() => session.disconnect(), 100);
  } catch {}
  setTimeout(() => say("Pawl: process " + process.pid + " is the first of its container and cannot be ended from within: " +
    "restart it, and run it under an init (docker run --init).\\n", 1000, () => {}), 2000);
}

/** Calls back once, when it is said or after so long. */
function say(sentence, patienceMs, then) {
  const once = () => { const next = then; then = () => {}; next(); };
  setTimeout(once, patienceMs);
  const write = () => fs.write(2, sentence, (error) => error?.code === "EAGAIN" ? setTimeout(write, 10) : once());
  write();
}

/**
 * Read again while it changes: a loop that is kept from its timers by promises alone still changes it, and its thread may have been
 * put aside in the middle of that.
 */
function readLabel() {
  for (let tries = 300; ; tries -= 1) {
    const turn = read(AT.labelTurn);
    const bytes = Buffer.from(new Uint8Array(shared, LABEL_START, read(AT.labelBytes)));
    if (tries === 0 || (turn % 2 === 0 && turn === read(AT.labelTurn))) return bytes.toString();
    Atomics.wait(cells, AT.settings, read(AT.settings), tries % 3);
  }
}
`;

/** Taken now: a test that puts false timers in their place later would look like a loop that stands still. */
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
        // Not those of the process, which may tell every thread to load something first.
        execArgv: [],
        env: {},
        // Of its own and never used: joined to those of the process, they would make its pipes such that nobody waits for them.
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
    const lookMs = Math.min(Math.ceil(limitMs / LOOKS_PER_LIMIT), LONGEST_LOOK_MS);
    Atomics.store(this.#cells, AT.limitMs, limitMs);
    Atomics.store(this.#cells, AT.lookMs, lookMs);
    this.#beat();
    this.#wake();
    endInterval(this.#timer);
    this.#timer = startInterval(() => this.#beat(), lookMs).unref();
  }

  /**
   * The beat also carries whether the inspector is open, as the thread cannot ask for that: it sees its own only. A debugger can
   * attach only while it is open, and a loop at a breakpoint was free when it was opened, at the last beat or before. Only an
   * inspector that a signal opens while the loop already stands still comes too late.
   */
  #beat(): void {
    Atomics.store(this.#cells, AT.debugged, this.#inspector?.url() === undefined ? 0 : 1);
    Atomics.add(this.#cells, AT.beat, 1);
  }

  /** Takes 0.2 to 0.6 µs for another label, the most for one just made of pieces, and some 20 ns for the one that stands there. */
  say(label: string | undefined): void {
    if (label === this.#label) return;
    this.#label = label;
    // Odd while it changes.
    Atomics.add(this.#cells, AT.labelTurn, 1);
    this.#cells[AT.labelBytes] = label === undefined ? 0 : encoder.encodeInto(label, this.#labelBytes).written;
    Atomics.add(this.#cells, AT.labelTurn, 1);
  }

  /** Takes back what was said, unless somebody else has spoken since. */
  unsay(label: string | undefined): void {
    if (label === this.#label) this.say(undefined);
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

/** Some builds of Node have no inspector; importing it would then fail. */
function inspectorOrNone(): typeof import("node:inspector") | undefined {
  try {
    return process.getBuiltinModule("node:inspector");
  } catch {
    return undefined;
  }
}

/** The limits of all who asked, each in an object of its own. */
const asked = new Set<WatchdogOptions>();
let thread: Thread | undefined;
let isWarned = false;

/** One for a process: asked for again, the same thread serves (counted), with the shortest limit. */
export function startWatchdog(options: WatchdogOptions): Watchdog {
  const { limitMs } = options;
  if (!(limitMs > 0 && limitMs <= LONGEST_LIMIT_MS))
    throw new InvalidArgumentError("limitMs", `must be above 0 and at most ${LONGEST_LIMIT_MS}`);
  const mine = { limitMs: Math.ceil(limitMs) };
  let said: string | undefined;
  let isStopped = false;
  asked.add(mine);
  settle();
  return {
    running(label) {
      if (isStopped) return;
      said = label;
      thread?.say(label);
    },
    stop() {
      if (isStopped) return;
      isStopped = true;
      asked.delete(mine);
      thread?.unsay(said);
      settle();
    },
  };
}

/** Makes the thread what those who asked for it need: none, a new one, or one with another limit. */
function settle(): void {
  if (asked.size === 0) {
    thread?.end();
    thread = undefined;
    return;
  }
  const limitMs = Math.min(...[...asked].map((one) => one.limitMs));
  try {
    if (thread === undefined) thread = new Thread(limitMs, lost);
    else thread.limit(limitMs);
  } catch (error) {
    warn(error);
  }
}

function lost(which: Thread, error: unknown): void {
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
    `No watchdog: code that blocks the event loop will not be noticed, as no thread runs: ${reason}`,
    {
      type: "PawlWarning",
      code: "no_watchdog",
    },
  );
}
