/**
 * Goal: an action is created once, used as often as allowed, and then never again; a consumer that repeats its call gets the same result.
 * Method: every law on memory and SQLite, with a clock that the test moves.
 */

import { describe, expect, test } from "vitest";
import { DAY, refusal, Scene, SECOND, START_MS, STORES } from "./kit.ts";

const at = (ms: number): Date => new Date(START_MS + ms);
const used = (by: string | null, ms = 0) => ({ code: "already_used", usedAt: at(ms), by });

describe.each(STORES)("on %s", (store) => {
  describe("making", () => {
    test("the same id with the same request is the same action, with another it is refused", async () => {
      await using scene = new Scene(store);
      const actions = await scene.process();
      const request = {
        id: "coupon",
        owner: "ann",
        reason: "welcome",
        tags: ["a", "b"],
        activeAt: at(0),
        expiresIn: "1 day",
        uses: 3,
        pin: "1234",
        maxPinTries: 7,
        payload: { percent: 10, kinds: new Set(["x"]) },
      };
      expect(await actions.create(request)).toMatchObject({ id: "coupon", isNew: true });
      scene.nowMs += 5 * SECOND;
      expect(await actions.create(request)).toMatchObject({ id: "coupon", isNew: false });
      expect(await (await scene.process()).create({ ...request, activeAt: START_MS })).toMatchObject({ isNew: false });
      const others: object[] = [
        { owner: "bob" },
        { owner: undefined },
        { reason: "other" },
        { reason: undefined },
        { tags: ["b", "a"] },
        { tags: [] },
        { activeAt: at(1) },
        { expiresIn: "2 days" },
        { expiresIn: undefined },
        { expiresIn: undefined, expiresAt: at(DAY) },
        { uses: 1 },
        { uses: 4 },
        { pin: "1235" },
        { pin: undefined, maxPinTries: undefined },
        { maxPinTries: 6 },
        { payload: { percent: 11, kinds: new Set(["x"]) } },
        { payload: { percent: 10, kinds: new Set(["y"]) } },
        { payload: undefined },
        { payload: null },
      ];
      for (const other of others)
        expect(await refusal(actions.create({ ...request, ...other })), JSON.stringify(other)).toEqual({
          code: "action_conflict",
        });
      expect((await actions.history("coupon")).map(({ name }) => name)).toEqual(["created"]);
    });

    test("the order of a payload's parts makes no other request", async () => {
      await using scene = new Scene(store);
      const actions = await scene.process();
      await actions.create({ id: "a", payload: { x: 1, y: 2 } });
      expect(await actions.create({ id: "a", payload: { y: 2, x: 1 } })).toMatchObject({ isNew: false });
    });

    test("an id that is made up is 256 bits, another each time, and only its maker knows it", async () => {
      await using scene = new Scene(store);
      const actions = await scene.process();
      const made = await actions.createMany(Array.from({ length: 100 }, () => ({ owner: "ann" })));
      expect(new Set(made.map(({ id }) => id)).size).toBe(100);
      for (const { id, isNew } of made) expect([Buffer.from(id, "base64url").length, isNew]).toEqual([32, true]);
      const [first] = made;
      const { actions: listed } = await actions.list({ owner: "ann" });
      expect(listed.length).toBe(100);
      expect(listed.every(({ id }) => id === null)).toBe(true);
      expect(new Set(listed.map(({ ref }) => ref))).toEqual(new Set(made.map(({ ref }) => ref)));
      expect(await actions.get(first?.id ?? "")).toMatchObject({ state: "active", id: null });
      expect(await actions.get({ ref: first?.ref ?? "" })).toMatchObject({ state: "active", ref: first?.ref });
      // What lists show is no key to the action.
      expect(await refusal(actions.consume(first?.ref ?? ""))).toEqual({ code: "action_not_found" });
      expect(await refusal(actions.consume({ ref: first?.ref } as never))).toMatchObject({ code: "invalid_id" });
      expect(await actions.consume(first?.id ?? "")).toMatchObject({ replayed: false });
    });

    test("ids come out of the port for chance, or of the kernel's", async () => {
      await using scene = new Scene(store);
      const ports = { randomBytes: (size: number) => new Uint8Array(size).fill(7) };
      const fixed = await scene.process({ ports });
      expect((await fixed.create()).id).toBe(Buffer.alloc(32, 7).toString("base64url"));
      expect(await fixed.create()).toMatchObject({ isNew: false });
      const plain = await scene.process({ ports: { randomBytes: undefined } });
      const ids = [await plain.create(), await plain.create()].map(({ id }) => id);
      expect(ids[0]).not.toBe(ids[1]);
      expect(ids.map((id) => Buffer.from(id, "base64url").length)).toEqual([32, 32]);
    });

    test("many are made in one commit, or none of them", async () => {
      await using scene = new Scene(store);
      const actions = await scene.process();
      await actions.create({ id: "b", reason: "first" });
      const list = ["a", "b", "c"].map((id) => ({ id }));
      expect(await refusal(actions.createMany(list))).toEqual({ code: "action_conflict" });
      expect(await actions.get("a")).toBeNull();
      const made = await actions.createMany([{ id: "a" }, { id: "b", reason: "first" }, { id: "a" }]);
      expect(made.map(({ isNew }) => isNew)).toEqual([true, false, false]);
      expect(await actions.createMany([])).toEqual([]);
      expect(await refusal(actions.createMany(Array.from({ length: 301 }, () => ({}))))).toMatchObject({
        code: "invalid_argument",
      });
    });

    test("three hundred with everything fit into one commit", async () => {
      await using scene = new Scene(store);
      const actions = await scene.process();
      const list = Array.from({ length: 300 }, (_, i) => ({ id: `c${i}`, owner: `o${i}`, uses: 2, payload: i }));
      expect((await actions.createMany(list)).every(({ isNew }) => isNew)).toBe(true);
      expect(await actions.consume("c299")).toMatchObject({ payload: 299, usesLeft: 1 });
    });

    test("what an action shows has neither payload nor hashes", async () => {
      await using scene = new Scene(store);
      const actions = await scene.process();
      await actions.create({ id: "a", owner: "ann", reason: "why", tags: ["t"], pin: "1234", payload: "secret" });
      expect(await actions.get("a")).toEqual({
        id: "a",
        ref: expect.any(String),
        state: "active",
        owner: "ann",
        reason: "why",
        tags: ["t"],
        createdAt: at(0),
        activeAt: null,
        expiresAt: null,
        uses: 1,
        usesLeft: 1,
        hasPin: true,
        pinTriesLeft: 5,
        lastUse: null,
        claim: null,
        canceled: null,
      });
      expect(await actions.get("b")).toBeNull();
    });
  });

  describe("using", () => {
    test("the first gets the payload, the second gets the time and the name of the first", async () => {
      await using scene = new Scene(store);
      const actions = await scene.process();
      await actions.create({ id: "a", payload: { deep: [1, new Date(5)] } });
      scene.nowMs += 7;
      expect(await actions.consume("a", { by: "ann", reason: "order 1" })).toEqual({
        payload: { deep: [1, new Date(5)] },
        consumedAt: at(7),
        replayed: false,
        usesLeft: 0,
      });
      scene.nowMs += 7;
      expect(await refusal(actions.consume("a", { by: "bob" }))).toEqual(used("ann", 7));
      expect(await actions.tryConsume("a")).toEqual({ ok: false, ...used("ann", 7) });
      expect(await actions.get("a")).toMatchObject({
        state: "consumed",
        usesLeft: 0,
        lastUse: { at: at(7), by: "ann", reason: "order 1" },
      });
    });

    test("an id that is not there is not found, and neither is another namespace's", async () => {
      await using scene = new Scene(store);
      const actions = await scene.process();
      const other = await scene.process({ namespace: "other" });
      await actions.create({ id: "a" });
      const verbs = [
        () => other.consume("a"),
        () => actions.consume("b"),
        () => actions.claim("b"),
        () => actions.complete("b", { fence: 1 }),
        () => actions.abandon("b", { fence: 1 }),
        () => actions.cancel("b"),
        () => actions.history("b"),
      ];
      for (const verb of verbs) expect(await refusal(verb())).toEqual({ code: "action_not_found" });
      expect(await other.tryConsume("a")).toEqual({ ok: false, code: "action_not_found" });
    });

    test("without a payload it returns undefined, and null is a payload", async () => {
      await using scene = new Scene(store);
      const actions = await scene.process();
      await actions.createMany([{ id: "none" }, { id: "null", payload: null }]);
      expect((await actions.consume("none")).payload).toBeUndefined();
      expect((await actions.consume("null")).payload).toBeNull();
    });

    test("it can be used within its window, to the millisecond", async () => {
      await using scene = new Scene(store);
      const actions = await scene.process();
      const window = { activeAt: at(10), expiresAt: at(20) };
      await actions.createMany(["a", "b", "c"].map((id) => ({ id, ...window })));
      scene.nowMs = START_MS + 9;
      expect(await refusal(actions.consume("a"))).toEqual({ code: "not_active", activeAt: at(10) });
      expect(await actions.get("a")).toMatchObject({ state: "pending", activeAt: at(10), expiresAt: at(20) });
      scene.nowMs = START_MS + 10;
      expect((await actions.consume("a")).consumedAt).toEqual(at(10));
      scene.nowMs = START_MS + 19;
      expect((await actions.consume("b")).consumedAt).toEqual(at(19));
      scene.nowMs = START_MS + 20;
      expect(await refusal(actions.consume("c"))).toEqual({ code: "expired", expiredAt: at(20) });
      expect(await actions.get("c")).toMatchObject({ state: "expired" });
      expect(await refusal(actions.consume("a"))).toEqual(used(null, 10));
    });

    test("the winner repeats the call with its consumer key and gets the same result, also after expiry", async () => {
      await using scene = new Scene(store);
      const [actions, peer] = [await scene.process(), await scene.process()];
      await actions.create({ id: "a", payload: "prize", expiresIn: "1 minute" });
      const first = await actions.consume("a", { consumerKey: "mine", by: "ann" });
      scene.nowMs += 20 * DAY;
      expect(await peer.consume("a", { consumerKey: "mine", by: "ann again" })).toEqual({ ...first, replayed: true });
      expect(await refusal(peer.consume("a", { consumerKey: "other" }))).toEqual(used("ann"));
      expect(await refusal(peer.consume("a"))).toEqual(used("ann"));
      expect((await actions.history("a")).map(({ name }) => name)).toEqual(["created", "consumed"]);
    });

    test("a key of one action is not one of another", async () => {
      await using scene = new Scene(store);
      const actions = await scene.process();
      await actions.createMany([{ id: "a" }, { id: "b" }]);
      await actions.consume("a", { consumerKey: "mine" });
      expect(await actions.consume("b", { consumerKey: "mine" })).toMatchObject({ replayed: false });
    });
  });

  describe("several uses", () => {
    test("each consumer key counts once, in any order and however late", async () => {
      await using scene = new Scene(store);
      const [actions, peer] = [await scene.process(), await scene.process()];
      await actions.create({ id: "seats", uses: 3, payload: "licence", expiresIn: "1 day" });
      for (const [i, key] of ["a", "b", "c"].entries()) {
        scene.nowMs += 1;
        const seat = { payload: "licence", consumedAt: at(i + 1), usesLeft: 2 - i };
        expect(await actions.consume("seats", { consumerKey: key, by: key })).toEqual({ ...seat, replayed: false });
        expect(await peer.consume("seats", { consumerKey: key })).toEqual({ ...seat, replayed: true });
      }
      expect(await refusal(peer.consume("seats", { consumerKey: "d" }))).toEqual(used("c", 3));
      expect(await actions.get("seats")).toMatchObject({ state: "consumed", usesLeft: 0 });
      scene.nowMs += 2 * DAY;
      for (const [i, key] of ["a", "b", "c"].entries())
        expect(await peer.consume("seats", { consumerKey: key })).toMatchObject({
          consumedAt: at(i + 1),
          replayed: true,
          payload: "licence",
        });
    });

    test("without a key each call is a use", async () => {
      await using scene = new Scene(store);
      const actions = await scene.process();
      await actions.create({ id: "seats", uses: 2 });
      expect(await actions.consume("seats")).toMatchObject({ usesLeft: 1, replayed: false });
      expect(await actions.consume("seats")).toMatchObject({ usesLeft: 0, replayed: false });
      expect(await refusal(actions.consume("seats"))).toEqual(used(null));
    });

    test("consumers keep their use when the rest is canceled", async () => {
      await using scene = new Scene(store);
      const actions = await scene.process();
      await actions.create({ id: "seats", uses: 2, payload: 1 });
      await actions.consume("seats", { consumerKey: "a" });
      await actions.cancel("seats", { by: "bob", reason: "over" });
      expect(await actions.consume("seats", { consumerKey: "a" })).toMatchObject({ replayed: true, payload: 1 });
      const gone = { code: "canceled", canceledAt: at(0), by: "bob", reason: "over" };
      expect(await refusal(actions.consume("seats", { consumerKey: "b" }))).toEqual(gone);
    });

    test("the hundredth use writes no more than the second", async () => {
      await using scene = new Scene(store);
      const actions = await scene.process();
      await actions.create({ id: "seats", uses: 1_000_000, payload: "x".repeat(10_000) });
      const cost = async (key: string): Promise<number> => {
        const before = scene.written.length;
        await actions.consume("seats", { consumerKey: key });
        return scene.written.length - before;
      };
      await cost("0");
      const second = await cost("1");
      for (let i = 2; i < 100; i++) await cost(String(i));
      const hundredth = await cost("100");
      expect(hundredth).toBeLessThan(second + 50);
      // In memory each decision runs twice, and is written once.
      expect(hundredth).toBeLessThan(3_000);
    });
  });

  describe("canceling", () => {
    test("makes it unusable, once, with who and why", async () => {
      await using scene = new Scene(store);
      const actions = await scene.process();
      const { ref } = await actions.create({ id: "a" });
      expect(await actions.cancel("a", { by: "bob", reason: "fraud" })).toEqual({ canceledAt: at(0), isNew: true });
      scene.nowMs += 5;
      expect(await actions.cancel({ ref }, { by: "cy" })).toEqual({ canceledAt: at(0), isNew: false });
      const canceled = { code: "canceled", canceledAt: at(0), by: "bob", reason: "fraud" };
      expect(await refusal(actions.consume("a"))).toEqual(canceled);
      expect(await actions.get("a")).toMatchObject({ state: "canceled", canceled: { by: "bob", reason: "fraud" } });
    });

    test("what is used up or expired is refused", async () => {
      await using scene = new Scene(store);
      const actions = await scene.process();
      await actions.createMany([{ id: "a" }, { id: "b", expiresIn: 10 }]);
      await actions.consume("a", { by: "ann" });
      scene.nowMs += 10;
      expect(await refusal(actions.cancel("a"))).toEqual(used("ann"));
      expect(await actions.tryCancel("b")).toEqual({ ok: false, code: "expired", expiredAt: at(10) });
    });
  });
});
