/**
 * Kinds of arguments, and the values that each must refuse: numbers 20 to 43 of the list of attacks, and the mistakes that people make with
 * times (nanoseconds, an invalid Date, a date as a text). JavaScript callers know no types, so each kind also gets values of other types.
 *
 * A kind that ends in "?" may be left out: undefined is fine there, and null may be taken for it. All others must refuse both.
 */

const DAY_MS = 86_400_000;

type Named = readonly [name: string, value: unknown];

const NANOSECONDS: Named = ["nanoseconds", Date.UTC(2026, 11, 31) * 1e6];
const INVALID_DATE: Named = ["an invalid Date", new Date("31.12.2026")];
const DATE_TEXT: Named = ["a date as a text", "2026-12-31"];

const NUMBERS: readonly Named[] = [
  ["NaN", Number.NaN],
  ["Infinity", Number.POSITIVE_INFINITY],
  ["minus Infinity", Number.NEGATIVE_INFINITY],
  ["-5", -5],
  NANOSECONDS,
  INVALID_DATE,
  DATE_TEXT,
  ["a number as a text", "5"],
  ["a bigint", 5n],
  ["true", true],
  ["an object", {}],
  ["an array", [5]],
  ["a function", () => 5],
  ["a symbol", Symbol("five")],
];

const NO_TEXTS: readonly Named[] = [
  ["a number", 5],
  ["a bigint", 5n],
  ["true", true],
  ["an object with toString", { toString: () => "a" }],
  ["a symbol", Symbol("a")],
  ["a function", () => "a"],
  INVALID_DATE,
];

const LONG = "a".repeat(257);
const BAD_IDS: readonly Named[] = [
  ["257 bytes", LONG],
  ["257 bytes in 129 letters", `${"é".repeat(128)}x`],
  ["a line feed", "a\nb"],
  ["an escape", "\u001b[31m"],
  ["a control of Latin-1", "a\u0085"],
  ["a line separator", "a\u2028b"],
  ["NUL", "a\u0000b"],
  ["a lone high surrogate", "a\ud800"],
  ["a lone low surrogate", "\udfffa"],
  ...NO_TEXTS,
  ["an array of a text", ["a"]],
];

const cycle: { self?: unknown } = {};
cycle.self = [cycle];

function nested(levels: number): unknown {
  let value: unknown = 1;
  for (let i = 0; i < levels; i++) value = [value];
  return value;
}

class Money {
  readonly amount = 5;
}

const NO_OBJECTS: readonly Named[] = [
  ["a number", 5],
  ["a text", "a"],
  ["true", true],
  ["a bigint", 5n],
  ["a symbol", Symbol("a")],
  ["a function", () => ({})],
];

const NO_HANDLES: readonly Named[] = [...NO_OBJECTS, ["a plain object", {}], ["an array", []]];

const BAD: Readonly<Record<string, readonly Named[]>> = {
  id: [["an empty text", ""], ...BAD_IDS],
  prefix: BAD_IDS,
  text: [...NO_TEXTS, ["an array", ["a"]], ["a lone surrogate", "a\ud800"]],
  ids: [...NO_OBJECTS, ["an empty text in it", [""]], ["a number in it", [5]], ["a text of 257 bytes in it", [LONG]]],
  names: [
    ...BAD_IDS.filter(([name]) => !name.startsWith("an array")),
    ["no names", []],
    ["an empty name", [""]],
    ["a number in it", [5]],
  ],
  cursor: [["an empty text", ""], ["another text", "not a cursor"], ...NO_TEXTS],
  duration: [...NUMBERS, ["an empty text", ""], ["5 years", "5 years"], ["a hundred years and a day", 36_526 * DAY_MS]],
  /** An object of durations by outcome will do as well. */
  retention: [
    ...NUMBERS.filter(([name]) => name !== "an object"),
    ["an empty text", ""],
    ["another outcome", { finished: "7 days" }],
    ["a bad duration in it", { completed: "soon" }],
  ],
  lease: [...NUMBERS, ["0", 0], ["9 ms", 9], ["ten years", 3_650 * DAY_MS], ["an empty text", ""]],
  positive: [...NUMBERS, ["0", 0], ["an empty text", ""], ["5 years", "5 years"]],
  time: [
    ...NUMBERS,
    ["microseconds", Date.UTC(2026, 11, 31) * 1e3],
    ["a fraction", 0.5],
    ["out of range", 8.64e15 + 1],
  ],
  count: [...NUMBERS, ["0", 0], ["1.5", 1.5], ["2^53", 2 ** 53]],
  /** Zero is a number of them as well. */
  number: [...NUMBERS, ["1.5", 1.5], ["2^53", 2 ** 53]],
  priority: [...NUMBERS.filter(([, value]) => value !== -5), ["101", 101], ["1.5", 1.5], ["2^53", 2 ** 53]],
  version: [...NUMBERS.filter(([name]) => name !== NANOSECONDS[0]), ["-0", -0], ["1.5", 1.5], ["2^53", 2 ** 53]],
  fence: [...NUMBERS, ["0", 0], ["1.5", 1.5], ["2^53", 2 ** 53]],
  factor: [...NUMBERS.filter(([name]) => name !== NANOSECONDS[0]), ["0.5", 0.5]],
  share: [...NUMBERS, ["1.1", 1.1]],
  boolean: [
    ["a number", 1],
    ["a text", "yes"],
    ["an object", {}],
    ["an array", []],
    INVALID_DATE,
    ["a symbol", Symbol("a")],
  ],
  function: [
    ["a number", 5],
    ["a text", "a"],
    ["true", true],
    ["an object", {}],
    ["an array", []],
    ["a symbol", Symbol("a")],
  ],
  abortSignal: [...NO_HANDLES, ["a controller", new AbortController()]],
  choice: [
    ["another word", "other"],
    ["an empty text", ""],
    ["the name of a method", "constructor"],
    ["__proto__", "__proto__"],
    ["an object", {}],
    ["a number", 5],
    ["a symbol", Symbol("a")],
  ],
  choices: [
    ["another word", "other"],
    ["an empty text", ""],
    ["another word in a list", ["other"]],
    ["a number", 5],
    ["an object", {}],
  ],
  value: [
    ["a function", () => 1],
    ["a symbol", Symbol("a")],
    ["a cycle", cycle],
    ["65 levels", nested(65)],
    ["a hundred thousand levels", nested(100_000)],
    ["an instance of a class", new Money()],
    ["a regular expression", /a/],
    ["a promise", Promise.resolve(1)],
    ["a WeakMap", new WeakMap()],
    ["a hole in an array", Array(3)],
    INVALID_DATE,
    ["more than 1 MiB", "x".repeat(2 ** 20)],
    [
      "a getter that throws",
      {
        get a() {
          throw new Error("no");
        },
      },
    ],
  ],
  options: [
    ...NO_OBJECTS,
    ["an array", []],
    ["a promise that was not awaited", Promise.resolve({})],
    ["a Map", new Map()],
    ["a Date", new Date(0)],
    ["an AbortSignal", AbortSignal.abort()],
  ],
  object: [...NO_OBJECTS, ["an array", []]],
  array: [...NO_OBJECTS, ["a plain object", {}]],
  operations: [...NO_OBJECTS, ["a plain object", {}], ["a function in it", [() => 1]]],
  store: NO_HANDLES.filter(([name]) => name !== "a text"),
  list: [...NO_OBJECTS, ["a plain object", {}], ["a number in it", [5]], ["null in it", [null]]],
  handle: NO_HANDLES,
  /** A workflow, or its name. */
  workflow: [
    ["an empty text", ""],
    ...BAD_IDS.filter(([name]) => name !== "a function"),
    ["an object without a name", {}],
  ],
  /** A schedule, or its name. */
  schedule: [
    ["an empty text", ""],
    ...BAD_IDS.filter(([name]) => name !== "a function"),
    ["an object without a name", {}],
  ],
  cron: [
    ...NO_TEXTS,
    ["an empty text", ""],
    ["three fields", "* * *"],
    ["minute 61", "61 * * * *"],
    ["a word", "often"],
    ["an unknown nickname", "@often"],
    ["1 MB", "1,".repeat(500_000)],
  ],
  timezone: [...NO_TEXTS, ["an empty text", ""], ["another planet", "Mars/Olympus"], ["an offset", "+01:00"]],
  overlap: [
    ["another word", "other"],
    ["an empty text", ""],
    ["__proto__", "__proto__"],
    ["a number", 5],
    ["an object without a number", {}],
    ["a queue of 0", { queue: 0 }],
    ["a queue of 1.5", { queue: 1.5 }],
    ["an unknown name", { queue: 1, skip: true }],
  ],
  catchUp: [
    ["another word", "all"],
    ["an empty text", ""],
    ["an object", {}],
    ["0", 0],
    ["1.5", 1.5],
    ["-1", -1],
  ],
  /** A time, or a list of them. */
  times: [
    ["a date as a text", "2026-01-01"],
    ["an object", {}],
    ["NaN", Number.NaN],
    ["-5", -5],
    INVALID_DATE,
    ["no times", []],
    ["an invalid Date in it", [new Date(Number.NaN)]],
    ["a text in it", ["2026-01-01"]],
  ],
  definition: NO_HANDLES.filter(([name]) => name !== "a function"),
  url: [
    ...NO_TEXTS.filter(([name]) => name !== "an object with toString"),
    ["an empty text", ""],
    ["a path", "/hook"],
    ["a file", "file:///etc/passwd"],
    ["a port of another protocol", "http://example.com:22/"],
    ["a user and a password", "http://user:pw@example.com/"],
    ["a line end", "http://example.com/\r\nhost: other"],
  ],
  method: [...NO_TEXTS, ["an empty text", ""], ["another word", "CONNECT"], ["a line end", "GET\r\n"]],
  headers: [
    ...NO_OBJECTS,
    ["an array", ["a"]],
    ["a line end in one", { a: "b\r\nhost: c" }],
    ["a number in one", { a: 5 }],
    ["the host", { Host: "other" }],
    ["the signature", { "webhook-signature": "v1,x" }],
    ["what looks like the signature", { webhook_signature: "v1,x" }],
  ],
  statuses: [
    ...NO_OBJECTS,
    ["a plain object", {}],
    ["a status of success", [200]],
    ["a text in it", ["503"]],
    ["1.5", [500.5]],
  ],
  webhookSecrets: [...NO_TEXTS, ["an empty text", ""], ["a short one", "whsec_c2hvcnQ="], ["a number in it", [5]]],
  /** Those of other senders may be short. */
  receiverSecrets: [
    ...NO_TEXTS,
    ["an empty text", ""],
    ["no secrets", []],
    ["a number in it", [5]],
    ["null in it", [null]],
    ["an empty text in it", [""]],
    ["no bytes", new Uint8Array()],
    ["no bytes in it", [new Uint8Array()]],
    ["nothing after the prefix", "whsec_"],
    ["no base64", "whsec_%%%%"],
  ],
  port: [...NUMBERS, ["1.5", 1.5], ["65536", 65_536], ["a text of digits", "80"]],
  hostname: [...NO_TEXTS, ["an empty text", ""], ["a text of 257 bytes", LONG], ["a line end", "127.0.0.1\r\n"]],
  /** Where an app is mounted. */
  mount: [
    ...NO_TEXTS,
    ["no slash", "pawl"],
    ["a slash alone", "/"],
    ["a slash at the end", "/pawl/"],
    ["two slashes", "//pawl"],
    ["a query", "/pawl?a"],
    ["a parameter", "/:id"],
    ["a line end", "/pawl\n"],
  ],
  ranges: [
    ...NO_OBJECTS,
    ["a plain object", {}],
    ["a name in it", ["localhost"]],
    ["bits outside the range in it", ["10.0.0.1/8"]],
    ["33 bits", ["10.0.0.0/33"]],
    ["a slash without bits", ["10.0.0.0/"]],
    ["bits twice", ["10.0.0.0/8/16"]],
    ["a number in it", [5]],
  ],
  ports: [
    ...NO_OBJECTS,
    ["a plain object", {}],
    ["a text in it", ["9200"]],
    ["0 in it", [0]],
    ["65536 in it", [65_536]],
    ["a port that is never called", [22]],
  ],
  pin: [
    ...NO_TEXTS,
    ["an empty text", ""],
    ["3 digits", "123"],
    ["full-width digits", "１２３４"],
    ["1 MB", "1".repeat(1_000_000)],
  ],
  secret: [...NO_TEXTS, ["an empty text", ""]],
  secretText: NO_TEXTS,
  /** Of a server. */
  address: [
    ...NO_TEXTS.filter(([name]) => name !== "an object with toString"),
    ["an empty text", ""],
    ["a path", "/pawl"],
    ["a file", "file:///etc/passwd"],
    ["a user and a password", "http://user:pw@example.com/"],
    ["a query", "http://example.com/?key=1"],
  ],
  /** A text, or bytes. */
  bytes: [
    ...NO_TEXTS.filter(([name]) => name !== "an object with toString"),
    ["an array", [1]],
    ["a plain object", {}],
  ],
  /** One secret, or a list of them. */
  peppers: [
    ...NO_TEXTS,
    ["an empty text", ""],
    ["15 bytes", "p".repeat(15)],
    ["no peppers", []],
    ["a short one in it", ["p".repeat(32), "short"]],
    ["a number in it", [5]],
    ["null in it", [null]],
    ["the same twice", ["p".repeat(32), "p".repeat(32)]],
    ["nine of them", Array.from({ length: 9 }, (_, index) => String(index).repeat(32))],
  ],
};

/** A fingerprint is not stored, so it may be long, and have holes. */
const FINGERPRINTS = ["more than 1 MiB", "a hole in an array"];

/** What an argument of this kind must refuse. */
export function badValues(kind: string): readonly Named[] {
  if (kind === "fingerprint") return badValues("value").filter(([name]) => !FINGERPRINTS.includes(name));
  // A function of the tick will do as well.
  if (kind === "scheduleInput") return badValues("fingerprint").filter(([name]) => name !== "a function");
  const isOptional = kind.endsWith("?");
  const values = BAD[isOptional ? kind.slice(0, -1) : kind];
  if (values === undefined) throw new Error(`there is no kind "${kind}"`);
  return isOptional || kind === "value" ? values : [...values, ["undefined", undefined], ["null", null]];
}

/** The codes of refusals that are made because of an argument. */
export const REFUSALS: ReadonlySet<string> = new Set([
  "invalid_argument",
  "invalid_id",
  "invalid_duration",
  "invalid_value",
  "value_too_large",
  "schema_mismatch",
  "invalid_cron",
  "invalid_timezone",
  "invalid_target",
]);
