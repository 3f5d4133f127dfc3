/**
 * Subjects: the people that events are about. Their personal fields are sealed with a key for each person, so that destroying the key forgets them
 * wherever they are stored.
 *
 * An append is a decision that reads the record of the subject, under its lock: a subject that was forgotten is refused, also where that happens at
 * the same moment. The record has the key, sealed by the key ring; the first personal event of a subject makes it, in the same commit. So no key
 * is kept in memory, and none can come back. Where `subjectKeys` has the keys, the decision needs one that was fetched before: it throws
 * `subject_key_not_loaded`, and `mend` fetches it.
 *
 * A reader reads the records of the subjects after the events, so that it shows nothing of a person who was forgotten before it began.
 *
 * Guarantees: the store has personal fields, keys and folded states of streams with personal events only sealed (G27).
 * Out of scope: copies that the user makes, in other fields, results, runs or tables.
 */

import type { Address, Key } from "../../kernel/contract.ts";
import type { Decision, Tx } from "../../kernel/decision.ts";
import type { Draft } from "../../kernel/draft.ts";
import type { Kernel } from "../../kernel/kernel.ts";
import { bytesFrom, KEY_BYTES, NONCE_BYTES, nonceFor, openText, placeOf, sealText } from "../../kernel/seal/cipher.ts";
import { DecryptFailedError, KeysMissingError, KeyUnavailableError } from "../../kernel/seal/errors.ts";
import { KeyRing, type RingKeys, type Sealed } from "../../kernel/seal/ring.ts";
import type { NewEvent } from "../event.ts";
import type { StoredEvent, StreamValue } from "../stored.ts";
import { forgottenData, joinData, keyPlace, splitData } from "./decide.ts";
import { SubjectForgottenError, SubjectKeyNotLoadedError } from "./errors.ts";
import { FetchedKeys, type SubjectKeys } from "./keys.ts";
import { type StoredPersonal, SUBJECTS, type SubjectValue, streamOfAt, subjectAt } from "./stored.ts";

const EVENTS = "stream-event";
const STATES = "stream-state";

/** What subjects are made with. */
export interface SubjectSetup {
  readonly keys?: RingKeys | undefined;
  readonly subjectKeys?: SubjectKeys | undefined;
}

/** How the events of one append are stored. */
export type Seal = (event: NewEvent, id: string) => Pick<StoredEvent, "data" | "personal">;

/** The key of a subject as a reader has it; an error is thrown where it is used. */
type ReadKey = Uint8Array | "forgotten" | Error;
export type ReadKeys = ReadonlyMap<string, ReadKey>;

const NO_KEYS: ReadKeys = new Map();
const inClear: Seal = ({ data }) => ({ data });

const all = new WeakMap<object, Subjects>();

/** The subjects of a handle, by what decisions and readers know of it. */
export function subjectsOf({ handle }: Pick<Kernel | Tx, "handle">): Subjects {
  const found = all.get(handle);
  if (found === undefined) throw new Error("the handle was made without streams");
  return found;
}

export class Subjects {
  readonly #kernel: Kernel;
  readonly #ring: KeyRing | undefined;
  /** Seals the keys of folded states. */
  readonly #states: KeyRing | undefined;
  readonly fetched: FetchedKeys | undefined;

  constructor(kernel: Kernel, { keys, subjectKeys }: SubjectSetup = {}) {
    this.#kernel = kernel;
    const ring = (kind: string, named: (ref: string) => string): KeyRing | undefined =>
      keys === undefined ? undefined : new KeyRing(keys, kernel.namespace, kind, named);
    this.#ring = ring(SUBJECTS, (subject) => `the key of subject "${subject}"`);
    this.#states = ring(STATES, (stream) => `the folded state of stream "${stream}"`);
    this.fetched =
      subjectKeys === undefined ? undefined : new FetchedKeys(subjectKeys, kernel.ports.clock, kernel.patienceMs);
    all.set(kernel.handle, this);
  }

  /**
   * Prepares the append of these events to a stream, in the same decision. Throws `keys_missing`, `subject_forgotten`, and
   * `subject_key_not_loaded` with all subjects whose keys are to be fetched.
   */
  sealing(tx: Tx, stream: Draft, events: readonly NewEvent[]): Seal {
    const subjects = new Set<string>();
    for (const { personal } of events) if (personal !== undefined) subjects.add(personal.subject);
    if (subjects.size === 0) return inClear;
    if (this.#ring === undefined) throw new KeysMissingError("personal data");
    tx.load([...subjects].flatMap((one) => [subjectAt(one), streamOfAt(one, stream.at.key)]));
    const keys = new Map<string, Uint8Array>();
    const missing: string[] = [];
    for (const subject of subjects) {
      const key = this.#keyIn(tx, this.#ring, subject);
      if (key === undefined) missing.push(subject);
      else keys.set(subject, key);
    }
    if (missing.length > 0) throw new SubjectKeyNotLoadedError(missing);
    for (const subject of subjects) {
      const mark = tx.record(streamOfAt(subject, stream.at.key));
      if (!mark.exists) mark.write({ value: {} });
    }
    const value = stream.value as StreamValue;
    if (value.personal === undefined)
      stream.write({ value: { ...value, personal: { erased: 0 } } satisfies StreamValue });
    return (event, id) => {
      const key = event.personal === undefined ? undefined : keys.get(event.personal.subject);
      return event.personal === undefined || key === undefined
        ? { data: event.data }
        : this.#seal(stream, event, event.personal, id, key);
    };
  }

  /** The key for a new event, made if there is none; undefined if it has to be fetched. */
  #keyIn(tx: Tx, ring: KeyRing, subject: string): Uint8Array | undefined {
    const record = tx.record(subjectAt(subject));
    const place = keyPlace(record.value as SubjectValue | undefined, this.fetched !== undefined);
    switch (place.is) {
      case "forgotten":
        throw new SubjectForgottenError(subject);
      case "here":
        return bytesOf(ring.open(subject, place.sealed));
      case "unknown":
        throw elsewhere(subject);
      case "none": {
        const key = bytesFrom(() => tx.uuid(), KEY_BYTES);
        record.write({ value: { key: wrapped(tx, ring, subject, key) } satisfies SubjectValue });
        return key;
      }
      case "elsewhere": {
        const key = this.fetched?.known(subject);
        if (key === "forgotten") throw new SubjectForgottenError(subject);
        if (!record.exists && key !== undefined) record.write({ value: {} satisfies SubjectValue });
        return key;
      }
    }
  }

  #seal(
    stream: Draft,
    { name, data }: NewEvent,
    { subject, fields }: NonNullable<NewEvent["personal"]>,
    id: string,
    key: Uint8Array,
  ): Pick<StoredEvent, "data" | "personal"> {
    const { open, personal } = splitData(data, fields);
    const text = stream.encode(personal);
    const place = this.#place(stream.at.key, { id, name, subject });
    const sealed = sealText(key, place, text, nonceFor(key, place, text));
    return { data: open, personal: { subject, fields: Object.keys(personal), sealed } };
  }

  #place(
    stream: string,
    { id, name, subject }: { readonly id: string; readonly name: string; readonly subject: string },
  ) {
    return placeOf(this.#kernel.namespace, EVENTS, stream, id, name, subject);
  }

  /** The keys of these subjects, as they are now. */
  async keysOf(personal: readonly StoredPersonal[]): Promise<ReadKeys> {
    const subjects = [...new Set(personal.map(({ subject }) => subject))];
    if (subjects.length === 0) return NO_KEYS;
    const keys = new Map<string, ReadKey>();
    const toFetch: string[] = [];
    const rows = await this.#kernel.read(subjects.map(subjectAt));
    for (const [i, subject] of subjects.entries()) {
      const row = rows[i];
      const value = row?.value == null ? undefined : (this.#kernel.decode(row, row.value) as SubjectValue);
      const place = keyPlace(value, this.fetched !== undefined);
      if (place.is === "elsewhere") toFetch.push(subject);
      else keys.set(subject, place.is === "forgotten" ? place.is : this.#opened(subject, place));
    }
    const fetched = toFetch.length === 0 ? undefined : await this.fetched?.get(toFetch);
    for (const subject of toFetch) keys.set(subject, fetched?.get(subject) ?? elsewhere(subject));
    return keys;
  }

  #opened(subject: string, place: { readonly is: string; readonly sealed?: Sealed }): Uint8Array | Error {
    if (place.sealed === undefined) return elsewhere(subject);
    if (this.#ring === undefined) return new KeyUnavailableError(place.sealed.keyId);
    try {
      return bytesOf(this.#ring.open(subject, place.sealed));
    } catch (error) {
      return error as Error;
    }
  }

  /** The data of a stored event. Throws `decrypt_failed` and `key_unavailable`. */
  open(key: Key, name: string, { id, data, personal }: StoredEvent, keys: ReadKeys): unknown {
    if (personal === undefined) return data;
    const { subject, fields, sealed } = personal;
    const found = keys.get(subject);
    if (found === "forgotten") return forgottenData(data, fields);
    if (!(found instanceof Uint8Array)) throw found ?? elsewhere(subject);
    let text: string;
    try {
      text = openText(found, this.#place(key.key, { id, name, subject }), sealed);
    } catch {
      throw new DecryptFailedError(`the personal data of event ${id} of stream "${key.key}"`, id, subject);
    }
    return joinData(data, this.#kernel.decode(key, text));
  }

  /** A text of a folded state, sealed for a stream with personal events; null where this handle has no keys. */
  sealState(tx: Tx, stream: Draft, place: readonly string[], text: string): StateSeal | null {
    if (this.#states === undefined) return null;
    const { personal } = stream.value as StreamValue;
    const known = this.#stateKey(stream.at.key, personal?.key);
    const key = known ?? bytesFrom(() => tx.uuid(), KEY_BYTES);
    const at = this.#statePlace(place);
    return {
      sealed: sealText(key, at, text, nonceFor(key, at, text)),
      ...(known === undefined ? { key: wrapped(tx, this.#states, stream.at.key, key) } : {}),
    };
  }

  /** The text of a folded state; undefined where it cannot be opened, and has to be folded again. */
  openState(stream: string, key: Sealed | undefined, place: readonly string[], sealed: string): string | undefined {
    const found = this.#stateKey(stream, key);
    try {
      return found === undefined ? undefined : openText(found, this.#statePlace(place), sealed);
    } catch {
      return undefined;
    }
  }

  #stateKey(stream: string, key: Sealed | undefined): Uint8Array | undefined {
    try {
      return key === undefined || this.#states === undefined ? undefined : bytesOf(this.#states.open(stream, key));
    } catch {
      return undefined;
    }
  }

  /** Without the stream: its key is of no other. */
  #statePlace(place: readonly string[]): Buffer {
    return placeOf(this.#kernel.namespace, STATES, ...place);
  }
}

/** A sealed state, and the stream's key for states if that is new. */
export interface StateSeal {
  readonly sealed: string;
  readonly key?: Sealed;
}

/** Fetches the keys that a decision found missing. Returns false if the error says something else. */
export async function mendSubjects(kernel: Kernel, error: unknown): Promise<boolean> {
  const { fetched } = subjectsOf(kernel);
  if (!(error instanceof SubjectKeyNotLoadedError) || fetched === undefined) return false;
  await fetched.ensure(error.data.subjects);
  return true;
}

/** How often a decision is made again because it lacked keys. One append names all that it lacks. */
const MOST_ROUNDS = 5;

/** Commits a decision that may append personal events: keys that it lacks are fetched. */
export async function transactMended<T>(kernel: Kernel, decide: Decision<T>, keys: readonly Address[]): Promise<T> {
  for (let round = 1; ; round++)
    try {
      return await kernel.transact(decide, keys);
    } catch (error) {
      if (round === MOST_ROUNDS || !(await mendSubjects(kernel, error))) throw error;
    }
}

const wrapped = (tx: Tx, ring: KeyRing, ref: string, key: Uint8Array): Sealed =>
  ring.seal(
    ref,
    Buffer.from(key).toString("base64url"),
    bytesFrom(() => tx.uuid(), NONCE_BYTES),
  );

const bytesOf = (text: string): Uint8Array => Buffer.from(text, "base64url");

const elsewhere = (subject: string): KeyUnavailableError =>
  new KeyUnavailableError(
    subject,
    `the key of subject "${subject}" is not in this database, nor in subjectKeys (an export has no keys, so personal fields that were imported from another database cannot be read)`,
  );
