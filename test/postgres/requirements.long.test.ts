/**
 * Goal: a server that would break a guarantee is refused when the store is opened, with a message that says what to do; smaller problems
 * are warnings.
 * Method: one real server, whose settings are changed and changed back; a standby of it; databases of other encodings. A server that is too
 * old is not available here, so its settings are passed to the check.
 */

import pg from "pg";
import { afterAll, afterEach, beforeAll, describe, expect, test } from "vitest";
import type { Duration } from "../../src/kernel/check.ts";
import { NEW_ROW } from "../../src/kernel/contract.ts";
import { StoreError } from "../../src/kernel/errors.ts";
import { open } from "../../src/open.ts";
import { checkServer, type Finding } from "../../src/stores/postgres/requirements.ts";
import { connect } from "./kit.ts";
import { type PostgresServer, startPostgres } from "./server.ts";

let server: PostgresServer;
let admin: pg.Client;

beforeAll(async () => {
  server = await startPostgres();
  admin = new pg.Client({ connectionString: server.url });
  await admin.connect();
});
afterAll(async () => {
  await admin?.end();
  await server?.destroy();
});

const undo: (() => Promise<unknown>)[] = [];
afterEach(async () => {
  for (const step of undo.splice(0).reverse()) await step();
});

/** Changes settings of the whole server, until the test is over. */
async function configure(settings: Readonly<Record<string, string>>): Promise<void> {
  const names = Object.keys(settings);
  const shown = async () => Promise.all(names.map(async (name) => (await admin.query(`show ${name}`)).rows[0]?.[name]));
  const before = await shown();
  /** The server tells its processes in its own time. */
  const reload = async (values: readonly unknown[]) => {
    await admin.query("select pg_reload_conf()");
    await expect.poll(shown, { interval: 5 }).toEqual(values);
  };
  undo.push(async () => {
    for (const name of names) await admin.query(`alter system reset ${name}`);
    await reload(before);
  });
  for (const [name, value] of Object.entries(settings)) await admin.query(`alter system set ${name} = '${value}'`);
  await reload(Object.values(settings));
}

/** A database with settings of its own. */
async function databaseWith(settings: Readonly<Record<string, string>> = {}, creation = ""): Promise<string> {
  const name = `fit_${Math.random().toString(36).slice(2)}`;
  await admin.query(`create database ${name} ${creation}`);
  undo.push(() => admin.query(`drop database ${name} with (force)`));
  for (const [setting, value] of Object.entries(settings))
    await admin.query(`alter database ${name} set ${setting} = '${value}'`);
  const url = new URL(server.url);
  url.pathname = `/${name}`;
  return url.href;
}

interface Verdict {
  readonly refused: string;
  readonly warned: readonly string[];
}

/** What opening says, as users hear it. */
async function verdictOf(
  url: string,
  durability: "full" | "process" = "full",
  patience: Duration = "5s",
): Promise<Verdict> {
  const warned: string[] = [];
  const listener = (warning: Error & { code?: string }) => {
    if (warning.name === "PawlWarning") warned.push(`${warning.code}: ${warning.message}`);
  };
  process.on("warning", listener);
  try {
    const pawl = await open(url, { durability, patience });
    await pawl.slot<number>("n", { initial: 0 }).update((n) => n + 1);
    await pawl.close();
    return { refused: "", warned };
  } catch (error) {
    if (!(error instanceof StoreError)) throw error;
    return { refused: `${error.code}: ${error.message}`, warned };
  } finally {
    await new Promise(setImmediate);
    process.off("warning", listener);
  }
}

/** One sentence, without an end of its own: it is shown within others. */
const isSentence = (text: string): void => expect(text).toMatch(/^[^\n]{20,400}[^.\n]$/);

describe("refused, unless the weaker durability is requested", () => {
  test.each([
    {
      settings: { fsync: "off" },
      sentence: "fsync is off, so a power cut can lose or damage everything: set fsync = on",
    },
    {
      settings: { full_page_writes: "off" },
      sentence: "full_page_writes is off, so a power cut can damage the data: set full_page_writes = on",
    },
    {
      settings: { synchronous_commit: "off" },
      sentence:
        'synchronous_commit is off, so a crash can lose acknowledged commits: set it to on, or open with durability "process"',
    },
  ])("a server with $settings", async ({ settings, sentence }) => {
    const url = await databaseWith();
    await configure(settings as Record<string, string>);
    expect(await verdictOf(url)).toEqual({ refused: `store_unfit: ${sentence}`, warned: [] });
    isSentence(sentence);
    expect(await verdictOf(url, "process")).toEqual({ refused: "", warned: [] });
  });

  test("a database, or a role, for which synchronous_commit is off", async () => {
    const url = await databaseWith({ synchronous_commit: "off" });
    expect((await verdictOf(url)).refused).toMatch(/^store_unfit: synchronous_commit is off/);
    const plain = await databaseWith();
    await admin.query("create role hasty superuser login");
    undo.push(() => admin.query("drop role hasty"));
    await admin.query("alter role hasty set synchronous_commit = off");
    const hasty = new URL(plain);
    hasty.username = "hasty";
    expect((await verdictOf(hasty.href)).refused).toMatch(/^store_unfit: synchronous_commit is off/);
    expect((await verdictOf(plain)).refused).toBe("");
  });

  test("several problems are reported together", async () => {
    const url = await databaseWith({ synchronous_commit: "off" });
    await configure({ fsync: "off", full_page_writes: "off" });
    const { refused } = await verdictOf(url);
    expect(refused).toMatch(/^store_unfit: fsync is off.*; full_page_writes is off.*; synchronous_commit is off/);
  });
});

describe("refused always", () => {
  test.each(["SQL_ASCII", "LATIN1"])("a database in %s", async (encoding) => {
    const url = await databaseWith({}, `encoding '${encoding}' template template0`);
    const refused = `store_unfit: the encoding of the database is ${encoding}: create a database with the encoding UTF8`;
    expect(await verdictOf(url)).toEqual({ refused, warned: [] });
    expect(await verdictOf(url, "process")).toEqual({ refused, warned: [] });
  });

  test("a standby, with a code of its own", async () => {
    const standby = await server.standby({ synchronous: false });
    undo.push(() => standby.destroy());
    const refused = "store_readonly: the server is a standby, which is read-only: connect to the primary";
    expect(await verdictOf(standby.url)).toEqual({ refused, warned: [] });
    expect(await verdictOf(standby.url, "process")).toEqual({ refused, warned: [] });
  });

  test("a database that is not there, and a server that is not there", async () => {
    const nowhere = new URL(server.url);
    nowhere.pathname = "/nowhere";
    expect((await verdictOf(nowhere.href)).refused).toMatch(
      /^store_unreachable: the database does not exist: create it \(database "nowhere" does not exist\)$/,
    );
    const closed = new URL(server.url);
    closed.port = "1";
    expect((await verdictOf(closed.href, "full", 300)).refused).toMatch(
      /^store_unreachable: the server cannot be reached: /,
    );
  });
});

describe("warned of", () => {
  test("a default isolation that is another, and it works", async () => {
    const url = await databaseWith({ default_transaction_isolation: "serializable" });
    const { refused, warned } = await verdictOf(url);
    expect(refused).toBe("");
    expect(warned).toEqual([
      expect.stringMatching(/^isolation: default_transaction_isolation is serializable: .*READ COMMITTED$/),
    ]);
  });

  test("transactions that are read-only by default, and it works", async () => {
    const url = await databaseWith({ default_transaction_read_only: "on" });
    const { refused, warned } = await verdictOf(url);
    expect(refused).toBe("");
    expect(warned).toEqual([
      expect.stringMatching(/^read_only: default_transaction_read_only is on: Pawl still writes/),
    ]);
  });

  test("commits that do not wait for the synchronous standbys there are", async () => {
    const url = await databaseWith({ synchronous_commit: "local" });
    expect((await verdictOf(url)).warned).toEqual([]);
    await admin.query("set synchronous_commit = local");
    undo.push(() => admin.query("reset synchronous_commit"));
    await configure({ synchronous_standby_names: "nobody" });
    const { refused, warned } = await verdictOf(url);
    expect(refused).toBe("");
    expect(warned).toEqual([expect.stringMatching(/^synchronous_commit_local: /)]);
  });

  test("nothing at all on a plain server", async () => {
    expect(await verdictOf(await databaseWith())).toEqual({ refused: "", warned: [] });
  });
});

describe("whatever settings the connection gets later", () => {
  /** What the transaction of a commit had for synchronous_commit. */
  async function setAtCommit(durability: "full" | "process"): Promise<unknown> {
    const url = await databaseWith();
    const pool = new pg.Pool({ connectionString: url, max: 1 });
    // Its database is dropped while its connection may still be closing.
    pool.on("error", () => {});
    const store = await connect(url, { pool, durability });
    await pool.query("create table seen (setting text)");
    await pool.query(`create function see() returns trigger language plpgsql as
      $$ begin insert into public.seen values (current_setting('synchronous_commit')); return new; end $$`);
    await pool.query("create trigger see before insert on pawl.record for each row execute function see()");
    await pool.query("set synchronous_commit = off");
    const { epoch, sequence } = await store.settle(0);
    const row = { ...NEW_ROW, space: "s", key: "k", version: 1, stamp: 1, value: "1" };
    const puts = [{ was: null, row, entries: [] }];
    await store.commit({
      lane: 0,
      epoch,
      sequence: sequence + 1,
      lock: [],
      needsClock: false,
      decide: () => ({ puts }),
    });
    const { rows } = await pool.query<{ setting: string }>("select setting from seen");
    await store.close();
    await pool.end();
    return rows.map(({ setting }) => setting);
  }

  test("a commit is on disk before it is confirmed, or not, as requested", async () => {
    expect(await setAtCommit("full")).toEqual(["on"]);
    expect(await setAtCommit("process")).toEqual(["off"]);
  });
});

describe("the facts of a server", () => {
  const fit = {
    version: 180_000,
    fsync: "on",
    fullPageWrites: "on",
    synchronousCommit: "on",
    standbys: "",
    isStandby: false,
    isReadOnly: false,
    isolation: "read committed",
    encoding: "UTF8",
  };
  const codes = (findings: readonly Finding[]) =>
    findings.map(({ code, isRefused }) => `${isRefused ? "refused" : "warned"} ${code}`);

  const rules: readonly { rule: string; facts: Partial<typeof fit>; full: string[]; process?: string[] }[] = [
    { rule: "a plain one is fit", facts: {}, full: [] },
    { rule: "14 is fit", facts: { version: 140_000 }, full: [] },
    { rule: "13 is too old", facts: { version: 139_999 }, full: ["refused old_server"] },
    { rule: "9.6 is too old", facts: { version: 90_624 }, full: ["refused old_server"] },
    { rule: "fsync", facts: { fsync: "off" }, full: ["refused fsync"], process: [] },
    { rule: "full pages", facts: { fullPageWrites: "off" }, full: ["refused full_page_writes"], process: [] },
    { rule: "commits", facts: { synchronousCommit: "off" }, full: ["refused synchronous_commit"], process: [] },
    { rule: "local commits without standbys", facts: { synchronousCommit: "local" }, full: [] },
    {
      rule: "local commits with standbys",
      facts: { synchronousCommit: "local", standbys: "one" },
      full: ["warned synchronous_commit_local"],
    },
    { rule: "remote commits with standbys", facts: { synchronousCommit: "remote_write", standbys: "one" }, full: [] },
    { rule: "a standby", facts: { isStandby: true }, full: ["refused standby"] },
    {
      rule: "a standby is read-only, and that is reported once",
      facts: { isStandby: true, isReadOnly: true },
      full: ["refused standby"],
    },
    { rule: "read-only by default", facts: { isReadOnly: true }, full: ["warned read_only"] },
    { rule: "another isolation", facts: { isolation: "repeatable read" }, full: ["warned isolation"] },
    { rule: "another encoding", facts: { encoding: "LATIN1" }, full: ["refused encoding"] },
  ];

  test.each(rules)("$rule", ({ facts, full, process: weaker = full }) => {
    expect(codes(checkServer({ ...fit, ...facts }, "full"))).toEqual(full);
    expect(codes(checkServer({ ...fit, ...facts }, "process"))).toEqual(weaker);
    for (const { sentence } of checkServer({ ...fit, ...facts }, "full")) isSentence(sentence);
  });

  test("an old server is recognized by its version number", () => {
    expect(checkServer({ ...fit, version: 139_999 }, "full")[0]?.sentence).toBe(
      "the server is PostgreSQL 13: Pawl needs 14 or newer",
    );
  });
});
