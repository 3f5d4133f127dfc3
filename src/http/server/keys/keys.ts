/**
 * API keys: created, listed, rotated and revoked, each with an entry in the key's log that says by whom.
 *
 * A key is one record in the handle's own namespace. Verifying is one read; everything else is a decision, so a rotation and a revocation that
 * arrive together have an order. The key itself is returned once, by `create` and `rotate`, and never stored.
 */

import {
  checkCount,
  checkDate,
  checkDuration,
  checkId,
  checkList,
  checkOptions,
  checkText,
  type Duration,
  optionNames,
} from "../../../kernel/check.ts";
import { type Address, address, type Row } from "../../../kernel/contract.ts";
import type { Tx } from "../../../kernel/decision.ts";
import type { Draft } from "../../../kernel/draft.ts";
import { InvalidArgumentError } from "../../../kernel/errors.ts";
import type { Kernel } from "../../../kernel/kernel.ts";
import { pause } from "../../../kernel/ports.ts";
import { RecordWatch } from "../../../kernel/record-watch.ts";
import { kernelOf, type ServedPawl } from "../handle.ts";
import { decideRevoke, decideRotate, endOf, isUsable, type KeyValue, SCOPES, type Scope } from "./decide.ts";
import { ApiKeyNotFoundError } from "./errors.ts";
import { makeKey, type ParsedApiKey } from "./text.ts";

const SPACE = "api_key";
/** After a burst of commits of other processes, the keys of requests that wait are read as often as this. */
const BURST_MS = 1000;
/** Keys that other processes created are looked for this often. */
const LOOK_MS = 5000;
/** For requests from where too many guesses came, the keys are listed this often: what is no key costs no query, and a list of many keys costs little. */
const LIST_MS = 10_000;
/** There is a first key, or was one: `createFirst`. */
const FIRST = address("api_key_first", "made");

/** An API key, without the key. */
export interface ApiKeyInfo {
  readonly id: string;
  readonly name: string;
  readonly namespace: string;
  readonly scopes: readonly Scope[];
  readonly createdAt: Date;
  readonly expiresAt: Date | null;
  readonly revokedAt: Date | null;
}

/** An API key as it is returned once. */
export interface CreatedApiKey extends ApiKeyInfo {
  readonly key: string;
}

export interface CreateApiKeyOptions {
  /** Says what the key is for, for people. */
  readonly name: string;
  readonly scopes: readonly Scope[];
  /** What the key gives access to. Default: the namespace of the handle. */
  readonly namespace?: string | undefined;
  /** When it ends. Default: never. */
  readonly expiresAt?: Date | number | undefined;
  /** Who creates it, for the history. */
  readonly by?: string | undefined;
}

export interface RotateApiKeyOptions {
  /** How long the last key is accepted, too. Default: 0. A rotation before keeps its own grace; `revoke` ends all. */
  readonly grace?: Duration | undefined;
  readonly by?: string | undefined;
}

export interface RevokeApiKeyOptions {
  readonly by?: string | undefined;
}

export interface ApiKeyListOptions {
  /** Only keys of this namespace. */
  readonly namespace?: string | undefined;
  readonly after?: string | null | undefined;
  readonly limit?: number | undefined;
}

export interface ApiKeyPage {
  readonly keys: readonly ApiKeyInfo[];
  readonly next: string | null;
}

/** Who gets the namespaces that have keys. */
export interface NamespaceWatcher {
  /** Receives all of them, each time; the next look comes after it. */
  readonly seen: (namespaces: ReadonlySet<string>) => Promise<void>;
  /** What a look, or `seen`, failed with. The next look comes all the same. */
  readonly failed: (error: unknown) => void;
  readonly abortSignal: AbortSignal;
}

/** What was done to a key, and by whom. */
export interface ApiKeyEntry {
  readonly version: number;
  readonly name: "created" | "rotated" | "revoked";
  readonly by: string | null;
  readonly at: Date;
}

const CREATE_OPTIONS = optionNames<CreateApiKeyOptions>({
  name: true,
  scopes: true,
  namespace: true,
  expiresAt: true,
  by: true,
});
const ROTATE_OPTIONS = optionNames<RotateApiKeyOptions>({ grace: true, by: true });
const REVOKE_OPTIONS = optionNames<RevokeApiKeyOptions>({ by: true });
const LIST_OPTIONS = optionNames<ApiKeyListOptions>({ namespace: true, after: true, limit: true });

const keyAt = (id: string): Address => address(SPACE, id);

/** The API keys of a handle. */
export function apiKeys(pawl: ServedPawl): ApiKeys {
  return new ApiKeys(kernelOf(pawl));
}

/** The API keys of a handle: `apiKeys(pawl)`. */
export class ApiKeys {
  readonly #kernel: Kernel;
  readonly #records: RecordWatch;
  #listed: { readonly hashes: Promise<ReadonlySet<string>>; readonly untilMs: number } | undefined;

  /** @internal */
  constructor(kernel: Kernel) {
    this.#kernel = kernel;
    this.#records = new RecordWatch(kernel, { isOfInterest: ({ space }) => space === SPACE, burstMs: BURST_MS });
  }

  /** Creates a key, and returns it; it cannot be read again. */
  async create(options: CreateApiKeyOptions): Promise<CreatedApiKey> {
    const created = await this.#create(options, () => true);
    if (created === undefined) throw new Error("nothing refuses this key");
    return created;
  }

  /**
   * Creates the first key of a database; undefined where there is one, or was one. Of processes that start together, one creates it: the
   * record that says so is part of each decision. @internal
   */
  async createFirst(options: CreateApiKeyOptions): Promise<CreatedApiKey | undefined> {
    if ((await this.list({ limit: 1 })).keys.length > 0) return undefined;
    return this.#create(options, (tx) => {
      const first = tx.record(FIRST);
      if (first.exists) return false;
      first.write({ value: {} });
      return true;
    });
  }

  async #create(options: CreateApiKeyOptions, isAllowed: (tx: Tx) => boolean): Promise<CreatedApiKey | undefined> {
    checkOptions(options ?? null, CREATE_OPTIONS);
    const name = checkText(options.name, "the name", 200);
    const namespace = checkId(options.namespace ?? this.#kernel.namespace, "the namespace");
    const expiresAtMs = options.expiresAt == null ? null : checkDate(options.expiresAt, "expiresAt");
    const by = checkBy(options.by);
    const scopes = checkScopes(options.scopes);
    const { id, key, hash } = makeKey(() => this.#kernel.ports.chance.uuid());
    const value = await this.#kernel.transact(
      (tx) => {
        if (!isAllowed(tx)) return undefined;
        const created: KeyValue = {
          name,
          namespace,
          scopes,
          hash,
          createdAtMs: tx.nowMs,
          expiresAtMs,
          revokedAtMs: null,
          previous: [],
        };
        const record = tx.record(keyAt(id));
        record.write({ value: created, kind: kindOf(namespace) });
        record.append("created", { by });
        return created;
      },
      [keyAt(id)],
    );
    return value === undefined ? undefined : { ...show(id, value), key };
  }

  /** Throws `key_not_found`. */
  async get(id: string): Promise<ApiKeyInfo> {
    return show(id, (await this.#read(id)).value);
  }

  /** Keys in the order of their ids, also those that have expired or were revoked. */
  async list(options: ApiKeyListOptions = {}): Promise<ApiKeyPage> {
    checkOptions(options, LIST_OPTIONS);
    const limit = checkCount(options.limit ?? 100, "the limit", 1000);
    const after = options.after == null ? null : checkId(options.after, "after");
    const kinds = options.namespace === undefined ? undefined : [kindOf(checkId(options.namespace, "the namespace"))];
    const rows = await this.#kernel.list({ space: SPACE, prefix: "", after, limit: limit + 1, kinds });
    const page = rows.slice(0, limit);
    const keys = page.map((row) => show(row.key, this.#valueOf(row)));
    return { keys, next: rows.length > limit ? (page.at(-1)?.key ?? null) : null };
  }

  /** Replaces the key, and returns the new one; the id stays. Throws `key_not_found`, also for a key that was revoked. */
  async rotate(id: string, options: RotateApiKeyOptions = {}): Promise<CreatedApiKey> {
    checkId(id, "the key's id");
    checkOptions(options, ROTATE_OPTIONS);
    const graceMs = checkDuration(options.grace ?? 0, "the grace");
    const by = checkBy(options.by);
    const { key, hash } = makeKey(() => this.#kernel.ports.chance.uuid(), id);
    const value = await this.#change(id, "rotated", by, (was, tx) => decideRotate(was, hash, graceMs, tx.nowMs));
    return { ...show(id, value), key };
  }

  /** Ends a key for good. Repeating it changes nothing. Throws `key_not_found`. */
  async revoke(id: string, options: RevokeApiKeyOptions = {}): Promise<ApiKeyInfo> {
    checkOptions(options, REVOKE_OPTIONS);
    const by = checkBy(options.by);
    return show(id, await this.#change(id, "revoked", by, (was, tx) => decideRevoke(was, tx.nowMs)));
  }

  /** What was done to the key. Throws `key_not_found`. */
  async history(id: string): Promise<readonly ApiKeyEntry[]> {
    const { row } = await this.#read(id);
    const entries: ApiKeyEntry[] = [];
    for await (const { version, name, data, atMs } of this.#kernel.entriesAfter(keyAt(id), 0)) {
      const { by } = this.#kernel.decode(row, data) as { readonly by: string | null };
      entries.push({ version, name: name as ApiKeyEntry["name"], by, at: new Date(atMs) });
    }
    return entries;
  }

  /** The key with this id and hash, if it may be used now. One read, and one of the clock for a key that ends. @internal */
  async verify({ id, hash }: ParsedApiKey): Promise<ApiKeyInfo | undefined> {
    const [row] = await this.#kernel.read([keyAt(id)]);
    if (row?.value == null) return undefined;
    const value = this.#valueOf(row);
    const endMs = endOf(value, hash);
    // The clock is read only where it matters.
    const nowMs = Number.isFinite(endMs) ? await this.#nowMs() : 0;
    return nowMs < endMs ? show(id, value) : undefined;
  }

  /** Whether it was a key that was not revoked, when all were listed: at most 10 s ago, so one that is newer may be missing. @internal */
  async isListed({ hash }: ParsedApiKey): Promise<boolean> {
    const nowMs = this.#kernel.ports.clock.nowMs();
    if (this.#listed === undefined || nowMs >= this.#listed.untilMs)
      this.#listed = { hashes: this.#hashes(), untilMs: nowMs + LIST_MS };
    return (await this.#listed.hashes).has(hash);
  }

  async #hashes(): Promise<ReadonlySet<string>> {
    const hashes = new Set<string>();
    try {
      for await (const row of this.#kernel.rows(SPACE)) for (const hash of this.#hashesIn(row)) hashes.add(hash);
    } catch (error) {
      this.#listed = undefined;
      throw error;
    }
    return hashes;
  }

  #hashesIn(row: Row): readonly string[] {
    try {
      const { hash, previous, revokedAtMs } = this.#valueOf(row);
      return revokedAtMs === null ? [hash, ...previous.map((older) => older.hash)] : [];
    } catch {
      // One that cannot be read opens nothing, and must not keep others from being served.
      return [];
    }
  }

  /**
   * Calls back once, when the key with this id and hash may no longer be used: soon after any process revoked or rotated it, and when its time is
   * over. All keys that are watched are read together. Returns a function that stops it. @internal
   */
  watch({ id, hash }: ParsedApiKey, ended: () => void): () => void {
    const at = keyAt(id);
    const { clock } = this.#kernel.ports;
    let seenVersion: number | undefined;
    let cancel = (): void => {};
    let isOver = false;
    const finish = (): void => {
      if (isOver) return;
      stop();
      ended();
    };
    /** By the store's clock: this process's clock only says when to look. */
    const checkEnd = async (endMs: number, version: number): Promise<void> => {
      try {
        const leftMs = endMs - (await this.#nowMs());
        if (isOver || version !== seenVersion) return;
        if (leftMs <= 0) finish();
        else cancel = clock.after(leftMs, () => void checkEnd(endMs, version));
      } catch {
        // The next look at the record begins again.
        if (version === seenVersion) seenVersion = undefined;
      }
    };
    const seen = (row: Row | null): boolean => {
      if (row !== null && row.version === seenVersion) return false;
      cancel();
      const endMs = row?.value == null ? Number.NEGATIVE_INFINITY : endOf(this.#valueOf(row), hash);
      if (row === null || endMs === Number.NEGATIVE_INFINITY) {
        finish();
        return true;
      }
      seenVersion = row.version;
      if (endMs < Number.POSITIVE_INFINITY) void checkEnd(endMs, row.version);
      return false;
    };
    const unwatch = this.#records.watch(at, { seen, failed: () => {} });
    const stop = (): void => {
      isOver = true;
      cancel();
      unwatch();
    };
    // It may have ended between `verify` and here. Where this read fails, the next one comes with those of all.
    this.#records.look(at).catch(() => {});
    return stop;
  }

  /** Whether any key can be used, so that a server that others can reach is not without one. @internal */
  async hasUsable(): Promise<boolean> {
    const nowMs = await this.#nowMs();
    for await (const row of this.#kernel.rows(SPACE)) {
      if (row.value === null) continue;
      const value = this.#valueOf(row);
      if (isUsable(value, value.hash, nowMs)) return true;
    }
    return false;
  }

  /** The namespaces of the keys that are not revoked. Those of keys that have expired are among them: what they created continues. @internal */
  async namespaces(): Promise<ReadonlySet<string>> {
    const found = new Set<string>();
    for await (const row of this.#kernel.rows(SPACE)) {
      if (row.value === null) continue;
      const { namespace, revokedAtMs } = this.#valueOf(row);
      if (revokedAtMs === null) found.add(namespace);
    }
    return found;
  }

  /**
   * Reads the namespaces of the keys that are not revoked: at once, when this process has changed a key, and every few seconds. Resolves when it is
   * aborted and `seen` has ended. @internal
   */
  async watchNamespaces({ seen, failed, abortSignal }: NamespaceWatcher): Promise<void> {
    let waking = new AbortController();
    const wake = (): void => waking.abort();
    abortSignal.addEventListener("abort", wake);
    const unlisten = this.#kernel.listen((puts) => {
      if (puts?.some(({ row }) => row.space === SPACE) === true) wake();
    });
    while (!abortSignal.aborted) {
      waking = new AbortController();
      try {
        await seen(await this.namespaces());
      } catch (error) {
        failed(error);
      }
      if (!abortSignal.aborted) await pause(this.#kernel.ports.clock, LOOK_MS, waking.signal);
    }
    unlisten();
    abortSignal.removeEventListener("abort", wake);
  }

  async #change(
    id: string,
    name: ApiKeyEntry["name"],
    by: string | null,
    decide: (was: KeyValue, tx: Tx) => KeyValue | undefined,
  ): Promise<KeyValue> {
    const at = keyAt(checkId(id, "the key's id"));
    const change = (tx: Tx): KeyValue => {
      const record: Draft = tx.record(at);
      const was = record.exists ? (record.value as KeyValue) : undefined;
      const value = was === undefined ? undefined : decide(was, tx);
      if (value === undefined) throw new ApiKeyNotFoundError(id);
      if (value !== was) {
        record.write({ value });
        record.append(name, { by });
      }
      return value;
    };
    return this.#kernel.transact(change, [at]);
  }

  async #read(id: string): Promise<{ readonly row: Row; readonly value: KeyValue }> {
    const [row] = await this.#kernel.read([keyAt(checkId(id, "the key's id"))]);
    if (row?.value == null) throw new ApiKeyNotFoundError(id);
    return { row, value: this.#valueOf(row) };
  }

  /** By the store's clock, as everything that expires. */
  #nowMs(): Promise<number> {
    return this.#kernel.transact((tx) => tx.nowMs, []);
  }

  #valueOf(row: Row): KeyValue {
    return this.#kernel.decode(row, row.value ?? "null") as KeyValue;
  }
}

/** Lists are by namespace, and records of one kind are found by an index. */
const kindOf = (namespace: string): string => `${SPACE}/${namespace}`;

const show = (id: string, value: KeyValue): ApiKeyInfo => ({
  id,
  name: value.name,
  namespace: value.namespace,
  scopes: value.scopes,
  createdAt: new Date(value.createdAtMs),
  expiresAt: value.expiresAtMs === null ? null : new Date(value.expiresAtMs),
  revokedAt: value.revokedAtMs === null ? null : new Date(value.revokedAtMs),
});

function checkScopes(scopes: unknown): readonly Scope[] {
  checkList(scopes, "the scopes");
  const list = [...new Set(scopes as readonly Scope[])];
  if (list.length === 0 || !list.every((scope) => SCOPES.includes(scope)))
    throw new InvalidArgumentError("the scopes", `must be one or more of ${SCOPES.join(", ")}`);
  return list;
}

const checkBy = (by: string | undefined): string | null => (by === undefined ? null : checkText(by, "by", 200));
