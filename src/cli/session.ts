/**
 * One invocation: its global options, its streams, and how it prints.
 *
 * A command reads from a backend and hands what it found to one of the ways to show it: a list, one thing, or the outcome of what it did. Each of them knows
 * tables, `--json` and `--watch`, so that no command does.
 *
 * Guarantees: stdout has only what was asked for; notes, progress and errors are on stderr. Nothing is asked where there is no terminal.
 */

import type { Backend, Page, PageOptions } from "./backend.ts";
import { CliError, showError } from "./exit-codes.ts";
import { type Column, cut, escaped, fieldLines, jsonLine, type Look, tableLines } from "./output.ts";
import type { StorePlace } from "./store.ts";

/** A stream of Node, as far as it is used. */
export interface Sink {
  write(text: string, written?: (error?: Error | null) => void): unknown;
  readonly isTTY?: boolean | undefined;
  readonly columns?: number | undefined;
  readonly rows?: number | undefined;
}

/** The process, as far as it is used. */
export interface Io {
  readonly out: Sink;
  readonly err: Sink;
  readonly stdin: { readonly isTTY?: boolean | undefined };
  readonly env: Readonly<Record<string, string | undefined>>;
  /** Aborts at SIGINT or SIGTERM. From the first call on, the first of these signals does not end the process. */
  readonly interruption: () => AbortSignal;
  /** Resolves after `ms`, or as soon as the signal aborts. */
  readonly pause: (ms: number, abortSignal: AbortSignal) => Promise<void>;
}

export interface GlobalOptions {
  readonly store?: string | undefined;
  readonly namespace?: string | undefined;
  readonly url?: string | undefined;
  readonly key?: string | undefined;
  readonly json?: boolean | undefined;
  readonly watch?: boolean | undefined;
  readonly yes?: boolean | undefined;
  readonly color?: boolean | undefined;
  /** Which of them come from their variables, and not from the command line. */
  readonly fromEnv?: readonly string[] | undefined;
}

export const DEFAULT_STORE = "./pawl.db";
export const DEFAULT_NAMESPACE = "default";
const WATCH_MS = 1000;
/** How many items a list shows, unless it is asked for another number. */
export const LISTED = 50;
const MOST_LISTED = 1000;

export interface ListOptions {
  readonly limit?: number | undefined;
  readonly after?: string | undefined;
  readonly all?: boolean | undefined;
}

export interface Listing<Item> {
  readonly columns: readonly Column<Item>[];
  readonly page: (options: PageOptions) => Promise<Page<Item>>;
  /** What tells one item from another; a changed item is shown again by `--watch --json`. */
  readonly keyOf: (item: Item) => string;
  /** What is said if there is none. */
  readonly none: string;
}

export interface Showing<Item> {
  readonly get: () => Promise<Item>;
  readonly fields: (item: Item) => readonly (readonly [name: string, value: unknown])[];
  /** Lines after the fields. */
  readonly more?: (item: Item, look: Look) => readonly string[];
  /** Whether it will not change any more, so that `--watch` ends. */
  readonly isFinal?: (item: Item) => boolean;
}

export class Session {
  readonly io: Io;
  readonly options: GlobalOptions;
  #backend: Promise<Backend> | undefined;
  /** Why there are no secrets, although there is a file of them. */
  #unreadable: string | undefined;

  constructor(io: Io, options: GlobalOptions) {
    this.io = io;
    this.options = options;
  }

  get isJson(): boolean {
    return this.options.json === true;
  }

  /** The server; undefined for a database. Throws where the environment names both. */
  get url(): string | undefined {
    const { store, url } = this.options;
    if (store !== undefined && url !== undefined)
      throw new CliError(
        "invalid_usage",
        "PAWL_STORE and PAWL_URL are both set: say with --store or --url which is meant, or unset one of them",
      );
    return url;
  }

  get namespace(): string {
    return this.options.namespace ?? DEFAULT_NAMESPACE;
  }

  /** How tables are shown on stdout. */
  get look(): Look {
    const { out, env } = this.io;
    const isTerminal = out.isTTY === true;
    const color =
      isTerminal && (env["NO_COLOR"] ?? "") === "" && env["TERM"] !== "dumb" && this.options.color !== false;
    return { color, width: isTerminal ? (out.columns ?? 80) : undefined };
  }

  /** What the command works against; it is closed when the command has ended. */
  backend(to: "read" | "write" | "create"): Promise<Backend> {
    this.#backend ??= this.#open(to);
    return this.#backend;
  }

  async #open(to: "read" | "write" | "create"): Promise<Backend> {
    const { url } = this;
    const { key, namespace } = this.options;
    if (url !== undefined) {
      if (namespace !== undefined)
        throw new CliError(
          "invalid_usage",
          `${this.#given("namespace")} has no effect on a server, where the API key decides the namespace: leave it out, and give a key of that namespace`,
        );
      const { httpBackend } = await import("./http-backend.ts");
      return httpBackend({ url, key });
    }
    const [{ openPlace }, { storeBackend }, { actionSecrets, secretsIfReadable }, place] = await Promise.all([
      import("./store.ts"),
      import("./store-backend.ts"),
      import("./keyring.ts"),
      this.place(),
    ]);
    const { keys, unreadable } = await secretsIfReadable(place, this.io.env);
    this.#unreadable = unreadable;
    const actions = await actionSecrets(keys, this.io.env);
    const pawl = await openPlace(place, { to, namespace: this.options.namespace, actions });
    return storeBackend(pawl, place.shown);
  }

  /** The database, for commands that need one themselves. */
  async place(): Promise<StorePlace> {
    if (this.url !== undefined)
      throw new CliError(
        "not_supported",
        `this needs the database itself: give --store instead of ${this.#given("url")}`,
      );
    return this.#place();
  }

  /** The database that is served. PAWL_URL is for commands that ask a server: a shell has it that was set up for them. */
  async placeToServe(): Promise<StorePlace> {
    return this.options.fromEnv?.includes("url") === true ? this.#place() : this.place();
  }

  async #place(): Promise<StorePlace> {
    const { placeOf } = await import("./store.ts");
    return placeOf(this.options.store ?? DEFAULT_STORE);
  }

  /** An error with what this session knows of its cause. */
  explained(error: unknown): unknown {
    const { code, message } = showError(error);
    if (code === "unauthorized" && this.options.key === undefined)
      return new CliError(code, `${message} Set PAWL_KEY, or give --key`, { cause: error });
    if (code === "keys_missing" && this.#unreadable !== undefined)
      return new CliError(code, `${message}; ${this.#unreadable}`, { cause: error });
    if ((code === "keys_missing" || code === "key_unavailable") && this.url === undefined)
      return new CliError(
        code,
        `${message}; a command has the key ring from PAWL_KEYS, or from the key file beside the database`,
        { cause: error },
      );
    return error;
  }

  /**
   * Who does something, as the audit trail names them: whom `--by` names on a database, and on a server, which is never told another name, the API key. With
   * `isNeeded`, a database gets a name.
   */
  actor(by: string | undefined, { isNeeded = false } = {}): string | undefined {
    const isServer = this.url !== undefined;
    if (isServer && by !== undefined)
      throw new CliError("invalid_usage", "--by has no effect on a server, which names the API key: leave it out");
    if (!isServer && isNeeded && by === undefined)
      throw new CliError("invalid_usage", "--by <who> is needed on a database, for the audit trail");
    return by;
  }

  /** How an option was given: by itself, or by its variable. */
  #given(name: "url" | "namespace"): string {
    return this.options.fromEnv?.includes(name) === true ? `PAWL_${name.toUpperCase()}` : `--${name}`;
  }

  async close(): Promise<void> {
    const backend = await this.#backend?.catch(() => undefined);
    await backend?.close();
  }

  // ------------------------------------------------------------------------------------------------- printing

  print(lines: readonly string[]): void {
    if (lines.length > 0) this.io.out.write(`${lines.join("\n")}\n`);
  }

  json(value: unknown): void {
    this.io.out.write(`${jsonLine(value)}\n`);
  }

  /** Writes to stdout, and resolves when there is room for more. */
  written(text: string): Promise<void> {
    return new Promise((resolve, reject) => {
      this.io.out.write(text, (error) => (error == null ? resolve() : reject(error)));
    });
  }

  /** A line for people only, on stderr. */
  note(text: string): void {
    if (this.io.err.isTTY === true && !this.isJson) this.io.err.write(`${escaped(text)}\n`);
  }

  /** A line on stderr, for people and scripts. */
  say(text: string): void {
    this.io.err.write(`${escaped(text)}\n`);
  }

  /** What a list or a change left out, on stderr. */
  sayUnreadable(unreadable: Page<never>["unreadable"] = []): void {
    for (const { id, reason } of unreadable) this.say(`cannot be read: ${id}: ${reason}`);
  }

  /** The outcome of a change: a sentence for people, or a document for programs. */
  done(sentence: string, value: unknown): void {
    if (this.isJson) this.json(value);
    else this.print([escaped(sentence)]);
  }

  /** Shows how far a long operation is, where there is a terminal; `end` removes it. */
  progress(): { readonly is: (text: string) => void; readonly end: () => void } {
    const { err } = this.io;
    if (err.isTTY !== true) return { is: () => {}, end: () => {} };
    return {
      is: (text) => void err.write(`\r${cut(escaped(text), (err.columns ?? 80) - 1)}\u001b[K`),
      end: () => void err.write("\r\u001b[K"),
    };
  }

  /** Before what cannot be undone. Throws unless the user agrees, on the terminal or with `--yes`. */
  async confirm(what: string): Promise<void> {
    if (this.options.yes === true) return;
    const { stdin, err } = this.io;
    if (stdin.isTTY !== true || err.isTTY !== true)
      throw new CliError("invalid_confirmation", `${what}: add --yes to confirm, as there is no terminal to ask on`);
    const { createInterface } = await import("node:readline/promises");
    const asking = createInterface({ input: process.stdin, output: process.stderr });
    try {
      const said = await asking.question(`${escaped(what)}. Type yes to continue: `, {
        signal: this.io.interruption(),
      });
      if (said.trim().toLowerCase() !== "yes") throw new CliError("not_confirmed", "nothing was changed");
    } finally {
      asking.close();
    }
  }

  // -------------------------------------------------------------------------------------------------- showing

  async list<Item>(listing: Listing<Item>, options: ListOptions): Promise<void> {
    if (options.all === true && options.limit !== undefined)
      throw new CliError("invalid_usage", "give either --limit or --all");
    const limit = options.limit ?? LISTED;
    if (this.options.watch === true) return this.#watchList(listing, { limit, after: options.after });
    const items: Item[] = [];
    let after = options.after;
    let next: string | null = null;
    do {
      const page: Page<Item> = await listing.page({ after, limit: options.all === true ? MOST_LISTED : limit });
      if (this.isJson) for (const item of page.items) this.json(item);
      else items.push(...page.items);
      this.sayUnreadable(page.unreadable);
      next = page.next;
      after = next ?? undefined;
    } while (options.all === true && next !== null);
    if (this.isJson) {
      // Without it, a program could take a page for all.
      if (next !== null) this.say(`more: --after ${next}`);
      return;
    }
    // On stderr, so that stdout has the items only.
    if (items.length === 0) this.say(this.#noneThere(listing.none));
    else this.print(tableLines(listing.columns, items, this.look));
    if (next !== null) this.say(`more: --after ${next}, or --all`);
  }

  /** A namespace that is misspelled is one that has nothing. */
  #noneThere(none: string): string {
    const { namespace } = this.options;
    return namespace === undefined || this.url !== undefined ? none : `${none} in namespace ${namespace}`;
  }

  async #watchList<Item>(listing: Listing<Item>, options: PageOptions): Promise<void> {
    const seen = new Map<string, string>();
    await this.#watch(async () => {
      const { items } = await listing.page(options);
      if (this.isJson) {
        for (const item of items) {
          const text = jsonLine(item);
          const key = listing.keyOf(item);
          if (seen.get(key) !== text) this.io.out.write(`${text}\n`);
          seen.set(key, text);
        }
        return { isFinal: false };
      }
      return {
        lines: items.length === 0 ? [listing.none] : tableLines(listing.columns, items, this.look),
        isFinal: false,
      };
    });
  }

  async show<Item>(showing: Showing<Item>): Promise<void> {
    const linesOf = (item: Item): readonly string[] => [
      ...fieldLines(showing.fields(item), this.look),
      ...(showing.more?.(item, this.look) ?? []),
    ];
    if (this.options.watch !== true) {
      const item = await showing.get();
      if (this.isJson) this.json(item);
      else this.print(linesOf(item));
      return;
    }
    let last: string | undefined;
    await this.#watch(async () => {
      const item = await showing.get();
      const isFinal = showing.isFinal?.(item) === true;
      if (!this.isJson) return { lines: linesOf(item), isFinal };
      const text = jsonLine(item);
      if (text !== last) this.io.out.write(`${text}\n`);
      last = text;
      return { isFinal };
    });
  }

  /** Looks once a second until it is interrupted, or nothing will change any more. */
  async #watch(look: () => Promise<{ readonly lines?: readonly string[]; readonly isFinal: boolean }>): Promise<void> {
    const { out } = this.io;
    const interrupted = this.io.interruption();
    let last = "";
    for (let isFinal = false; !isFinal && !interrupted.aborted; ) {
      const seen = await look();
      isFinal = seen.isFinal;
      if (seen.lines !== undefined) {
        const text = seen.lines.join("\n");
        if (out.isTTY === true) {
          const rows = seen.lines.slice(0, Math.max(1, (out.rows ?? 24) - 1));
          // Without line wrap, so that each row is one line of the screen.
          out.write(`\u001b[H\u001b[?7l${rows.map((row) => `${row}\u001b[K\n`).join("")}\u001b[?7h\u001b[J`);
        } else if (text !== last) this.print([...(last === "" ? [] : [""]), ...seen.lines]);
        last = text;
      }
      if (!isFinal) await this.io.pause(WATCH_MS, interrupted);
    }
  }
}
