/**
 * Pairs of ids: one that another tenant has, and one that never existed. A request with either must have the same response, byte for byte.
 */

import type { Random } from "../../src/testing/sim/random.ts";
import type { Got } from "./kit.ts";

export interface Twins {
  readonly foreign: string;
  readonly absent: string;
}

/** What ids may have, and what a response might escape in more than one way. */
const CHARS = [
  "a",
  "Z",
  "0",
  "-",
  "_",
  " ",
  "/",
  "%",
  "?",
  "#",
  "&",
  "+",
  '"',
  "'",
  "\\",
  "<",
  "ü",
  "\u202e",
  "😀",
  "$",
];

/** An id of any characters; its twin differs in one of them, and is as long. */
export function twins(random: Random): Twins {
  const chars = Array.from({ length: 1 + random.below(12) }, () => random.pick(CHARS));
  const at = random.below(chars.length + 1);
  const id = (one: string): string => chars.toSpliced(at, 0, one).join("");
  return { foreign: id("3"), absent: id("7") };
}

/** The same for what has only letters and digits, such as a token: its twin differs in the last of them. */
export const twinOf = (foreign: string): Twins => ({
  foreign,
  absent: foreign.slice(0, -1) + (foreign.endsWith("0") ? "1" : "0"),
});

const UUID = /([0-9a-f]{8}-[0-9a-f-]{27})/;

/** Headers that each response has its own of. */
const OWN_HEADERS = new Set(["date", "x-request-id"]);

/** All of a response but the id of the request, with the id that was asked for, and others of the tenant's own, as "ID". */
export function bytesOf({ status, headers, text }: Got, ...ids: readonly string[]): string {
  const spellings = ids.flatMap(spellingsOf);
  // The reference of an action is a hash of its id.
  const rest = text.replace(/,?"requestId":"[^"]*"/g, "").replace(/"ref":"[\w-]{43}"/g, '"ref":"ID"');
  // A UUID that was drawn may have a short id in it by chance.
  const without = (part: string): string =>
    part
      .split(UUID)
      .map((piece, i) => (i % 2 === 1 ? piece : spellings.reduce((all, one) => all.replaceAll(one, "ID"), piece)))
      .join("");
  const lines = [...headers].filter(([name]) => !OWN_HEADERS.has(name)).map(([name, value]) => `${name}: ${value}`);
  return [status, ...lines, rest].map((line) => without(String(line))).join("\n");
}

/** Quoted in a text, in a text, in a path, and as it is. */
const spellingsOf = (id: string): readonly string[] => [
  JSON.stringify(JSON.stringify(id)).slice(3, -3),
  JSON.stringify(id).slice(1, -1),
  encodeURIComponent(id),
  id,
];

/** The same for what a tenant did itself with either id: without times, and what is drawn anew for each. */
export const withoutChance = (bytes: string): string =>
  bytes
    .replace(/[0-9a-f]{8}-[0-9a-f-]{27}|sig_[\w-]+|pawl_[\w-]+|[\w-]{50,}/g, "CHANCE")
    // Fences of locks are times of the store, too.
    .replace(/\d{4}-\d\d-\d\dT[\d:.]+Z|\b1\d{12}\b/g, "TIME")
    .replace(/"(waitMs|retryAfterMs)":\d+/g, '"$1":MS')
    .replace(/^retry-after: \d+$|in \d+ ms/gm, "MS")
    .replace(/"id":"[\w-]{16,43}"/g, '"id":CHANCE')
    .replace(/^content-length: \d+$/m, "");
