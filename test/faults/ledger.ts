/**
 * The ledger: what workers reported before each attempt, and the results that they got, kept by a process that no fault affects.
 *
 * A worker prints a line before each attempt and one after its result, so that "acknowledged" is what it had received before it
 * died. The database is never trusted; it is compared with this. An attempt that has no result when its worker is dead is
 * unknown: it may have happened.
 *
 * Some of what workers do is an effect outside of the database, and this is the outside: a worker may ask for its outcome.
 *
 * Times are nanoseconds of the machine's monotonic clock, which all processes share and no fault sets.
 */

import { createWriteStream, type WriteStream } from "node:fs";

/** Acknowledged; refused, without an effect; or unknown. */
export type Answer = "open" | "yes" | "no" | "unknown";

export interface Operation {
  /** Which kind of work it belongs to. */
  readonly work: string;
  /** The process that asked: its place in the crew and the number of its life. */
  readonly life: string;
  readonly input: unknown;
  readonly startedAt: number;
  endedAt: number | null;
  answer: Answer;
  output: unknown;
  code: string | null;
}

/** Something that happened to a worker without being an answer. */
export interface Note {
  readonly work: string;
  readonly life: string;
  readonly at: number;
  readonly what: string;
  readonly data: unknown;
}

/** One line of a worker. */
export type LedgerLine =
  | { readonly is: "try"; readonly op: number; readonly work: string; readonly input: unknown; readonly at: number }
  | { readonly is: "yes"; readonly op: number; readonly output: unknown; readonly at: number }
  | { readonly is: "no" | "unknown"; readonly op: number; readonly code: string; readonly at: number }
  | { readonly is: "note"; readonly work: string; readonly what: string; readonly data: unknown; readonly at: number }
  | Question;

/** A worker asks what the ledger knows. */
export interface Question {
  readonly is: "ask";
  readonly ask: number;
  readonly work: string;
  readonly question: unknown;
}

/** The machine's monotonic clock, the same in all processes. */
export const monotonicNs = (): number => Number(process.hrtime.bigint());

export type Listener = {
  readonly ended?: (operation: Operation) => void;
  readonly noted?: (note: Note) => void;
  readonly asked?: (life: string, question: Question) => void;
};

/** Told of a worker that says what cannot be: its own or the harness's mistake. */
export class LedgerError extends Error {}

export class Ledger {
  readonly #operations = new Map<string, Operation[]>();
  readonly #notes = new Map<string, Note[]>();
  /** What has no answer yet, by life and number. */
  readonly #open = new Map<string, Map<number, Operation>>();
  readonly #dead = new Set<string>();
  readonly #listeners: Listener[] = [];
  readonly #copy: WriteStream | undefined;

  /** With a file, every line is also kept there as it came. */
  constructor(file?: string) {
    this.#copy = file === undefined ? undefined : createWriteStream(file);
  }

  listen(listener: Listener): void {
    this.#listeners.push(listener);
  }

  operations(work: string): readonly Operation[] {
    return this.#operations.get(work) ?? [];
  }

  notes(work: string): readonly Note[] {
    return this.#notes.get(work) ?? [];
  }

  /** Processes that are no more. */
  get dead(): ReadonlySet<string> {
    return this.#dead;
  }

  /** Whether an attempt of this kind is in progress. */
  isOpen(work: string): boolean {
    for (const open of this.#open.values())
      for (const operation of open.values()) if (operation.work === work) return true;
    return false;
  }

  get works(): readonly string[] {
    return [...this.#operations.keys()];
  }

  hear(life: string, text: string): void {
    this.#copy?.write(`${life} ${text}\n`);
    const line = JSON.parse(text) as LedgerLine;
    if (line.is === "note") {
      this.#note({ life, ...line });
      return;
    }
    if (line.is === "ask") {
      for (const { asked } of this.#listeners) asked?.(life, line);
      return;
    }
    const open = this.#opensOf(life);
    if (line.is === "try") {
      const { work, input, at } = line;
      const operation: Operation = {
        work,
        life,
        input,
        startedAt: at,
        endedAt: null,
        answer: "open",
        output: undefined,
        code: null,
      };
      if (open.has(line.op)) throw new LedgerError(`${life} tries ${line.op} twice`);
      open.set(line.op, operation);
      push(this.#operations, work, operation);
      return;
    }
    const operation = open.get(line.op);
    if (operation === undefined) throw new LedgerError(`${life} has an answer to ${line.op}, which it did not try`);
    open.delete(line.op);
    operation.endedAt = line.at;
    operation.answer = line.is;
    if (line.is === "yes") operation.output = line.output;
    else operation.code = line.code;
    this.#tell(operation);
  }

  /** The process has ended: its attempts in progress stay unknown. */
  died(life: string): void {
    this.#copy?.write(`${life} died\n`);
    this.#dead.add(life);
    const open = this.#opensOf(life);
    this.#open.delete(life);
    for (const operation of open.values()) {
      operation.answer = "unknown";
      operation.code = "died";
      this.#tell(operation);
    }
  }

  async close(): Promise<void> {
    const copy = this.#copy;
    if (copy !== undefined) await new Promise<void>((resolve) => copy.end(() => resolve()));
  }

  #note(line: Note): void {
    const { work, life, at, what, data } = line;
    const note = { work, life, at, what, data };
    push(this.#notes, work, note);
    for (const { noted } of this.#listeners) noted?.(note);
  }

  #tell(operation: Operation): void {
    for (const { ended } of this.#listeners) ended?.(operation);
  }

  #opensOf(life: string): Map<number, Operation> {
    let open = this.#open.get(life);
    if (open === undefined) {
      open = new Map();
      this.#open.set(life, open);
    }
    return open;
  }
}

function push<T>(lists: Map<string, T[]>, name: string, item: T): void {
  const list = lists.get(name);
  if (list === undefined) lists.set(name, [item]);
  else list.push(item);
}
