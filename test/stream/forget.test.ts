/**
 * Goal: the personal fields of an event are read as they were appended, until the person is forgotten, and never after that; everything else
 * about the event stays, on every store.
 * Method: each way of reading and appending, before and after; two handles on one database; ciphertexts that are changed and moved by hand; key
 * rings that rotate; canaries in everything that was ever written (G27).
 */

import { describe, expect, expectTypeOf, test } from "vitest";
import {
  aggregate,
  type DataOf,
  event,
  FORGOTTEN,
  type Forgotten,
  isForgotten,
  type Pawl,
  reaction,
  type StandardSchema,
} from "../../src/index.ts";
import { KeyRing } from "../../src/kernel/seal/ring.ts";
import { SUBJECTS, type SubjectValue, subjectAt } from "../../src/stream/personal/stored.ts";
import { type StoredEvent, type StreamValue, streamAt } from "../../src/stream/stored.ts";
import { codeOf } from "../kernel/kit.ts";
import { EVERY, onStores, PATIENCE, SQL } from "../workflow/kit.ts";
import {
  ann,
  bob,
  type Customer,
  customer,
  formsOf,
  KEY_1,
  KEY_2,
  KEYS,
  lootOf,
  Moved,
  Registered,
  recordWrites,
  Upgraded,
  vault,
} from "./forget-kit.ts";
import { all } from "./kit.ts";

const erased = (data: Customer) => ({ ...data, email: FORGOTTEN, name: FORGOTTEN });

/** What each way of reading shows of the first event of a stream. */
const READERS: Record<string, (pawl: Pawl, stream: string) => Promise<unknown>> = {
  "a reading of the stream": async (pawl, stream) => (await all(pawl.stream(stream).read()))[0]?.data,
  "a reading with types": async (pawl, stream) =>
    (await all(pawl.stream(stream).read({ events: [Registered] })))[0]?.data,
  "a reading backwards": async (pawl, stream) =>
    (await all(pawl.stream(stream).read({ backwards: true }))).at(-1)?.data,
  "a reading of all streams": async (pawl, stream) => (await all(pawl.events.read({ prefix: stream })))[0]?.data,
};

/** What each way of folding shows of the email. */
const FOLDERS: Record<string, (pawl: Pawl, stream: string) => Promise<unknown>> = {
  state: async (pawl, stream) => (await pawl.aggregate(customer, stream).state()).state.email,
  "state as of a version": async (pawl, stream) =>
    (await pawl.aggregate(customer, stream).state({ asOf: 1 })).state.email,
  "a command": async (pawl, stream) => (await pawl.aggregate(customer, stream).execute("look")).output,
  "a command that emits": async (pawl, stream) =>
    (await pawl.aggregate(customer, stream).execute("upgrade", "pro")).output,
  "a state in a transaction": (pawl, stream) =>
    pawl.transact((tx) => tx.aggregate(customer, stream).state.email as string),
};

/** What each way of appending does. */
const APPENDERS: Record<string, (pawl: Pawl, stream: string, data: Customer) => Promise<unknown>> = {
  append: (pawl, stream, data) => pawl.stream(stream).append([Upgraded({ plan: "x" }), Registered(data)]),
  tryAppend: (pawl, stream, data) => pawl.stream(stream).tryAppend([Registered(data)]),
  "an append in a transaction": (pawl, stream, data) =>
    pawl.transact((tx) => tx.stream(stream).append([Registered(data)]).version),
  "a command": (pawl, stream, data) => pawl.aggregate(customer, stream).execute("register", data),
  "a command in a transaction": (pawl, stream, data) =>
    pawl.transact((tx) => tx.aggregate(customer, stream).execute("register", data).version),
};

onStores(EVERY, (place) => {
  describe("personal fields", () => {
    test.each(Object.keys(READERS))("%s shows them, on another handle too", async (name) => {
      const [one, two] = [await place.open(KEYS), await place.open(KEYS)];
      await one.stream("s").append([Registered(ann), Registered(bob)]);
      for (const pawl of [one, two]) expect(await READERS[name]?.(pawl, "s")).toEqual(ann);
    });

    test.each(Object.keys(FOLDERS))("%s has them, on another handle too", async (name) => {
      const [one, two] = [await place.open(KEYS), await place.open(KEYS)];
      await one.aggregate(customer, "s").execute("register", ann);
      for (const pawl of [one, two]) expect(await FOLDERS[name]?.(pawl, "s")).toBe(ann.email);
    });

    test.each(Object.keys(APPENDERS))(
      "%s seals them: the log has the other fields, and who it is about",
      async (name) => {
        const pawl = await place.open(KEYS);
        await APPENDERS[name]?.(pawl, "s", ann);
        const entry = (await pawl.kernel.entries(streamAt("s"), 0, 10)).find((one) => one.name === "Registered");
        const { data, personal } = pawl.kernel.decode(streamAt("s"), entry?.data ?? "") as StoredEvent;
        expect(data).toEqual({ id: ann.id, plan: ann.plan });
        expect(personal).toEqual({ subject: ann.id, fields: ["email", "name"], sealed: expect.any(String) });
        expect((await all(pawl.stream("s").read({ events: [Registered] })))[0]?.data).toEqual(ann);
      },
    );

    test("keep their values: any that can be stored, and fields that are not there", async () => {
      const pawl = await place.open(KEYS);
      const Odd = event("Odd", {
        personal: { subject: () => "c-odd", fields: ["a", "b", "c"] },
      } as {
        personal: { subject: (data: { a?: unknown; b?: unknown; c?: unknown }) => string; fields: ["a", "b", "c"] };
      });
      const values = [
        { a: new Map([[1, new Date(5)]]), b: undefined },
        { c: 2n ** 70n },
        {},
        { a: { $date: 1 }, c: "😀" },
      ];
      await pawl.stream("odd").append(values.map((one) => Odd(one)));
      expect((await all(pawl.stream("odd").read())).map(({ data }) => data)).toStrictEqual(values);
      await pawl.forget("c-odd");
      expect((await all(pawl.stream("odd").read())).map(({ data }) => data)).toStrictEqual([
        { a: FORGOTTEN, b: FORGOTTEN },
        { c: FORGOTTEN },
        {},
        { a: FORGOTTEN, c: FORGOTTEN },
      ]);
    });

    test("have the types that they may have when they are read", async () => {
      const pawl = await place.open(KEYS);
      const [event] = await all(pawl.stream("none").read({ events: [Registered] }));
      if (event !== undefined) {
        expectTypeOf(event.data.email).toEqualTypeOf<string | Forgotten>();
        expectTypeOf(event.data.plan).toEqualTypeOf<string>();
        if (!isForgotten(event.data.email)) expectTypeOf(event.data.email).toEqualTypeOf<string>();
      }
      const [other] = await all(pawl.stream("none").read({ events: [Upgraded] }));
      if (other !== undefined) expectTypeOf(other.data).toEqualTypeOf<{ readonly plan: string }>();
    });

    test("a process without keys can neither append nor read them, and says which option is missing", async () => {
      const [pawl, keyless] = [await place.open(KEYS), await place.open()];
      for (const append of Object.values(APPENDERS))
        expect(await codeOf(append(keyless, "s", ann))).toBe("keys_missing");
      await expect(keyless.stream("s").append([Registered(ann)])).rejects.toThrow(
        "personal data needs a key: open with { actions: { keys: { current, ring } } }",
      );
      expect(await keyless.stream("s").head()).toBe(0);
      await pawl.stream("s").append([Upgraded({ plan: "x" }), Registered(ann)]);
      expect(await codeOf(all(keyless.stream("s").read()))).toBe("key_unavailable");
      // Other events of the stream are read.
      expect((await all(keyless.stream("s").read({ events: [Upgraded] }))).length).toBe(1);
    });
  });

  describe("forgetting a person", () => {
    test("returns when that was, and the same again", async () => {
      const [one, two] = [await place.open(KEYS), await place.open(KEYS)];
      await one.stream("s").append([Registered(ann)]);
      const first = await one.forget(ann.id, { actor: "dpo", reason: "asked for it" });
      expect(first).toEqual({ forgotten: true, at: expect.any(Date), hadKey: true });
      expect(await two.forget(ann.id, { actor: "other", reason: "again" })).toEqual(first);
      expect(await one.forgotten.list()).toEqual({
        subjects: [{ subject: ann.id, at: first.at, actor: "dpo", reason: "asked for it" }],
        next: null,
      });
    });

    test("says where there was no key, each time: a list that is reapplied needs such ids to be forgotten too", async () => {
      const [one, two] = [await place.open(KEYS), await place.open(KEYS)];
      await one.stream("s").append([Registered(ann)]);
      const mistyped = await one.forget("an");
      expect(mistyped).toEqual({ forgotten: true, at: expect.any(Date), hadKey: false });
      expect(await two.forget("an")).toEqual(mistyped);
      expect(await all(two.stream("s").read({ events: [Registered] }))).toMatchObject([{ data: ann }]);
      expect(await codeOf(two.stream("other").append([Registered({ ...ann, id: "an" })]))).toBe("subject_forgotten");
      // As after the restore of a backup from before the person's first event.
      await one.forgotten.reapply(["bob", { subject: "eve", at: new Date(5), actor: null, reason: null }]);
      expect(await one.forget("eve")).toEqual({ forgotten: true, at: new Date(5), hadKey: false });
    });

    test.each(Object.keys(READERS))("%s shows FORGOTTEN, and everything else", async (name) => {
      const [one, two] = [await place.open(KEYS), await place.open(KEYS)];
      await one.stream("s").append([Registered(ann), Registered(bob)]);
      for (const pawl of [one, two]) await READERS[name]?.(pawl, "s");
      await one.forget(ann.id);
      for (const pawl of [one, two, await place.open(KEYS)])
        expect(await READERS[name]?.(pawl, "s")).toEqual(erased(ann));
      const [, other] = await all(two.stream("s").read());
      expect(other?.data).toEqual(bob);
    });

    test.each(Object.keys(FOLDERS))("%s has FORGOTTEN: what was folded before is folded again", async (name) => {
      const [one, two] = [await place.open(KEYS), await place.open(KEYS)];
      for (const pawl of [one, two]) {
        await pawl.aggregate(customer, "s").execute("register", ann);
        expect(await FOLDERS[name]?.(pawl, "s")).toBe(ann.email);
      }
      await one.forget(ann.id);
      for (const pawl of [two, one, await place.open(KEYS)]) {
        expect(await FOLDERS[name]?.(pawl, "s")).toBe(FORGOTTEN);
        // The state with the mark is stored and read like any other.
        expect(await FOLDERS[name]?.(pawl, "s")).toBe(FORGOTTEN);
      }
    });

    test("drops the folded states of the streams that have events of the person, and no others", async () => {
      const pawl = await place.open(KEYS);
      await pawl.aggregate(customer, "hers").execute("register", ann);
      await pawl.aggregate(customer, "both").execute("register", bob);
      await pawl.stream("both").append([Moved({ id: ann.id, address: "Canary Road" })]);
      await pawl.aggregate(customer, "both").execute("look");
      await pawl.aggregate(customer, "his").execute("register", bob);
      const foldsOf = async (stream: string) => {
        const [row] = await pawl.kernel.read([streamAt(stream)]);
        return Object.keys((pawl.kernel.decode(streamAt(stream), row?.value ?? "{}") as StreamValue).folds ?? {});
      };
      expect(await Promise.all(["hers", "both", "his"].map(foldsOf))).toEqual([
        ["customer"],
        ["customer"],
        ["customer"],
      ]);
      await pawl.forget(ann.id);
      expect(await Promise.all(["hers", "both", "his"].map(foldsOf))).toEqual([[], [], ["customer"]]);
      expect((await pawl.aggregate(customer, "both").state()).state.email).toBe(bob.email);
    });

    test.each(Object.keys(APPENDERS))("%s of the person is refused, and writes nothing", async (name) => {
      const [one, two] = [await place.open(KEYS), await place.open(KEYS)];
      for (const pawl of [one, two]) await APPENDERS[name]?.(pawl, "s", ann);
      const head = await one.stream("s").head();
      await one.forget(ann.id);
      for (const pawl of [two, one])
        for (const stream of ["s", "another"])
          expect(await codeOf(APPENDERS[name]?.(pawl, stream, ann) ?? Promise.resolve())).toBe("subject_forgotten");
      expect([await one.stream("s").head(), await one.stream("another").head()]).toEqual([head, 0]);
      // Others, and events without personal fields, can be appended.
      await APPENDERS[name]?.(two, "s", bob);
      await one.stream("s").append([Upgraded({ plan: "x" })]);
    });

    test("one refused event keeps the others of its commit out", async () => {
      const pawl = await place.open(KEYS);
      await pawl.forget(ann.id);
      const both = pawl.transact((tx) => {
        tx.stream("other").append([Registered(bob)]);
        tx.stream("s").append([Registered(ann)]);
      });
      expect(await codeOf(both)).toBe("subject_forgotten");
      expect(await pawl.stream("other").head()).toBe(0);
    });

    test("a person who was never seen is forgotten too", async () => {
      const pawl = await place.open();
      await pawl.forget("c-none");
      const [row] = await pawl.kernel.read([subjectAt("c-none")]);
      expect(row).toMatchObject({ kind: null, dueMs: null, status: "forgotten" });
      const keyed = await place.open(KEYS);
      expect(await codeOf(keyed.stream("s").append([Registered({ ...ann, id: "c-none" })]))).toBe("subject_forgotten");
    });

    test("FORGOTTEN is stored as it is where code passes it on, and has a JSON form", async () => {
      const pawl = await place.open(KEYS);
      const Copied = event<{ readonly email: string | Forgotten }>("Copied");
      await pawl.stream("s").append([Registered(ann)]);
      await pawl.forget(ann.id);
      const [registered] = await all(pawl.stream("s").read({ events: [Registered] }));
      if (registered === undefined) throw new Error("it is not there");
      await pawl.stream("copies").append([Copied({ email: registered.data.email })]);
      const [copied] = await all(pawl.stream("copies").read({ events: [Copied] }));
      expect(copied?.data.email).toBe(FORGOTTEN);
      expect(JSON.stringify(copied?.data)).toBe('{"email":{"$forgotten":true}}');
    });
  });

  describe("reactions", () => {
    test("show FORGOTTEN for events that were routed, and for one that was read, before", async () => {
      const pawl = await place.open(KEYS);
      const seen: unknown[] = [];
      const started = Promise.withResolvers<void>();
      const forgotten = Promise.withResolvers<void>();
      const mail = reaction("mail", { on: [Registered, Upgraded] }, async ({ data }) => {
        if (seen.length === 0) {
          started.resolve();
          await forgotten.promise;
        }
        seen.push(data);
      });
      await pawl.stream("s").append([Upgraded({ plan: "x" }), Registered(ann), Registered(bob)]);
      await using _worker = pawl.work([mail]);
      await started.promise;
      await expect.poll(async () => (await pawl.reactions.targets("mail")).targets[0]?.pending, PATIENCE).toBe(3);
      await pawl.forget(ann.id);
      forgotten.resolve();
      await expect.poll(() => seen.length, PATIENCE).toBe(3);
      expect(seen).toEqual([{ plan: "x" }, erased(ann), bob]);
    });

    test("emit and commit personal events; of a person who was forgotten they fail, and the target is blocked", async () => {
      const pawl = await place.open({ ...KEYS, logger: false });
      const copy = reaction(
        "copy",
        { on: [Registered], retry: { attempts: 1 } },
        async ({ data, stream }, { emit, commit }) => {
          const address = isForgotten(data.email) ? "somewhere" : data.email;
          emit(`moved-${stream}`, [Moved({ id: data.id, address })]);
          await commit((tx) => tx.stream(`again-${stream}`).append([Moved({ id: data.id, address })]).version);
        },
      );
      await pawl.stream("a").append([Registered(ann)]);
      await pawl.stream("b").append([Registered(bob)]);
      await pawl.forget(bob.id);
      await using _worker = pawl.work([copy]);
      const statusOf = async (target: string) =>
        (await pawl.reactions.target("copy", target).catch(() => undefined))?.status;
      await expect.poll(() => statusOf("b"), PATIENCE).toBe("blocked");
      await expect.poll(() => pawl.stream("again-a").head(), PATIENCE).toBe(1);
      for (const stream of ["moved-a", "again-a"])
        expect((await all(pawl.stream(stream).read()))[0]?.data).toEqual({ id: ann.id, address: ann.email });
      expect(await pawl.reactions.target("copy", "b")).toMatchObject({ lastError: { name: "SubjectForgottenError" } });
      expect(await pawl.stream("moved-b").head()).toBe(0);
    });
  });

  test("a reaction in a process that lacks the key waits, and one that has it handles the events", async () => {
    const old = await place.open(KEYS);
    await old.stream("s").append([Registered(ann)]);
    const warnings: string[] = [];
    const logger = { warn: (message: string) => void warnings.push(message), error: () => {} };
    const seen: unknown[] = [];
    let isLater = true;
    const unrouted = reaction("unrouted", { on: [Registered], target: ({ data }) => data.plan }, ({ data }) => {
      seen.push(data);
    });
    const routed = reaction("routed", { on: [Registered] }, ({ data }, { defer }) => {
      if (isLater) defer("1 hour");
      seen.push(data);
    });
    const routing = old.work([routed]);
    const targetOf = async () => (await old.reactions.targets("routed")).targets[0];
    await expect
      .poll(async () => (await targetOf().catch(() => undefined))?.nextAttemptAt, PATIENCE)
      .toBeInstanceOf(Date);
    await expect
      .poll(async () => ((await targetOf())?.nextAttemptAt?.getTime() ?? 0) - Date.now(), PATIENCE)
      .toBeGreaterThan(1e6);
    await routing.stop();
    isLater = false;
    await old.reactions.prioritize("routed", {});
    const keyless = await place.open({ logger });
    for (const one of [unrouted, routed]) {
      warnings.length = 0;
      const lacking = keyless.work([one]);
      await expect.poll(() => warnings.some((line) => line.includes("not in the ring")), PATIENCE).toBe(true);
      await lacking.stop();
    }
    for (const name of ["unrouted", "routed"]) {
      expect(await old.reactions.deadLetters(name)).toEqual({ letters: [], next: null });
      expect((await old.reactions.targets(name, { status: "blocked" })).targets).toEqual([]);
    }
    await old.reactions.prioritize("routed", {});
    await using _worker = old.work([unrouted, routed]);
    await expect.poll(() => seen, PATIENCE).toEqual([ann, ann]);
  });

  describe("keys", () => {
    const rings = {
      old: { actions: { keys: { current: "k1", ring: { k1: KEY_1 } } } },
      both: { actions: { keys: { current: "k2", ring: { k1: KEY_1, k2: KEY_2 } } } },
      young: { actions: { keys: { current: "k2", ring: { k2: KEY_2 } } } },
    };

    test("a rotated ring opens what is old and seals with what is new; a retired key is named", async () => {
      const old = await place.open(rings.old);
      await old.aggregate(customer, "a").execute("register", ann);
      const both = await place.open(rings.both);
      expect(await READERS["a reading of the stream"]?.(both, "a")).toEqual(ann);
      await both.aggregate(customer, "a").execute("register", { ...ann, email: "second@canary.example" });
      await both.aggregate(customer, "b").execute("register", bob);
      expect((await both.aggregate(customer, "a").state()).state.email).toBe("second@canary.example");
      const young = await place.open(rings.young);
      expect(await READERS["a reading of the stream"]?.(young, "b")).toEqual(bob);
      expect((await young.aggregate(customer, "b").execute("look")).output).toBe(bob.email);
      const refused = await young
        .stream("a")
        .append([Registered(ann)])
        .catch((error: unknown) => error);
      expect(refused).toMatchObject({ code: "key_unavailable", data: { keyId: "k1" } });
      for (const read of [...Object.values(READERS), ...Object.values(FOLDERS)])
        expect(await codeOf(read(young, "a"))).toBe("key_unavailable");
      expect(await codeOf(READERS["a reading of the stream"]?.(old, "b") ?? Promise.resolve())).toBe("key_unavailable");
      // Forgetting needs no key.
      await young.forget(ann.id);
      expect(await READERS["a reading of the stream"]?.(young, "a")).toEqual(erased(ann));
      expect((await young.aggregate(customer, "a").execute("look")).output).toBe(FORGOTTEN);
    });

    test("a folded state whose key was retired is folded again, and sealed with a new one", async () => {
      const both = await place.open(rings.both);
      await both.stream("s").append([Registered(ann)]);
      const turned = await place.open({ actions: { keys: { ...rings.both.actions.keys, current: "k1" } } });
      await turned.aggregate(customer, "s").execute("upgrade", "pro");
      const young = await place.open(rings.young);
      for (const pawl of [young, both, young]) {
        expect((await pawl.aggregate(customer, "s").execute("upgrade", "max")).output).toBe(ann.email);
        expect((await pawl.aggregate(customer, "s").state()).state).toEqual({ email: ann.email, plan: "max" });
      }
    });

    /** Appends an entry to a stream that is made of the first one of it. */
    async function forge(
      pawl: Pawl,
      from: string,
      to: string,
      change: (stored: StoredEvent) => StoredEvent,
    ): Promise<void> {
      const [entry] = await pawl.kernel.entries(streamAt(from), 0, 1);
      const stored = pawl.kernel.decode(streamAt(from), entry?.data ?? "") as StoredEvent;
      const at = streamAt(to);
      await pawl.kernel.transact(
        (tx) => void tx.record(at).append("Registered", change(stored), { isFollowed: true }),
        [at],
      );
    }

    const flipped = (sealed: string, at: number): string => {
      const bytes = Buffer.from(sealed, "base64url");
      bytes[at < 0 ? bytes.length + at : at] = (bytes.at(at) ?? 0) ^ 1;
      return bytes.toString("base64url");
    };
    const changed = (stored: StoredEvent, sealed: string): StoredEvent =>
      stored.personal === undefined ? stored : { ...stored, personal: { ...stored.personal, sealed } };

    test.each<[string, string, (stored: StoredEvent) => StoredEvent]>([
      ["whose nonce was changed", "s", (stored) => changed(stored, flipped(stored.personal?.sealed ?? "", 0))],
      ["whose ciphertext was changed", "s", (stored) => changed(stored, flipped(stored.personal?.sealed ?? "", 12))],
      ["whose tag was changed", "s", (stored) => changed(stored, flipped(stored.personal?.sealed ?? "", -1))],
      ["that was emptied", "s", (stored) => changed(stored, "")],
      ["that was moved to another event", "s", (stored) => ({ ...stored, id: "another" })],
      ["that was moved to another stream", "other", (stored) => stored],
      [
        "that was moved to another person",
        "s",
        (stored) => (stored.personal ? { ...stored, personal: { ...stored.personal, subject: bob.id } } : stored),
      ],
    ])("a ciphertext %s is decrypt_failed, and the events before it are read", async (_, to, change) => {
      const pawl = await place.open(KEYS);
      await pawl.stream("s").append([Registered(ann), Registered(bob)]);
      await pawl.stream("other").append([Registered(ann), Registered(bob)]);
      await forge(pawl, "s", to, change);
      const read: unknown[] = [];
      const reading = async () => {
        for await (const { data } of pawl.stream(to).read()) read.push(data);
      };
      expect(await codeOf(reading())).toBe("decrypt_failed");
      expect(read).toEqual([ann, bob]);
      expect(await codeOf(pawl.aggregate(customer, to).state())).toBe("decrypt_failed");
    });

    test("a key that was moved to another person is decrypt_failed", async () => {
      const pawl = await place.open(KEYS);
      await pawl.stream("s").append([Registered(ann), Registered(bob)]);
      await pawl.kernel.transact(
        (tx) => tx.record(subjectAt(bob.id)).write({ value: tx.record(subjectAt(ann.id)).value }),
        [subjectAt(ann.id), subjectAt(bob.id)],
      );
      expect(await codeOf(all(pawl.stream("s").read()))).toBe("decrypt_failed");
      expect(await codeOf(pawl.stream("s").append([Registered(bob)]))).toBe("decrypt_failed");
    });

    test("a folded state that was moved from another stream is folded again", async () => {
      const pawl = await place.open(KEYS);
      await pawl.aggregate(customer, "a").execute("register", ann);
      await pawl.aggregate(customer, "b").execute("register", bob);
      await pawl.kernel.transact(
        (tx) => tx.record(streamAt("b")).write({ value: tx.record(streamAt("a")).value }),
        [streamAt("a"), streamAt("b")],
      );
      expect((await pawl.aggregate(customer, "b").execute("look")).output).toBe(bob.email);
      expect((await pawl.aggregate(customer, "b").state()).state.email).toBe(bob.email);
    });
  });

  test("a folded state that was given another version, or to another aggregate, is folded again", async () => {
    const pawl = await place.open(KEYS);
    const copy = aggregate("copy", {
      initial: { email: null as unknown },
      on: [[Registered, (_, { email }) => ({ email: [email] })]],
      version: "copy",
      commands: { look: ({ email }) => email },
    });
    const at = streamAt("s");
    const rewrite = (change: (folds: NonNullable<StreamValue["folds"]>) => NonNullable<StreamValue["folds"]>) =>
      pawl.kernel.transact(
        (tx) => {
          const value = tx.record(at).value as StreamValue;
          tx.record(at).write({ value: { ...value, folds: change(value.folds ?? {}) } });
        },
        [at],
      );
    await pawl.aggregate(customer, "s").execute("register", ann);
    await pawl.stream("s").append([Upgraded({ plan: "max" })]);
    await rewrite(({ customer: own = [] }) => ({ customer: own.map((one) => ({ ...one, version: 2 })) }));
    expect((await pawl.aggregate(customer, "s").state()).state.plan).toBe("max");
    await pawl.aggregate(customer, "s").execute("look");
    await pawl.aggregate(copy, "s").execute("look");
    await rewrite(({ customer: own = [], copy: other = [] }) => ({
      customer: own,
      copy: own.map((one) => ({ ...one, by: other[0]?.by ?? "" })),
    }));
    expect((await pawl.aggregate(copy, "s").execute("look")).output).toEqual([ann.email]);
  });

  test("G27: a stolen database has no personal field, folded state or key of a person in it, before and after forget", async () => {
    const [one, two] = [await place.open(KEYS), await place.open(KEYS)];
    const written = recordWrites(one, two);
    const seen: unknown[] = [];
    const mail = reaction("mail", { on: [Registered] }, async ({ data }, { emit }) => {
      seen.push(data.email);
      if (!isForgotten(data.email)) emit("moves", [Moved({ id: data.id, address: data.email })]);
    });
    await one.aggregate(customer, "visible-stream").execute("register", ann);
    await one.stream("visible-stream").append([Moved({ id: ann.id, address: "Canary Road" })]);
    await two.aggregate(customer, "visible-stream").execute("upgrade", "visible-plan");
    await two.stream("many").append(Array.from({ length: 150 }, () => Registered(bob)));
    await one.aggregate(customer, "many").state();
    {
      await using _worker = one.work([mail]);
      await expect.poll(() => seen.length, PATIENCE).toBe(151);
    }
    const [row] = await one.kernel.read([subjectAt(ann.id)]);
    const { key } = one.kernel.decode(subjectAt(ann.id), row?.value ?? "") as SubjectValue;
    if (key === undefined) throw new Error("the subject has no key");
    const ring = new KeyRing(KEYS.actions.keys, place.namespace, SUBJECTS, String);
    const subjectKey = Buffer.from(ring.open(ann.id, key), "base64url");
    expect(subjectKey.length).toBe(32);
    const secrets = [ann.email, ann.name, bob.email, bob.name, "Canary Road", subjectKey, KEY_1];
    const search = async () => {
      const loot = written() + (await lootOf(place));
      // The search finds what is there.
      for (const there of ["visible-stream", "visible-plan", ann.id]) expect(loot).toContain(there);
      for (const secret of secrets)
        for (const form of formsOf(secret)) expect(loot.includes(form), `${secret} as ${form}`).toBe(false);
      return loot;
    };
    expect(await search()).toContain(key.data);
    await two.forget(ann.id);
    await one.aggregate(customer, "visible-stream").execute("upgrade", "visible-plan");
    await search();
    // What is there now, apart from old pages of a file, has no trace of the key.
    if (place.store === "PostgreSQL") expect(await lootOf(place)).not.toContain(key.data);
    const [after] = await one.kernel.read([subjectAt(ann.id)]);
    expect(after?.value).not.toContain(key.data);
  });

  describe("with subjectKeys", () => {
    test.each(Object.keys(APPENDERS))("%s fetches or makes the key outside the decision", async (name) => {
      const keys = vault();
      const pawl = await place.open({ ...KEYS, subjectKeys: keys });
      await APPENDERS[name]?.(pawl, "s", ann);
      await APPENDERS[name]?.(pawl, "s", ann);
      expect(keys.asked).toEqual([`get ${ann.id}`, `create ${ann.id}`]);
      const [row] = await pawl.kernel.read([subjectAt(ann.id)]);
      expect(pawl.kernel.decode(subjectAt(ann.id), row?.value ?? "")).toEqual({});
      const other = await place.open({ ...KEYS, subjectKeys: keys });
      expect((await all(other.stream("s").read({ events: [Registered] })))[0]?.data).toEqual(ann);
    });

    test("many subjects of one append are fetched together", async () => {
      const keys = vault();
      const pawl = await place.open({ ...KEYS, subjectKeys: keys });
      for (const id of ["a", "b", "c"]) await keys.create(id);
      keys.asked.length = 0;
      await pawl.stream("s").append(["a", "b", "c", "a"].map((id) => Registered({ ...ann, id })));
      expect(keys.asked).toEqual(["get a,b,c"]);
    });

    test("a reaction that emits fetches it too", async () => {
      const keys = vault();
      const pawl = await place.open({ ...KEYS, subjectKeys: keys });
      const move = reaction("move", { on: [Upgraded] }, (_, { emit }) => {
        emit("moves", [Moved({ id: ann.id, address: "Canary Road" })]);
      });
      await pawl.stream("s").append([Upgraded({ plan: "x" })]);
      await using _worker = pawl.work([move]);
      await expect.poll(() => pawl.stream("moves").head(), PATIENCE).toBe(1);
      expect((await all(pawl.stream("moves").read()))[0]?.data).toEqual({ id: ann.id, address: "Canary Road" });
    });

    test("forget destroys it there; a process that has it in memory shows and seals nothing with it", async () => {
      const keys = vault();
      const [one, two] = [
        await place.open({ ...KEYS, subjectKeys: keys }),
        await place.open({ ...KEYS, subjectKeys: keys }),
      ];
      for (const pawl of [one, two]) {
        await pawl.aggregate(customer, "s").execute("register", ann);
        expect(await READERS["a reading of the stream"]?.(pawl, "s")).toEqual(ann);
      }
      await one.forget(ann.id);
      expect(keys.keys.get(ann.id)).toBe("forgotten");
      for (const pawl of [two, one]) {
        for (const read of Object.values(READERS)) expect(await read(pawl, "s")).toEqual(erased(ann));
        for (const fold of Object.values(FOLDERS)) expect(await fold(pawl, "s")).toBe(FORGOTTEN);
        for (const append of Object.values(APPENDERS))
          expect(await codeOf(append(pawl, "s", ann))).toBe("subject_forgotten");
      }
    });

    test("a key that was destroyed there, and not by pawl.forget, is forgotten too", async () => {
      const keys = vault();
      const one = await place.open({ ...KEYS, subjectKeys: keys });
      await one.stream("s").append([Registered(ann)]);
      await keys.destroy(ann.id);
      const two = await place.open({ ...KEYS, subjectKeys: keys });
      expect(await READERS["a reading of the stream"]?.(two, "s")).toEqual(erased(ann));
      expect(await codeOf(two.stream("s").append([Registered(ann)]))).toBe("subject_forgotten");
    });

    test("where it fails to destroy, forget fails; the person is forgotten here, and the same call again finishes it", async () => {
      const keys = vault();
      let isDown = true;
      const destroy = async (subject: string) => {
        if (isDown) throw new Error("the vault is down");
        await keys.destroy(subject);
      };
      const pawl = await place.open({ ...KEYS, subjectKeys: { ...keys, destroy } });
      await pawl.stream("s").append([Registered(ann)]);
      await expect(pawl.forget(ann.id)).rejects.toThrow("the vault is down");
      expect(await READERS["a reading of the stream"]?.(pawl, "s")).toEqual(erased(ann));
      isDown = false;
      const { at } = await pawl.forget(ann.id);
      expect(keys.keys.get(ann.id)).toBe("forgotten");
      expect((await pawl.forgotten.list()).subjects[0]?.at).toEqual(at);
    });

    test("a handle without them cannot read or append", async () => {
      const one = await place.open({ ...KEYS, subjectKeys: vault() });
      const two = await place.open(KEYS);
      await one.stream("s").append([Registered(ann)]);
      expect(await codeOf(all(two.stream("s").read()))).toBe("key_unavailable");
      expect(await codeOf(two.stream("s").append([Registered(ann)]))).toBe("key_unavailable");
    });

    test("keys that Pawl has in its records stay in use", async () => {
      const one = await place.open(KEYS);
      await one.stream("s").append([Registered(ann)]);
      const keys = vault();
      const two = await place.open({ ...KEYS, subjectKeys: keys });
      await two.stream("s").append([Registered(ann)]);
      expect((await all(one.stream("s").read())).map(({ data }) => data)).toEqual([ann, ann]);
      expect(keys.asked).toEqual([]);
    });
  });
});

onStores(SQL, (place) => {
  test("in transact.sql, a key of subjectKeys must be in the process already", async () => {
    const pawl = await place.open({ ...KEYS, subjectKeys: vault() });
    const append = () => pawl.transact.sql((_, tx) => tx((in_) => in_.stream("s").append([Registered(ann)]).version));
    expect(await codeOf(append())).toBe("subject_key_not_loaded");
    await pawl.stream("s").append([Registered(ann)]);
    expect(await append()).toBe(2);
  });

  test("in transact.sql, keys of Pawl's own records need nothing", async () => {
    const pawl = await place.open(KEYS);
    const append = () => pawl.transact.sql((_, tx) => tx((in_) => in_.stream("s").append([Registered(ann)]).version));
    expect([await append(), await append()]).toEqual([1, 2]);
    expect((await all(pawl.stream("s").read())).map(({ data }) => data)).toEqual([ann, ann]);
  });
});

describe("an event type", () => {
  test.each([
    ["an empty subject", () => Registered({ ...ann, id: "" }), "invalid_id"],
    ["a subject that is a number", () => Registered({ ...ann, id: 5 as never }), "invalid_id"],
    ["data that is a text", () => Registered("ann" as never), "invalid_argument"],
  ])("refuses %s when the event is made", (_, make, code) => {
    expect(make).toThrow(expect.objectContaining({ code }));
  });

  test("takes its data from a schema, from the subject's parameter or from a given type", () => {
    const given = event<Customer, "email">("given", { personal: { subject: ({ id }) => id, fields: ["email"] } });
    expectTypeOf(given).parameter(0).toEqualTypeOf<Customer>();
    const one = event<Customer>("one", { personal: { subject: ({ id }) => id, fields: ["email"] } });
    expectTypeOf<DataOf<[typeof one]>["plan"]>().toEqualTypeOf<string | Forgotten>();
    expectTypeOf<DataOf<[typeof given]>["plan"]>().toEqualTypeOf<string>();
    const schema: StandardSchema<unknown, Customer> = {
      "~standard": { version: 1, vendor: "test", validate: (value) => ({ value: value as Customer }) },
    };
    const checked = event("checked", { schema, personal: { subject: (data) => data.id, fields: ["name"] } });
    expectTypeOf<DataOf<[typeof checked]>["name"]>().toEqualTypeOf<string | Forgotten>();
    expectTypeOf<DataOf<[typeof checked]>["email"]>().toEqualTypeOf<string>();
    expect(checked(ann).personal).toEqual({ subject: ann.id, fields: ["name"] });
    // @ts-expect-error: it has no such field
    expect(() => event<Customer, "phone">("x", { personal: { subject: () => "a", fields: ["phone"] } })).not.toThrow();
  });
});
