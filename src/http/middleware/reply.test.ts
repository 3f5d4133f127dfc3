/**
 * Goal: what is stored of a reply is what may be sent again, byte for byte.
 * Method: rows for headers and refusals, a property over bytes.
 */

import fc from "fast-check";
import { describe, expect, test } from "vitest";
import { bytesOf } from "./node.ts";
import { type ReplyInit, replyOf, storedBody, storedHeaders } from "./reply.ts";

describe("headers", () => {
  test.each([
    ["an ordinary one is stored", [["Location", "/orders/1"]], [["location", "/orders/1"]]],
    [
      "several of a name are stored",
      [
        ["vary", "a"],
        ["Vary", "b"],
      ],
      [
        ["vary", "a"],
        ["vary", "b"],
      ],
    ],
    ["cookies are not", [["Set-Cookie", "session=1"]], []],
    [
      "the date and the length are not",
      [
        ["Date", "x"],
        ["Content-Length", "3"],
      ],
      [],
    ],
    [
      "those of the connection are not",
      [
        ["Keep-Alive", "5"],
        ["transfer-encoding", "chunked"],
        ["upgrade", "h2"],
      ],
      [],
    ],
    [
      "nor those that the connection names",
      [
        ["Connection", "close, X-Hop"],
        ["x-hop", "1"],
        ["x-end", "2"],
      ],
      [["x-end", "2"]],
    ],
    ["a mark of a replay is not stored", [["Idempotent-Replayed", "true"]], []],
  ] as const)("%s", (_, headers, stored) => {
    expect(storedHeaders(headers)).toEqual(stored);
  });
});

test("every body comes back byte for byte", () => {
  const bodies = fc.oneof(
    fc.uint8Array({ maxLength: 200 }),
    fc.string({ unit: "binary" }).map((text) => bytesOf(text)),
  );
  fc.assert(
    fc.property(bodies, (bytes) => {
      const body = storedBody(bytes);
      return Buffer.compare(bytesOf(body ?? ""), bytes) === 0;
    }),
  );
  expect(storedBody(bytesOf("\ufefftext"))).toBe("\ufefftext");
  expect(storedBody(new Uint8Array([0xff]))).toEqual(new Uint8Array([0xff]));
});

describe("what a decision replies", () => {
  test.each([
    ["the default is an empty 200", {}, { status: 200, headers: [], body: null }],
    ["a text", { status: 201, body: "a" }, { status: 201, headers: [], body: "a" }],
    ["JSON", { json: { a: 1 } }, { status: 200, headers: [["content-type", "application/json"]], body: '{"a":1}' }],
    [
      "JSON of another type",
      { json: 1, headers: { "Content-Type": "application/x" } },
      { status: 200, headers: [["content-type", "application/x"]], body: "1" },
    ],
    ["no body where there must be none", { status: 204, body: "" }, { status: 204, headers: [], body: null }],
  ] as const)("%s", (_, init, reply) => {
    expect(replyOf(init)).toEqual(reply);
  });

  test.each([
    ["a status that is none", { status: 42 }],
    ["a status that is no end", { status: 100 }],
    ["a broken status", { status: 200.5 }],
    ["a header with a line break", { headers: { a: "b\r\nc: d" } }],
    ["a header without a name", { headers: { "": "b" } }],
    ["a body where there must be none", { status: 204, body: "a" }],
  ] as [string, ReplyInit][])("%s is refused", (_, init) => {
    expect(() => replyOf(init)).toThrow(expect.objectContaining({ code: "invalid_argument" }));
  });
});
