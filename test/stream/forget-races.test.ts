/**
 * Goal: whatever happens at the same moment as `forget`, nothing of the person is appended or shown once it has returned; a crash in its middle, and a
 * restored backup, are finished or repeated.
 * Method: commits that are held until another handle has forgotten the person; appends and forgets at random; a handle that dies after each commit of
 * `forget`; a copy of the database from before it.
 */

import { copyFileSync } from "node:fs";
import pg from "pg";
import { describe, expect, test } from "vitest";
import { aggregate, FORGOTTEN, open, type Pawl, reaction } from "../../src/index.ts";
import { wallMs } from "../../src/node/ports.ts";
import { MemoryDatabase } from "../../src/stores/memory/memory.ts";
import { FORGETTING, streamsOf, subjectAt } from "../../src/stream/personal/stored.ts";
import { type StreamValue, streamAt } from "../../src/stream/stored.ts";
import { codeOf, temporaryFolder } from "../kernel/kit.ts";
import { freshDatabase } from "../postgres/server.ts";
import { EVERY, onStores, PATIENCE, type StoreName } from "../workflow/kit.ts";
import { ann, bob, type Customer, customer, KEYS, Moved, Registered, Upgraded, vault } from "./forget-kit.ts";
import { all } from "./kit.ts";

const range = (length: number) => Array.from({ length }, (_, i) => i);

/** The emails that a stream shows. */
const emailsIn = async (pawl: Pawl, stream: string): Promise<unknown[]> =>
  (await all(pawl.stream(stream).read({ events: [Registered] }))).map(({ data }) => data.email);

/** An aggregate that calls back for each email that it folds. */
const watching = (folded: (email: unknown) => void) =>
  aggregate("watching", {
    initial: { email: null as unknown, count: 0 },
    on: [
      [
        Registered,
        ({ count }, { email }) => {
          folded(email);
          return { email, count: count + 1 };
        },
      ],
    ],
    commands: {
      look: ({ email }) => email,
      copy: ({ email }, _: undefined, { emit }) => emit(Upgraded({ plan: String(email) })),
    },
  });

async function foldsOf(pawl: Pawl, stream: string): Promise<StreamValue["folds"]> {
  const [row] = await pawl.kernel.read([streamAt(stream)]);
  return (pawl.kernel.decode(streamAt(stream), row?.value ?? "{}") as StreamValue).folds;
}

onStores(EVERY, (place) => {
  describe("at the same moment as forget", () => {
    const ways: [string, (pawl: Pawl, data: Customer) => Promise<unknown>][] = [
      ["an append", (pawl, data) => pawl.stream("s").append([Registered(data)])],
      ["an append to a new stream", (pawl, data) => pawl.stream("new").append([Registered(data)])],
      ["a command", (pawl, data) => pawl.aggregate(customer, "s").execute("register", data)],
      ["a transaction", (pawl, data) => pawl.transact((tx) => tx.stream("s").append([Registered(data)]).version)],
    ];

    test.each(ways)("%s that reaches the store after it is refused, whatever its process knew", async (_, append) => {
      for (const subjectKeys of [undefined, vault()]) {
        const options = subjectKeys === undefined ? KEYS : { ...KEYS, subjectKeys };
        const data = subjectKeys === undefined ? ann : bob;
        const [one, two] = [await place.openHandle(options), await place.openHandle(options)];
        await append(one.pawl, data);
        await append(one.pawl, data);
        const forgotten = Promise.withResolvers<void>();
        one.hold("request", forgotten.promise);
        const appending = codeOf(append(one.pawl, data));
        await two.pawl.forget(data.id);
        forgotten.resolve();
        expect(await appending).toBe("subject_forgotten");
        expect(await codeOf(append(one.pawl, data))).toBe("subject_forgotten");
        const [row] = await two.pawl.kernel.read([subjectAt(data.id)]);
        expect(row?.value).not.toContain("keyId");
      }
    });

    test("a command on a state that was folded before runs again on one without the person", async () => {
      const [one, two] = [await place.openHandle(KEYS), await place.openHandle(KEYS)];
      await two.pawl.stream("s").append([Registered(ann)]);
      const forgotten = Promise.withResolvers<void>();
      const folded: unknown[] = [];
      const began = Promise.withResolvers<void>();
      const watched = watching((email) => {
        // The commit after the first fold is held.
        if (folded.push(email) === 1) one.hold("request", forgotten.promise);
        began.resolve();
      });
      const looking = one.pawl.aggregate(watched, "s").execute("copy");
      await began.promise;
      await two.pawl.forget(ann.id);
      forgotten.resolve();
      await looking;
      expect(folded.slice(0, 1)).toEqual([ann.email]);
      expect(folded.at(-1)).toBe(FORGOTTEN);
      expect((await all(two.pawl.stream("s").read({ events: [Upgraded] })))[0]?.data.plan).toBe(String(FORGOTTEN));
    });

    test("a state that was folded before is not stored", async () => {
      const [one, two] = [await place.openHandle(KEYS), await place.openHandle(KEYS)];
      await two.pawl.stream("s").append(range(150).map(() => Registered(ann)));
      const forgotten = Promise.withResolvers<void>();
      const began = Promise.withResolvers<void>();
      let count = 0;
      const watched = watching(() => {
        count += 1;
        if (count === 150) {
          one.hold("request", forgotten.promise);
          began.resolve();
        }
      });
      const reading = one.pawl.aggregate(watched, "s").state();
      await began.promise;
      await two.pawl.forget(ann.id);
      forgotten.resolve();
      await reading;
      expect(await foldsOf(two.pawl, "s")).toBeUndefined();
      expect((await one.pawl.aggregate(watched, "s").state()).state.email).toBe(FORGOTTEN);
    });

    test("a transaction on a state that was folded before decides on one without the person", async () => {
      const [one, two] = [await place.openHandle(KEYS), await place.openHandle(KEYS)];
      await two.pawl.stream("s").append([Registered(ann)]);
      const forgotten = Promise.withResolvers<void>();
      const began = Promise.withResolvers<void>();
      let isFirst = true;
      const watched = watching(() => {
        if (isFirst) one.hold("request", forgotten.promise);
        isFirst = false;
        began.resolve();
      });
      const looking = one.pawl.transact((tx) => tx.aggregate(watched, "s").state.email as string);
      await began.promise;
      await two.pawl.forget(ann.id);
      forgotten.resolve();
      expect(await looking).toBe(FORGOTTEN);
    });

    test("appends by two processes are there or refused, and none shows the person afterwards", async () => {
      const [one, two] = [await place.open(KEYS), await place.open(KEYS)];
      for (const round of range(12)) {
        const data = { ...ann, id: `c-${round}` };
        const stream = `s-${round}`;
        let appended = 0;
        const begun = Promise.withResolvers<void>();
        // Each appends until it is refused, so that the forget comes in between wherever it does.
        const writers = range(6).map(async (n) => {
          for (;;) {
            const code = await codeOf((n % 2 === 0 ? one : two).stream(stream).append([Registered(data)]));
            if (code === "subject_forgotten") return;
            appended += 1;
            if (appended > round) begun.resolve();
          }
        });
        await begun.promise;
        await (round % 3 === 0 ? one : two).forget(data.id);
        await Promise.all(writers);
        for (const pawl of [one, two])
          expect(await emailsIn(pawl, stream)).toEqual(range(appended).map(() => FORGOTTEN));
      }
    });
  });

  describe("a process that ends in the middle of forget", () => {
    const many = range(120).map((n) => `s-${n}`);
    const prepared = async (pawl: Pawl): Promise<void> => {
      await Promise.all(many.map((stream) => pawl.aggregate(customer, stream).execute("register", ann)));
    };
    const isForgottenBy = async (pawl: Pawl): Promise<void> => {
      for (const stream of many) expect(await foldsOf(pawl, stream)).toBeUndefined();
      expect(await pawl.kernel.list({ space: streamsOf(ann.id), prefix: "", after: null, limit: 1 })).toEqual([]);
      const [row] = await pawl.kernel.read([subjectAt(ann.id)]);
      expect(row).toMatchObject({ kind: null, dueMs: null });
      expect((await pawl.aggregate(customer, "s-0").state()).state.email).toBe(FORGOTTEN);
    };

    test.each([2, 3, 4])("before commit %i: the same call by another finishes it", async (count) => {
      const [dying, pawl] = [await place.openHandle(KEYS), await place.open(KEYS)];
      await prepared(pawl);
      dying.dieBefore(count);
      void dying.pawl.forget(ann.id, { actor: "dpo" });
      await expect.poll(() => dying.isDead(), PATIENCE).toBe(true);
      // The events are unreadable from the first commit on.
      expect(await emailsIn(pawl, "s-0")).toEqual([FORGOTTEN]);
      await pawl.forget(ann.id);
      await isForgottenBy(pawl);
      expect((await pawl.forgotten.list()).subjects[0]?.actor).toBe("dpo");
    });

    test("and a worker finishes it if no one calls again", async () => {
      const [dying, pawl] = [await place.openHandle(KEYS), await place.open(KEYS)];
      await prepared(pawl);
      dying.dieBefore(3);
      void dying.pawl.forget(ann.id);
      await expect.poll(() => dying.isDead(), PATIENCE).toBe(true);
      // As if its time had passed.
      await pawl.kernel.transact((tx) => tx.record(subjectAt(ann.id)).write({ dueMs: tx.nowMs }), [subjectAt(ann.id)]);
      const kindOf = async () => (await pawl.kernel.read([subjectAt(ann.id)]))[0]?.kind;
      expect(await kindOf()).toBe(FORGETTING);
      await using _worker = pawl.work([reaction("any", { on: [Upgraded] }, () => {})]);
      await expect.poll(kindOf, PATIENCE).toBe(null);
      await isForgottenBy(pawl);
    });
  });

  describe("those who were forgotten", () => {
    test("are listed in pages, in the order of their ids", async () => {
      const pawl = await place.open(KEYS);
      const ids = range(25).map((n) => `c-${String(n).padStart(2, "0")}`);
      await pawl.stream("s").append(ids.map((id) => Registered({ ...ann, id })));
      await Promise.all(ids.filter((_, n) => n % 2 === 0).map((id) => pawl.forget(id, { reason: id })));
      const listed: string[] = [];
      for (let after: string | undefined; ; ) {
        const { subjects, next } = await pawl.forgotten.list({ limit: 5, ...(after === undefined ? {} : { after }) });
        expect(subjects.every(({ subject, reason, actor }) => reason === subject && actor === null)).toBe(true);
        listed.push(...subjects.map(({ subject }) => subject));
        if (next === null) break;
        after = next;
      }
      expect(listed).toEqual(ids.filter((_, n) => n % 2 === 0));
    });

    test("can be forgotten again by id, also if they still are", async () => {
      const pawl = await place.open(KEYS);
      await pawl.stream("s").append([Registered(ann), Registered(bob)]);
      const { at } = await pawl.forget(ann.id, { actor: "dpo" });
      await pawl.forgotten.reapply([ann.id, bob.id, "c-none"]);
      await pawl.forgotten.reapply([]);
      expect(await emailsIn(pawl, "s")).toEqual([FORGOTTEN, FORGOTTEN]);
      const { subjects } = await pawl.forgotten.list();
      expect(subjects.map(({ subject }) => subject)).toEqual([ann.id, bob.id, "c-none"]);
      expect(subjects[0]).toEqual({ subject: ann.id, at, actor: "dpo", reason: null });
    });
  });
});

/** A database, and a copy of it as a backup from now would be when it is restored. */
const RESTORES: Record<StoreName, () => Promise<Restorable>> = {
  async memory() {
    const database = new MemoryDatabase(wallMs);
    const connect = () => open({ store: database.connect("default"), ...KEYS });
    return {
      open: connect,
      backup: async () => {
        const backup = database.backup();
        return async () => {
          database.restore(backup);
          return connect();
        };
      },
      leave: async () => {},
    };
  },
  async SQLite() {
    const folder = temporaryFolder();
    const [path, copy] = [folder.file("live.db"), folder.file("backup.db")];
    return {
      open: () => open(path, KEYS),
      backup: async () => {
        copyFileSync(path, copy);
        return () => open(copy, KEYS);
      },
      leave: async () => folder.remove(),
    };
  },
  async PostgreSQL() {
    const { url, drop } = await freshDatabase();
    const copies: (() => Promise<void>)[] = [];
    return {
      open: () => open(url, KEYS),
      backup: async () => {
        const copy = await freshDatabase();
        copies.push(copy.drop);
        const client = new pg.Client({ connectionString: new URL("/postgres", copy.url).href });
        await client.connect();
        const [from, to] = [url, copy.url].map((one) => pg.escapeIdentifier(new URL(one).pathname.slice(1)));
        await client.query(`drop database ${to}`);
        await client.query(`create database ${to} template ${from}`);
        await client.end();
        return () => open(copy.url, KEYS);
      },
      leave: async () => {
        for (const one of [...copies, drop]) await one();
      },
    };
  },
};

interface Restorable {
  open(): Promise<Pawl>;
  /** Makes a backup, with no handle open, and returns a function that restores it. */
  backup(): Promise<() => Promise<Pawl>>;
  leave(): Promise<void>;
}

test.each(EVERY)("on %s: a backup from before brings the person back, and reapply forgets again", async (store) => {
  const database = await RESTORES[store]();
  try {
    const before = await database.open();
    await before.aggregate(customer, "s").execute("register", ann);
    await before.stream("t").append([Moved({ id: bob.id, address: "Canary Road" })]);
    await before.close();
    const restore = await database.backup();
    const live = await database.open();
    // A person whom the backup does not know.
    await live.stream("u").append([Registered({ ...ann, id: "c-late" })]);
    for (const id of [ann.id, bob.id, "c-late"]) await live.forget(id, { actor: "dpo", reason: "asked" });
    const { subjects } = await live.forgotten.list();
    await live.close();

    const restored = await restore();
    expect(await emailsIn(restored, "s")).toEqual([ann.email]);
    expect((await restored.aggregate(customer, "s").state()).state.email).toBe(ann.email);
    expect((await restored.forgotten.list()).subjects).toEqual([]);
    await restored.forgotten.reapply(subjects);
    expect(await emailsIn(restored, "s")).toEqual([FORGOTTEN]);
    expect((await all(restored.stream("t").read()))[0]?.data).toEqual({ id: bob.id, address: FORGOTTEN });
    expect((await restored.aggregate(customer, "s").execute("look")).output).toBe(FORGOTTEN);
    expect((await restored.forgotten.list()).subjects).toEqual(subjects);
    for (const id of [ann.id, "c-late"])
      expect(await codeOf(restored.stream("s").append([Registered({ ...ann, id })]))).toBe("subject_forgotten");
    await restored.close();
  } finally {
    await database.leave();
  }
});
