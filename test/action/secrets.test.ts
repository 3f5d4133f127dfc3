/**
 * Goal: a stolen database reveals no PIN, payload, consumer key or generated id (G27); payloads come back unchanged or not at all; and bad
 * input is refused before anything is written (numbers 20 to 42 and 54 to 56 of the list of attacks, as far as they concern actions).
 * Method: canaries in everything that was ever written, rows and log entries, and in the bytes of SQLite's files; ciphertexts that are
 * changed, truncated and moved by hand.
 */

import { describe, expect, test } from "vitest";
import { Actions } from "../../src/action/actions.ts";
import { type ActionValue, actionAt, payloadAt, refOf } from "../../src/action/stored.ts";
import type { Codec } from "../../src/kernel/codec/codec.ts";
import { jsonCodec } from "../../src/kernel/codec/json.ts";
import type { Sealed } from "../../src/kernel/seal/ring.ts";
import { codeOf } from "../kernel/kit.ts";
import { DAY, KEY_1, KEY_2, PEPPER, refusal, Scene, SECRETS, START_MS, STORES } from "./kit.ts";

const untyped = (value: unknown): never => value as never;

/** A canary in all the forms in which it could lie in a file; in base64, what comes before it moves it. */
function formsOf(secret: string): string[] {
  const bytes = Buffer.from(secret);
  const moved = [0, 1, 2].flatMap((before) =>
    (["base64", "base64url"] as const).map((form) =>
      Buffer.concat([Buffer.alloc(before), bytes])
        .toString(form)
        .slice(before === 0 ? 0 : 4, -4),
    ),
  );
  return [secret, bytes.toString("latin1"), bytes.toString("hex"), ...moved];
}

describe.each(STORES)("on %s", (store) => {
  test("G27: a stolen database has no PIN, payload, consumer key, generated id, pepper or key in it", async () => {
    await using scene = new Scene(store);
    const actions = await scene.process();
    const secrets = {
      pin: "73519284",
      wrongPin: "canary-wrong-pin",
      payload: "canary-payload",
      consumerKey: "canary-consumer-key",
      pepper: PEPPER,
      key: Buffer.from(KEY_1).toString("latin1"),
    };
    const { pin, wrongPin, consumerKey } = secrets;
    const payload = { deep: [secrets.payload] };
    const generated: string[] = [];
    for (const uses of [1, 3]) {
      const { id } = await actions.create({ uses, pin, payload, owner: "ann", expiresIn: "1 day" });
      generated.push(id);
      await actions.tryConsume(id, { pin: wrongPin, consumerKey });
      const held = await actions.claim(id, { pin, consumerKey });
      await actions.abandon(id, held);
      await actions.consume(id, { pin, consumerKey, by: "visible" });
      expect(await actions.consume(id, { consumerKey })).toMatchObject({ payload, replayed: true });
    }
    for (const id of generated) {
      const info = JSON.stringify([await actions.get(id), await actions.list(), await actions.history(id)]);
      for (const secret of [...Object.values(secrets), ...generated]) expect(info).not.toContain(secret);
      expect(info).not.toContain("hash");
    }
    const loot = scene.loot();
    // The search finds what is there.
    expect(loot).toContain("visible");
    for (const secret of [...Object.values(secrets), ...generated])
      for (const form of formsOf(secret)) expect(loot.includes(form), `${secret} as ${form}`).toBe(false);
    scene.nowMs += 60 * DAY;
    await actions.sweep();
    for (const secret of generated) expect(scene.loot()).not.toContain(secret);
  });

  test("54, 56: errors do not repeat the id that was passed, which may be a secret", async () => {
    await using scene = new Scene(store);
    const actions = await scene.process();
    const { id } = await actions.create({ expiresIn: 10 });
    const wrong = [id.slice(0, -1), `${id}x`, id.toLowerCase(), refOf(id), `${id.slice(1)}A`];
    await actions.consume(id);
    for (const one of [id, ...wrong]) {
      const error: unknown = await actions.consume(one).catch((reason: unknown) => reason);
      expect(error).toMatchObject({ code: one === id ? "already_used" : "action_not_found" });
      const shown = `${String(error)} ${JSON.stringify(error)} ${(error as Error).stack}`;
      expect(shown.includes(one)).toBe(false);
    }
  });

  test("56: reading settles nothing, however often", async () => {
    await using scene = new Scene(store);
    const actions = await scene.process();
    const { id, ref } = await actions.create({ payload: 1 });
    const before = scene.written;
    for (let i = 0; i < 5; i++)
      await Promise.all([actions.get(id), actions.get({ ref }), actions.list(), actions.history(id)]);
    expect(scene.written).toBe(before);
    expect(await actions.consume(id)).toMatchObject({ payload: 1, replayed: false });
  });

  describe("payloads", () => {
    const cycle: unknown[] = [];
    cycle.push(cycle);

    test("28, 31, 32: what is put in comes out", async () => {
      await using scene = new Scene(store);
      const actions = await scene.process();
      const values: unknown[] = [
        JSON.parse('{"__proto__": {"polluted": true}, "constructor": {"prototype": 1}}'),
        Number.MAX_SAFE_INTEGER,
        2n ** 80n,
        -0,
        Number.NaN,
        [undefined, null],
        new Date(5),
        new Map([["a", new Set([1])]]),
        new Uint8Array([1, 2, 255]),
        new Error("oh", { cause: "why" }),
        { $date: "no tag" },
        "",
        "😀\u2028",
      ];
      for (const [i, payload] of values.entries()) {
        await actions.create({ id: `a${i}`, payload });
        const { payload: given } = await actions.consume(`a${i}`, { consumerKey: "k" });
        expect(given).toEqual(payload);
        const { payload: again } = await actions.consume(`a${i}`, { consumerKey: "k" });
        expect(again).toEqual(payload);
      }
      expect(({} as { polluted?: unknown }).polluted).toBeUndefined();
    });

    test.each([
      ["a function", () => {}, "invalid_value"],
      ["a cycle", cycle, "invalid_value"],
      ["a symbol", Symbol("s"), "invalid_value"],
      ["two megabytes", "x".repeat(2_000_000), "value_too_large"],
      ["what is too large when it is sealed", "x".repeat(1_000_000), "value_too_large"],
    ])("33: %s is refused, and nothing is written", async (_, payload, code) => {
      await using scene = new Scene(store);
      const actions = await scene.process();
      await actions.create({ id: "before" });
      const before = scene.written;
      expect(await codeOf(actions.create({ id: "a", payload }))).toBe(code);
      expect(scene.written).toBe(before);
      expect(await actions.get("a")).toBeNull();
    });

    test("without a key they are refused with an error that says how to add one", async () => {
      await using scene = new Scene(store);
      const actions = await scene.process({ options: { pepper: PEPPER } });
      expect(await refusal(actions.create({ id: "a", payload: 1 }))).toEqual({ code: "keys_missing" });
      await expect(actions.prepare({ payload: 1 })).rejects.toThrow("open with { actions: { keys");
    });

    /** Changes what is stored of an action's payload. */
    async function tamper(scene: Scene, id: string, change: (sealed: Sealed) => Sealed): Promise<void> {
      const kernel = await scene.kernel();
      const at = actionAt(refOf(id));
      await kernel.transact(
        (tx) => {
          const record = tx.record(at);
          const value = record.value as ActionValue;
          if (value.sealed !== undefined) record.write({ value: { ...value, sealed: change(value.sealed) } });
          else {
            const payload = tx.record(payloadAt(refOf(id)));
            payload.write({ value: change(payload.value as Sealed) });
          }
        },
        [at],
      );
    }

    async function sealedOf(scene: Scene, id: string): Promise<Sealed> {
      const found: Sealed[] = [];
      await tamper(scene, id, (sealed) => {
        found.push(sealed);
        return sealed;
      });
      const [sealed] = found;
      if (sealed === undefined) throw new Error("it has no payload");
      return sealed;
    }

    const flip = (data: string, at: number): string => {
      const bytes = Buffer.from(data, "base64url");
      bytes[at < 0 ? bytes.length + at : at] = (bytes.at(at) ?? 0) ^ 1;
      return bytes.toString("base64url");
    };
    const cut = (data: string, from: number, to: number): string =>
      Buffer.from(data, "base64url").subarray(from, to).toString("base64url");

    const changes: [string, (sealed: Sealed) => Sealed][] = [
      ["35: the nonce", ({ keyId, data }) => ({ keyId, data: flip(data, 0) })],
      ["35: the ciphertext", ({ keyId, data }) => ({ keyId, data: flip(data, 12) })],
      ["35: the tag", ({ keyId, data }) => ({ keyId, data: flip(data, -1) })],
      ["36: a tag of 15 bytes", ({ keyId, data }) => ({ keyId, data: cut(data, 0, -1) })],
      ["36: a tag of 4 bytes", ({ keyId, data }) => ({ keyId, data: cut(data, 0, -12) })],
      ["36: no tag", ({ keyId, data }) => ({ keyId, data: cut(data, 0, -16) })],
      ["35: nothing", ({ keyId }) => ({ keyId, data: "" })],
      ["35: the id of the key", ({ data }) => ({ keyId: "k2", data })],
    ];
    test.each(changes)("%s changed: refused, and the action is not used up", async (_, change) => {
      await using scene = new Scene(store);
      const same = { current: "k1", ring: { k1: KEY_1, k2: KEY_1 } };
      const actions = await scene.process({ options: { pepper: PEPPER, keys: same } });
      for (const uses of [1, 2]) {
        const id = `uses-${uses}`;
        await actions.create({ id, uses, payload: "prize" });
        const original = await sealedOf(scene, id);
        await tamper(scene, id, change);
        for (const verb of [() => actions.consume(id), () => actions.tryConsume(id, { consumerKey: "k" })])
          expect(await codeOf(verb())).toBe("decrypt_failed");
        expect(await actions.get(id)).toMatchObject({ state: "active", usesLeft: uses });
        await tamper(scene, id, () => original);
        expect(await actions.consume(id)).toMatchObject({ payload: "prize" });
      }
    });

    test("35: moved to another action or another namespace: refused", async () => {
      await using scene = new Scene(store);
      const actions = await scene.process();
      const other = await scene.process({ namespace: "other" });
      await actions.create({ id: "a", payload: "of a" });
      await actions.create({ id: "b", payload: "of b" });
      await other.create({ id: "b", payload: "of the other b" });
      const moved = await sealedOf(scene, "a");
      await tamper(scene, "b", () => moved);
      expect(await codeOf(actions.consume("b"))).toBe("decrypt_failed");
      const kernel = await scene.kernel("other");
      const at = actionAt(refOf("a"));
      await other.create({ id: "a", payload: "of the other a" });
      await kernel.transact(
        (tx) => {
          const record = tx.record(at);
          record.write({ value: { ...(record.value as ActionValue), sealed: moved } });
        },
        [at],
      );
      expect(await codeOf(other.consume("a"))).toBe("decrypt_failed");
    });

    test("37: a rotated ring reads what is old and seals with what is new; a retired key is named", async () => {
      await using scene = new Scene(store);
      const ring = (current: string, keys: Record<string, Uint8Array>) =>
        scene.process({ options: { pepper: PEPPER, keys: { current, ring: keys } } });
      const old = await ring("k1", { k1: KEY_1 });
      const both = await ring("k2", { k1: KEY_1, k2: KEY_2 });
      const young = await ring("k2", { k2: KEY_2 });
      const keyless = await scene.process({ options: { pepper: PEPPER } });
      await old.createMany([
        { id: "a", payload: "old" },
        { id: "b", payload: "old" },
      ]);
      expect(await both.create({ id: "a", payload: "old" })).toMatchObject({ isNew: false });
      expect(await codeOf(both.create({ id: "a", payload: "new" }))).toBe("action_conflict");
      await both.create({ id: "c", payload: "new" });
      expect(await both.consume("a")).toMatchObject({ payload: "old" });
      expect(await refusal(young.consume("b"))).toEqual({ code: "key_unavailable", keyId: "k1" });
      expect(await refusal(keyless.consume("b"))).toEqual({ code: "key_unavailable", keyId: "k1" });
      expect(await refusal(old.consume("c"))).toEqual({ code: "key_unavailable", keyId: "k2" });
      // Nothing was used up by that.
      expect(await young.consume("c")).toMatchObject({ payload: "new" });
      expect(await old.consume("b")).toMatchObject({ payload: "old" });
    });

    test("the same payload is sealed another way each time", async () => {
      await using scene = new Scene(store);
      const actions = await scene.process();
      const sealed = new Set<string>();
      for (const id of ["a", "b", "c"]) {
        await actions.create({ id, payload: "same" });
        sealed.add((await sealedOf(scene, id)).data.slice(0, 16));
      }
      expect(sealed.size).toBe(3);
    });
  });

  test.each([
    ["a key of 31 bytes", { current: "k", ring: { k: new Uint8Array(31) } }, "invalid_argument"],
    ["a key that is text", { current: "k", ring: { k: "x".repeat(32) } }, "invalid_argument"],
    ["a current key that is not in the ring", { current: "toString", ring: { k: KEY_1 } }, "invalid_argument"],
    ["no ring", { current: "k" }, "invalid_argument"],
    ["no current key", { ring: { k: KEY_1 } }, "invalid_id"],
    ["an empty id", { current: "k", ring: { k: KEY_1, "": KEY_1 } }, "invalid_id"],
  ])("%s is no ring", async (_, keys, code) => {
    await using scene = new Scene(store);
    expect(await codeOf(scene.process({ options: { keys: untyped(keys) } }))).toBe(code);
  });

  describe("bad input", () => {
    const badIds: [string, unknown][] = [
      ["20: an empty id", ""],
      ["20: 257 bytes", "a".repeat(257)],
      ["20: a line feed", "a\nb"],
      ["20: a number", 5],
      ["21: NUL", "a\0b"],
      ["22: a lone surrogate", "a\ud800"],
    ];
    const verbs: [string, (actions: Actions, bad: unknown) => Promise<unknown>][] = [
      ["an id to make", (actions, bad) => actions.create({ id: untyped(bad) })],
      ["an owner", (actions, bad) => actions.create({ owner: untyped(bad) })],
      ["a tag", (actions, bad) => actions.create({ tags: [untyped(bad)] })],
      ["an id to look at", (actions, bad) => actions.get(untyped(bad))],
      ["an id to use", (actions, bad) => actions.consume(untyped(bad))],
      ["an id to claim", (actions, bad) => actions.claim(untyped(bad))],
      ["an id to complete", (actions, bad) => actions.complete(untyped(bad), { fence: 1 })],
      ["an id to give back", (actions, bad) => actions.abandon(untyped(bad), { fence: 1 })],
      ["an id to cancel", (actions, bad) => actions.cancel(untyped(bad))],
      ["a ref", (actions, bad) => actions.cancel({ ref: untyped(bad) })],
      ["a past to read", (actions, bad) => actions.history(untyped(bad))],
      ["a consumer key", (actions, bad) => actions.consume("a", { consumerKey: untyped(bad) })],
      ["who asks", (actions, bad) => actions.consume("a", { by: untyped(bad) })],
      ["who cancels", (actions, bad) => actions.cancel("a", { by: untyped(bad) })],
      ["an owner to list", (actions, bad) => actions.list({ owner: untyped(bad) })],
    ];
    test.each(badIds)("%s is refused everywhere, and nothing is written", async (_, bad) => {
      await using scene = new Scene(store);
      const actions = await scene.process();
      await actions.create({ id: "a" });
      const before = scene.written;
      for (const [what, act] of verbs) expect(await codeOf(act(actions, bad)), what).toBe("invalid_id");
      expect(scene.written).toBe(before);
    });

    test("23, 24, 25, 26: ids are literal, and two that look alike are two", async () => {
      await using scene = new Scene(store);
      const actions = await scene.process();
      const ids = ["é", "e\u0301", "a/b", "a%2Fb", "..", "'; drop table pawl_record--", "%", "_", "action", "a ", "a"];
      for (const id of ids) expect(await actions.create({ id, owner: id })).toMatchObject({ isNew: true });
      for (const id of ids) {
        expect((await actions.list({ owner: id })).actions.map((one) => one.id)).toEqual([id]);
        expect(await actions.consume(id)).toMatchObject({ replayed: false });
      }
    });

    const bad: [string, (actions: Actions) => Promise<unknown>, string][] = [
      ["39: a time that is none", (actions) => actions.create({ activeAt: new Date(Number.NaN) }), "invalid_argument"],
      ["39: a time beyond all dates", (actions) => actions.create({ expiresAt: 9e15 }), "invalid_argument"],
      ["39: a time before 1970", (actions) => actions.create({ expiresAt: -1 }), "invalid_argument"],
      ["39: a time as text", (actions) => actions.create({ expiresAt: untyped("2030-01-01") }), "invalid_argument"],
      ["39: a list from a time that is none", (actions) => actions.list({ createdAfter: 1.5 }), "invalid_argument"],
      ["38: NaN as a duration", (actions) => actions.create({ expiresIn: Number.NaN }), "invalid_duration"],
      ["38: a duration without a unit", (actions) => actions.create({ expiresIn: "5" }), "invalid_duration"],
      ["38: a negative duration", (actions) => actions.create({ expiresIn: -5 }), "invalid_duration"],
      ["40: a lease of 0", (actions) => actions.claim("a", { lease: 0 }), "invalid_duration"],
      ["40: a lease of ten years", (actions) => actions.claim("a", { lease: "3650 days" }), "invalid_duration"],
      ["41: no use", (actions) => actions.create({ uses: 0 }), "invalid_argument"],
      ["41: less than one use", (actions) => actions.create({ uses: -1 }), "invalid_argument"],
      ["41: one and a half uses", (actions) => actions.create({ uses: 1.5 }), "invalid_argument"],
      ["41: more uses than a million", (actions) => actions.create({ uses: 1_000_001 }), "invalid_argument"],
      ["41: no tries", (actions) => actions.create({ pin: "1234", maxPinTries: 0 }), "invalid_argument"],
      ["tries without a PIN", (actions) => actions.create({ maxPinTries: 5 }), "invalid_argument"],
      ["two ends", (actions) => actions.create({ expiresIn: 5, expiresAt: START_MS }), "invalid_argument"],
      ["an end before the start", (actions) => actions.create({ activeAt: 5, expiresAt: 5 }), "invalid_argument"],
      ["a reason that is none", (actions) => actions.create({ reason: untyped(5) }), "invalid_argument"],
      ["a reason of a megabyte", (actions) => actions.cancel("a", { reason: "x".repeat(1e6) }), "invalid_argument"],
      ["tags that are no list", (actions) => actions.create({ tags: untyped("a") }), "invalid_argument"],
      ["65 tags", (actions) => actions.create({ tags: Array<string>(65).fill("a") }), "invalid_argument"],
      ["a fence of 0", (actions) => actions.complete("a", { fence: 0 }), "invalid_argument"],
      ["a fence that is text", (actions) => actions.abandon("a", { fence: untyped("1") }), "invalid_argument"],
      ["a list of 1001", (actions) => actions.list({ limit: 1001 }), "invalid_argument"],
      ["a sweep of 501", (actions) => actions.sweep(501), "invalid_argument"],
      ["a sweep of none", (actions) => actions.sweep(0), "invalid_argument"],
    ];
    test.each(bad)("%s is refused, and nothing is written", async (_, act, code) => {
      await using scene = new Scene(store);
      const actions = await scene.process();
      await actions.create({ id: "a" });
      const before = scene.written;
      expect(await codeOf(act(actions))).toBe(code);
      expect(scene.written).toBe(before);
    });
  });
});

test("34: a payload with an unknown tag is an error, and the action is not used up", async () => {
  await using scene = new Scene("memory");
  const codec: Codec = {
    encode: jsonCodec.encode,
    decode: (text, at) => jsonCodec.decode(text === '"prize"' ? '{"$later":1}' : text, at),
  };
  const older = new Actions(await scene.kernel("shop", codec), SECRETS);
  const actions = await scene.process();
  await actions.create({ id: "a", payload: "prize" });
  expect(await codeOf(older.consume("a"))).toBe("unsupported_encoding");
  expect(await actions.consume("a")).toMatchObject({ payload: "prize" });
});
