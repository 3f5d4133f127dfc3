/**
 * Goal: an action is made once, used as often as it may be, and then never again; whoever used it can ask again and hears the same.
 * Method: every law on memory and SQLite, with a clock that the test moves.
 */

import { describe, expect, test } from "vitest";
import { Actions } from "../../src/action/actions.ts";
import { sweepAction } from "../../src/action/records.ts";
import type { Kernel } from "../../src/kernel/kernel.ts";
import { DAY, refusal, Scene, SECOND, SECRETS, START_MS, STORES } from "./kit.ts";

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
    test("the first gets the payload, the second is told when and by whom", async () => {
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

    test("what has no payload gives undefined, and null is a payload", async () => {
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

    test("the winner asks again with its consumer key and hears the same, also after expiry", async () => {
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

    test("those who have a use keep it when the rest is canceled", async () => {
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

  describe("claiming", () => {
    const LEASE = { lease: "10s" };
    const claimedUntil = (ms: number, by: string | null = null) => ({ code: "claimed", by, until: at(ms) });

    test("keeps it from others until the lease ends, and completing uses it", async () => {
      await using scene = new Scene(store);
      const [actions, peer] = [await scene.process(), await scene.process()];
      await actions.create({ id: "a", payload: "prize" });
      const { fence, leaseEndsAt, replayed } = await actions.claim("a", { ...LEASE, by: "ann", reason: "order" });
      expect([leaseEndsAt, replayed]).toEqual([at(10 * SECOND), false]);
      expect(await peer.get("a")).toMatchObject({ state: "active", claim: { by: "ann", until: leaseEndsAt, fence } });
      scene.nowMs += 10 * SECOND - 1;
      for (const verb of [() => peer.consume("a"), () => peer.claim("a"), () => peer.cancel("a")])
        expect(await refusal(verb())).toEqual(claimedUntil(10 * SECOND, "ann"));
      const done = await actions.complete("a", { fence });
      expect(done).toEqual({
        payload: "prize",
        consumedAt: at(10 * SECOND - 1),
        replayed: false,
        usesLeft: 0,
      });
      expect(await actions.complete("a", { fence })).toEqual({ ...done, replayed: true });
      expect(await refusal(peer.consume("a"))).toEqual(used("ann", 10 * SECOND - 1));
      const told = (await actions.history("a")).map(({ name, data }) => [name, data]);
      expect(told).toEqual([
        ["created", {}],
        ["claimed", { by: "ann", reason: "order", fence }],
        ["consumed", { by: "ann", reason: "order", fence, usesLeft: 0 }],
      ]);
    });

    test("gives no payload", async () => {
      await using scene = new Scene(store);
      const actions = await scene.process();
      await actions.create({ id: "a", payload: "prize" });
      expect(JSON.stringify(await actions.claim("a"))).not.toContain("prize");
    });

    test("whoever lost the lease to another completes nothing and gives nothing back", async () => {
      await using scene = new Scene(store);
      const [actions, peer] = [await scene.process(), await scene.process()];
      await actions.create({ id: "a" });
      const mine = await actions.claim("a", LEASE);
      scene.nowMs += 10 * SECOND;
      const theirs = await peer.claim("a", LEASE);
      expect(theirs.fence).toBeGreaterThan(mine.fence);
      const fenced = { code: "fenced", fence: mine.fence, current: theirs.fence, name: 'action "a"' };
      expect(await refusal(actions.complete("a", mine))).toEqual(fenced);
      expect(await refusal(actions.abandon("a", mine))).toEqual(fenced);
      expect(await actions.tryComplete("a", mine)).toMatchObject({ ok: false, code: "fenced" });
      expect(await peer.complete("a", theirs)).toMatchObject({ replayed: false });
      expect(await refusal(actions.complete("a", mine))).toEqual(fenced);
    });

    test("whoever comes after the lease consumes it, and the late one is told", async () => {
      await using scene = new Scene(store);
      const [actions, peer] = [await scene.process(), await scene.process()];
      await actions.createMany([{ id: "a" }, { id: "b" }]);
      const a = await actions.claim("a", LEASE);
      const b = await actions.claim("b", LEASE);
      scene.nowMs += 10 * SECOND;
      await peer.consume("a", { by: "bob" });
      await peer.cancel("b");
      expect(await refusal(actions.complete("a", a))).toEqual(used("bob", 10 * SECOND));
      expect(await refusal(actions.complete("b", b))).toMatchObject({ code: "canceled" });
    });

    test("a lease that ended and that nobody took over still completes, after expiry too", async () => {
      await using scene = new Scene(store);
      const actions = await scene.process();
      await actions.create({ id: "a", expiresIn: "20s" });
      const held = await actions.claim("a", LEASE);
      scene.nowMs += 30 * SECOND;
      expect(await refusal(actions.consume("a"))).toMatchObject({ code: "expired" });
      expect(await actions.complete("a", held)).toMatchObject({ replayed: false });
      expect(await actions.get("a")).toMatchObject({ state: "consumed" });
    });

    test("what is given back can be had by another at once", async () => {
      await using scene = new Scene(store);
      const [actions, peer] = [await scene.process(), await scene.process()];
      await actions.create({ id: "a" });
      const held = await actions.claim("a", LEASE);
      expect(await actions.abandon("a", { ...held, by: "ann", reason: "declined" })).toEqual({ isNew: true });
      expect(await actions.abandon("a", held)).toEqual({ isNew: false });
      expect(await refusal(actions.complete("a", held))).toMatchObject({ code: "fenced" });
      const next = await peer.claim("a", LEASE);
      expect(next.fence).toBeGreaterThan(held.fence);
      expect(await actions.abandon("a", held)).toEqual({ isNew: false });
      expect(await refusal(actions.complete("a", held))).toMatchObject({ code: "fenced" });
      await peer.complete("a", next);
      expect(await refusal(peer.abandon("a", next))).toMatchObject({ code: "already_used" });
    });

    test("asked again with the same key, the claim is the same and its lease goes on", async () => {
      await using scene = new Scene(store);
      const [actions, peer] = [await scene.process(), await scene.process()];
      await actions.create({ id: "a" });
      const key = { consumerKey: "mine" };
      const first = await actions.claim("a", { ...LEASE, ...key });
      scene.nowMs += 6 * SECOND;
      const again = await peer.claim("a", { ...LEASE, ...key });
      expect(again).toEqual({ fence: first.fence, leaseEndsAt: at(16 * SECOND), replayed: true });
      expect(await peer.claim("a", { lease: "1s", ...key })).toMatchObject({ leaseEndsAt: at(16 * SECOND) });
      await peer.complete("a", again);
      expect(await actions.consume("a", key)).toMatchObject({ replayed: true });
      expect(await refusal(actions.claim("a", key))).toEqual(used(null, 6 * SECOND));
    });

    test("a claim of several uses takes one, and its completion is recognized by its key", async () => {
      await using scene = new Scene(store);
      const actions = await scene.process();
      await actions.create({ id: "seats", uses: 2, payload: 5 });
      const ann = await actions.claim("seats", { ...LEASE, consumerKey: "ann" });
      expect(await refusal(actions.consume("seats"))).toEqual(claimedUntil(10 * SECOND));
      expect(await actions.complete("seats", ann)).toMatchObject({ usesLeft: 1, payload: 5, replayed: false });
      await actions.consume("seats", { consumerKey: "bob" });
      expect(await actions.complete("seats", { ...ann, consumerKey: "ann" })).toMatchObject({ replayed: true });
      expect(await actions.consume("seats", { consumerKey: "ann" })).toMatchObject({ replayed: true, usesLeft: 0 });
    });

    test("a store clock that steps back makes the lease longer and no second holder", async () => {
      await using scene = new Scene(store);
      const [actions, peer] = [await scene.process(), await scene.process()];
      await actions.create({ id: "a" });
      const held = await actions.claim("a", { ...LEASE, consumerKey: "mine" });
      scene.nowMs -= 3_600 * SECOND;
      expect(await refusal(peer.claim("a"))).toMatchObject({ code: "claimed" });
      expect(await actions.claim("a", { ...LEASE, consumerKey: "mine" })).toEqual({
        fence: held.fence,
        leaseEndsAt: at(10 * SECOND),
        replayed: true,
      });
    });
  });

  describe("listing", () => {
    async function furnish(scene: Scene): Promise<Actions> {
      const actions = await scene.process();
      for (const [i, owner] of ["ann", "bob", "ann", "ann", undefined, "bob"].entries()) {
        await actions.create({ id: `a${i}`, owner, tags: i % 2 === 0 ? ["even"] : ["odd"] });
        scene.nowMs += 10;
      }
      return actions;
    }
    const ids = (page: { readonly actions: readonly { readonly id: string | null }[] }) =>
      page.actions.map(({ id }) => id);

    test("by owner, the newest first", async () => {
      await using scene = new Scene(store);
      const actions = await furnish(scene);
      expect(ids(await actions.list({ owner: "ann" }))).toEqual(["a3", "a2", "a0"]);
      expect(ids(await actions.list({ owner: "bob" }))).toEqual(["a5", "a1"]);
      expect(ids(await actions.list({ owner: "cy" }))).toEqual([]);
      expect(ids(await actions.list())).toEqual(["a5", "a4", "a3", "a2", "a1", "a0"]);
    });

    test("by time: from the first moment, before the second", async () => {
      await using scene = new Scene(store);
      const actions = await furnish(scene);
      for (const owner of ["ann", undefined]) {
        const between = async (from: number | undefined, to: number | undefined) => {
          const createdAfter = from === undefined ? undefined : at(from);
          const createdBefore = to === undefined ? undefined : at(to);
          const page = await actions.list({ owner, createdAfter, createdBefore });
          return ids(page).filter((id) => ["a0", "a2", "a3"].includes(id ?? ""));
        };
        expect(await between(0, 20)).toEqual(["a0"]);
        expect(await between(0, 21)).toEqual(["a2", "a0"]);
        expect(await between(20, undefined)).toEqual(["a3", "a2"]);
        expect(await between(21, 30)).toEqual([]);
        expect(await between(undefined, 31)).toEqual(["a3", "a2", "a0"]);
      }
    });

    test("by state, as the clock has it, and by tag", async () => {
      await using scene = new Scene(store);
      const actions = await scene.process();
      await actions.createMany([
        { id: "pending", activeAt: at(100) },
        { id: "active" },
        { id: "expired", expiresAt: at(5), activeAt: at(1) },
        { id: "consumed" },
        { id: "canceled" },
        { id: "locked", pin: "1234", maxPinTries: 1 },
      ]);
      await actions.consume("consumed");
      await actions.cancel("canceled");
      await actions.tryConsume("locked", { pin: "9999" });
      scene.nowMs += 50;
      const states = ["pending", "active", "expired", "consumed", "canceled", "locked"] as const;
      for (const state of states) expect(ids(await actions.list({ state }))).toEqual([state]);
      expect(ids(await actions.list({ state: ["active", "locked"] }))).toEqual(["locked", "active"]);
      expect(ids(await actions.list({ state: [] }))).toEqual([]);
      expect(await refusal(actions.list({ state: "open" as never }))).toMatchObject({ code: "invalid_argument" });
      scene.nowMs += 50;
      expect(ids(await actions.list({ state: "active" }))).toEqual(["active", "pending"]);
    });

    test("in pages gives each once, whatever is asked for", async () => {
      await using scene = new Scene(store);
      const actions = await furnish(scene);
      await actions.cancel("a2");
      const wishes = [
        {},
        { owner: "ann" },
        { tag: "even" },
        { owner: "ann", tag: "even" },
        { state: "active" } as const,
      ];
      for (const wish of wishes) {
        const whole = ids(await actions.list(wish));
        expect(whole.length).toBeGreaterThan(1);
        for (const limit of [1, 2, 3, 6, 7]) {
          const found: (string | null)[] = [];
          let after: string | null = null;
          do {
            const page: Awaited<ReturnType<Actions["list"]>> = await actions.list({ ...wish, limit, after });
            expect(page.actions.length).toBe(Math.min(limit, whole.length - found.length));
            found.push(...ids(page));
            after = page.next;
          } while (after !== null);
          expect(found).toEqual(whole);
        }
      }
    });

    test("a cursor of another list, or none at all, is refused", async () => {
      await using scene = new Scene(store);
      const actions = await furnish(scene);
      const { next } = await actions.list({ limit: 1 });
      const owned = await actions.list({ limit: 1, owner: "ann" });
      for (const [after, owner] of [
        [next, "ann"],
        [owned.next, undefined],
        ["x", undefined],
        ["", "ann"],
      ] as const)
        expect(await refusal(actions.list({ after, owner }))).toMatchObject({ code: "invalid_argument" });
    });
  });

  describe("what becomes of it", () => {
    test("is kept for the retention after expiry, and then removed with all that belongs to it", async () => {
      await using scene = new Scene(store);
      const actions = await scene.process({ options: { ...SECRETS, retention: "10 days" } });
      const list = [
        { id: "one", payload: 1, owner: "ann" },
        { id: "many", uses: 9, payload: 2, owner: "ann" },
        { id: "unused", owner: "ann" },
      ];
      await actions.createMany(list.map((one) => ({ ...one, expiresIn: "1 day" })));
      await actions.create({ id: "for ever", owner: "ann" });
      await actions.consume("one", { consumerKey: "k" });
      await actions.consume("for ever", { consumerKey: "k" });
      for (const key of ["a", "b", "c", "d", "e"]) await actions.consume("many", { consumerKey: key });
      scene.nowMs += 11 * DAY - 1;
      expect(await actions.sweep()).toEqual({ removed: 0, isDone: true });
      expect(await actions.consume("one", { consumerKey: "k" })).toMatchObject({ replayed: true });
      scene.nowMs += 1;
      let removed = 0;
      for (let sweeps = 1; ; sweeps++) {
        const swept = await actions.sweep(3);
        removed += swept.removed;
        expect(swept.removed).toBeLessThanOrEqual(3 * 3);
        expect(sweeps).toBeLessThan(9);
        if (swept.isDone) break;
      }
      // Three actions, three names in the owner's list, five uses and one payload.
      expect(removed).toBe(3 + 3 + 5 + 1);
      expect((await actions.list({ owner: "ann" })).actions.map(({ id }) => id)).toEqual(["for ever"]);
      expect((await actions.list()).actions.map(({ id }) => id)).toEqual(["for ever"]);
      expect(await refusal(actions.consume("one", { consumerKey: "k" }))).toEqual({ code: "action_not_found" });
      expect(await actions.consume("for ever", { consumerKey: "k" })).toMatchObject({ replayed: true });
      expect(await actions.create({ id: "one" })).toMatchObject({ isNew: true });
      expect((await actions.history("one")).map(({ name }) => name)).toEqual(["created"]);
    });

    test("what is no longer due when its turn comes is left alone", async () => {
      await using scene = new Scene(store);
      const actions = await scene.process();
      const { ref } = await actions.create({ id: "a", expiresIn: 10 });
      const kernel = await scene.kernel();
      const means = { retentionMs: 5, open: () => undefined };
      const sweep = () => kernel.transact((tx) => sweepAction(tx, ref, [], false, means), []);
      scene.nowMs += 30 * DAY + 9;
      expect(await sweep()).toEqual({ removed: 0 });
      scene.nowMs += 1;
      expect(await sweep()).toEqual({ removed: 1 });
      expect(await sweep()).toEqual({ removed: 0 });
    });

    test("a lease without an answer is noted, and the action is free", async () => {
      await using scene = new Scene(store);
      const actions = await scene.process();
      await actions.createMany([{ id: "a" }, { id: "b", expiresIn: "1 day" }]);
      const a = await actions.claim("a", { lease: "10s", by: "ann" });
      const b = await actions.claim("b", { lease: "10s" });
      scene.nowMs += 10 * SECOND;
      expect(await actions.sweep()).toEqual({ removed: 0, isDone: true });
      expect(await actions.sweep()).toEqual({ removed: 0, isDone: true });
      expect((await actions.history("a")).at(-1)).toMatchObject({
        name: "lapsed",
        data: { by: "ann", fence: a.fence },
      });
      expect(await refusal(actions.complete("b", b))).toMatchObject({ code: "fenced" });
      expect(await actions.consume("b")).toMatchObject({ replayed: false });
      scene.nowMs += 31 * DAY;
      expect(await actions.sweep()).toEqual({ removed: 1, isDone: true });
    });

    test("is told by the audit trail, in order and in pages", async () => {
      await using scene = new Scene(store);
      const actions = await scene.process();
      await actions.create({ id: "a", uses: 2, pin: "1234" });
      await actions.tryConsume("a", { pin: "9999", by: "eve" });
      scene.nowMs += 5;
      await actions.consume("a", { pin: "1234", by: "ann", reason: "order 1" });
      await actions.cancel("a", { by: "bob", reason: "enough" });
      const told = await actions.history("a");
      expect(told.map(({ name, data }) => [name, data])).toEqual([
        ["created", {}],
        ["tried", { by: "eve", triesLeft: 4 }],
        ["tried", { by: "ann", triesLeft: 3 }],
        ["consumed", { by: "ann", reason: "order 1", usesLeft: 1 }],
        ["canceled", { by: "bob", reason: "enough" }],
      ]);
      expect(told.map((entry) => entry.at)).toEqual([at(0), at(0), at(5), at(5), at(5)]);
      expect(await actions.history("a", { after: 1, limit: 2 })).toEqual(told.slice(1, 3));
    });
  });

  describe("inside a decision", () => {
    test("all or nothing: what comes after a refusal does not happen either", async () => {
      await using scene = new Scene(store);
      const actions = await scene.process();
      const kernel = await scene.kernel();
      const here = actionsOn(scene, kernel);
      await actions.create({ id: "coupon", payload: { percent: 10 } });
      const redeem = (order: string) =>
        kernel.transact((tx) => {
          const within = here.within(tx);
          within.create({ id: `delivery-${order}` });
          const { payload, usesLeft, replayed } = within.consume("coupon", { by: order, consumerKey: order });
          return { payload, usesLeft, replayed };
        }, []);
      expect(await redeem("1")).toEqual({ payload: { percent: 10 }, usesLeft: 0, replayed: false });
      expect(await refusal(redeem("2"))).toEqual(used("1"));
      expect(await actions.get("delivery-1")).toMatchObject({ state: "active" });
      expect(await actions.get("delivery-2")).toBeNull();
      expect(await redeem("1")).toMatchObject({ replayed: true });
    });

    test("the verbs are the same, and a refusal that is caught has written nothing", async () => {
      await using scene = new Scene(store);
      const kernel = await scene.kernel();
      const here = actionsOn(scene, kernel);
      const told = await kernel.transact((tx) => {
        const within = here.within(tx);
        const made = within.create({ owner: "ann", uses: 2 });
        const { fence } = within.claim(made.id, { by: "ann" });
        return [
          made.isNew,
          within.tryConsume(made.id).ok,
          within.tryComplete(made.id, { fence: fence + 1 }).ok,
          within.complete(made.id, { fence }).usesLeft,
          within.consume(made.id).usesLeft,
          within.tryClaim(made.id).ok,
          within.tryCancel(made.id).ok,
          within.get(made.id)?.state,
          within.get("no"),
          within.tryAbandon(made.id, { fence }).ok,
          within.create({ id: "x" }).isNew,
          within.create({ id: "x" }).isNew,
          within.cancel("x").isNew,
        ];
      }, []);
      expect(told).toEqual([true, false, false, 1, 0, false, false, "consumed", null, false, true, false, true]);
      expect((await here.list({ owner: "ann" })).actions).toMatchObject([{ state: "consumed" }]);
    });

    test("a payload that cannot be opened, or is too large, leaves nothing behind in a decision that goes on", async () => {
      await using scene = new Scene(store);
      const kernel = await scene.kernel();
      const here = actionsOn(scene, kernel);
      const keyless = new Actions(kernel, {});
      await here.createMany([
        { id: "one", payload: 1 },
        { id: "many", uses: 2, payload: 2 },
      ]);
      const large = await here.prepare({ id: "large", uses: 2, payload: "x".repeat(1_000_000) });
      const codes = await kernel.transact((tx) => {
        const code = (act: () => unknown): unknown => {
          try {
            return act();
          } catch (error) {
            return (error as { code: string }).code;
          }
        };
        return [
          code(() => keyless.within(tx).consume("one")),
          code(() => keyless.within(tx).consume("many")),
          code(() => here.within(tx).create(large)),
        ];
      }, []);
      expect(codes).toEqual(["key_unavailable", "key_unavailable", "value_too_large"]);
      expect(await here.get("one")).toMatchObject({ state: "active" });
      expect(await here.get("many")).toMatchObject({ usesLeft: 2 });
      expect(await here.get("large")).toBeNull();
    });

    test("one with a PIN or a payload is prepared outside", async () => {
      await using scene = new Scene(store);
      const kernel = await scene.kernel();
      const here = actionsOn(scene, kernel);
      const within = <T>(act: (actions: ReturnType<Actions["within"]>) => T) =>
        kernel.transact((tx) => act(here.within(tx)), []);
      const options = { id: "a", pin: "1234", payload: "prize" };
      expect(await refusal(within((actions) => actions.create(options)))).toMatchObject({ code: "invalid_argument" });
      const prepared = await here.prepare(options);
      expect(await within((actions) => actions.create(prepared))).toMatchObject({ id: "a", isNew: true });
      expect(await within((actions) => actions.create(prepared))).toMatchObject({ isNew: false });
      expect(await here.create(options)).toMatchObject({ isNew: false });
      const asked = within((actions) => actions.consume("a", { pin: "1234" } as never));
      expect(await refusal(asked)).toMatchObject({ code: "invalid_argument" });
      expect(await refusal(within((actions) => actions.consume("a")))).toEqual({ code: "invalid_pin", triesLeft: 5 });
      expect(await here.consume("a", { pin: "1234" })).toMatchObject({ payload: "prize" });
      const stranger = await (await scene.process()).prepare({ id: "b" });
      expect(await refusal(within((actions) => actions.create(stranger)))).toMatchObject({ code: "invalid_argument" });
    });
  });
});

/** Actions on a handle that the test decides on as well. */
function actionsOn(scene: Scene, kernel: Kernel): Actions {
  return new Actions(kernel, SECRETS, { slowHash: scene.slowHash });
}
