/**
 * Goal: the header is parsed as the draft says, and what could be two keys is not accepted as one.
 * Method: a row for each shape of the header.
 */

import { expect, test } from "vitest";
import { parseKey } from "./key.ts";

const key = (text: string) => ({ is: "key", key: text });
const malformed = { is: "malformed" };

test.each([
  ["no header", null, { is: "missing" }],
  ["no header, as in Node", undefined, { is: "missing" }],
  [
    "a string of structured fields",
    '"8e03978e-40d5-43dd-bc93-6894a57f9324"',
    key("8e03978e-40d5-43dd-bc93-6894a57f9324"),
  ],
  ["the same, bare", "8e03978e-40d5-43dd-bc93-6894a57f9324", key("8e03978e-40d5-43dd-bc93-6894a57f9324")],
  ["blanks around it", ' \t"k" ', key("k")],
  ["blanks inside it", '"a key of words"', key("a key of words")],
  ["an escaped quotation mark", String.raw`"a\"b"`, key('a"b')],
  ["an escaped backslash", String.raw`"a\\b"`, key(String.raw`a\b`)],
  ["a comma in quotation marks", '"a,b"', key("a,b")],
  ["base64", "YWJj+/==", key("YWJj+/==")],
  ["255 characters", `"${"k".repeat(255)}"`, key("k".repeat(255))],
  ["255 escaped characters, and blanks around them", ` "${String.raw`\"`.repeat(255)}" `, key('"'.repeat(255))],
  ["256 characters", `"${"k".repeat(256)}"`, malformed],
  ["more blanks than are looked at", `"k"${" ".repeat(1100)}`, malformed],
  ["an empty header", "", malformed],
  ["an empty string", '""', malformed],
  ["another escape", String.raw`"a\nb"`, malformed],
  ["no closing mark", '"abc', malformed],
  ["an escaped closing mark", String.raw`"abc\"`, malformed],
  ["more than one string", '"a" "b"', malformed],
  ["the header twice", '"a", "b"', malformed],
  ["the header twice, bare", "a, b", malformed],
  ["parameters", '"a";v=1', malformed],
  ["a blank in a bare key", "a b", malformed],
  ["a control character", '"a\u0007b"', malformed],
  ["a letter beyond ASCII", '"é"', malformed],
  ["a letter beyond ASCII, bare", "é", malformed],
])("%s", (_, header, parsed) => {
  expect(parseKey(header)).toEqual(parsed);
});
