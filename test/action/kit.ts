/**
 * Shared by the tests of actions: stores whose clock is stopped until the test moves it, and everything that was ever written to them.
 *
 * A scene is one database. `process` returns actions on a separate handle, as another process would have them, with a hash that is fast and
 * counted. In memory, each decision runs twice with time and randomness trapped.
 */

import { createHash, randomBytes } from "node:crypto";
import { readFileSync } from "node:fs";
import { Actions } from "../../src/action/actions.ts";
import type { ActionPorts, ActionsOptions } from "../../src/action/core.ts";
import type { Codec } from "../../src/kernel/codec/codec.ts";
import type { Batch, Store } from "../../src/kernel/contract.ts";
import { Kernel } from "../../src/kernel/kernel.ts";
import type { Ports } from "../../src/kernel/ports.ts";
import { nodePorts } from "../../src/node/ports.ts";
import { trapAmbient } from "../../src/node/trap.ts";
import { MemoryDatabase } from "../../src/stores/memory/memory.ts";
import { openSqlite } from "../../src/stores/sqlite/sqlite.ts";
import { temporaryFolder } from "../kernel/kit.ts";

export const START_MS = Date.UTC(2030, 0, 1);
export const SECOND = 1_000;
export const DAY = 86_400_000;

export const PEPPER = "a pepper for the tests";
export const KEY_1 = new Uint8Array(32).fill(1);
export const KEY_2 = new Uint8Array(32).fill(2);
export const SECRETS: ActionsOptions = { pepper: PEPPER, keys: { current: "k1", ring: { k1: KEY_1 } } };

export type StoreName = "memory" | "SQLite";
export const STORES: readonly StoreName[] = ["memory", "SQLite"];

export interface ProcessOptions {
  readonly options?: ActionsOptions;
  readonly ports?: ActionPorts;
  readonly namespace?: string;
}

export class Scene implements AsyncDisposable {
  nowMs = START_MS;
  /** How many PINs were hashed. */
  hashes = 0;
  /** All rows and log entries that any process ever wrote, as text. */
  written = "";
  /** Awaited by every commit before it reaches the store. */
  barrier: Promise<unknown> = Promise.resolve();
  readonly #connect: (namespace: string) => Promise<Store>;
  readonly #ports: Ports;
  readonly #kernels: Kernel[] = [];
  readonly #leave: () => void;
  readonly #raw: () => string;

  constructor(store: StoreName) {
    const folder = temporaryFolder();
    const path = folder.file("actions.db");
    const database = new MemoryDatabase(() => this.nowMs);
    const wallMs = () => this.nowMs;
    this.#ports = store === "memory" ? { ...nodePorts, trap: trapAmbient } : nodePorts;
    this.#connect =
      store === "memory"
        ? async (namespace) => database.connect(namespace)
        : (namespace) =>
            openSqlite({ path, namespace, ports: nodePorts, wallMs, durability: "process", patienceMs: 20_000 });
    this.#raw = () =>
      store === "memory" ? "" : [path, `${path}-wal`].map((one) => readFileSync(one, "latin1")).join();
    this.#leave = () => folder.remove();
  }

  async kernel(namespace = "shop", codec?: Codec): Promise<Kernel> {
    const store = await this.#connect(namespace);
    const commit = store.commit.bind(store);
    store.commit = async (batch: Batch) => {
      await this.barrier;
      return commit({
        ...batch,
        decide: (found) => {
          const verdict = batch.decide(found);
          if ("puts" in verdict)
            for (const { row, entries } of verdict.puts) this.written += `${JSON.stringify([row, entries])}\n`;
          return verdict;
        },
      });
    };
    const kernel = new Kernel(store, this.#ports, { namespace, codec });
    this.#kernels.push(kernel);
    return kernel;
  }

  /** Actions as one more process has them. */
  async process({ options = SECRETS, ports, namespace }: ProcessOptions = {}): Promise<Actions> {
    return new Actions(await this.kernel(namespace), options, { slowHash: this.slowHash, randomBytes, ...ports });
  }

  readonly slowHash = async (secret: Uint8Array, salt: Uint8Array): Promise<Uint8Array> => {
    this.hashes += 1;
    return createHash("sha256").update(secret).update(salt).digest();
  };

  /** All that a thief of the database would have. */
  loot(): string {
    return this.written + this.#raw();
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await Promise.all(this.#kernels.map((kernel) => kernel.close()));
    this.#leave();
  }
}

/** The code that something was refused with, and its data. */
export async function refusal(promise: Promise<unknown>): Promise<unknown> {
  try {
    return { notRefused: await promise };
  } catch (error) {
    if (!(error instanceof Error) || !("code" in error) || !("data" in error)) throw error;
    const { id: _id, ref: _ref, ...data } = error.data as Record<string, unknown>;
    return { code: error.code, ...data };
  }
}
