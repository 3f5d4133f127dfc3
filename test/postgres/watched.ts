/**
 * A Pool of `pg` whose statements can be seen, held back and changed on their way to the server.
 *
 * The store sends pipelines: several statements in one round trip. Each is recorded as it is submitted, and then sent unchanged, unless a
 * test holds it back, as in a process that is suspended at that moment, or replaces one of its statements.
 *
 * Guarantees: everything else passes unchanged and in order, at the moment it was submitted.
 */

import { setTimeout as sleep } from "node:timers/promises";
import type pg from "pg";
import type { PgClient, PgPool } from "../../src/stores/postgres/connections.ts";
import type { PgConnection } from "../../src/stores/postgres/pipeline.ts";
import { STALE } from "../../src/stores/postgres/statements.ts";
import { type Gate, gate } from "../kernel/kit.ts";

/** What `pg` takes as a query: it submits itself, and is told what the server answers. */
interface Submittable {
  submit(connection: PgConnection): unknown;
}

interface Held {
  /** The pipeline is there, and waits. */
  readonly reached: Promise<void>;
  /** Lets it go. */
  open(): void;
}

type Matches = (texts: readonly string[]) => boolean;

/** The pipeline that writes a batch, under its mark, and commits it. */
export const isCommit: Matches = (texts) => texts.at(-1) === "commit" && texts.some((text) => text.includes(STALE));
/** The pipeline that locks and reads rows. */
export const isLook: Matches = (texts) => texts.some((text) => text.includes("skip locked"));
export const isNotify: Matches = (texts) => texts.some((text) => text.includes("pg_notify"));

export class WatchedPool implements PgPool {
  readonly #pool: pg.Pool;
  readonly #seen = new WeakMap<object, PgClient>();
  readonly #texts = new Map<string, string>();
  readonly #holds: { readonly matches: Matches; readonly reached: Gate; readonly opened: Gate }[] = [];
  readonly #swaps: { readonly matches: Matches; readonly from: string; readonly to: string }[] = [];
  /** Every pipeline, as the texts of its statements. */
  readonly pipelines: (readonly string[])[] = [];
  /** For each of them, all its values as one text. */
  readonly cargo: string[] = [];

  constructor(pool: pg.Pool) {
    this.#pool = pool;
  }

  /** Those who ask how large the pool is are told. */
  get options(): { max: number } {
    return this.#pool.options;
  }

  async connect(): Promise<PgClient> {
    const client = await this.#pool.connect();
    let watched = this.#seen.get(client);
    if (watched === undefined) {
      watched = this.#watch(client);
      this.#seen.set(client, watched);
    }
    return watched;
  }

  /** Holds back the next pipeline that is so. */
  hold(matches: Matches): Held {
    const reached = gate();
    const opened = gate();
    this.#holds.push({ matches, reached, opened });
    return { reached: reached.opened, open: opened.open };
  }

  /** In the next pipeline that is so, another statement is sent in the place of this one. */
  swap(matches: Matches, from: string, to: string): void {
    this.#swaps.push({ matches, from, to });
  }

  /** Waits until nobody uses a connection: what follows a commit of its own accord is over. */
  async quiet(): Promise<void> {
    while (this.#pool.waitingCount > 0 || this.#pool.idleCount < this.#pool.totalCount) await sleep(2);
  }

  #watch(client: pg.PoolClient): PgClient {
    return new Proxy(client, {
      get: (target, name) => {
        if (name === "query")
          return (query: unknown) => target.query((isSubmittable(query) ? this.#follow(query) : query) as string);
        const value: unknown = Reflect.get(target, name, target);
        return typeof value === "function" ? value.bind(target) : value;
      },
    });
  }

  /** The same query, but what it submits passes through here. */
  #follow(query: Submittable): Submittable {
    return new Proxy(query, {
      get: (target, name) => {
        if (name === "submit") return (connection: PgConnection) => this.#submit(target, connection);
        const value: unknown = Reflect.get(target, name, target);
        return typeof value === "function" ? value.bind(target) : value;
      },
    });
  }

  #submit(query: Submittable, connection: PgConnection): null {
    const messages: Message[] = [];
    query.submit(recorder(messages));
    const texts: string[] = [];
    for (const message of messages)
      if (message.is === "parse") this.#texts.set(message.name, message.text);
      else if (message.is === "bind") texts.push(this.#texts.get(message.statement) ?? "");
    this.pipelines.push(texts);
    const values = messages.flatMap((message) => (message.is === "bind" ? message.values : []));
    this.cargo.push(values.map(String).join(" "));
    const sent = this.#swapped(messages, texts);
    const send = () => play(sent, connection);
    const at = this.#holds.findIndex(({ matches }) => matches(texts));
    const [held] = at < 0 ? [] : this.#holds.splice(at, 1);
    if (held === undefined) send();
    else {
      held.reached.open();
      void held.opened.opened.then(send);
    }
    return null;
  }

  #swapped(messages: readonly Message[], texts: readonly string[]): readonly Message[] {
    const at = this.#swaps.findIndex(({ matches }) => matches(texts));
    const [swap] = at < 0 ? [] : this.#swaps.splice(at, 1);
    if (swap === undefined) return messages;
    return messages.flatMap((message) => {
      if (message.is !== "bind" || this.#texts.get(message.statement) !== swap.from) return [message];
      return [
        { is: "parse", name: "", text: swap.to },
        { ...message, statement: "" },
      ];
    });
  }
}

type Message =
  | { readonly is: "parse"; readonly name: string; readonly text: string }
  | { readonly is: "bind"; readonly statement: string; readonly values: readonly unknown[] }
  | { readonly is: "execute"; readonly rows?: number }
  | { readonly is: "close"; readonly type: "S" | "P"; readonly name: string }
  | { readonly is: "sync" };

const recorder = (messages: Message[]): PgConnection => ({
  parse: (message) => void messages.push({ is: "parse", ...message }),
  bind: (message) => void messages.push({ is: "bind", ...message }),
  execute: (message) => void messages.push({ is: "execute", ...message }),
  close: (message) => void messages.push({ is: "close", ...message }),
  sync: () => void messages.push({ is: "sync" }),
  stream: { destroy: () => {} },
});

function play(messages: readonly Message[], connection: PgConnection): void {
  connection.stream.cork?.();
  for (const message of messages)
    if (message.is === "parse") connection.parse(message);
    else if (message.is === "bind") connection.bind(message);
    else if (message.is === "execute") connection.execute(message);
    else if (message.is === "close") connection.close(message);
    else connection.sync();
  connection.stream.uncork?.();
}

function isSubmittable(query: unknown): query is Submittable {
  return typeof query === "object" && query !== null && "submit" in query && typeof query.submit === "function";
}
