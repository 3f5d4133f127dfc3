/** What a target returns has no signal token in it, whichever of the usual ways it was written in. */

import { expect, test } from "vitest";
import { maskOf } from "./token.ts";

const TOKEN = "sig_Ab3-_xyzGHIJKLMNOPQRSTUVWXYZabcdef0123456_-9";
const MASK = "[signal token]";
const mask = maskOf(TOKEN);

/** Each character in this way. */
const each = (write: (hex: string) => string, text = TOKEN): string =>
  [...text].map((char) => write(char.charCodeAt(0).toString(16).padStart(2, "0"))).join("");

test.each([
  ["as it is", TOKEN],
  ["in small letters, as names of headers are", TOKEN.toLowerCase()],
  ["without its prefix", TOKEN.slice(4)],
  ["with its signs percent-encoded", TOKEN.replaceAll("-", "%2d").replaceAll("_", "%5F")],
  ["percent-encoded throughout", each((hex) => `%${hex.toUpperCase()}`)],
  ["escaped as in JSON", each((hex) => `\\u00${hex}`)],
  ["escaped in part", `sig_${each((hex) => `\\u00${hex.toUpperCase()}`, TOKEN.slice(4, 10))}${TOKEN.slice(10)}`],
  ["cut off", TOKEN.slice(0, 30)],
  ["cut off where little is left", TOKEN.slice(0, 12)],
])("a token %s is masked", (_, written) => {
  expect(mask(`{"token":"${written}"} ${written}`)).toBe(`{"token":"${MASK}"} ${MASK}`);
});

test("a token with a namespace is masked with it, and without", () => {
  const named = maskOf(`${TOKEN}.YWNtZQ`);
  expect(named(`a ${TOKEN}.YWNtZQ b ${TOKEN} c`)).toBe(`a ${MASK} b ${MASK} c`);
});

test("what is not this token stays", () => {
  const others = `sig_ sig_Ab3 ${"sig_".padEnd(47, "x")} %73%69%67 \\u0073 Ab3xyz`;
  expect(mask(others)).toBe(others);
});
