/**
 * Goal: a delivery is accepted if and only if a secret of the receiver signed exactly these bytes, recently.
 * Method: deliveries signed by the reference implementation, then changed in one way at a time; the time is an argument.
 */

import { createHmac } from "node:crypto";
import { describe, expect, test } from "vitest";
import { NEW, OLD, type Signed, sign } from "../../../test/webhook/kit.ts";
import { PawlError } from "../../index.ts";
import { Verifier, type VerifyOptions, verifyWebhook, type WebhookRequest } from "./verify.ts";

const AT_MS = 1_800_000_000_000;
const FIVE_MINUTES = 300_000;
const signed = sign({ id: "msg_1", body: '{"a":1}', atMs: AT_MS });

/** The code of the refusal, or what was verified. */
async function outcome(request: WebhookRequest, options: Partial<VerifyOptions> = {}, nowMs = AT_MS): Promise<string> {
  try {
    return `accepts ${(await new Verifier({ secrets: OLD, ...options }).verify(request, nowMs)).id}`;
  } catch (error) {
    if (error instanceof PawlError) return error.code;
    throw error;
  }
}

const changed = (headers: Record<string, string>, body: string | Uint8Array = signed.body): Signed => ({
  headers: { ...signed.headers, ...headers },
  body,
});

describe("verify", () => {
  const signature = signed.headers["webhook-signature"] ?? "";
  const rotated = sign({ id: "msg_1", body: signed.body, atMs: AT_MS, secret: NEW }).headers["webhook-signature"];
  const rows: {
    rule: string;
    request: WebhookRequest;
    options?: Partial<VerifyOptions>;
    nowMs?: number;
    is: string;
  }[] = [
    { rule: "what a secret signed is accepted", request: signed, is: "accepts msg_1" },
    {
      rule: "bytes are as good as text",
      request: changed({}, new TextEncoder().encode(signed.body)),
      is: "accepts msg_1",
    },
    {
      rule: "each of several secrets is enough",
      request: signed,
      options: { secrets: [NEW, OLD] },
      is: "accepts msg_1",
    },
    { rule: "another secret alone is not", request: signed, options: { secrets: NEW }, is: "signature_invalid" },
    {
      rule: "each of several signatures is enough",
      request: changed({ "webhook-signature": `v1,bm8= ${rotated} ${signature}` }),
      is: "accepts msg_1",
    },
    {
      rule: "a signature of another version is not looked at",
      request: changed({ "webhook-signature": signature.replace("v1,", "v1a,") }),
      is: "signature_invalid",
    },
    { rule: "a changed body is refused", request: changed({}, '{"a":2}'), is: "signature_invalid" },
    { rule: "white space is part of the body", request: changed({}, '{"a": 1}'), is: "signature_invalid" },
    {
      rule: "a byte order mark is part of the body",
      request: changed({}, `\ufeff${signed.body}`),
      is: "signature_invalid",
    },
    { rule: "an id is part of what is signed", request: changed({ "webhook-id": "msg_2" }), is: "signature_invalid" },
    {
      rule: "a timestamp is part of what is signed",
      request: changed({ "webhook-timestamp": String(AT_MS / 1000 + 1) }),
      is: "signature_invalid",
    },
    {
      rule: "an id with a dot is refused, whoever signed it",
      request: sign({ id: "msg.1", body: "{}", atMs: AT_MS }),
      is: "signature_invalid",
    },
    { rule: "no id", request: changed({ "webhook-id": "" }), is: "signature_invalid" },
    { rule: "no timestamp", request: changed({ "webhook-timestamp": "" }), is: "signature_invalid" },
    { rule: "no signature", request: changed({ "webhook-signature": "" }), is: "signature_invalid" },
    { rule: "a timestamp of text", request: changed({ "webhook-timestamp": "today" }), is: "signature_invalid" },
    {
      rule: "a timestamp with an exponent",
      request: changed({ "webhook-timestamp": "18e8" }),
      is: "signature_invalid",
    },
    { rule: "at the end of the tolerance", request: signed, nowMs: AT_MS + FIVE_MINUTES, is: "accepts msg_1" },
    { rule: "after it", request: signed, nowMs: AT_MS + FIVE_MINUTES + 1, is: "timestamp_out_of_range" },
    { rule: "at its beginning", request: signed, nowMs: AT_MS - FIVE_MINUTES, is: "accepts msg_1" },
    { rule: "before it", request: signed, nowMs: AT_MS - FIVE_MINUTES - 1, is: "timestamp_out_of_range" },
    {
      rule: "a longer tolerance",
      request: signed,
      options: { tolerance: "1 hour" },
      nowMs: AT_MS + FIVE_MINUTES + 1,
      is: "accepts msg_1",
    },
    {
      rule: "a shorter tolerance",
      request: signed,
      options: { tolerance: 0 },
      nowMs: AT_MS + 1,
      is: "timestamp_out_of_range",
    },
    {
      rule: "a wrong signature is refused as such, however old",
      request: changed({}, "x"),
      nowMs: AT_MS + 10 * FIVE_MINUTES,
      is: "signature_invalid",
    },
    { rule: "a body of the limit", request: signed, options: { maxBodyBytes: 7 }, is: "accepts msg_1" },
    { rule: "a body over the limit", request: signed, options: { maxBodyBytes: 6 }, is: "body_too_large" },
  ];
  test.each(rows)("$rule", async ({ request, options, nowMs, is }) => {
    expect(await outcome(request, options, nowMs)).toBe(is);
  });

  test("a signature is of one delivery: no part of the body can be moved into the id", async () => {
    const seconds = AT_MS / 1000;
    const { headers } = sign({ id: "msg_1", body: `${seconds}.{"a":1}`, atMs: AT_MS });
    const moved = { ...headers, "webhook-id": `msg_1.${seconds}`, "webhook-timestamp": String(seconds) };
    expect(await outcome({ headers: moved, body: '{"a":1}' })).toBe("signature_invalid");
    expect(await outcome({ headers, body: `${seconds}.{"a":1}` })).toBe("accepts msg_1");
  });

  test("headers are found whatever their case, and as a list", async () => {
    const upper = Object.fromEntries(
      Object.entries(signed.headers).map(([name, value]) => [name.toUpperCase(), [value]]),
    );
    expect(await outcome({ headers: upper, body: signed.body })).toBe("accepts msg_1");
    expect(await outcome({ headers: new Headers(signed.headers), body: signed.body })).toBe("accepts msg_1");
  });

  test.each(["webhook-id", "webhook-timestamp", "webhook-signature", "pawl-task-id", "pawl-attempt", "pawl-fence"])(
    "a %s that is no text is a mistake of the receiver, and says so",
    async (name) => {
      for (const value of [AT_MS / 1000, true, {}, [5], ["a", null], Symbol("a")] as unknown[]) {
        const headers = { ...signed.headers, [name]: value } as Record<string, string>;
        expect(await outcome({ headers, body: signed.body })).toBe("invalid_argument");
        const fresh = { ...sign({ id: "msg_1", body: signed.body }).headers, [name]: value } as Record<string, string>;
        await expect(verifyWebhook({ headers: fresh, body: signed.body }, { secrets: OLD })).rejects.toMatchObject({
          code: "invalid_argument",
          message: expect.stringContaining(name),
        });
      }
      const absent = { ...signed.headers, [name]: null } as never;
      expect(await outcome({ headers: absent, body: signed.body })).toBe(
        name.startsWith("pawl") ? "accepts msg_1" : "signature_invalid",
      );
    },
  );

  test("a body that is not ASCII is verified by its bytes", async () => {
    const { headers, body } = sign({ id: "msg_2", body: '{"ü":"\ufeff😀"}', atMs: AT_MS });
    const delivery = await new Verifier({ secrets: OLD }).verify(
      { headers, body: new TextEncoder().encode(body) },
      AT_MS,
    );
    expect([delivery.text, delivery.json()]).toEqual([body, { ü: "\ufeff😀" }]);
  });

  test("bytes that are no text can be signed, and are not confused with others that look the same as text", async () => {
    const bytes = new Uint8Array([0xff, 0x00, 0xfe]);
    const signature = createHmac("sha256", Buffer.alloc(24, 1))
      .update(`msg_4.${AT_MS / 1000}.`)
      .update(bytes);
    const headers = { "webhook-id": "msg_4", "webhook-signature": `v1,${signature.digest("base64")}` };
    expect(await outcome(changed(headers, bytes))).toBe("accepts msg_4");
    expect(await outcome(changed(headers, new Uint8Array([0xfe, 0x00, 0xff])))).toBe("signature_invalid");
    expect(await outcome(changed(headers, bytes), { secrets: Buffer.alloc(24, 1) })).toBe("accepts msg_4");
  });

  test("a header with very many signatures is refused before they are compared", async () => {
    const many = "v1,bm8= ".repeat(30) + signed.headers["webhook-signature"];
    expect(await outcome(changed({ "webhook-signature": many }))).toBe("signature_invalid");
  });

  test("an empty body can be signed", async () => {
    expect(await outcome(sign({ id: "msg_3", body: "", atMs: AT_MS }))).toBe("accepts msg_3");
  });
});

describe("what is verified", () => {
  const task = { "pawl-task-id": "t-1", "pawl-attempt": "3", "pawl-fence": "41" };

  test("a call of a task says which task, attempt and fence it is; the key is the signed id", async () => {
    const { headers, body } = changed({ ...task, "idempotency-key": "forged" });
    const delivery = await new Verifier({ secrets: OLD }).verify({ headers, body }, AT_MS);
    expect(delivery.task).toEqual({ id: "t-1", attempt: 3, fence: 41, key: "msg_1" });
    expect(delivery.sentAt).toEqual(new Date(AT_MS));
  });

  test.each([{}, { ...task, "pawl-fence": "1.5" }, { ...task, "pawl-attempt": "-1" }])(
    "a delivery without all of them is none of a task: %j",
    async (headers) => {
      const delivery = await new Verifier({ secrets: OLD }).verify(changed(headers as Record<string, string>), AT_MS);
      expect(delivery.task).toBeNull();
    },
  );
});

describe("verifyWebhook", () => {
  test("reads the real time", async () => {
    const now = sign({ id: "msg_4", body: "{}", atMs: Date.now() });
    expect((await verifyWebhook(now, { secrets: OLD })).id).toBe("msg_4");
    await expect(verifyWebhook(signed, { secrets: OLD })).rejects.toThrow(/check the clocks/);
  });

  test("a body that was parsed is refused: its bytes are gone", async () => {
    const parsed = { headers: signed.headers, body: { a: 1 } } as unknown as WebhookRequest;
    await expect(verifyWebhook(parsed, { secrets: OLD })).rejects.toThrow(/as it arrived/);
  });

  test("a secret that is none is refused, and not shown", async () => {
    for (const secrets of ["whsec_!!!", "", "whsec_a", new Uint8Array(0), [1 as unknown as string]])
      await expect(verifyWebhook(signed, { secrets })).rejects.toThrow(
        /^a secret must be "whsec_" and base64, or bytes$/,
      );
    await expect(verifyWebhook(signed, { secrets: [] })).rejects.toThrow(/must not be empty/);
  });
});
