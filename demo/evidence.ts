/**
 * Evidence: the content of the database, read with plain SQL and none of Pawl's code, and of the ledgers that the processes wrote.
 *
 * The ledgers are read before the database: everything that was acknowledged by then must be in it. The database is read in one
 * transaction, so that the balance and the orders are of the same moment.
 */

import { mkdirSync, readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { DatabaseSync, type SQLOutputValue } from "node:sqlite";

/** One line of an order's log. */
export interface LogLine {
  readonly order: string;
  readonly name: string;
  readonly cents: number | null;
  readonly by: string | null;
  readonly fence: number | null;
  readonly atUtc: string;
}

/** A commit whose outcome a worker has received, and the fence with which it was made. */
export interface Acknowledged {
  readonly order: string;
  readonly fence: number;
}

export interface Evidence {
  /** The provider's own list: each order's price in cents. */
  readonly ordered: ReadonlyMap<string, number>;
  readonly deliveryCount: number;
  /** Orders that a web process confirmed. */
  readonly confirmed: ReadonlySet<string>;
  /** Confirmations of orders that existed already. */
  readonly againCount: number;
  /** Charges that were acknowledged to a worker. */
  readonly charged: readonly Acknowledged[];
  /** Commits that were refused. */
  readonly refused: readonly Acknowledged[];
  /** The logs of all orders, in the order of the commits. */
  readonly log: readonly LogLine[];
  readonly balanceCents: number;
  /** Orders in the queue, and those of them that a worker holds. */
  readonly openCount: number;
  readonly heldCount: number;
}

/** The folder with the ledgers that belong to a database. */
export function ledgersOf(database: string): string {
  return `${database}.ledgers`;
}

export const PROVIDER_LEDGER = "provider.txt";

export function makeLedgers(database: string): string {
  const folder = ledgersOf(database);
  mkdirSync(folder, { recursive: true });
  return folder;
}

/** Opens the file for reading only; waits if another process is just recovering it. */
export function openReadOnly(database: string): DatabaseSync {
  return new DatabaseSync(database, { readOnly: true, timeout: 5_000 });
}

export function readEvidence(db: DatabaseSync, ledgers: string): Evidence {
  return { ...readLedgers(ledgers), ...readBooks(db) };
}

/** The result of SQLite's own check of the file. */
export function integrityOf(db: DatabaseSync): string {
  return db
    .prepare("pragma integrity_check")
    .all()
    .map((row) => String(row["integrity_check"]))
    .join("; ");
}

type Ledgers = Pick<Evidence, "ordered" | "deliveryCount" | "confirmed" | "againCount" | "charged" | "refused">;

function readLedgers(folder: string): Ledgers {
  const ordered = new Map<string, number>();
  const confirmed = new Set<string>();
  const charged: Acknowledged[] = [];
  const refused: Acknowledged[] = [];
  let deliveryCount = 0;
  let againCount = 0;
  for (const file of readdirSync(folder)) {
    const lines = readFileSync(join(folder, file), "utf8").split("\n");
    // After the last line break there is nothing, or a line that is just being written.
    for (const line of lines.slice(0, -1)) {
      const [what = "", order = "", more = ""] = line.split(" ");
      if (what === "order") ordered.set(order, Number(more));
      else if (what === "delivered") deliveryCount += 1;
      else if (what === "confirmed") {
        confirmed.add(order);
        if (more === "again") againCount += 1;
      } else if (what === "charged") charged.push({ order, fence: Number(more) });
      else if (what === "refused") refused.push({ order, fence: Number(more) });
      else throw new Error(`${file} has an unknown line: ${line}`);
    }
  }
  return { ordered, deliveryCount, confirmed, againCount, charged, refused };
}

type Books = Pick<Evidence, "log" | "balanceCents" | "openCount" | "heldCount">;

const LOG = `
  select key, name, json_extract(data, '$.cents') as cents, json_extract(data, '$.by') as who,
    json_extract(data, '$.fence') as fence, at_utc
  from pawl_past where space = 'order' order by position`;

const BALANCE = "select value from pawl_now where space = 'slot' and key = 'balance'";

const QUEUE = "select count(*) as opened, count(holder) as held from pawl_now where space = 'order' and kind = 'order'";

function readBooks(db: DatabaseSync): Books {
  db.exec("begin");
  try {
    const log = db.prepare(LOG).all().map(toLogLine);
    const balance = db.prepare(BALANCE).get();
    const queue = db.prepare(QUEUE).get() ?? {};
    return {
      log,
      balanceCents: Number(balance?.["value"] ?? 0),
      openCount: Number(queue["opened"]),
      heldCount: Number(queue["held"]),
    };
  } finally {
    db.exec("commit");
  }
}

function toLogLine(row: Record<string, SQLOutputValue>): LogLine {
  const { key, name, cents, who, fence, at_utc: atUtc } = row;
  return {
    order: String(key),
    name: String(name),
    cents: typeof cents === "number" ? cents : null,
    by: typeof who === "string" ? who : null,
    fence: typeof fence === "number" ? fence : null,
    atUtc: String(atUtc),
  };
}
