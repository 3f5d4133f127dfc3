/**
 * Goal: actions are listed as they are, and removed when their time is over, not before.
 * Method: every law on memory and SQLite, with a clock that the test moves.
 */

import { describe, expect, test } from "vitest";
import type { Actions } from "../../src/action/actions.ts";
import { sweepAction } from "../../src/action/records.ts";
import { DAY, refusal, Scene, SECOND, SECRETS, START_MS, STORES } from "./kit.ts";

const at = (ms: number): Date => new Date(START_MS + ms);

describe.each(STORES)("on %s", (store) => {
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

    test("in pages returns each once, with any filter", async () => {
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

  describe("its outcome", () => {
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

    test("is in the audit trail, in order and in pages", async () => {
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
});
