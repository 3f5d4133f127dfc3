/**
 * Opening a file: what is created, what is refused, and what people can read in it.
 *
 * Goal: ten processes that open a new file at the same moment all get it, with one schema; settings that could lose acknowledged
 * commits are refused (G1); a file of a newer release is refused and not changed (G24).
 * Method: real processes and real files. The settings of a connection are read from the connection itself.
 */

import { copyFileSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { DatabaseSync } from "node:sqlite";
import { describe, expect, it } from "vitest";
import { address } from "../../src/kernel/contract.ts";
import { PawlError, StoreError } from "../../src/kernel/errors.ts";
import { open } from "../../src/open.ts";
import type { Pawl } from "../../src/pawl.ts";
import { isSafeSqlite } from "../../src/stores/sqlite/sqlite.ts";
import { allOf, integrityOf, scratchFolder, startChild } from "./kit.ts";

const folder = scratchFolder();

async function refusal(opening: Promise<unknown>): Promise<PawlError> {
  const outcome = await opening.then(
    () => undefined,
    (error: unknown) => error,
  );
  if (!(outcome instanceof PawlError)) throw new Error(`it was not refused: ${outcome}`);
  return outcome;
}

/** Everything that is in the file. */
function contentOf(path: string): Record<string, unknown> {
  const db = new DatabaseSync(path);
  const schema = allOf(db, "select type, name, tbl_name, sql from sqlite_schema order by type, name");
  const tables = schema.filter(({ type }) => type === "table").map(({ name }) => String(name));
  const content = Object.fromEntries(tables.map((table) => [table, allOf(db, `select * from "${table}"`)]));
  db.close();
  return { schema, ...content };
}

describe("many processes that start concurrently", () => {
  it("all open the file that did not exist, and it has one schema", async () => {
    const PROCESSES = 10;
    const ROUNDS = 5;
    // The first leaves its compiled code to the others, which saves each of them half a second of processor time.
    const first = startChild("starter.ts", []);
    first.tell("");
    await first.ended;
    const children = Array.from({ length: PROCESSES }, () => startChild("starter.ts", []));
    for (const child of children) expect(await child.line()).toBe("ready");
    const alone = join(folder, "alone.db");
    await (await open(alone)).close();
    for (let round = 0; round < ROUNDS; round++) {
      const path = join(folder, `together-${round}.db`);
      for (const child of children) child.tell(path);
      const values = await Promise.all(children.map((child) => child.line()));
      const inOrder = values.toSorted((a, b) => Number(a) - Number(b));
      expect(inOrder).toEqual(Array.from({ length: PROCESSES }, (_, index) => String(index + 1)));
      expect(contentOf(path)["schema"]).toEqual(contentOf(alone)["schema"]);
      expect(contentOf(path)["pawl_meta"]).toEqual(contentOf(alone)["pawl_meta"]);
      expect(integrityOf(path)).toBe("ok");
    }
    for (const child of children) child.tell("");
    await Promise.all(children.map((child) => child.ended));
    console.log(`start: ${PROCESSES} processes opened a new file at once, ${ROUNDS} times; all of them got it`);
  });
});

describe("a file of a newer release", () => {
  it("is refused with a clear error, and not changed by a byte", async () => {
    const path = join(folder, "newer.db");
    const pawl = await open(path);
    await pawl.slot<string>("kept").set("from the future");
    await pawl.close();
    const db = new DatabaseSync(path);
    db.exec("update pawl_meta set number = 1000 where name in ('schema', 'oldest')");
    db.close();
    const before = readFileSync(path);
    const error = await refusal(open(path));
    expect(error).toBeInstanceOf(StoreError);
    expect(error).toMatchObject({ code: "store_unfit", message: /schema 1000.*upgrade Pawl/ });
    expect(readFileSync(path).equals(before)).toBe(true);
  });

  it("is refused also while processes of that release have it open", async () => {
    const path = join(folder, "newer-open.db");
    const pawl = await open(path);
    const db = new DatabaseSync(path);
    db.exec("update pawl_meta set number = number + 1 where name = 'schema'");
    db.exec("update pawl_meta set number = (select number from pawl_meta where name = 'schema') where name = 'oldest'");
    const before = contentOf(path);
    expect(await refusal(open(path))).toMatchObject({ code: "store_unfit" });
    expect(contentOf(path)).toEqual(before);
    db.close();
    await pawl.close();
  });
});

describe("a schema that becomes newer under a process that is running", () => {
  /** What another process of a later release does to the file: it brings a schema, and says from which release on it can be used. */
  function upgrade(path: string, schema: string, oldest: string): void {
    const db = new DatabaseSync(path);
    const known = "(select number from pawl_meta where name = 'schema')";
    db.exec(`begin immediate;
      insert or replace into pawl_meta (name, number) select 'oldest', ${known} + ${oldest};
      update pawl_meta set number = number + ${schema} where name = 'schema';
      commit`);
    db.close();
  }

  /** Each way in, with what it does to the slot "n". */
  const ways: readonly [way: string, act: (pawl: Pawl, path: string) => Promise<unknown>][] = [
    ["a commit", (pawl) => pawl.slot<number>("n").set(2)],
    ["a commit that creates", (pawl) => pawl.slot<number>("new").set(2)],
    ["a read", (pawl) => pawl.slot<number>("n").get()],
    ["a list", (pawl) => pawl.slots.list({ limit: 10 })],
    ["transact.sql", (pawl) => pawl.transact.sql((_, tx) => tx((tx) => tx.slot(pawl.slot<number>("n")).set(2)))],
    [
      "within",
      async (pawl, path) => {
        const db = new DatabaseSync(path);
        try {
          return await pawl.within(db, (tx) => tx.slot(pawl.slot<number>("n")).set(2));
        } finally {
          db.close();
        }
      },
    ],
  ];

  for (const [index, [way, act]] of ways.entries()) {
    it(`is refused by ${way}, and nothing is written`, async () => {
      const path = join(folder, `running-${index}.db`);
      await using pawl = await open(path, { patience: 500 });
      await pawl.slot<number>("n").set(1);
      upgrade(path, "1", "1");
      const before = contentOf(path);
      for (let i = 0; i < 2; i++) {
        const error = await refusal(act(pawl, path));
        expect(error).toMatchObject({ code: "store_unfit", message: expect.stringMatching(/upgrade Pawl/) });
      }
      expect(contentOf(path)).toEqual(before);
    });

    it(`does not prevent ${way} if it says that this release can use it`, async () => {
      const path = join(folder, `fit-${index}.db`);
      await using pawl = await open(path);
      await pawl.slot<number>("n").set(1);
      upgrade(path, "3", "0");
      await act(pawl, path);
    });
  }

  it("is read only when another connection has committed", async () => {
    const path = join(folder, "looks.db");
    const { prepare } = DatabaseSync.prototype;
    let looks = 0;
    DatabaseSync.prototype.prepare = function (this: DatabaseSync, ...args: Parameters<typeof prepare>) {
      const statement = prepare.apply(this, args);
      if (args[0] === "select number from pawl_meta where name = ?") {
        const { get } = statement;
        statement.get = (...values: unknown[]) => {
          if (values[0] === "schema") looks += 1;
          return get.apply(statement, values as Parameters<typeof get>);
        };
      }
      return statement;
    };
    try {
      await using pawl = await open(path);
      await pawl.slot<number>("n").set(0);
      const before = looks;
      expect(before).toBeGreaterThan(0);
      for (let i = 0; i < 20; i++) await pawl.slot<number>("n").set(i);
      for (let i = 0; i < 20; i++) await pawl.slot<number>("n").get();
      expect(looks).toBe(before);
      upgrade(path, "1", "0");
      for (let i = 0; i < 20; i++) await pawl.slot<number>("n").set(i);
      expect(looks).toBe(before + 1);
    } finally {
      DatabaseSync.prototype.prepare = prepare;
    }
  });
});

describe("the application's own database", () => {
  it("keeps its tables, and Pawl's stand beside them", async () => {
    const path = join(folder, "shared.db");
    const db = new DatabaseSync(path);
    db.exec("create table orders (id integer primary key, name text); insert into orders (name) values ('first')");
    db.close();
    const pawl = await open(path);
    await pawl.slot<number>("n").set(1);
    await pawl.close();
    expect(contentOf(path)["orders"]).toEqual([{ id: 1, name: "first" }]);
    expect(contentOf(path)["pawl_record"]).toHaveLength(1);
  });
});

describe("what would not keep what it acknowledges", () => {
  const existing = join(folder, "existing.db");

  const rules: readonly { what: string; store: string; message: RegExp }[] = [
    { what: "SQLite's memory", store: ":memory:", message: /"memory:" for tests/ },
    { what: "no name", store: "", message: /path of a file/ },
    { what: "another database's address", store: "mysql://localhost/app", message: /mysql/ },
    { what: "memory by another name", store: "file::memory:", message: /file/ },
    { what: "memory with a file's name", store: `file:${existing}?mode=memory`, message: /file/ },
    { what: "a file said never to change", store: `file:${existing}?immutable=1`, message: /file/ },
    { what: "a file without locks", store: `file:${existing}?nolock=1`, message: /file/ },
    { what: "a new file without locks", store: `file:${folder}/new.db?nolock=1`, message: /file/ },
    { what: "a new file without shared memory", store: `file:${folder}/new.db?vfs=unix-dotfile`, message: /file/ },
    // SQLite then pads the log after the commit's last frame, so a commit refused for want of space can come back.
    { what: "a file whose refusals a crash would undo", store: `file:${existing}?psow=0`, message: /file/ },
  ];
  for (const { what, store, message } of rules)
    it(`${what} is refused`, async () => {
      await (await open(existing)).close();
      const before = contentOf(existing);
      const error = await refusal(open(store));
      expect(["invalid_argument", "store_unfit", "store_unreachable"]).toContain(error.code);
      expect(error.message).toMatch(message);
      expect(contentOf(existing)).toEqual(before);
    });

  it("a lower durability must be requested by name, and the default is the full one", async () => {
    for (const durability of ["off", "normal", "FULL", "none", "", 0, false]) {
      // What comes from a configuration file has passed no type check.
      const options: { durability: "full" } = JSON.parse(JSON.stringify({ durability }));
      const error = await refusal(open(join(folder, "weak.db"), options));
      expect(error, String(durability)).toMatchObject({ code: "invalid_argument", data: { what: "durability" } });
    }
    const FULL = { synchronous: 2, fullfsync: 1, checkpoint_fullfsync: 1, journal_mode: "wal", timeout: 0 };
    expect(await settingsAt({})).toEqual(FULL);
    expect(await settingsAt({ durability: "full" })).toEqual(FULL);
    expect(await settingsAt({ durability: "process" })).toEqual({ ...FULL, synchronous: 1 });
  });

  it("a file that was made without a write-ahead log gets one", async () => {
    const path = join(folder, "delete-mode.db");
    const db = new DatabaseSync(path);
    db.exec("pragma journal_mode = delete; create table t (n)");
    db.close();
    await (await open(path)).close();
    const after = new DatabaseSync(path);
    expect(allOf(after, "pragma journal_mode")).toEqual([{ journal_mode: "wal" }]);
    after.close();
  });
});

/** What a connection says of itself that `open` made. */
async function settingsAt(options: { durability?: "full" | "process" }): Promise<Record<string, unknown>> {
  const { prepare } = DatabaseSync.prototype;
  let connection: DatabaseSync | undefined;
  DatabaseSync.prototype.prepare = function (this: DatabaseSync, ...args: Parameters<typeof prepare>) {
    connection = this;
    return prepare.apply(this, args);
  };
  try {
    const pawl = await open(join(folder, "settings.db"), options);
    const asked = ["synchronous", "fullfsync", "checkpoint_fullfsync", "journal_mode", "busy_timeout"];
    const db = connection;
    if (db === undefined) throw new Error("open made no connection");
    const settings = Object.assign({}, ...asked.map((name) => allOf(db, `pragma ${name}`)[0]));
    await pawl.close();
    return settings;
  } finally {
    DatabaseSync.prototype.prepare = prepare;
  }
}

describe("a SQLite that can lose commits", () => {
  const rules: readonly [version: string, isFit: boolean, why: string][] = [
    ["3.44.5", false, "before the repair of 3.44"],
    ["3.44.6", true, "the repair of 3.44"],
    ["3.44.10", true, "numbers, not texts, are compared"],
    ["3.45.0", false, "never repaired"],
    ["3.49.2", false, "never repaired"],
    ["3.50.6", false, "before the repair of 3.50"],
    ["3.50.7", true, "the repair of 3.50"],
    ["3.51.0", false, "before the repair"],
    ["3.51.2", false, "before the repair"],
    ["3.51.3", true, "the repair"],
    ["3.52.0", true, "after it"],
    ["3.100.0", true, "numbers, not texts, are compared"],
    ["4.0.0", true, "after it"],
    ["2.8.17", false, "long before"],
    ["3", false, "no release"],
    ["", false, "no version at all"],
  ];
  for (const [version, isFit, why] of rules)
    it(`"${version}" is ${isFit ? "fit" : "not fit"}: ${why}`, () => expect(isSafeSqlite(version)).toBe(isFit));

  it("is not the one that runs here", () => expect(isSafeSqlite(process.versions["sqlite"] ?? "")).toBe(true));
});

describe("what people read in the file", () => {
  it("pawl_now has each value as text and each time in words, and no deleted record", async () => {
    const path = join(folder, "views.db");
    const pawl = await open(path);
    await pawl.slot<unknown>("visits").set({ count: 3, from: "Zürich" });
    await pawl.slot<unknown>("deleted").set(1);
    await pawl.slot<unknown>("deleted").delete();
    const dueMs = Date.UTC(2031, 1, 3, 4, 5, 6, 78);
    await pawl.kernel.transact(
      (tx) => tx.record(address("job", "mail")).write({ value: [1], kind: "mailer", status: "waiting", dueMs }),
      [],
    );
    const db = new DatabaseSync(path);
    const columns = "namespace, space, key, version, status, value, kind, holder, fence, tries, due_utc";
    expect(allOf(db, `select ${columns} from pawl_now order by space`)).toEqual([
      {
        namespace: "default",
        space: "job",
        key: "mail",
        version: 1,
        status: "waiting",
        value: "[1]",
        kind: "mailer",
        holder: null,
        fence: 0,
        tries: 0,
        due_utc: "2031-02-03 04:05:06.078",
      },
      {
        namespace: "default",
        space: "slot",
        key: "visits",
        version: 1,
        status: null,
        value: '{"count":3,"from":"Zürich"}',
        kind: null,
        holder: null,
        fence: 0,
        tries: 0,
        due_utc: null,
      },
    ]);
    expect(allOf(db, `select value ->> '$.from' as "from" from pawl_now where key = 'visits'`)).toEqual([
      { from: "Zürich" },
    ]);
    db.close();
    await pawl.close();
  });

  it("pawl_past has the log of every record in order, with when it was", async () => {
    const path = join(folder, "past.db");
    const pawl = await open(path, { namespace: "billing" });
    const trail = address("trail", "order 1");
    const startedMs = Date.now();
    for (const name of ["placed", "paid"])
      await pawl.kernel.transact(
        (tx) => {
          const record = tx.record(trail);
          if (!record.exists) record.write({ value: null });
          record.append(name, { by: "ann" });
        },
        [trail],
      );
    const db = new DatabaseSync(path);
    const rows = allOf(db, "select * from pawl_past order by position");
    expect(rows).toMatchObject([
      { namespace: "billing", space: "trail", key: "order 1", version: 1, name: "placed", data: '{"by":"ann"}' },
      { namespace: "billing", space: "trail", key: "order 1", version: 2, name: "paid", data: '{"by":"ann"}' },
    ]);
    for (const row of rows) {
      const atMs = Date.parse(`${String(row["at_utc"]).replace(" ", "T")}Z`);
      expect(atMs).toBeGreaterThanOrEqual(startedMs);
      expect(atMs).toBeLessThanOrEqual(Date.now());
    }
    db.close();
    await pawl.close();
  });

  it("a time in words is the time to the millisecond", async () => {
    const path = join(folder, "times.db");
    const pawl = await open(path);
    const times = Array.from({ length: 500 }, (_, i) =>
      i < 100 ? 1_790_000_000_000 + i : Math.floor(Math.random() * 4e12),
    );
    await pawl.kernel.transact(
      (tx) => {
        for (const [index, dueMs] of times.entries())
          tx.record(address("job", String(index).padStart(4, "0"))).write({ value: 0, kind: "k", dueMs });
      },
      times.map((_, index) => address("job", String(index).padStart(4, "0"))),
    );
    await pawl.close();
    const copy = join(folder, "times-copy.db");
    copyFileSync(path, copy);
    const db = new DatabaseSync(copy);
    const words = allOf(db, "select due_utc from pawl_now order by key").map((row) => row["due_utc"]);
    expect(words).toEqual(times.map((ms) => new Date(ms).toISOString().replace("T", " ").replace("Z", "")));
    db.close();
  });
});
