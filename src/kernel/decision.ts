/**
 * Decisions: how a pure function sees records and says what to write.
 *
 * The decisions of a batch run one after another on shared cells, each cell holding what the store has and what the batch
 * makes of it. A decision works on drafts of its own, which are merged into the cells only when it returns: one that
 * throws leaves nothing behind. Reading a record that was not loaded makes the run void, whatever the decision does about
 * it, and asks for the record; `tx.uuid()` and `tx.random()` come from a tape, so they are the same in the next run.
 *
 * Values are given out frozen; what is written passes through the codec at once.
 */

import { utf8Length } from "./check.ts";
import type { Codec } from "./codec/codec.ts";
import { DELETED_KEPT_MS, type Entry, type Key, keyText, type Put, type Row } from "./contract.ts";
import { DecisionAsyncError, DecisionImpureError, ValueTooLargeError } from "./errors.ts";
import type { Chance, Ports } from "./ports.ts";

/** A key with its text, made once for each handle and used for every look-up. */
export interface Address extends Key {
  readonly text: string;
}

export function address(space: string, key: string): Address {
  return { space, key, text: keyText({ space, key }) };
}

/** What a decision sees besides its records. */
export interface Tx {
  /** The store's clock, the same for all decisions of a commit. */
  readonly nowMs: number;
  /** No fence below this may be given out. */
  readonly fenceFloor: number;
  random(): number;
  uuid(): string;
  record(at: Address): Draft;
}

export type Decision<T> = (tx: Tx) => T;

/** How values become text, and how long that may be. */
export interface Encoding {
  readonly namespace: string;
  readonly codec: Codec;
  readonly maxValueBytes: number;
}

/** One record in a batch: what the store has, and what the decisions so far make of it. */
export class Cell {
  readonly at: Address;
  /** Not read under a lock, but known to its holder, who alone may use it. */
  readonly isKnown: boolean;
  readonly stored: Row | null;
  row: Row | null;
  entries: Entry[] = [];
  /** The decoded value of `row`, once somebody asked. */
  decoded: { readonly value: unknown } | undefined;
  /** The draft of the decision that runs now. */
  draft: Draft | undefined;

  constructor(at: Address, stored: Row | null, isKnown = false) {
    this.at = at;
    this.isKnown = isKnown;
    this.stored = stored;
    this.row = stored;
  }

  put(): Put | undefined {
    return this.row === null || this.row === this.stored
      ? undefined
      : { was: this.stored, row: this.row, entries: this.entries };
  }
}

export interface Changes {
  value?: unknown;
  kind?: string | null;
  status?: string | null;
  dueMs?: number | null;
  holder?: string | null;
  fence?: number;
  wakes?: number;
  tries?: number;
}

/** One record as one decision sees and changes it. */
export class Draft {
  readonly at: Address;
  readonly #run: Run;
  readonly cell: Cell;
  row: Row | null;
  entries: Entry[] | undefined;
  #decoded: { readonly value: unknown } | undefined;

  constructor(run: Run, cell: Cell) {
    this.#run = run;
    this.at = cell.at;
    this.cell = cell;
    this.row = cell.row;
    this.#decoded = cell.decoded;
  }

  get exists(): boolean {
    return this.row !== null && this.row.value !== null;
  }
  /** 0 before the first write; goes on rising through deletion. */
  get version(): number {
    return this.row?.version ?? 0;
  }
  get fence(): number {
    return this.row?.fence ?? 0;
  }
  get wakes(): number {
    return this.row?.wakes ?? 0;
  }
  get tries(): number {
    return this.row?.tries ?? 0;
  }
  get holder(): string | null {
    return this.row?.holder ?? null;
  }
  get kind(): string | null {
    return this.row?.kind ?? null;
  }
  get status(): string | null {
    return this.row?.status ?? null;
  }
  get dueMs(): number | null {
    return this.row?.dueMs ?? null;
  }
  get head(): number {
    return this.row?.head ?? 0;
  }

  /** The value, frozen; undefined where there is none. */
  get value(): unknown {
    this.#run.check();
    const text = this.row?.value ?? null;
    if (text === null) return undefined;
    if (this.#decoded === undefined) {
      const value = this.#run.decode(this.at, text);
      this.#decoded = { value };
      // What cannot change is decoded once for the whole batch; a Map, a Date or bytes, once for each decision.
      if (deepFreeze(value) && this.row === this.cell.row) this.cell.decoded = this.#decoded;
    }
    return this.#decoded.value;
  }

  /** Changes what is named and leaves the rest. A record is made by the first write, which must have a value. */
  write(changes: Changes): void {
    const value = Object.hasOwn(changes, "value") ? this.#run.encode(this.at, changes.value) : undefined;
    const row = this.#open(value);
    if (value !== undefined) {
      row.value = value;
      this.#decoded = undefined;
    }
    if (changes.kind !== undefined) row.kind = changes.kind;
    if (changes.status !== undefined) row.status = changes.status;
    if (changes.dueMs !== undefined) row.dueMs = changes.dueMs;
    if (changes.holder !== undefined) row.holder = changes.holder;
    if (changes.fence !== undefined) row.fence = changes.fence;
    if (changes.wakes !== undefined) row.wakes = changes.wakes;
    if (changes.tries !== undefined) row.tries = changes.tries;
  }

  /** Adds to the record's log; answers the entry's version. */
  append(name: string, data: unknown): number {
    const text = this.#run.encode(this.at, data);
    const row = this.#open(undefined);
    row.head += 1;
    this.entries ??= [];
    this.entries.push({ version: row.head, name, data: text });
    return row.head;
  }

  /** Deletes the value and ends every claim; versions, fences and the log go on where they were if it is made again. */
  remove(): void {
    if (!this.exists) return;
    const dueMs = this.#run.nowMs + DELETED_KEPT_MS;
    const row = this.#open(undefined);
    row.value = null;
    row.kind = null;
    row.status = null;
    row.holder = null;
    row.tries = 0;
    row.dueMs = dueMs;
    this.#decoded = undefined;
  }

  /** The row to change: a copy on the first change of this decision, one version up. */
  #open(value: string | undefined): Mutable<Row> {
    const now = this.row;
    this.#run.check();
    if (value === undefined && (now === null || now.value === null))
      throw new Error(`${this.at.space} ${this.at.key} does not exist: its first write needs a value`);
    if (now !== null && now !== this.cell.row) {
      const row: Mutable<Row> = now;
      // Removed and made again in one decision: the time to sweep it goes with the deletion.
      if (row.value === null) row.dueMs = null;
      return row;
    }
    const row: Mutable<Row> =
      now === null
        ? { ...NEW_ROW, space: this.at.space, key: this.at.key }
        : now.value === null
          ? { ...now, dueMs: null }
          : { ...now };
    row.version += 1;
    this.row = row;
    return row;
  }
}

type Mutable<T> = { -readonly [K in keyof T]: T[K] };

const NEW_ROW: Row = {
  id: 0,
  space: "",
  key: "",
  version: 0,
  fence: 0,
  wakes: 0,
  tries: 0,
  holder: null,
  kind: null,
  status: null,
  dueMs: null,
  head: 0,
  value: null,
};

/** What a submission drew, so that it draws the same again. */
export interface Tape {
  readonly randoms: number[];
  readonly uuids: string[];
}

/** The batch as its decisions see it. */
export interface Scene {
  readonly cells: ReadonlyMap<string, Cell>;
  readonly nowMs: number | null;
  readonly fenceFloor: number;
  readonly encoding: Encoding;
  readonly chance: Chance;
}

/** How a decision runs. */
export interface RunOptions {
  /** The record whose holder asks, and may use what is known of it. */
  readonly held?: Address | null;
  readonly trap?: Ports["trap"];
}

/** Thrown through a decision whose run is void. */
const VOID = new Error("this run of the decision is void: it runs again with what it asked for");

/** One run of one decision. */
class Run implements Tx {
  readonly #scene: Scene;
  readonly #tape: Tape;
  #randomCount = 0;
  #uuidCount = 0;
  readonly #held: string | undefined;
  #isOver = false;
  readonly drafts: Draft[] = [];
  /** A record that was not loaded, or everything under lock, for the clock's sake. */
  wanted: Address | "lock" | undefined;
  bytes = 0;

  constructor(scene: Scene, tape: Tape, held: Address | null | undefined) {
    this.#scene = scene;
    this.#tape = tape;
    this.#held = held?.text;
  }

  /** What outlives its decision must neither read nor write. */
  check(): void {
    if (this.#isOver) throw new Error("this decision is over: what it was given cannot be used any more");
  }

  end(): void {
    this.#isOver = true;
    for (const { cell } of this.drafts) cell.draft = undefined;
  }

  /** Whether it used what is known of a record without writing it: nobody would notice if that has moved. */
  isUnchecked(outcome: Outcome<unknown>): boolean {
    return this.drafts.some(({ cell, row }) => cell.isKnown && (row === cell.row || outcome.is !== "done"));
  }

  get nowMs(): number {
    if (this.#scene.nowMs !== null) return this.#scene.nowMs;
    this.wanted ??= "lock";
    throw VOID;
  }

  get fenceFloor(): number {
    return Math.max(this.nowMs, this.#scene.fenceFloor);
  }

  random(): number {
    const { randoms } = this.#tape;
    const drawn = randoms[this.#randomCount++];
    if (drawn !== undefined) return drawn;
    const fresh = this.#scene.chance.random();
    randoms.push(fresh);
    return fresh;
  }

  uuid(): string {
    const { uuids } = this.#tape;
    const drawn = uuids[this.#uuidCount++];
    if (drawn !== undefined) return drawn;
    const fresh = this.#scene.chance.uuid();
    uuids.push(fresh);
    return fresh;
  }

  record(at: Address): Draft {
    this.check();
    const cell = this.#scene.cells.get(at.text);
    if (cell === undefined || (cell.isKnown && at.text !== this.#held)) {
      this.wanted = at;
      throw VOID;
    }
    if (cell.draft !== undefined) return cell.draft;
    const draft = new Draft(this, cell);
    cell.draft = draft;
    this.drafts.push(draft);
    return draft;
  }

  encode(at: Address, value: unknown): string {
    const { codec, namespace, maxValueBytes } = this.#scene.encoding;
    const text = codec.encode(value, { namespace, space: at.space, key: at.key });
    if (text.length * 3 > maxValueBytes) {
      const bytes = utf8Length(text);
      if (bytes > maxValueBytes) throw new ValueTooLargeError(bytes, maxValueBytes);
    }
    this.bytes += text.length;
    return text;
  }

  decode(at: Address, text: string): unknown {
    const { codec, namespace } = this.#scene.encoding;
    return codec.decode(text, { namespace, space: at.space, key: at.key });
  }
}

export type Outcome<T> =
  | { readonly is: "done"; readonly value: T; readonly bytes: number }
  | { readonly is: "threw"; readonly error: unknown }
  | { readonly is: "void"; readonly wanted: Address | "lock" };

/** Runs a decision on the cells, and merges what it wrote if it returned. */
export function runDecision<T>(decide: Decision<T>, scene: Scene, tape: Tape, options: RunOptions = {}): Outcome<T> {
  let rehearsed: string | undefined;
  if (options.trap !== undefined) {
    const rehearsal = attempt(decide, scene, tape, options);
    if (rehearsal.outcome.is !== "done") return rehearsal.outcome;
    rehearsed = written(rehearsal.run);
  }
  const { run, outcome } = attempt(decide, scene, tape, options);
  if (rehearsed !== undefined && (outcome.is !== "done" || written(run) !== rehearsed))
    return { is: "threw", error: new DecisionImpureError("it wrote something else when it ran again") };
  if (outcome.is === "done") merge(run);
  return outcome;
}

function attempt<T>(
  decide: Decision<T>,
  scene: Scene,
  tape: Tape,
  { held, trap }: RunOptions,
): { run: Run; outcome: Outcome<T> } {
  const run = new Run(scene, tape, held);
  let outcome: Outcome<T>;
  try {
    const value = trap === undefined ? decide(run) : trap(() => decide(run));
    refusePromise(value);
    outcome = { is: "done", value, bytes: run.bytes };
  } catch (error) {
    outcome = { is: "threw", error };
  }
  run.end();
  // Whatever the decision made of it, a run that wanted something it could not have is void.
  if (run.wanted !== undefined) outcome = { is: "void", wanted: run.wanted };
  else if (run.isUnchecked(outcome)) outcome = { is: "void", wanted: "lock" };
  return { run, outcome };
}

function merge(run: Run): void {
  for (const { cell, row, entries } of run.drafts) {
    if (row === cell.row) continue;
    cell.row = row;
    cell.decoded = undefined;
    if (entries !== undefined) cell.entries = cell.entries.length === 0 ? entries : cell.entries.concat(entries);
  }
}

/** What a run would write, as text to compare. */
function written(run: Run): string {
  return JSON.stringify(run.drafts.filter((d) => d.row !== d.cell.row).map((d) => [d.row, d.entries]));
}

/** A decision, or a function it is given, must have its answer at once. */
export function refusePromise(value: unknown): void {
  if (typeof value !== "object" || value === null || !("then" in value) || typeof value.then !== "function") return;
  // Its rejection, if any, is this same mistake and must not end the process.
  value.then(undefined, () => {});
  throw new DecisionAsyncError();
}

/**
 * Freezes plain objects and arrays, all the way down. Answers whether nothing in the value can change any more: Map, Set,
 * Date and bytes have methods that change them, frozen or not, and errors have hidden parts.
 */
export function deepFreeze(value: unknown): boolean {
  if (typeof value !== "object" || value === null) return true;
  if (ArrayBuffer.isView(value) || value instanceof Map || value instanceof Set || value instanceof Date) return false;
  // What an error carries hides from enumeration.
  if (value instanceof Error) return false;
  let fixed = true;
  for (const item of Object.values(value)) if (!deepFreeze(item)) fixed = false;
  Object.freeze(value);
  return fixed;
}
