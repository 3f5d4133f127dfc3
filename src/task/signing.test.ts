/** Signatures are those that the package of Standard Webhooks makes and accepts. */

import { Webhook } from "standardwebhooks";
import { describe, expect, test } from "vitest";
import { checkSecrets, signed } from "./signing.ts";

const bytes = (fill: number, size = 32): Buffer => Buffer.alloc(size, fill);
const text = (fill: number): string => `whsec_${bytes(fill).toString("base64")}`;
const NOW_MS = 1_700_000_000_999;

describe("a signature", () => {
  test.each(["", "{}", '{"a":"ü 😀"}', "x".repeat(100_000)])("is that of the package: %#", (body) => {
    const headers = signed(checkSecrets(text(1)), "msg_1", NOW_MS, body);
    const date = new Date(Number(headers["webhook-timestamp"]) * 1000);
    expect(headers["webhook-signature"]).toBe(new Webhook(text(1)).sign("msg_1", date, body));
  });

  test("of bytes is that of the same text", () => {
    const keys = checkSecrets(text(1));
    expect(signed(keys, "a", NOW_MS, Buffer.from("{}"))).toEqual(signed(keys, "a", NOW_MS, "{}"));
  });

  test("a receiver with either secret accepts it while they are rotated", () => {
    const headers = signed(checkSecrets([text(1), bytes(2)]), "msg_1", Date.now(), "{}");
    expect(headers["webhook-signature"]?.split(" ")).toHaveLength(2);
    for (const secret of [text(1), text(2)]) expect(new Webhook(secret).verify("{}", { ...headers })).toEqual({});
    expect(() => new Webhook(text(3)).verify("{}", { ...headers })).toThrow();
  });

  test("is of the id, the time and the body", () => {
    const of = (id: string, ms: number, body: string) =>
      signed(checkSecrets(text(1)), id, ms, body)["webhook-signature"];
    const all = [of("a", 0, "b"), of("b", 0, "b"), of("a", 1000, "b"), of("a", 0, "c"), of("a", 0, "0.b")];
    expect(new Set(all).size).toBe(all.length);
    // It would be the signature of the last one, too.
    expect(() => of("a.0", 0, "b")).toThrow(/has a dot/);
  });

  test("is absent without a secret; the id and the time are not", () => {
    expect(signed([], "a", NOW_MS, "")).toEqual({ "webhook-id": "a", "webhook-timestamp": "1700000000" });
  });
});

test.each([
  ["a short one", "whsec_c2hvcnQ="],
  ["a long one", bytes(1, 65)],
  ["no base64", "whsec_%%%"],
  ["nothing", ""],
  ["a number", 5],
])("a secret that is %s is refused, and not repeated", (_, secret) => {
  try {
    checkSecrets([secret as string]);
    expect.unreachable();
  } catch (error) {
    expect(error).toMatchObject({ code: "invalid_argument" });
    if (typeof secret === "string" && secret !== "") expect(String(error)).not.toContain(secret);
  }
});
