/**
 * Keys of subjects that are kept elsewhere: in a key management service, or in a database with backups of its own. Keys that were fetched are kept in
 * the process for a while, up to a limit.
 */

import { inTime } from "../../kernel/deadline.ts";
import { InvalidArgumentError } from "../../kernel/errors.ts";
import type { Clock } from "../../kernel/ports.ts";
import { KEY_BYTES } from "../../kernel/seal/cipher.ts";

/** Where the keys of subjects are, if not in Pawl's own records. A key has 32 random bytes. */
export interface SubjectKeys {
  /** The keys of these subjects, "forgotten" for those whose key was destroyed, and nothing for those that never had one. */
  get(subjects: readonly string[]): Promise<ReadonlyMap<string, Uint8Array | "forgotten">>;
  /** Makes the key of a subject, or returns the one that it has by now. Must reject for a subject whose key was destroyed. */
  create(subject: string): Promise<Uint8Array>;
  /** Destroys the key of a subject for good, also one that was never made. Called again where the outcome was not known. */
  destroy(subject: string): Promise<void>;
}

/** More than one append can need. */
const MOST_KEYS = 20_000;
/** After this time, a reader asks for the key again: it may have been destroyed without `pawl.forget`. */
const FRESH_MS = 60_000;

type Fetched = Uint8Array | "forgotten";

export function checkSubjectKeys(keys: SubjectKeys | undefined): void {
  if (keys === undefined) return;
  const isOne = typeof keys === "object" && keys !== null;
  if (!isOne || (["get", "create", "destroy"] as const).some((name) => typeof keys[name] !== "function"))
    throw new InvalidArgumentError("subjectKeys", "must have the methods get, create and destroy");
}

export class FetchedKeys {
  readonly #keys: SubjectKeys;
  readonly #clock: Clock;
  readonly #patienceMs: number;
  /** The oldest first. */
  readonly #fetched = new Map<string, { readonly key: Fetched; readonly atMs: number }>();

  constructor(keys: SubjectKeys, clock: Clock, patienceMs: number) {
    this.#keys = keys;
    this.#clock = clock;
    this.#patienceMs = patienceMs;
  }

  /** Where the keys are may not answer. */
  #ask<T>(verb: keyof SubjectKeys, run: () => Promise<T>, giveUpAtMs: number): Promise<T> {
    const leftMs = Math.min(this.#patienceMs, Math.max(0, giveUpAtMs - this.#clock.nowMs()));
    return inTime(this.#clock, leftMs, `${verb} of subjectKeys`, run);
  }

  get #giveUpAtMs(): number {
    return this.#clock.nowMs() + this.#patienceMs;
  }

  /** For a decision, which cannot ask: however old it is. What is sealed with a key that was destroyed meanwhile cannot be read. */
  known(subject: string): Fetched | undefined {
    return this.#fetched.get(subject)?.key;
  }

  /** Asks for the keys of these subjects, unless they are fresh. */
  async get(subjects: readonly string[], giveUpAtMs = this.#giveUpAtMs): Promise<ReadonlyMap<string, Fetched>> {
    const found = new Map<string, Fetched>();
    const missing: string[] = [];
    for (const subject of subjects) {
      const fetched = this.#fetched.get(subject);
      const ageMs = fetched === undefined ? FRESH_MS : Math.abs(this.#clock.nowMs() - fetched.atMs);
      if (fetched === undefined || ageMs >= FRESH_MS) missing.push(subject);
      else found.set(subject, fetched.key);
    }
    if (missing.length === 0) return found;
    const given = await this.#ask("get", () => this.#keys.get(missing), giveUpAtMs);
    if (typeof given?.get !== "function")
      throw new InvalidArgumentError("get of subjectKeys", "must resolve with a Map");
    for (const subject of missing) {
      const key = given.get(subject);
      this.#fetched.delete(subject);
      if (key !== undefined) found.set(subject, this.#keep(subject, key));
    }
    return found;
  }

  /** The same, and makes those that are missing. */
  async ensure(subjects: readonly string[]): Promise<void> {
    const giveUpAtMs = this.#giveUpAtMs;
    const found = await this.get(subjects, giveUpAtMs);
    for (const subject of subjects)
      if (!found.has(subject))
        this.#keep(subject, await this.#ask("create", () => this.#keys.create(subject), giveUpAtMs));
  }

  async destroy(subject: string): Promise<void> {
    this.#fetched.delete(subject);
    await this.#ask("destroy", () => this.#keys.destroy(subject), this.#giveUpAtMs);
    this.#fetched.delete(subject);
  }

  #keep(subject: string, key: Fetched): Fetched {
    const isKey = key instanceof Uint8Array && key.length === KEY_BYTES;
    if (!isKey && key !== "forgotten")
      throw new InvalidArgumentError(`the key of subject "${subject}"`, `must be ${KEY_BYTES} bytes, or "forgotten"`);
    const kept = isKey ? Uint8Array.from(key) : key;
    this.#fetched.delete(subject);
    this.#fetched.set(subject, { key: kept, atMs: this.#clock.nowMs() });
    if (this.#fetched.size > MOST_KEYS) this.#fetched.delete(this.#fetched.keys().next().value as string);
    return kept;
  }
}
