/**
 * The world of one subject during one chapter: its writers, what they hold, and how its results are made comparable.
 *
 * Two writers of our own work on one namespace, a neighbour on another one with the same names, and a third of ours speaks
 * to the store without a kernel. Only what a store may choose is removed from the results: a row's number and
 * a fence become "the second that this record had", a time of the store's clock becomes its distance from now in half days.
 */

import type { Held } from "../../src/kernel/claim/claim.ts";
import type { Found, Key, Put, Receipt, Row, Store, StoredEntry } from "../../src/kernel/contract.ts";
import { FencedError, PawlError, StoreError } from "../../src/kernel/errors.ts";
import type { Kernel } from "../../src/kernel/kernel.ts";
import { pause } from "../../src/kernel/ports.ts";
import { type Pawl, pawlOn } from "../../src/pawl.ts";
import { type Cast, SURELY_FUTURE_MS, SURELY_PAST_MS, type Writer } from "./draw.ts";
import { Tracked } from "./passing.ts";
import type { Ground } from "./subjects.ts";

const HALF_DAY_MS = 12 * 3_600_000;
/** The lease of every claim: it does not end while a chapter lasts, unless an operation ends it. */
export const LEASE_MS = HALF_DAY_MS;

/** Long enough for large values, short enough that some are refused. */
const MAX_VALUE_BYTES = 120_000;

/** Thrown by decisions on purpose. */
export class Planned extends Error {
  override readonly name = "Planned";
}

interface Voice {
  readonly pawl: Pawl;
  readonly store: Tracked;
}

export class World {
  readonly ground: Ground;
  readonly cast: Cast;
  readonly #voices: Voice[];
  readonly neighbour: Pawl;
  readonly raw: { readonly ours: RawWriter; readonly theirs: RawWriter };
  readonly #tracked: Tracked[];
  /** What was claimed and may be used later, also when it is long lost. */
  readonly hands: (Held | undefined)[] = [];
  lastHand = 0;
  readonly #fences = new Map<string, number[]>();
  readonly #ids = new Map<string, number[]>();
  /** What came up, and how often. */
  readonly seen = new Map<string, number>();
  /** The positions of log entries at the last look at everything, and the highest so far: what is new is above it. */
  positions: ReadonlySet<number> = new Set();
  lastPosition = 0;

  private constructor(ground: Ground, cast: Cast, voices: Voice[], theirs: Voice, raw: [Tracked, Tracked]) {
    this.ground = ground;
    this.cast = cast;
    this.#voices = voices;
    this.neighbour = theirs.pawl;
    this.raw = { ours: new RawWriter(raw[0], ground), theirs: new RawWriter(raw[1], ground) };
    this.#tracked = [theirs.store, ...raw];
  }

  static async open(ground: Ground, cast: Cast): Promise<World> {
    const voices = [await voiceOf(ground, "ours"), await voiceOf(ground, "ours")];
    const theirs = await voiceOf(ground, "theirs");
    const raw: [Tracked, Tracked] = [
      new Tracked(await ground.connect("ours")),
      new Tracked(await ground.connect("theirs")),
    ];
    return new World(ground, cast, voices, theirs, raw);
  }

  async close(): Promise<void> {
    for (const { pawl } of this.#voices) await pawl.close();
    await this.neighbour.close();
    await this.raw.ours.store.close();
    await this.raw.theirs.store.close();
    await this.ground.close();
  }

  #voice(by: Writer): Voice {
    const voice = this.#voices[by];
    if (voice === undefined) throw new Error(`there is no writer ${by}`);
    return voice;
  }

  pawl(by: Writer): Pawl {
    return this.#voice(by).pawl;
  }

  kernel(by: Writer): Kernel {
    return this.pawl(by).kernel;
  }

  /** Closes a writer and connects another in its place; returns the closed one. */
  async reopen(by: Writer): Promise<Pawl> {
    const old = this.pawl(by);
    await this.swept();
    await old.close();
    this.#voices[by] = await voiceOf(this.ground, "ours");
    return old;
  }

  /** Sweeps as this writer's kernel does, on its own connection. */
  sweep(by: Writer, limit: number): Promise<number> {
    return this.#voice(by).store.sweep(limit);
  }

  /** Waits for the sweeps that kernels have started on their own. */
  async swept(): Promise<void> {
    for (const store of [...this.#tracked, ...this.#voices.map((voice) => voice.store)]) await store.swept();
  }

  saw(what: string): void {
    this.seen.set(what, (this.seen.get(what) ?? 0) + 1);
  }

  /** Returns the result, or a refusal in a comparable form. Rethrows unexpected errors. */
  async attempt(act: () => Promise<unknown>): Promise<unknown> {
    try {
      return await act();
    } catch (error) {
      return { refused: this.#refusal(error) };
    }
  }

  #refusal(error: unknown): unknown {
    if (error instanceof PawlError) this.saw(`refused: ${error.code}`);
    if (error instanceof FencedError) {
      const { name, fence, current } = error.data;
      return { code: error.code, name, fence: this.#fence(name, fence), current: this.#fence(name, current) };
    }
    // Its words are the store's own.
    if (error instanceof StoreError) return { code: error.code, data: error.data };
    if (error instanceof PawlError) return { code: error.code, data: error.data, message: error.message };
    if (error instanceof Planned) {
      this.saw("refused: by the decision");
      return error.message;
    }
    if (error instanceof Error && error.message.endsWith("its first write needs a value")) {
      this.saw("refused: nothing to change");
      return error.message;
    }
    throw error;
  }

  /** A row as committed. */
  row(row: Row | null): unknown {
    if (row === null) return null;
    const { id, ...rest } = this.shape(row);
    return { ...rest, id: whichOf(this.#ids, nameOf(row), row.id) };
  }

  /** A row as a decision sees it: its number may not be known yet. */
  shape(row: Row): Omit<Row, "stamp" | "fence" | "dueMs"> & { fence: string | number; due: unknown } {
    const { id, space, key, version, wakes, tries, holder, kind, status, head, value } = row;
    const fence = this.#fence(nameOf(row), row.fence);
    return {
      id,
      space,
      key,
      version,
      fence,
      wakes,
      tries,
      holder,
      kind,
      status,
      due: this.due(row.dueMs),
      head,
      value,
    };
  }

  fenceOf(held: Held): string | number {
    return this.#fence(nameOf(held.at), held.fence);
  }

  /** Fences of a record rise; by how much is the store's and the clock's business. */
  #fence(name: string, fence: number): string | number {
    if (fence === 0) return 0;
    const known = this.#fences.get(name) ?? [];
    this.#fences.set(name, known);
    const at = known.indexOf(fence);
    if (at >= 0) return at + 1;
    if (fence < (known.at(-1) ?? 0)) return "fell";
    known.push(fence);
    return known.length;
  }

  /** A time that is the same on every clock stays; any other is given by its distance from now. */
  due(ms: number | null): unknown {
    if (ms === null || isSameEverywhere(ms)) return ms;
    return `${Math.round((ms - this.ground.nowMs()) / HALF_DAY_MS)} half days from now`;
  }

  entry({ version, name, data, atMs }: StoredEntry): unknown {
    return { version, name, data, at: this.due(atMs) };
  }
}

export const isSameEverywhere = (ms: number): boolean => ms < SURELY_PAST_MS || ms >= SURELY_FUTURE_MS;

/** As errors name a record. */
const nameOf = ({ space, key }: Key): string => `${space} ${key}`;

function whichOf(known: Map<string, number[]>, name: string, number: number): number {
  const numbers = known.get(name) ?? [];
  known.set(name, numbers);
  if (!numbers.includes(number)) numbers.push(number);
  return numbers.indexOf(number) + 1;
}

async function voiceOf(ground: Ground, namespace: "ours" | "theirs"): Promise<Voice> {
  const store = new Tracked(await ground.connect(namespace));
  const pawl = pawlOn(store, ground.ports, { namespace, maxValueBytes: MAX_VALUE_BYTES });
  // A kernel sweeps after its first commit. Here is one, so that no operation depends on which commit that is.
  await pawl.kernel.transact(() => undefined, []);
  await store.swept();
  return { store, pawl };
}

/** Speaks to the store as the contract has it, one batch at a time, in lane 0. */
export class RawWriter {
  readonly store: Store;
  readonly #ground: Ground;
  #epoch: number | undefined;
  #sequence = 0;

  constructor(store: Store, ground: Ground) {
    this.store = store;
    this.#ground = ground;
  }

  async settle(): Promise<number> {
    const { epoch, sequence } = await this.store.settle(0);
    this.#epoch = epoch;
    this.#sequence = sequence;
    return epoch;
  }

  /**
   * Locks the rows and writes what is made of them; waits while another has them. A mark that is weeks old may be gone, which
   * looks as if it had been settled meanwhile.
   */
  async commit(
    keys: readonly Key[],
    decide: (rows: readonly (Row | null)[], fenceFloor: number) => readonly Put[],
  ): Promise<Receipt> {
    for (let tries = 1; ; tries++) {
      const epoch = this.#epoch ?? (await this.settle());
      let isBusy = false;
      try {
        const receipt = await this.commitIn(epoch, keys, ({ rows, fenceFloor }) => {
          isBusy = rows.includes(undefined);
          const settled = rows.map((row) => row ?? null);
          return isBusy ? [] : decide(settled, fenceFloor);
        });
        if (!isBusy) return receipt;
      } catch (error) {
        if (!(error instanceof StoreError)) throw error;
        const isStale = error.code === "store_refused" && tries === 1;
        if (!isStale && error.data.remedy !== "retry") throw error;
        this.#epoch = undefined;
      }
      if (tries === 1_000) throw new Error("the rows are locked and stay so");
      await pause(this.#ground.ports.clock, 5);
    }
  }

  commitIn(epoch: number, lock: readonly Key[], decide: (found: Found) => readonly Put[]): Promise<Receipt> {
    this.#sequence += 1;
    return this.store.commit({
      lane: 0,
      epoch,
      sequence: this.#sequence,
      lock,
      needsClock: false,
      decide: (found) => ({ puts: decide(found) }),
    });
  }
}
