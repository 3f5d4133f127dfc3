/**
 * Goal: the pepper can be rotated without losing a PIN or a consumer, and a wrong pepper is noticed before it does harm.
 * Method: processes with different peppers on one database, one after another, as in a rotation; then through `open`.
 */

import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { describe, expect, test } from "vitest";
import type { ActionsOptions } from "../../src/action/core.ts";
import { open, type Pawl } from "../../src/index.ts";
import { nodePorts, wallMs } from "../../src/node/ports.ts";
import { pawlOn } from "../../src/pawl.ts";
import { MemoryDatabase } from "../../src/stores/memory/memory.ts";
import { codeOf } from "../kernel/kit.ts";
import { PEPPER, refusal, Scene } from "./kit.ts";

const OLD = PEPPER;
const NEW = "the pepper that comes after";
const LATER = Buffer.from("and the one after that, as bytes");
const OTHER = "another one, by mistake";

const withPepper = (pepper: ActionsOptions["pepper"]): { options: ActionsOptions } => ({ options: { pepper } });

describe.each(["memory", "SQLite"] as const)("on %s", (store) => {
  describe("a rotation", () => {
    test("a PIN of before is checked, and its tries are counted on", async () => {
      await using scene = new Scene(store);
      const before = await scene.process(withPepper(OLD));
      await before.create({ id: "a", pin: "1234" });
      expect(await codeOf(before.consume("a", { pin: "0000" }))).toBe("invalid_pin");
      const after = await scene.process(withPepper([NEW, OLD]));
      expect(await refusal(after.consume("a", { pin: "0000" }))).toEqual({ code: "invalid_pin", triesLeft: 3 });
      expect(await after.consume("a", { pin: "1234" })).toMatchObject({ replayed: false });
    });

    test("what is made from then on needs the new pepper alone", async () => {
      await using scene = new Scene(store);
      await (await scene.process(withPepper(OLD))).create({ id: "a", pin: "1234" });
      await (await scene.process(withPepper([NEW, OLD]))).create({ id: "b", pin: "1234" });
      const after = await scene.process(withPepper(NEW));
      expect(await after.consume("b", { pin: "1234" })).toMatchObject({ replayed: false });
      expect(await refusal(after.consume("a", { pin: "1234" }))).toEqual({ code: "key_unavailable", keyId: "pepper" });
    });

    test("the same request of before is the same action, and another PIN is another request", async () => {
      await using scene = new Scene(store);
      await (await scene.process(withPepper(OLD))).create({ id: "a", pin: "1234" });
      const after = await scene.process(withPepper([LATER, NEW, OLD]));
      expect(await after.create({ id: "a", pin: "1234" })).toMatchObject({ isNew: false });
      expect(await codeOf(after.create({ id: "a", pin: "9999" }))).toBe("action_conflict");
      expect(await codeOf(after.create({ id: "a" }))).toBe("action_conflict");
    });

    test("a consumer of before is recognized, and uses nothing again", async () => {
      await using scene = new Scene(store);
      const before = await scene.process(withPepper(OLD));
      await before.createMany([{ id: "once" }, { id: "often", uses: 3 }]);
      const asking = { consumerKey: "order-7" };
      for (const id of ["once", "often"]) expect(await before.consume(id, asking)).toMatchObject({ replayed: false });
      const after = await scene.process(withPepper([NEW, OLD]));
      expect(await after.consume("once", asking)).toMatchObject({ replayed: true, usesLeft: 0 });
      expect(await after.consume("often", asking)).toMatchObject({ replayed: true, usesLeft: 2 });
      expect(await after.consume("often", { consumerKey: "order-8" })).toMatchObject({ usesLeft: 1 });
    });

    test("a claim of before is renewed and completed", async () => {
      await using scene = new Scene(store);
      const before = await scene.process(withPepper(OLD));
      await before.create({ id: "a", uses: 2 });
      const { fence } = await before.claim("a", { consumerKey: "order-7" });
      const after = await scene.process(withPepper([NEW, OLD]));
      expect(await after.claim("a", { consumerKey: "order-7" })).toMatchObject({ fence, replayed: true });
      expect(await after.complete("a", { fence, consumerKey: "order-7" })).toMatchObject({ replayed: false });
      expect(await after.complete("a", { fence, consumerKey: "order-7" })).toMatchObject({ replayed: true });
      expect(await after.consume("a", { consumerKey: "order-7" })).toMatchObject({ replayed: true, usesLeft: 1 });
    });

    test("processes that have the new one at the end, and at the front, work side by side", async () => {
      await using scene = new Scene(store);
      const [last, first] = [await scene.process(withPepper([OLD, NEW])), await scene.process(withPepper([NEW, OLD]))];
      for (const [maker, user] of [
        [last, first],
        [first, last],
      ] as const) {
        const { id } = await maker.create({ pin: "1234", uses: 2 });
        const asking = { pin: "1234", consumerKey: "k" };
        expect(await user.consume(id, asking)).toMatchObject({ replayed: false });
        expect(await maker.consume(id, asking)).toMatchObject({ replayed: true });
      }
    });
  });

  describe("another pepper", () => {
    test("is refused at its first use, and changes nothing", async () => {
      await using scene = new Scene(store);
      const right = await scene.process(withPepper(OLD));
      await right.create({ id: "a", pin: "1234" });
      await right.create({ id: "b", uses: 3 });
      await right.consume("b", { consumerKey: "k" });
      const wrong = await scene.process(withPepper(OTHER));
      for (const verb of [
        () => wrong.consume("a", { pin: "1234" }),
        () => wrong.create({ pin: "1234" }),
        () => wrong.consume("b", { consumerKey: "k" }),
        () => wrong.claim("b", { consumerKey: "k" }),
        () => wrong.prepare({ pin: "1234" }),
      ])
        expect(await codeOf(verb())).toBe("pepper_changed");
      await expect(wrong.create({ pin: "1234" })).rejects.toThrow("open with that one, or with both");
      expect(await right.get("a")).toMatchObject({ pinTriesLeft: 5 });
      expect(await right.get("b")).toMatchObject({ usesLeft: 2 });
    });

    test("does not matter to what needs none", async () => {
      await using scene = new Scene(store);
      await (await scene.process(withPepper(OLD))).create({ id: "a", pin: "1234" });
      const wrong = await scene.process(withPepper(OTHER));
      await wrong.create({ id: "b" });
      expect(await wrong.consume("b")).toMatchObject({ replayed: false });
    });
  });

  test.each([[[]], [[OLD, "short"]], [[OLD, OLD]], [Array.from({ length: 9 }, (_, i) => `${OLD} ${i}`)]])(
    "%j is no list of peppers",
    async (pepper) => {
      await using scene = new Scene(store);
      expect(await codeOf(scene.process(withPepper(pepper)))).toBe("invalid_argument");
    },
  );
});

describe("open", () => {
  test("refuses another pepper, accepts a rotation, and accepts the loss of one if the option says so", async () => {
    const folder = mkdtempSync(join(tmpdir(), "pawl-peppers-"));
    const path = join(folder, "shop.db");
    const opens = async (actions: ActionsOptions | undefined): Promise<void> => {
      const pawl = await open(path, actions === undefined ? {} : { actions });
      await pawl.close();
    };
    try {
      await opens(undefined);
      await opens({ pepper: OLD });
      await opens(undefined);
      expect(await codeOf(opens({ pepper: OTHER }))).toBe("pepper_changed");
      expect(await codeOf(opens({ pepper: [OTHER, NEW] }))).toBe("pepper_changed");
      await opens({ pepper: [NEW, OLD] });
      await opens({ pepper: NEW });
      await opens({ pepper: OLD });
      await opens({ pepper: LATER, pepperChange: "accept" });
      await opens({ pepper: LATER });
      // Another namespace is another application.
      const pawl = await open(path, { namespace: "other", actions: { pepper: OTHER } });
      await pawl.close();
    } finally {
      rmSync(folder, { recursive: true, force: true });
    }
  });

  test("a decision notices it too, and changes nothing", async () => {
    const database = new MemoryDatabase(wallMs);
    const process = (pepper: string): Pawl =>
      pawlOn(database.connect("default"), nodePorts, { namespace: "default", actions: { options: { pepper } } });
    await using right = process(OLD);
    await using wrong = process(OTHER);
    await right.actions.create({ id: "a", uses: 3 });
    const consume = (pawl: Pawl): Promise<boolean> =>
      pawl.transact((tx) => tx.actions.consume("a", { consumerKey: "k" }).replayed);
    expect([await consume(right), await consume(right)]).toEqual([false, true]);
    expect(await codeOf(consume(wrong))).toBe("pepper_changed");
    expect(await right.actions.get("a")).toMatchObject({ usesLeft: 2 });
  });
});
