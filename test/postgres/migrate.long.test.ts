/**
 * Goal: the schema is created and changed while any number of processes start, work, stop in the middle, and lack rights.
 * Method: stores opened with the real migrations, and with further ones made up here, on a database that all tests of this file share, each
 * in its own schema. Load is other stores that count; the test's own transactions hold locks.
 */

import { randomUUID } from "node:crypto";
import { setTimeout as sleep } from "node:timers/promises";
import pg from "pg";
import { afterAll, afterEach, beforeAll, describe, expect, test } from "vitest";
import { address } from "../../src/kernel/contract.ts";
import { StoreError } from "../../src/kernel/errors.ts";
import { Kernel } from "../../src/kernel/kernel.ts";
import { nodePorts } from "../../src/node/ports.ts";
import { open as openPawl } from "../../src/open.ts";
import type { PostgresStore } from "../../src/stores/postgres/postgres.ts";
import { MIGRATIONS, type Migration, quoted } from "../../src/stores/postgres/schema.ts";
import { blank, making, range, removing } from "../../src/testing/conformance/law-context.ts";
import { FaultyProxy } from "../faults/proxy.ts";
import { connect, type StoreOptions } from "./kit.ts";
import { type FreshDatabase, freshDatabase } from "./server.ts";

let database: FreshDatabase | undefined;
let admin: pg.Client;

beforeAll(async () => {
  database = await freshDatabase();
  admin = await client();
});
afterAll(async () => {
  await admin.end();
  await database?.drop();
});

const ends: (() => Promise<unknown>)[] = [];
afterEach(async () => {
  for (const end of ends.splice(0).reverse()) await end();
});

const url = (): string => database?.url ?? "";

async function client(): Promise<pg.Client> {
  const one = new pg.Client({ connectionString: url() });
  one.on("error", () => {});
  await one.connect();
  return one;
}

async function ask(text: string, values: unknown[] = []): Promise<unknown> {
  return (await admin.query<unknown[]>({ text, values, rowMode: "array" })).rows[0]?.[0];
}

const freshSchema = (): string => `migrate ${randomUUID()}`;

/** A store on few connections: many of them are opened here. */
async function open(options: StoreOptions & { readonly url?: string }): Promise<PostgresStore> {
  const { url: at = url(), ...more } = options;
  const store = await connect(at, { max: 2, ...more });
  ends.push(() => store.close());
  return store;
}

function kernelOn(store: PostgresStore): Kernel {
  const kernel = new Kernel(store, nodePorts, { namespace: "default", patienceMs: 10_000 });
  ends.push(() => kernel.close());
  return kernel;
}

const key = address("migrate", "count");

const addOne = (kernel: Kernel): Promise<number> =>
  kernel.transact(
    (tx) => {
      const record = tx.record(key);
      const count = Number(record.value ?? 0) + 1;
      record.write({ value: count });
      record.append("added", count);
      return count;
    },
    [key],
  );

/** Counts until it is stopped. */
function load(kernel: Kernel): { stop(): Promise<{ count: number }>; done(): number } {
  let isOver = false;
  let count = 0;
  const working = (async () => {
    while (!isOver) {
      await addOne(kernel);
      count += 1;
    }
    return { count };
  })();
  working.catch(() => {});
  const stop = () => {
    isOver = true;
    return working;
  };
  ends.push(() => stop().catch(() => {}));
  return { stop, done: () => count };
}

async function until(what: string, look: () => Promise<boolean>, ms = 120_000): Promise<void> {
  for (const giveUpAtMs = performance.now() + ms; !(await look()); await sleep(5))
    if (performance.now() > giveUpAtMs) throw new Error(`this did not happen within ${ms} ms: ${what}`);
}

/** The message with which opening is refused. */
async function refusal(opening: Promise<PostgresStore>): Promise<string> {
  try {
    await opening;
  } catch (error) {
    if (error instanceof StoreError) return `${error.code}: ${error.message}`;
    throw error;
  }
  return "not refused";
}

/** The schema of today and further migrations. */
const further = (schema: string, ...more: readonly Migration[]): readonly Migration[] => [
  ...MIGRATIONS(quoted(schema)),
  ...more,
];

const schemaNumber = (schema: string, name = "schema"): Promise<unknown> =>
  ask(`select number::int from ${quoted(schema)}.meta where name = $1`, [name]);

const today = MIGRATIONS("x").length;

describe("many concurrent processes", () => {
  test.each(range(1, 6))("ten processes start on an empty database, and make the schema once (round %i)", async () => {
    const schema = freshSchema();
    // Nothing in the server itself keeps the second of these from being run twice.
    const ran = [
      { statements: [`create table ${quoted(schema)}.ran (at timestamptz)`] },
      { statements: ["select pg_sleep(0.02)", `insert into ${quoted(schema)}.ran values (clock_timestamp())`] },
    ];
    const options = { schema, migrations: further(schema, ...ran) };
    const stores = await Promise.all(range(0, 10).map(() => open(options)));
    expect(await schemaNumber(schema)).toBe(today + 2);
    expect(await ask(`select count(*)::int from ${quoted(schema)}.ran`)).toBe(1);
    const counts = await Promise.all(stores.map((store) => addOne(kernelOn(store))));
    expect(counts.sort((a, b) => a - b)).toEqual(range(1, 11));
  });

  test("opening one that is there changes nothing", async () => {
    const schema = freshSchema();
    await open({ schema });
    const tables = () =>
      ask(
        "select string_agg(relname || relfilenode, ',' order by oid) from pg_class where relnamespace = $1::regnamespace",
        [quoted(schema)],
      );
    const before = await tables();
    await open({ schema });
    expect(await tables()).toBe(before);
  });
});

describe("releases side by side", () => {
  test("a schema that is too new is refused in one sentence", async () => {
    const schema = freshSchema();
    await open({ schema, migrations: further(schema, { statements: [], oldest: today + 1 }) });
    expect(await refusal(open({ schema }))).toBe(
      `store_unfit: the schema "${schema}" needs a release of Pawl that knows schema ${today + 1}, and this one knows ${today}: upgrade Pawl in this process`,
    );
  });

  test("the release before and the one after work on one schema, while it changes under load", async () => {
    const schema = freshSchema();
    const s = quoted(schema);
    const old = kernelOn(await open({ schema }));
    await addOne(old);
    const working = load(old);
    const migrations = further(schema, { statements: [`alter table ${s}.record add column extra text`], oldest: 1 });
    const young = kernelOn(await open({ schema, migrations }));
    expect(await schemaNumber(schema)).toBe(today + 1);
    expect(await schemaNumber(schema, "oldest")).toBe(1);
    const alsoWorking = load(young);
    // One of the old release can still start.
    const late = kernelOn(await open({ schema }));
    await addOne(late);
    await sleep(300);
    const [one, two] = [await working.stop(), await alsoWorking.stop()];
    expect(Math.min(one.count, two.count)).toBeGreaterThan(0);
    expect(await addOne(young)).toBe(one.count + two.count + 3);
    expect(await ask(`select count(*)::int from ${s}.past`)).toBe(one.count + two.count + 3);
  });

  describe("when a migration excludes an older release", () => {
    /** A schema with a migration that all releases support, and one that only releases support that know the first. */
    const releases = (schema: string): readonly (readonly Migration[])[] => {
      const gentle = { statements: [`alter table ${quoted(schema)}.record add column extra text`] };
      const harsh = { statements: [`alter table ${quoted(schema)}.record add column more text`], oldest: today + 1 };
      return [further(schema), further(schema, gentle), further(schema, gentle, harsh)];
    };
    const sentence = (schema: string) =>
      `the schema "${schema}" needs a release of Pawl that knows schema ${today + 1}, and this one knows ${today}: upgrade Pawl in this process`;

    test("its live processes cannot write any more, with a clear error; they can still read", async () => {
      const schema = freshSchema();
      const [before = [], , after = []] = releases(schema);
      const store = await open({ schema, migrations: before });
      const old = kernelOn(store);
      expect(await addOne(old)).toBe(1);
      await open({ schema, migrations: after });
      expect(await schemaNumber(schema, "oldest")).toBe(today + 1);
      // Whether the lane was settled before, or not yet.
      for (let n = 0; n < 3; n++)
        await expect(addOne(old)).rejects.toMatchObject({ code: "store_unfit", message: sentence(schema) });
      for (const lane of range(0, store.lanes))
        await expect(store.settle(lane)).rejects.toMatchObject({ code: "store_unfit", message: sentence(schema) });
      expect((await old.read([key]))[0]).toMatchObject({ version: 1, value: "1" });
      expect(await ask(`select count(*)::int from ${quoted(schema)}.past`)).toBe(1);
    });

    test("a release that knows enough works on under load, and nothing is lost or doubled", async () => {
      const schema = freshSchema();
      const [before = [], between = [], after = []] = releases(schema);
      const old = kernelOn(await open({ schema, migrations: before }));
      const knowing = [
        kernelOn(await open({ schema, migrations: between })),
        kernelOn(await open({ schema, migrations: between })),
      ];
      expect(await addOne(old)).toBe(1);
      for (const kernel of knowing) await addOne(kernel);
      const epochs = () => ask(`select sum(epoch)::int from ${quoted(schema)}.writer`);
      const loads = knowing.map(load);
      const oldLoad = load(old);
      await sleep(200);
      const epochsBefore = Number(await epochs());
      const young = kernelOn(await open({ schema, migrations: after }));
      expect(Number(await epochs())).toBeGreaterThan(epochsBefore);
      await expect(oldLoad.stop()).rejects.toMatchObject({ code: "store_unfit" });
      await sleep(200);
      const counts = await Promise.all(loads.map(async ({ stop }) => (await stop()).count));
      const total = await addOne(young);
      expect(Math.min(...counts)).toBeGreaterThan(0);
      // Those of the old release are what is left, and its last one, which was refused, is not there.
      expect(await ask(`select count(*)::int from ${quoted(schema)}.past`)).toBe(total);
      expect(total).toBe(3 + counts.reduce((a, b) => a + b) + oldLoad.done() + 1);
    });

    test("a lane is not settled while it migrates", async () => {
      const schema = freshSchema();
      const store = await open({ schema, migrations: further(schema) });
      const migrating = await client();
      await migrating.query("begin");
      await migrating.query(`update ${quoted(schema)}.meta set number = ${today + 1} where name = 'oldest'`);
      await expect(store.settle(0)).rejects.toMatchObject({ code: "store_busy" });
      await migrating.query("commit");
      await migrating.end();
      await expect(store.settle(0)).rejects.toMatchObject({ code: "store_unfit", message: sentence(schema) });
    });

    test("a lane that was settled just before is excluded too", async () => {
      const schema = freshSchema();
      const [before = [], , after = []] = releases(schema);
      const store = await open({ schema, migrations: before });
      // A settling that has looked, and is stopped before it is committed.
      const settling = await client();
      await settling.query("begin");
      await settling.query(`select number from ${quoted(schema)}.meta where name = 'oldest' for share`);
      const opening = open({ schema, migrations: after });
      await until(
        "the migration waits for it",
        async () => Number(await ask("select count(*)::int from pg_locks where not granted")) > 0,
      );
      await settling.query(
        `insert into ${quoted(schema)}.writer (writer, lane, namespace, epoch, sequence, at) values ('late', 0, 'default', 1, 0, 0)`,
      );
      await settling.query("commit");
      await settling.end();
      await opening;
      expect(await ask(`select epoch::int from ${quoted(schema)}.writer where writer = 'late'`)).toBe(2);
      await expect(store.settle(0)).rejects.toMatchObject({ code: "store_unfit" });
    });

    test("a migration that excludes no release leaves every lane its epoch", async () => {
      const schema = freshSchema();
      const [before = [], between = []] = releases(schema);
      const kernel = kernelOn(await open({ schema, migrations: before }));
      await addOne(kernel);
      const epochs = () => ask(`select sum(epoch)::int from ${quoted(schema)}.writer`);
      const epochsBefore = await epochs();
      await open({ schema, migrations: between });
      expect(await epochs()).toBe(epochsBefore);
      expect(await addOne(kernel)).toBe(2);
    });
  });

  test("an index is built under load, by four concurrent processes, without stopping the load", async () => {
    const schema = freshSchema();
    const s = quoted(schema);
    const kernel = kernelOn(await open({ schema }));
    await addOne(kernel);
    const working = load(kernel);
    const index = "create index concurrently if not exists record_status";
    const online = { isOnline: true, statements: [`${index} on ${s}.record (status)`] };
    // Whoever makes it waits for this one, so long that those who wait for their turn have looked for a deadlock before there is one:
    // were they all let at it, the one at work would be the one to be ended, and leave half an index behind.
    const holder = await client();
    await holder.query("begin");
    await holder.query(`lock table ${s}.record in row exclusive mode`);
    const opening = Promise.all(range(0, 4).map(() => open({ schema, migrations: further(schema, online) })));
    const waiting = `select count(*)::int from pg_stat_activity where query like '${index}%' and wait_event_type = 'Lock'`;
    await until("a process builds it", async () => Number(await ask(waiting)) > 0);
    const done = working.done();
    await sleep(1300);
    await until("the load continues meanwhile", async () => working.done() > done + 3);
    expect(await schemaNumber(schema)).toBe(today);
    await holder.query("rollback");
    await holder.end();
    await opening;
    await working.stop();
    expect(await ask("select indisvalid from pg_index where indexrelid = $1::regclass", [`${s}.record_status`])).toBe(
      true,
    );
    expect(await schemaNumber(schema)).toBe(today + 1);
  });
});

describe("what is in the way", () => {
  test("a migration that cannot lock its table lets the others work, and resumes by itself", async () => {
    const schema = freshSchema();
    const s = quoted(schema);
    const kernel = kernelOn(await open({ schema }));
    await addOne(kernel);
    const holder = await client();
    await holder.query("begin");
    await holder.query(`select from ${s}.record`);
    const migrations = further(schema, { statements: [`alter table ${s}.record add column extra text`] });
    const opening = open({ schema, migrations });
    await until(
      "it waits",
      async () =>
        Number(await ask("select count(*)::int from pg_locks where mode = 'AccessExclusiveLock' and not granted")) > 0,
    );
    const working = load(kernel);
    await sleep(1800);
    await until("the load continues meanwhile", async () => working.done() > 3);
    await working.stop();
    expect(await schemaNumber(schema)).toBe(today);
    await holder.query("rollback");
    await holder.end();
    await opening;
    expect(await schemaNumber(schema)).toBe(today + 1);
  });

  test("a migration that takes longer than the reply timeout is waited for", async () => {
    const schema = freshSchema();
    await open({ schema });
    const migrations = further(schema, { statements: ["select pg_sleep(1.5)"] });
    await open({ schema, migrations, patienceMs: 1000 });
    expect(await schemaNumber(schema)).toBe(today + 1);
  });

  const PAUSE = "select pg_sleep(0.7) as pause";
  const IN_THE_MIDDLE = `select pid from pg_stat_activity where state = 'active' and query = '${PAUSE}'`;
  const gone: { how: string; end(proxy: FaultyProxy): Promise<unknown> }[] = [
    { how: "its connection is ended", end: () => ask(`select pg_terminate_backend(pid) from (${IN_THE_MIDDLE}) m`) },
    { how: "it is cut off", end: async (proxy) => proxy.cutAll() },
  ];

  test.each(gone)(
    "a process that ends in the middle of a migration leaves nothing half-done: $how",
    async ({ end }) => {
      const schema = freshSchema();
      const s = quoted(schema);
      await open({ schema });
      const proxy = await FaultyProxy.start(Number(new URL(url()).port));
      ends.push(() => proxy.close());
      const migrations = further(schema, {
        statements: [`create table ${s}.first ()`, PAUSE, `create table ${s}.second ()`],
      });
      const broken = refusal(open({ url: proxy.urlOf(url()), schema, migrations }));
      await until("it is in the middle", async () => (await ask(IN_THE_MIDDLE)) !== undefined);
      await end(proxy);
      expect(await broken).toMatch(/^store_unreachable: /);
      expect(await schemaNumber(schema)).toBe(today);
      expect(await ask("select to_regclass($1)::text", [`${s}.first`])).toBeNull();
      await open({ schema, migrations });
      expect(await schemaNumber(schema)).toBe(today + 1);
      expect(await ask("select to_regclass($1) is not null", [`${s}.second`])).toBe(true);
    },
  );

  test("one that runs outside a transaction is run again from its start", async () => {
    const schema = freshSchema();
    const s = quoted(schema);
    await open({ schema });
    const index = `${s}.record_status`;
    const migrations = further(schema, {
      isOnline: true,
      statements: [
        `drop index concurrently if exists ${index}`,
        `create index concurrently record_status on ${s}.record (status)`,
      ],
    });
    // It waits for whoever is in a transaction that has seen the table.
    const holder = await client();
    await holder.query("begin isolation level repeatable read");
    await holder.query(`insert into ${s}.meta values ('held', 1)`);
    await holder.query(`lock table ${s}.record in row exclusive mode`);
    const broken = refusal(open({ schema, migrations }));
    const creating =
      "select pid from pg_stat_activity where query like 'create index concurrently%' and wait_event_type = 'Lock'";
    await until("it waits", async () => (await ask(creating)) !== undefined);
    await ask(`select pg_terminate_backend(pid) from (${creating}) w`);
    expect(await broken).toMatch(/^store_unreachable: /);
    await holder.query("rollback");
    await holder.end();
    expect(await ask("select indisvalid from pg_index where indexrelid = $1::regclass", [index])).toBe(false);
    await open({ schema, migrations });
    expect(await ask("select indisvalid from pg_index where indexrelid = $1::regclass", [index])).toBe(true);
  });
});

describe("names", () => {
  const odd = [
    'with "quotes"',
    "UPPER and lower",
    "🦀 and ü",
    "it's; drop schema public--",
    "a.b",
    "select",
    "%s $1 \\ {x}",
    "s".repeat(63),
  ];

  test.each(odd)("a schema may be called %s", async (name) => {
    await admin.query(`drop schema if exists ${quoted(name)} cascade`);
    const store = await open({ schema: name, max: 3 });
    const kernel = kernelOn(store);
    expect(await addOne(kernel)).toBe(1);
    expect(await addOne(kernel)).toBe(2);
    expect((await kernel.entries(key, 0, 10)).length).toBe(2);
    expect((await kernel.list({ space: key.space, prefix: "", after: null, limit: 10 })).length).toBe(1);
    await kernel.transact((tx) => tx.record(key).remove(), [key]);
    await store.sweep(10);
    await kernel.close();
    expect(await ask("select count(*)::int from pg_namespace where nspname = $1", [name])).toBe(1);
    const again = await open({ schema: name });
    expect((await again.read([key]))[0]).toMatchObject({ version: 3, value: null });
  });

  test("a name that the server would cut short is refused", async () => {
    await expect(openPawl(url(), { schema: "ü".repeat(32) })).rejects.toThrow(
      "the schema must not be longer than 63 bytes",
    );
    expect(await ask("select count(*)::int from pg_namespace where nspname like 'üü%'")).toBe(0);
  });

  test("two schemas and two namespaces in one database do not see each other", async () => {
    const [one, two] = [freshSchema(), freshSchema()];
    const places = [
      { schema: one, namespace: "default" },
      { schema: one, namespace: "other" },
      { schema: two, namespace: "default" },
      { schema: two, namespace: "other" },
    ];
    const stores = await Promise.all(places.map((place) => open(place)));
    const put = (value: string) => making({ ...blank("k", { value, kind: "job", dueMs: 1 }), space: "s" }, value);
    // All at once: what stands for an absent key in one is in nobody's way in another.
    const settled = await Promise.all(stores.map((store) => store.settle(0)));
    const found = await Promise.all(
      stores.map((store, n) =>
        store.commit({
          lane: 0,
          epoch: settled[n]?.epoch ?? 0,
          sequence: 1,
          lock: [{ space: "s", key: "k" }],
          needsClock: false,
          decide: ({ rows }) => {
            expect(rows).toEqual([null]);
            return { puts: [put(String(n))] };
          },
        }),
      ),
    );
    expect(found.map(({ committed }) => committed)).toEqual([true, true, true, true]);
    for (const [n, store] of stores.entries()) {
      const [row] = await store.read([{ space: "s", key: "k" }]);
      expect(row?.value).toBe(String(n));
      expect((await store.list({ space: "s", prefix: "", after: null, limit: 10 })).length).toBe(1);
      expect((await store.entries({ space: "s", key: "k" }, 0, 10)).map(({ data }) => data)).toEqual([String(n)]);
      expect((await store.due({ kinds: ["job"], limit: 10 })).keys.length).toBe(1);
    }
    // Delete in one, and sweep in all.
    const [first] = stores;
    const [row] = (await first?.read([{ space: "s", key: "k" }])) ?? [];
    if (!first || !row) throw new Error("it is gone");
    await first.commit({
      lane: 0,
      epoch: settled[0]?.epoch ?? 0,
      sequence: 2,
      lock: [],
      needsClock: false,
      decide: () => ({ puts: [removing(row, 1)] }),
    });
    expect(await Promise.all(stores.slice(1).map((store) => store.sweep(10)))).toEqual([0, 0, 0]);
    expect(await first.sweep(10)).toBe(1);
    expect(await ask(`select count(*)::int from ${quoted(one)}.record`)).toBe(1);
    expect(await ask(`select count(*)::int from ${quoted(two)}.record`)).toBe(2);
  });
});

describe("rights", () => {
  const roles: string[] = [];
  afterAll(async () => {
    for (const role of roles) {
      await admin.query(`drop owned by ${role} cascade`);
      await admin.query(`drop role ${role}`);
    }
  });

  /** A role of its own, and the way in for it. */
  async function makeRole(): Promise<{ role: string; url: string }> {
    const role = `role_${randomUUID().replaceAll("-", "")}`;
    await admin.query(`create role ${role}`);
    roles.push(role);
    const through = new URL(url());
    through.searchParams.set("options", `-c role=${role}`);
    return { role, url: through.href };
  }

  test("a role that may not create a schema gets an error with the statement to run, and that statement fixes it", async () => {
    const { role, url: through } = await makeRole();
    const schema = freshSchema();
    const sentence = await refusal(open({ url: through, schema }));
    expect(sentence).toBe(
      `store_unfit: the role may not create Pawl's tables in the schema "${schema}" (permission denied for database ${new URL(url()).pathname.slice(1)}); ask an administrator to run: create schema if not exists ${quoted(schema)} authorization <role>`,
    );
    await admin.query(`create schema ${quoted(schema)} authorization ${role}`);
    expect(await addOne(kernelOn(await open({ url: through, schema })))).toBe(1);
  });

  test("a role that may only read gets an error with the missing rights, and granting them fixes it", async () => {
    const { role, url: through } = await makeRole();
    const schema = freshSchema();
    const s = quoted(schema);
    await open({ schema });
    await admin.query(`grant usage on schema ${s} to ${role}; grant select on all tables in schema ${s} to ${role}`);
    const sentence = await refusal(open({ url: through, schema }));
    expect(sentence).toMatch(
      /^store_unfit: the role lacks the right to insert on .* and more: grant select, insert, update, delete on all tables in schema "migrate [^"]+", and usage on all sequences in it/,
    );
    await admin.query(`grant select, insert, update, delete on all tables in schema ${s} to ${role}`);
    expect(await refusal(open({ url: through, schema }))).toMatch(/lacks the right to usage on sequence/);
    await admin.query(`grant usage on all sequences in schema ${s} to ${role}`);
    const kernel = kernelOn(await open({ url: through, schema }));
    expect(await addOne(kernel)).toBe(1);
    await kernel.transact((tx) => tx.record(key).remove(), [key]);
  });

  test("a role without any right gets a clear error", async () => {
    const { url: through } = await makeRole();
    const schema = freshSchema();
    await open({ schema });
    expect(await refusal(open({ url: through, schema }))).toMatch(/^store_unfit: .*permission denied for schema/);
  });
});
