/**
 * Real connections to a PostgreSQL server, controlled by a simulator, which decides when a pipeline of statements is sent, what the server
 * receives of it, whether its reply arrives, and when the connection breaks.
 *
 * A pipeline is recorded when the store sends it (`recorded`), so that it can be sent later, or never; and its reply is kept, to be
 * delivered at the time that the simulator chooses. A failure of the server is made by the server: a statement that raises it is inserted
 * before the pipeline's last one, so that the transaction fails as it would, and so does everything after it.
 *
 * Guarantees: `send` is over when the server is done; `cut` when the server has noticed, and has rolled back an open transaction.
 */

import pg from "pg";
import type { PgConnection } from "../../src/stores/postgres/pipeline.ts";

/** What `pg` can be given to send, as the store's pipelines are. */
export interface Submittable {
  submit(connection: PgConnection): unknown;
  handleDataRow(message: DataRow): void;
  handleCommandComplete(message: Complete): void;
  handleReadyForQuery(): void;
  handleError(error: unknown): void;
}

export function isSubmittable(query: object): query is Submittable {
  return "submit" in query && "handleReadyForQuery" in query;
}

interface DataRow {
  readonly fields: readonly (string | null)[];
}

interface Complete {
  readonly text: string;
}

/** One statement of a pipeline, with the messages that it is made of. */
export interface Statement {
  readonly text: string;
  readonly values: readonly unknown[];
  readonly messages: readonly ((connection: PgConnection) => void)[];
}

/** What the pipeline would send. `texts` has the statements that this connection has prepared, by name, and learns new ones. */
export function recorded(pipeline: Submittable, texts: Map<string, string>): readonly Statement[] {
  const statements: Statement[] = [];
  let messages: ((connection: PgConnection) => void)[] = [];
  let text = "";
  let values: readonly unknown[] = [];
  pipeline.submit({
    close: (message) => void messages.push((connection) => connection.close(message)),
    parse: (message) => {
      texts.set(message.name, message.text);
      messages.push((connection) => connection.parse(message));
    },
    bind: (message) => {
      text = texts.get(message.statement) ?? "";
      values = message.values;
      messages.push((connection) => connection.bind(message));
    },
    execute: (message) => {
      messages.push((connection) => connection.execute(message));
      statements.push({ text, values, messages });
      messages = [];
    },
    sync: () => {},
    stream: { destroy: () => {} },
  });
  return statements;
}

export interface Answer {
  readonly rows: readonly DataRow[];
  readonly tag: string;
}

/** What came back for a pipeline. */
export interface Reply {
  readonly answers: readonly Answer[];
  /** Undefined if all went well. */
  readonly error: unknown;
}

/** Gives the pipeline what came back for it, as `pg` would have. */
export function deliver(pipeline: Submittable, { answers, error }: Reply): void {
  for (const { rows, tag } of answers) {
    for (const row of rows) pipeline.handleDataRow(row);
    pipeline.handleCommandComplete({ text: tag });
  }
  if (error === undefined) pipeline.handleReadyForQuery();
  else pipeline.handleError(error);
}

/** Statements on their way, and what the server says to them. */
class Shipment {
  readonly #statements: readonly Statement[];
  readonly #raised: string | undefined;
  #rows: DataRow[] = [];
  readonly answers: Answer[] = [];
  error: unknown;

  constructor(statements: readonly Statement[], raised: string | undefined) {
    this.#statements = statements;
    this.#raised = raised;
  }

  submit(connection: PgConnection): null {
    connection.stream.cork?.();
    for (const [index, { messages }] of this.#statements.entries()) {
      if (this.#raised !== undefined && index === this.#statements.length - 1) raise(connection, this.#raised);
      for (const message of messages) message(connection);
    }
    connection.sync();
    connection.stream.uncork?.();
    return null;
  }

  handleDataRow(row: DataRow): void {
    this.#rows.push(row);
  }

  handleCommandComplete({ text }: Complete): void {
    this.answers.push({ rows: this.#rows, tag: text });
    this.#rows = [];
  }

  handleError(error: unknown): void {
    this.error = error;
  }

  handleReadyForQuery(): void {}
  handleRowDescription(): void {}
  handleEmptyQuery(): void {}
}

function raise(connection: PgConnection, state: string): void {
  const text = `do $$ begin raise exception 'simulated' using errcode = '${state}'; end $$`;
  connection.parse({ name: "", text });
  connection.bind({ statement: "", values: [] });
  connection.execute({});
}

/** The first half of the locks by which a wire's end is noticed; the second is its process on the server. */
const LIVES = 20_260;

/** Where a transaction stands, in the server's letters: none, open, or failed. */
type Status = "I" | "T" | "E";

const isStatus = (status: unknown): status is Status => status === "I" || status === "T" || status === "E";

export class Wire {
  readonly #client: pg.Client;
  readonly #admin: pg.Pool;
  #server = 0;
  #status: Status = "I";
  #isBusy = false;
  #isGone = false;
  /** What the server said when it ended the connection. */
  #last: unknown;
  /** Those who wait for anything to happen here. */
  #waiting: (() => void)[] = [];
  /** How many pipelines it has carried. */
  pipelines = 0;
  /** How many notifications came. */
  notifications = 0;
  isListening = false;
  /** Told of notifications. */
  heard: ((payload: string) => void) | undefined;
  /** Told of the connection's end, unless it was cut here. */
  lost: (() => void) | undefined;

  private constructor(client: pg.Client, admin: pg.Pool) {
    this.#client = client;
    this.#admin = admin;
    client.on("error", (error) => {
      this.#last ??= error;
    });
    client.on("end", () => {
      this.#isGone = true;
      this.lost?.();
      this.#happened();
    });
    client.on("notification", ({ payload = "" }) => {
      this.notifications += 1;
      this.heard?.(payload);
      this.#happened();
    });
    // After `pg`'s own listener, so that the pipeline has heard already.
    client.connection.on("readyForQuery", ({ status }: { status?: unknown }) => {
      if (isStatus(status)) this.#status = status;
      this.#isBusy = false;
      this.#happened();
    });
  }

  static async connect(url: string, admin: pg.Pool): Promise<Wire> {
    const client = new pg.Client({ connectionString: url, fallback_application_name: "wire" });
    await client.connect();
    const wire = new Wire(client, admin);
    const sql = "select pg_backend_pid() as pid, pg_advisory_lock($1, pg_backend_pid())";
    const { rows } = await client.query(sql, [LIVES]);
    wire.#server = Number(rows[0]?.pid);
    return wire;
  }

  get isGone(): boolean {
    return this.#isGone;
  }

  get isInTransaction(): boolean {
    return this.#status !== "I" && !this.#isGone;
  }

  /** Sends the statements, and waits until the server has done with them. `raised` is an SQLSTATE that it fails with before the last. */
  async send(statements: readonly Statement[], raised?: string): Promise<Reply> {
    this.pipelines += 1;
    const shipment = new Shipment(statements, raised);
    if (!this.#isGone) {
      this.#isBusy = true;
      // biome-ignore lint/suspicious/noExplicitAny: `pg` has its own types of what can be submitted, in each release others.
      this.#client.query(shipment as any);
      await this.#until(() => !this.#isBusy);
    }
    if (this.#isGone) shipment.error ??= this.#last ?? brokenError();
    return shipment;
  }

  /** Waits until more notifications have come than these. */
  hears(count: number): Promise<void> {
    return this.#until(() => this.notifications > count);
  }

  /** The server ends the connection, because its transaction stood idle for too long. */
  async expire(): Promise<void> {
    if (this.#status !== "T" || this.#isGone) return;
    // It may do so by itself at this very moment.
    await this.#client.query("set local idle_in_transaction_session_timeout = 1").catch(() => {});
    await this.#until(() => false);
  }

  /** Closes the socket, and waits until the server has noticed. */
  async cut(): Promise<void> {
    this.lost = undefined;
    this.heard = undefined;
    if (!this.#isGone) this.#client.connection.stream.destroy();
    await this.#until(() => false);
    // What its process on the server had until its end can be had now.
    await this.#admin.query("select pg_advisory_lock($1, $2), pg_advisory_unlock($1, $2)", [LIVES, this.#server]);
  }

  #happened(): void {
    const waiting = this.#waiting;
    this.#waiting = [];
    for (const go of waiting) go();
  }

  /** Waits for this, or for the end of the connection. */
  async #until(isDone: () => boolean): Promise<void> {
    while (!this.#isGone && !isDone()) await new Promise<void>((resolve) => void this.#waiting.push(resolve));
  }
}

export const brokenError = (): Error => new Error("Connection terminated unexpectedly");
