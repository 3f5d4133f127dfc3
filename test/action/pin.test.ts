/**
 * Goal: a wrong PIN never consumes, every try is counted before it is checked (G5), and a flood of PINs costs no more than two concurrent
 * hashes (numbers 57 to 60 of the list of attacks, at the level of the library).
 * Method: a hash that is counted and can be held, so that all callers are waiting before the first is checked. Several processes are
 * several handles on one database.
 */

import { createHash } from "node:crypto";
import { describe, expect, test } from "vitest";
import type { Actions } from "../../src/action/actions.ts";
import { HashGate } from "../../src/action/gate.ts";
import { slowHash } from "../../src/action/pepper.ts";
import { codeOf, drained, gate } from "../kernel/kit.ts";
import { KEY_1, PEPPER, refusal, Scene, SECRETS, STORES } from "./kit.ts";

const untyped = (value: unknown): never => value as never;

describe.each(STORES)("on %s", (store) => {
  test("the right PIN consumes and costs no try, a wrong one costs one, and none at all costs none", async () => {
    await using scene = new Scene(store);
    const actions = await scene.process();
    await actions.create({ id: "a", uses: 3, pin: "1234" });
    const hashesBefore = scene.hashes;
    expect(await refusal(actions.consume("a"))).toEqual({ code: "invalid_pin", triesLeft: 5 });
    expect(scene.hashes).toBe(hashesBefore);
    expect(await refusal(actions.consume("a", { pin: "4321" }))).toEqual({ code: "invalid_pin", triesLeft: 4 });
    expect(await actions.consume("a", { pin: "1234" })).toMatchObject({ usesLeft: 2 });
    expect(await actions.get("a")).toMatchObject({ pinTriesLeft: 4, state: "active", usesLeft: 2 });
    expect(await actions.tryConsume("a", { pin: "12345" })).toEqual({ ok: false, code: "invalid_pin", triesLeft: 3 });
    expect(scene.hashes).toBe(hashesBefore + 3);
  });

  test("57: the sixth guess finds it locked, even when right, and is not hashed", async () => {
    await using scene = new Scene(store);
    const actions = await scene.process();
    await actions.create({ id: "a", uses: 2, pin: "1234" });
    await actions.consume("a", { pin: "1234", consumerKey: "mine" });
    const before = scene.hashes;
    for (let left = 4; left >= 0; left--)
      expect(await refusal(actions.consume("a", { pin: "0000" }))).toEqual({ code: "invalid_pin", triesLeft: left });
    expect(await refusal(actions.consume("a", { pin: "1234" }))).toEqual({ code: "locked" });
    expect(await refusal(actions.consume("a"))).toEqual({ code: "locked" });
    expect(await refusal(actions.claim("a", { pin: "1234" }))).toEqual({ code: "locked" });
    expect(scene.hashes).toBe(before + 5);
    expect(await actions.get("a")).toMatchObject({ state: "locked", usesLeft: 1, pinTriesLeft: 0 });
    // Whoever had it before still hears so.
    expect(await actions.consume("a", { consumerKey: "mine" })).toMatchObject({ replayed: true });
    expect(await actions.cancel("a")).toMatchObject({ isNew: true });
  });

  test("the right PIN at the last try is not too late", async () => {
    await using scene = new Scene(store);
    const actions = await scene.process();
    await actions.create({ id: "a", pin: "1234", maxPinTries: 2 });
    await actions.tryConsume("a", { pin: "0000" });
    expect(await actions.consume("a", { pin: "1234" })).toMatchObject({ usesLeft: 0 });
    expect(await actions.get("a")).toMatchObject({ state: "consumed" });
  });

  test("the winner repeats the call without the PIN, or with a wrong one: it is not checked", async () => {
    await using scene = new Scene(store);
    const actions = await scene.process();
    for (const uses of [1, 2]) {
      const id = `uses-${uses}`;
      await actions.create({ id, uses, pin: "1234", payload: "prize" });
      await actions.consume(id, { pin: "1234", consumerKey: "mine" });
      const before = scene.hashes;
      const again = { payload: "prize", replayed: true };
      expect(await actions.consume(id, { consumerKey: "mine" })).toMatchObject(again);
      expect(await actions.consume(id, { consumerKey: "mine", pin: "0000" })).toMatchObject(again);
      expect(scene.hashes).toBe(before);
      expect(await actions.get(id)).toMatchObject({ pinTriesLeft: 5 });
    }
  });

  test("a claim needs the PIN, and completing it does not", async () => {
    await using scene = new Scene(store);
    const actions = await scene.process();
    await actions.create({ id: "a", pin: "1234", payload: "prize" });
    expect(await refusal(actions.claim("a"))).toMatchObject({ code: "invalid_pin" });
    expect(await refusal(actions.claim("a", { pin: "0000" }))).toEqual({ code: "invalid_pin", triesLeft: 4 });
    const held = await actions.claim("a", { pin: "1234", consumerKey: "mine" });
    expect(await actions.claim("a", { consumerKey: "mine" })).toMatchObject({ replayed: true, fence: held.fence });
    expect(await actions.complete("a", held)).toMatchObject({ payload: "prize" });
    expect(await actions.get("a")).toMatchObject({ state: "consumed", pinTriesLeft: 4 });
  });

  test("G5: of 200 concurrent wrong PINs from 40 processes, exactly 5 are hashed", async () => {
    await using scene = new Scene(store);
    const maker = await scene.process();
    await maker.create({ id: "a", pin: "1234", payload: "prize" });
    const held = gate();
    let hashed = 0;
    const ports = {
      slowHash: async (secret: Uint8Array, salt: Uint8Array) => {
        hashed += 1;
        // Nobody's PIN is checked before everybody has had the chance to be counted.
        await held.opened;
        return scene.slowHash(secret, salt);
      },
    };
    const processes = await Promise.all(Array.from({ length: 40 }, () => scene.process({ ports })));
    const answers: string[] = [];
    const clients = processes.flatMap((actions) =>
      Array.from({ length: 5 }, async (_, i) => {
        const answer = await actions.tryConsume("a", { pin: `000${i}` });
        answers.push(answer.ok ? "ok" : answer.code);
      }),
    );
    // All but those that are being hashed have their answer, or wait behind one that is.
    for (let idle = 0, seen = -1; idle < 20; idle = seen === answers.length + hashed ? idle + 1 : 0) {
      seen = answers.length + hashed;
      await drained();
    }
    expect(hashed).toBe(5);
    held.open();
    await Promise.all(clients);
    expect(hashed).toBe(5);
    expect(answers.filter((answer) => answer === "invalid_pin").length).toBe(5);
    expect(answers.filter((answer) => answer === "locked").length).toBe(195);
    expect(await maker.get("a")).toMatchObject({ state: "locked", usesLeft: 1 });
  });

  test("G5: of 200 concurrent wrong PINs in one process, exactly 5 are hashed", async () => {
    await using scene = new Scene(store);
    const actions = await scene.process();
    await actions.create({ id: "a", pin: "1234" });
    const before = scene.hashes;
    const codes = await Promise.all(Array.from({ length: 200 }, () => codeOf(actions.consume("a", { pin: "0000" }))));
    expect(scene.hashes).toBe(before + 5);
    expect(new Set(codes)).toEqual(new Set(["invalid_pin", "locked", "busy"]));
    expect(codes.filter((code) => code === "invalid_pin").length).toBe(5);
  });

  test("a process that dies while it hashes has spent the try, and nothing else", async () => {
    await using scene = new Scene(store);
    const peer = await scene.process();
    await peer.create({ id: "a", pin: "1234" });
    const dying = await scene.process({ ports: { slowHash: () => new Promise(() => {}) } });
    void dying.consume("a", { pin: "1234" });
    await drained();
    expect(await peer.get("a")).toMatchObject({ state: "active", pinTriesLeft: 4 });
    expect(await peer.consume("a", { pin: "1234" })).toMatchObject({ usesLeft: 0 });
  });

  test("what changes while a PIN is hashed counts: a right one that comes too late takes nothing", async () => {
    await using scene = new Scene(store);
    const peer = await scene.process();
    const late = async (id: string, meanwhile: () => unknown) => {
      const held = gate();
      const ports = {
        slowHash: async (secret: Uint8Array, salt: Uint8Array) => {
          await held.opened;
          return scene.slowHash(secret, salt);
        },
      };
      await peer.create({ id, uses: 2, pin: "1234", expiresIn: 1000 });
      const consuming = refusal((await scene.process({ ports })).consume(id, { pin: "1234" }));
      await drained();
      expect(await peer.get(id)).toMatchObject({ pinTriesLeft: 4 });
      await meanwhile();
      held.open();
      const answer = await consuming;
      // It was right, so the try is given back.
      expect(await peer.get(id)).toMatchObject({ pinTriesLeft: 5 });
      return answer;
    };
    expect(await late("a", () => peer.cancel("a"))).toMatchObject({ code: "canceled" });
    expect(await late("b", () => peer.claim("b", { pin: "1234" }))).toMatchObject({ code: "claimed" });
    const drain = async () => [await peer.consume("c", { pin: "1234" }), await peer.consume("c", { pin: "1234" })];
    expect(await late("c", drain)).toMatchObject({ code: "already_used" });
    const wait = () => {
      scene.nowMs += 1000;
    };
    expect(await late("d", wait)).toMatchObject({ code: "expired" });
  });

  test("a double click with the right PIN is one use and costs no try", async () => {
    await using scene = new Scene(store);
    const actions = await scene.process();
    await actions.create({ id: "a", uses: 5, pin: "1234" });
    const click = () => actions.consume("a", { pin: "1234", consumerKey: "mine" });
    const answers = await Promise.all([click(), click()]);
    expect(answers.map(({ replayed }) => replayed).sort()).toEqual([false, true]);
    expect(await actions.get("a")).toMatchObject({ usesLeft: 4, pinTriesLeft: 5 });
  });

  test("59: at most two are hashed concurrently, a few wait, and the others get busy, with nothing counted", async () => {
    await using scene = new Scene(store);
    const held = gate();
    let [now, most] = [0, 0];
    const shared = new HashGate();
    const ports = {
      gate: shared,
      slowHash: async (secret: Uint8Array, salt: Uint8Array) => {
        now += 1;
        most = Math.max(most, now);
        await held.opened;
        now -= 1;
        return scene.slowHash(secret, salt);
      },
    };
    const maker = await scene.process();
    const ids = Array.from({ length: 30 }, (_, i) => `a${i}`);
    for (const id of ids) await maker.create({ id, pin: "1234" });
    // Two handles of one process share its gate.
    const handles = [await scene.process({ ports }), await scene.process({ ports })];
    const answers = ids.map((id, i) => codeOf((handles[i % 2] as Actions).consume(id, { pin: "1234" })));
    await drained();
    expect(most).toBe(2);
    held.open();
    const codes = await Promise.all(answers);
    expect(codes.filter((code) => code === "busy").length).toBe(20);
    expect(most).toBe(2);
    const { actions: left } = await maker.list({ state: "active", limit: 100 });
    expect(left.length).toBe(20);
    expect(left.every(({ pinTriesLeft }) => pinTriesLeft === 5)).toBe(true);
    // It is over, and there is room again.
    expect(await handles[0]?.tryConsume("a29", { pin: "1234" })).toMatchObject({ ok: true });
    expect(await handles[0]?.tryConsume("a28", { pin: "1234" })).toMatchObject({ ok: true });
  });

  test("60: one hash is the price of a PIN whether the record has one, has none, or is not there", async () => {
    await using scene = new Scene(store);
    const actions = await scene.process();
    await actions.createMany([{ id: "with", pin: "1234" }, { id: "without" }]);
    const price = async (id: string) => {
      const before = scene.hashes;
      await actions.tryConsume(id, { pin: "0000" });
      return scene.hashes - before;
    };
    expect([await price("with"), await price("without"), await price("missing")]).toEqual([1, 1, 1]);
    expect(await actions.get("without")).toMatchObject({ state: "consumed" });
  });

  const malformed: [string, unknown][] = [
    ["a number", 1234],
    ["nothing", null],
    ["a list", ["1234"]],
    ["three characters", "123"],
    ["129 characters", "1".repeat(129)],
    ["a megabyte", "1".repeat(1_000_000)],
    ["full-width digits", "１２３４"],
    ["a ligature", "oﬃce"],
    ["letters in parts", "cafe\u0301"],
    ["a lone surrogate", "123\ud800"],
  ];
  test.each(malformed)("58: %s is no PIN, and is refused before anything is hashed or counted", async (_, pin) => {
    await using scene = new Scene(store);
    const actions = await scene.process();
    await actions.create({ id: "a", pin: "1234" });
    const before = [scene.hashes, scene.written.length];
    for (const verb of [
      () => actions.consume("a", { pin: untyped(pin) }),
      () => actions.tryConsume("a", { pin: untyped(pin) }),
      () => actions.claim("a", { pin: untyped(pin) }),
      () => actions.create({ id: "b", pin: untyped(pin) }),
    ])
      expect(await codeOf(verb())).toBe("invalid_argument");
    expect([scene.hashes, scene.written.length]).toEqual(before);
  });

  test.each([["1234"], ["1".repeat(128)], ["été-🔑"], ["    "]])("%j is a PIN, and only itself", async (pin) => {
    await using scene = new Scene(store);
    const actions = await scene.process();
    await actions.create({ id: "a", pin });
    expect(await codeOf(actions.consume("a", { pin: `x${pin.slice(1)}` }))).toBe("invalid_pin");
    expect(await actions.consume("a", { pin })).toMatchObject({ replayed: false });
  });

  test("without a pepper, a PIN and a consumer key are refused with an error that says how to add one", async () => {
    await using scene = new Scene(store);
    const actions = await scene.process({ options: {} });
    await actions.create({ id: "a" });
    for (const [verb, what] of [
      [() => actions.create({ id: "b", pin: "1234" }), "a PIN"],
      [() => actions.consume("a", { pin: "1234" }), "a PIN"],
      [() => actions.consume("a", { consumerKey: "k" }), "a consumer key"],
    ] as const) {
      expect(await refusal(verb())).toEqual({ code: "pepper_missing", what });
      await expect(verb()).rejects.toThrow("open with { actions: { pepper } } (for pawl serve: PAWL_PEPPER)");
    }
    expect(await actions.consume("a")).toMatchObject({ replayed: false });
  });

  test("a PIN whose pepper was removed cannot be checked, and does not lock the action", async () => {
    await using scene = new Scene(store);
    const actions = await scene.process();
    const other = await scene.process({ options: { pepper: "another one, of 16 bytes", pepperChange: "accept" } });
    await actions.create({ id: "a", pin: "1234" });
    expect(await refusal(other.consume("a", { pin: "1234" }))).toEqual({ code: "key_unavailable", keyId: "pepper" });
    expect(await refusal(other.create({ id: "a", pin: "1234" }))).toMatchObject({ code: "key_unavailable" });
    expect(await actions.get("a")).toMatchObject({ pinTriesLeft: 5 });
  });

  test.each([["short"], [new Uint8Array(15)], [5], [null]])("%j is no pepper", async (pepper) => {
    await using scene = new Scene(store);
    expect(await codeOf(scene.process({ options: { pepper: untyped(pepper) } }))).toBe("invalid_argument");
  });
});

test("the same PIN is another one, with another salt, for another action, namespace and pepper", async () => {
  const secrets = new Set<string>();
  const salts = new Set<string>();
  const slow = async (secret: Uint8Array, salt: Uint8Array) => {
    secrets.add(Buffer.from(secret).toString("hex"));
    salts.add(Buffer.from(salt).toString("hex"));
    return createHash("sha256").update(secret).update(salt).digest();
  };
  for (const options of [SECRETS, { pepper: Buffer.from(`${PEPPER} too`) }]) {
    await using scene = new Scene("memory");
    for (const namespace of ["one", "two"]) {
      const actions = await scene.process({ options, ports: { slowHash: slow }, namespace });
      for (const id of ["a", "b"]) {
        await actions.create({ id, pin: "1234" });
        await actions.consume(id, { pin: "1234" });
      }
    }
  }
  expect([secrets.size, salts.size]).toEqual([8, 8]);
});

test("the real hash is slow, and distinguishes PINs", async () => {
  await using scene = new Scene("memory");
  const actions = await scene.process({ ports: { slowHash } });
  const startedMs = performance.now();
  await actions.create({ id: "a", pin: "1234", payload: KEY_1 });
  expect(performance.now() - startedMs).toBeGreaterThan(20);
  expect(await codeOf(actions.consume("a", { pin: "1235" }))).toBe("invalid_pin");
  expect(await actions.consume("a", { pin: "1234" })).toMatchObject({ payload: KEY_1 });
});
