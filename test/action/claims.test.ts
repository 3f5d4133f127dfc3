/**
 * Goal: an action that is claimed is used by its holder or released, and inside a decision it is used with everything else or not at all.
 * Method: every law on memory and SQLite, with a clock that the test moves.
 */

import { describe, expect, test } from "vitest";
import { Actions } from "../../src/action/actions.ts";
import type { Kernel } from "../../src/kernel/kernel.ts";
import { refusal, Scene, SECOND, SECRETS, START_MS, STORES } from "./kit.ts";

const at = (ms: number): Date => new Date(START_MS + ms);
const used = (by: string | null, ms = 0) => ({ code: "already_used", usedAt: at(ms), by });

describe.each(STORES)("on %s", (store) => {
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

    test("a caller that lost the lease to another completes and releases nothing", async () => {
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

    test("a caller after the lease consumes it, and the late one gets an error", async () => {
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

    test("a lease that ended and was not taken over still completes, after expiry too", async () => {
      await using scene = new Scene(store);
      const actions = await scene.process();
      await actions.create({ id: "a", expiresIn: "20s" });
      const held = await actions.claim("a", LEASE);
      scene.nowMs += 30 * SECOND;
      expect(await refusal(actions.consume("a"))).toMatchObject({ code: "expired" });
      expect(await actions.complete("a", held)).toMatchObject({ replayed: false });
      expect(await actions.get("a")).toMatchObject({ state: "consumed" });
    });

    test("an abandoned action can be claimed by another immediately", async () => {
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

    test("repeated with the same key, the claim is the same and its lease is renewed", async () => {
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

    test("a payload that cannot be opened, or is too large, leaves nothing behind in a decision that continues", async () => {
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
