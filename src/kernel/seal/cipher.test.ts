/** Sealed text opens only with its key, in its place, and unchanged; the nonce of one text is never that of another. */

import { describe, expect, test } from "vitest";
import { bytesFrom, NONCE_BYTES, nonceFor, openText, placeOf, sealText } from "./cipher.ts";

const KEY = new Uint8Array(32).fill(1);
const PLACE = placeOf("shop", "event", "a");
const seal = (text: string, place = PLACE) => sealText(KEY, place, text, nonceFor(KEY, place, text));

describe("sealed text", () => {
  test.each(["", "ann@example.com", "😀\u2028", "x".repeat(100_000)])("comes back: %j", (text) => {
    expect(openText(KEY, PLACE, seal(text))).toBe(text);
  });

  test.each([
    { rule: "another key", key: new Uint8Array(32).fill(2), place: PLACE },
    { rule: "another place", key: KEY, place: placeOf("shop", "event", "b") },
    { rule: "parts that are divided in another way", key: KEY, place: placeOf("shop", "eventa") },
  ])("does not open with $rule", ({ key, place }) => {
    expect(() => openText(key, place, seal("secret"))).toThrow();
  });

  test("does not open if any byte of it was changed, or some are missing", () => {
    const bytes = Buffer.from(seal("secret"), "base64url");
    for (let i = 0; i < bytes.length; i++) {
      const changed = Buffer.from(bytes);
      changed[i] = (changed[i] ?? 0) ^ 1;
      expect(() => openText(KEY, PLACE, changed.toString("base64url"))).toThrow();
      expect(() => openText(KEY, PLACE, bytes.subarray(0, i).toString("base64url"))).toThrow();
    }
  });
});

describe("a nonce", () => {
  test("is the same for the same text in the same place, so that a decision writes the same when it runs again", () => {
    expect(nonceFor(KEY, PLACE, "a")).toEqual(nonceFor(KEY, PLACE, "a"));
    expect(nonceFor(KEY, PLACE, "a").length).toBe(NONCE_BYTES);
  });

  test("differs by text, place and key", () => {
    const nonces = [
      nonceFor(KEY, PLACE, "a"),
      nonceFor(KEY, PLACE, "b"),
      nonceFor(KEY, placeOf("shop"), "a"),
      nonceFor(new Uint8Array(32), PLACE, "a"),
      // The same bytes, divided in another way.
      nonceFor(KEY, Buffer.from("ab"), "c"),
      nonceFor(KEY, Buffer.from("a"), "bc"),
    ];
    expect(new Set(nonces.map((one) => Buffer.from(one).toString("hex"))).size).toBe(nonces.length);
  });
});

test("bytes are made of three ids, all of which count", () => {
  const drawn = (...ids: string[]) => Buffer.from(bytesFrom(() => ids.shift() ?? "", 32)).toString("hex");
  expect(new Set([drawn("a", "b", "c"), drawn("x", "b", "c"), drawn("a", "x", "c"), drawn("a", "b", "x")]).size).toBe(
    4,
  );
});
