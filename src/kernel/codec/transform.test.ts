/**
 * Goal: a transform can be switched on over old data, is named in what it writes, and binds text to its place when it wants to.
 * Method: real AES-256-GCM and real deflate, alone and composed; every single character of the sealed text is changed once.
 */

import { Buffer } from "node:buffer";
import { createCipheriv, createDecipheriv, randomBytes } from "node:crypto";
import { deflateRawSync, inflateRawSync } from "node:zlib";
import { describe, expect, test } from "vitest";
import { InvalidArgumentError, InvalidValueError, UnsupportedEncodingError } from "../errors.ts";
import type { Codec, Place } from "./codec.ts";
import { jsonCodec } from "./json.ts";
import type { Transform } from "./transform.ts";
import { transformed } from "./transform.ts";

const deflate: Transform = {
  name: "deflate",
  seal: (text) => deflateRawSync(text).toString("base64"),
  open: (sealed) => inflateRawSync(Buffer.from(sealed, "base64")).toString("utf8"),
};

function aes256gcm(key: Buffer): Transform {
  const bound = (at: Place): Buffer => Buffer.from(JSON.stringify([at.namespace, at.space, at.key]));
  return {
    name: "aes256gcm",
    seal(text, at) {
      const nonce = randomBytes(12);
      const cipher = createCipheriv("aes-256-gcm", key, nonce).setAAD(bound(at));
      return Buffer.concat([nonce, cipher.update(text, "utf8"), cipher.final(), cipher.getAuthTag()]).toString(
        "base64",
      );
    },
    open(sealed, at) {
      const bytes = Buffer.from(sealed, "base64");
      if (bytes.toString("base64") !== sealed) throw new Error("not canonical base64");
      const decipher = createDecipheriv("aes-256-gcm", key, bytes.subarray(0, 12), { authTagLength: 16 });
      decipher.setAAD(bound(at)).setAuthTag(bytes.subarray(-16));
      return Buffer.concat([decipher.update(bytes.subarray(12, -16)), decipher.final()]).toString("utf8");
    },
  };
}

const at: Place = { namespace: "billing", space: "run", key: "42" };
const aes = aes256gcm(randomBytes(32));
const encrypted = transformed(jsonCodec, aes);
const deflated = transformed(jsonCodec, deflate);
const both = transformed(deflated, aes);
const value = {
  card: "4111-1111-1111-1111",
  at: new Date(0),
  note: "ab".repeat(500),
  lone: "\ud800\u0000",
  $date: [undefined],
};

const refusalOf = (codec: Codec, text: string, place = at): unknown => {
  try {
    return { notRefused: codec.decode(text, place) };
  } catch (error) {
    if (error instanceof UnsupportedEncodingError) return error.data.reason;
    throw error;
  }
};

describe("a transform", () => {
  test.each<[string, Codec, string]>([
    ["encryption", encrypted, "~aes256gcm:"],
    ["compression", deflated, "~deflate:"],
    ["compression, then encryption", both, "~aes256gcm:"],
  ])("keeps every value: %s", (_kind, codec, seal) => {
    const text = codec.encode(value, at);
    expect(text.startsWith(seal)).toBe(true);
    expect(text).not.toContain("4111");
    expect(codec.decode(text, at)).toStrictEqual(value);
    for (const small of [undefined, null, "", "~deflate:x", [], { $$: 1n }]) {
      expect(codec.decode(codec.encode(small, at), at)).toStrictEqual(small);
    }
  });

  test("composes: what was compressed before it was encrypted is short", () => {
    expect(both.encode(value, at).length).toBeLessThan(encrypted.encode(value, at).length / 3);
  });

  test("reads what was written before it was switched on", () => {
    expect(encrypted.decode(jsonCodec.encode(value, at), at)).toStrictEqual(value);
    expect(both.decode(jsonCodec.encode(value, at), at)).toStrictEqual(value);
    expect(both.decode(deflated.encode(value, at), at)).toStrictEqual(value);
  });

  test("is named when a codec lacks it", () => {
    const lacks = (name: string): string => `it was sealed by the transform "${name}", which this codec lacks`;
    expect(refusalOf(jsonCodec, deflated.encode(value, at))).toBe(lacks("deflate"));
    expect(refusalOf(deflated, both.encode(value, at))).toBe(lacks("aes256gcm"));
    expect(refusalOf(encrypted, both.encode(value, at))).toBe(lacks("deflate"));
    expect(refusalOf(transformed(jsonCodec, { ...deflate, name: "deflat" }), deflated.encode(value, at))).toBe(
      lacks("deflate"),
    );
  });

  test("refuses, with its cause, what it cannot open", () => {
    const reason = (name: string): string => `the transform "${name}" could not open it`;
    const text = encrypted.encode(value, at);
    expect(refusalOf(transformed(jsonCodec, aes256gcm(randomBytes(32))), text)).toBe(reason("aes256gcm"));
    expect(refusalOf(deflated, "~deflate:AAAA")).toBe(reason("deflate"));
    expect(refusalOf(encrypted, "~aes256gcm:")).toBe(reason("aes256gcm"));
    expect(() => encrypted.decode(text.slice(0, -4), at)).toThrow(
      expect.objectContaining({ cause: expect.any(Error) }),
    );
  });

  test("that authenticates the place finds text that was moved", () => {
    const text = encrypted.encode(value, at);
    for (const moved of [
      { ...at, namespace: "sales" },
      { ...at, space: "slot" },
      { ...at, key: "43" },
      { namespace: "billing", space: "ru", key: "n42" },
    ]) {
      expect(refusalOf(encrypted, text, moved)).toBe('the transform "aes256gcm" could not open it');
    }
  });

  test("that authenticates finds every changed character", () => {
    const text = encrypted.encode({ paid: false }, at);
    const start = "~aes256gcm:".length;
    for (let i = start; i < text.length; i++) {
      const changed = text.slice(0, i) + (text[i] === "A" ? "B" : "A") + text.slice(i + 1);
      expect(refusalOf(encrypted, changed)).toBe('the transform "aes256gcm" could not open it');
    }
  });

  test("leaves its own refusals and those of the codec as they are", () => {
    const refusal = new InvalidArgumentError("the key", "was retired");
    const retired = transformed(jsonCodec, {
      ...deflate,
      open: () => {
        throw refusal;
      },
    });
    expect(() => retired.decode("~deflate:x", at)).toThrow(refusal);
    expect(() => both.encode({ run() {} }, at)).toThrow(InvalidValueError);
    expect(refusalOf(transformed(jsonCodec, { ...deflate, open: () => "{" }), "~deflate:x")).toBe("it is not JSON");
  });

  test.each(["", "a:b", "a b", "~", "é", "x".repeat(65)])("cannot be named %j", (name) => {
    expect(() => transformed(jsonCodec, { ...deflate, name })).toThrow(InvalidArgumentError);
  });
});
