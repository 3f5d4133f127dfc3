/**
 * Bad input: numbers 20 to 34 and 38 to 42 of the list of attacks, on every store, through the public handle.
 *
 * Goal: the same input gets the same answer on every store, and what is refused has written nothing.
 * Method: one table. A row that names a code must be refused with it; before and after, everything that is stored is
 * compared, down to the number of rows. A row without a code says itself what must come back. Where a number has no
 * subject yet at this level (JSON on the wire, permits), its row tries the nearest thing there is, and its name says so.
 */

import { existsSync } from "node:fs";
import { DatabaseSync } from "node:sqlite";
import { inspect } from "node:util";
import { afterAll, describe, expect, test, vi } from "vitest";
import { claimDue, type Held } from "../../src/kernel/claim/claim.ts";
import { Worker } from "../../src/kernel/claim/worker.ts";
import type { Codec } from "../../src/kernel/codec/codec.ts";
import { jsonCodec } from "../../src/kernel/codec/json.ts";
import { address } from "../../src/kernel/contract.ts";
import { open } from "../../src/open.ts";
import type { Pawl } from "../../src/pawl.ts";
import { codeOf, drained, temporaryFolder } from "../kernel/kit.ts";

const folder = temporaryFolder();
afterAll(() => folder.remove());
let files = 0;

const stores = [
  ["memory:", () => "memory:"],
  [
    "SQLite",
    () => {
      files += 1;
      return folder.file(`bad-input-${files}.db`);
    },
  ],
] as const;

/** Text to be stored as it is, as if another hand had written it. */
class Planted {
  readonly text: string;
  constructor(text: string) {
    this.text = text;
  }
}

const planting: Codec = {
  encode: (value, at) => (value instanceof Planted ? value.text : jsonCodec.encode(value, at)),
  decode: (text, at) => jsonCodec.decode(text, at),
};

const job = address("job", "one");

interface Place {
  readonly pawl: Pawl;
  readonly store: string;
}

/** A store with one slot and one due record in it. */
async function furnished(store: string): Promise<Place> {
  const pawl = await open({ store, durability: "process", codec: planting });
  await pawl.slot("there").set("before");
  await pawl.kernel.transact((tx) => tx.record(job).write({ value: 0, kind: "job", dueMs: tx.nowMs }), [job]);
  return { pawl, store };
}

async function everything({ pawl, store }: Place): Promise<unknown> {
  const { slots } = await pawl.slots.list({ limit: 1_000 });
  const kept = [
    slots,
    await pawl.kernel.read([job, pawl.slot("there").touches]),
    await pawl.kernel.entries(job, 0, 10),
  ];
  if (!existsSync(store)) return kept;
  const db = new DatabaseSync(store, { readOnly: true });
  const rows = db.prepare("select * from pawl_record order by id").all();
  const log = db.prepare("select count(*) as entries from pawl_log").all();
  db.close();
  return [...kept, rows, log];
}

async function claimJob(pawl: Pawl): Promise<Held> {
  const { held } = await claimDue(pawl.kernel, { kinds: ["job"], by: "ann", leaseMs: 60_000, limit: 1 });
  const [one] = held;
  if (one === undefined) throw new Error("it was due");
  return one;
}

const claimWith = (change: object) => (pawl: Pawl) =>
  claimDue(pawl.kernel, { kinds: ["job"], by: "ann", leaseMs: 1_000, limit: 1, ...change });

/** A worker that must not come to be; one that does is stopped. */
const workWith = (change: object) => async (pawl: Pawl) => {
  const worker = new Worker(pawl.kernel, {
    kinds: ["none"],
    by: "ann",
    work: async () => {},
    failed: () => {},
    ...change,
  });
  await worker.stop();
};

/** JavaScript callers know no types. */
const untyped = (value: unknown): never => value as never;

type Attack = readonly [number: number, name: string, act: (pawl: Pawl) => unknown];
type Refusal = readonly [...Attack, code: string];

const DAY_MS = 86_400_000;
const badIds: (readonly [number, string, unknown])[] = [
  [20, "an empty name", ""],
  [20, "257 bytes", "a".repeat(257)],
  [20, "257 bytes in 129 letters", `${"é".repeat(128)}x`],
  [20, "a line feed", "a\nb"],
  [20, "an escape", "\u001b[31m"],
  [20, "a control of Latin-1", "\u0085"],
  [20, "a line separator", "a\u2028b"],
  [20, "a name that is a number", 5],
  [20, "a name that is null", null],
  [20, "a name that is an object", { toString: () => "a" }],
  [21, "NUL", "a\u0000b"],
  [21, "nothing but NUL", "\u0000"],
  [22, "a lone high surrogate", "a\ud800"],
  [22, "a lone low surrogate", "\udfffa"],
  [26, "the separator of our own key texts", "slot\nthere"],
];

const cycle: { self?: unknown } = {};
cycle.self = [cycle];

const refusals: Refusal[] = [
  ...badIds.flatMap(([number, name, id]): Refusal[] => [
    [number, `${name} as a slot`, (pawl) => pawl.slot(untyped(id)).set("new"), "invalid_id"],
    [
      number,
      `${name} as a page's start`,
      (pawl) => pawl.slots.list({ after: id === null ? "" : untyped(id) }),
      "invalid_id",
    ],
    [
      number,
      `${name} as a namespace`,
      () => open({ store: "memory:", namespace: id === null ? "" : untyped(id) }),
      "invalid_id",
    ],
    [number, `${name} as a holder`, claimWith({ by: id }), "invalid_id"],
    [number, `${name} as a kind`, claimWith({ kinds: [id] }), "invalid_id"],
  ]),
  ...badIds
    .filter(([, , id]) => id !== "" && id !== null)
    .map(
      ([number, name, id]): Refusal => [
        number,
        `${name} as a prefix`,
        (pawl) => pawl.slots.list({ prefix: untyped(id) }),
        "invalid_id",
      ],
    ),

  [32, "an invalid Date", (pawl) => pawl.slot("there").set(new Date(Number.NaN)), "invalid_value"],
  [32, "a WeakMap", (pawl) => pawl.slot("there").set(new WeakMap()), "invalid_value"],
  [32, "a regular expression", (pawl) => pawl.slot("there").set({ deep: [/x/] }), "invalid_value"],
  [32, "an instance of a class", (pawl) => pawl.slot("there").set(new (class Money {})()), "invalid_value"],
  [32, "a hole in an array", (pawl) => pawl.slot("there").set(Array(3)), "invalid_value"],
  [33, "a cycle", (pawl) => pawl.slot("there").set(cycle), "invalid_value"],
  [33, "a function", (pawl) => pawl.slot("there").set({ run: () => 1 }), "invalid_value"],
  [33, "a symbol", (pawl) => pawl.slot("there").set(Symbol("x")), "invalid_value"],
  [33, "a promise", (pawl) => pawl.slot("there").set(Promise.resolve(1)), "invalid_value"],
  [33, "65 levels", (pawl) => pawl.slot("there").set(nested(65)), "invalid_value"],
  [33, "a hundred thousand levels", (pawl) => pawl.slot("there").set(nested(100_000)), "invalid_value"],
  [33, "50 MB", (pawl) => pawl.slot("there").set("x".repeat(50_000_000)), "value_too_large"],
  [33, "a byte over the limit", (pawl) => pawl.slot("there").set("x".repeat(2 ** 20 - 1)), "value_too_large"],
  [
    33,
    "a byte over the limit, in letters of three bytes",
    (pawl) => pawl.slot("there").set("€".repeat(349_525)),
    "value_too_large",
  ],
  [
    33,
    "a value that throws when it is read",
    (pawl) =>
      pawl.slot("there").set({
        get x() {
          throw new Error("no");
        },
      }),
    "invalid_value",
  ],
  [
    33,
    "a good write and a bad one in a transaction",
    (pawl) =>
      pawl.transact((tx) => {
        tx.slot(pawl.slot<unknown>("good")).set(1);
        tx.slot(pawl.slot<unknown>("there")).set(cycle);
      }),
    "invalid_value",
  ],

  ...[Number.NaN, -5, Number.POSITIVE_INFINITY, "5", "", "5 years", null, {}, 5n].flatMap((duration): Refusal[] => [
    [
      38,
      `a patience of ${inspect(duration)}`,
      () => open({ store: "memory:", patience: untyped(duration ?? "null") }),
      "invalid_duration",
    ],
    [38, `a lease of ${inspect(duration)}`, claimWith({ leaseMs: duration }), "invalid_duration"],
    [38, `a worker's lease of ${inspect(duration)}`, workWith({ leaseMs: duration ?? "null" }), "invalid_duration"],
  ]),
  [39, "a Date beyond range", (pawl) => pawl.slot("there").set(new Date(8.64e15 + 1)), "invalid_value"],
  ...[Number.NaN, Number.POSITIVE_INFINITY, -1, 8.64e15 + 1].map(
    (ms): Refusal => [
      39,
      `a rest until ${ms}, the nearest to a date that a caller gives`,
      async (pawl) => (await claimJob(pawl)).rest(() => ms),
      "invalid_argument",
    ],
  ),
  ...[0, 9, 3_650 * DAY_MS, DAY_MS + 1].flatMap((leaseMs): Refusal[] => [
    [40, `a claim for ${leaseMs} ms`, claimWith({ leaseMs }), "invalid_duration"],
    [40, `a worker that leases for ${leaseMs} ms`, workWith({ leaseMs }), "invalid_duration"],
    [40, `a renewal for ${leaseMs} ms`, async (pawl) => (await claimJob(pawl)).renew(leaseMs), "invalid_duration"],
  ]),
  ...[0, -1, 1.5, Number.NaN, Number.POSITIVE_INFINITY, 10_001, "1", null].flatMap((count): Refusal[] => [
    [
      41,
      `${inspect(count)} slots on a page, the nearest to permits`,
      (pawl) => pawl.slots.list({ limit: untyped(count ?? {}) }),
      "invalid_argument",
    ],
    [41, `${inspect(count)} claims, the nearest to permits`, claimWith({ limit: count }), "invalid_argument"],
    [
      41,
      `${inspect(count)} records at a time, the nearest to permits`,
      workWith({ concurrency: count ?? {} }),
      "invalid_argument",
    ],
  ]),
  ...[-2, -1, -0, 2 ** 53, 1.5, Number.NaN, "1", null, 1n, {}].flatMap((version): Refusal[] => [
    [
      42,
      `set at version ${inspect(version)}`,
      (pawl) => pawl.slot("there").set("new", { expectedVersion: untyped(version) }),
      "invalid_argument",
    ],
    [
      42,
      `trySet at version ${inspect(version)}`,
      (pawl) => pawl.slot("there").trySet("new", { expectedVersion: untyped(version) }),
      "invalid_argument",
    ],
    [
      42,
      `delete at version ${inspect(version)}`,
      (pawl) => pawl.slot("there").delete({ expectedVersion: untyped(version) }),
      "invalid_argument",
    ],
  ]),
  [42, "trySet without a version", (pawl) => pawl.slot("there").trySet("new", untyped({})), "invalid_argument"],
  ...[0, 2, 2 ** 53 - 1].flatMap((expectedVersion): Refusal[] => [
    [
      42,
      `set at the stale version ${expectedVersion}`,
      (pawl) => pawl.slot("there").set("new", { expectedVersion }),
      "version_conflict",
    ],
    [
      42,
      `delete at the stale version ${expectedVersion}`,
      (pawl) => pawl.slot("there").delete({ expectedVersion }),
      "version_conflict",
    ],
  ]),
  [
    42,
    "version 1 of what is not there",
    (pawl) => pawl.slot("none").set("new", { expectedVersion: 1 }),
    "version_conflict",
  ],
];

function nested(levels: number): unknown {
  let value: unknown = 1;
  for (let i = 0; i < levels; i++) value = [value];
  return value;
}

/** Sets the value and gives what comes back, as any later reader gets it. */
async function kept(pawl: Pawl, value: unknown): Promise<unknown> {
  const slot = pawl.slot<unknown>("kept");
  await slot.set(value);
  return (await slot.get()).value;
}

const planted = (pawl: Pawl, text: string) => kept(pawl, new Planted(text));

const tried: Attack[] = [
  [
    23,
    "a composed and a decomposed letter stay two slots",
    async (pawl) => {
      const names = ["\u00e9", "e\u0301", "\u212b", "\u00c5"];
      for (const name of names) await pawl.slot(name).set(name);
      for (const name of names) expect(await pawl.slot(name).get()).toEqual({ value: name, version: 1 });
    },
  ],
  [
    24,
    "slashes, dots and escapes are literal",
    async (pawl) => {
      const names = ["a/b", "a//b", "a/./b", "a/../b", "..", ".", "/", "a%2Fb", "a%2fb", "%", "%00", "a\\b", "C:\\x"];
      for (const name of names) await pawl.slot(name).set(name);
      for (const name of names) expect(await pawl.slot(name).get()).toEqual({ value: name, version: 1 });
      expect((await pawl.slots.list()).slots.length).toBe(names.length + 1);
    },
  ],
  [
    25,
    "SQL and its wildcards are literal, in names and in search",
    async (pawl) => {
      const names = [
        "'; drop table pawl_record;--",
        '"',
        "`",
        "%",
        "_",
        "a%",
        "a_",
        "ab",
        "[a]",
        "*",
        "?",
        "\\%",
        "--",
      ];
      for (const name of names) await pawl.slot(name).set(name);
      for (const prefix of names) {
        const { slots } = await pawl.slots.list({ prefix });
        expect(slots.map((slot) => slot.name).sort()).toEqual(names.filter((name) => name.startsWith(prefix)).sort());
      }
      await claimWith({ kinds: ["'; delete from pawl_record;--", "%", "j_b"] })(pawl);
      expect((await pawl.slots.list()).slots.length).toBe(names.length + 1);
    },
  ],
  [
    26,
    "a name that looks like a composite key is a name",
    async (pawl) => {
      const names = [
        "slot",
        "slot there",
        "slot/there",
        "slot:there",
        "job",
        "default",
        "there\u00a0",
        '["slot","there"]',
      ];
      for (const name of names) await pawl.slot(name).set(name);
      for (const name of names) expect(await pawl.slot(name).get()).toEqual({ value: name, version: 1 });
      expect(await pawl.slot("there").get()).toEqual({ value: "before", version: 1 });
    },
  ],
  [
    27,
    "direction overrides are kept as they are; escaping them is the console's part",
    async (pawl) => {
      const name = "invoice\u202efdp.exe\u2066";
      await pawl.slot(name).set(name);
      expect((await pawl.slots.list({ prefix: "invoice" })).slots).toEqual([{ name, value: name, version: 1 }]);
    },
  ],
  [
    28,
    "__proto__ and constructor.prototype are data",
    async (pawl) => {
      const evil: unknown = JSON.parse(
        '{"__proto__":{"admin":true},"constructor":{"prototype":{"admin":true}},"toJSON":1}',
      );
      const back = await kept(pawl, evil);
      expect(JSON.stringify(back)).toBe(JSON.stringify(evil));
      expect(Object.getPrototypeOf(back)).toBe(Object.prototype);
      expect(Reflect.get({}, "admin")).toBeUndefined();
      for (const name of ["__proto__", "constructor", "toString", "hasOwnProperty"]) {
        expect(await pawl.slot(name).get()).toEqual({ value: undefined, version: 0 });
        await pawl.slot(name).set(name);
        expect(await pawl.slot(name).get()).toEqual({ value: name, version: 1 });
      }
    },
  ],
  [
    29,
    "of duplicate keys in stored JSON, the nearest to JSON on the wire, the last counts",
    async (pawl) => {
      expect(await planted(pawl, '{"a":1,"b":2,"a":3}')).toEqual({ a: 3, b: 2 });
      expect(await planted(pawl, '{"a":{"x":1},"a":{"y":2}}')).toEqual({ a: { y: 2 } });
      expect(await planted(pawl, '{"__proto__":1,"__proto__":{"admin":true}}')).toEqual(
        JSON.parse('{"__proto__":{"admin":true}}'),
      );
    },
  ],
  [
    30,
    "Infinity, the nearest to 1e400 on the wire, comes back as Infinity",
    async (pawl) => {
      expect(await kept(pawl, [Number("1e400"), Number("-1e400")])).toEqual([
        Number.POSITIVE_INFINITY,
        Number.NEGATIVE_INFINITY,
      ]);
      expect(await kept(pawl, 1.7976931348623157e308)).toBe(Number.MAX_VALUE);
      expect(await kept(pawl, 5e-324)).toBe(5e-324);
    },
  ],
  [
    31,
    "unsafe integers are kept exactly as the doubles they are",
    async (pawl) => {
      for (const number of [2 ** 53, 2 ** 53 + 2, -(2 ** 53) - 2, 2 ** 64, 1e21, 123456789012345680000])
        expect(await kept(pawl, number)).toBe(number);
      expect(await kept(pawl, 2n ** 70n + 1n)).toBe(2n ** 70n + 1n);
    },
  ],
  [
    32,
    "what JSON cannot express has a defined round trip",
    async (pawl) => {
      const values = [
        -0,
        Number.NaN,
        undefined,
        [undefined],
        { missing: undefined },
        new Date(0),
        new Map<unknown, unknown>([[{ a: 1 }, new Set([1, "1"])]]),
        new Set([Number.NaN]),
        -12345678901234567890n,
        new Uint8Array([0, 255, 128]),
        "\u0000",
        "\ud800 lone",
        { $date: 1 },
        { $$date: { $map: [] } },
      ];
      for (const value of values) expect(await kept(pawl, value)).toStrictEqual(value);
      expect(Object.is(await kept(pawl, -0), -0)).toBe(true);
      const cause = Object.assign(new TypeError("inner"), { code: "E_INNER" });
      const back = await kept(pawl, new Error("outer", { cause }));
      expect(back).toBeInstanceOf(Error);
      expect(back).toMatchObject({ message: "outer", cause: { name: "TypeError", message: "inner", code: "E_INNER" } });
    },
  ],
  [
    33,
    "a worker whose work returns such things lives, and its other records are worked on",
    async (pawl) => {
      const bad = ["cycle", "function", "large", "promise"];
      const keys = [...bad, "good"].map((name) => address("work", name));
      await pawl.kernel.transact((tx) => {
        for (const at of keys) tx.record(at).write({ value: 0, kind: "work", dueMs: tx.nowMs });
      }, keys);
      const poison: Record<string, unknown> = {
        cycle,
        function: () => 1,
        large: "x".repeat(2 ** 21),
        promise: Promise.resolve(1),
      };
      const failures: unknown[] = [];
      const worker = new Worker(pawl.kernel, {
        kinds: ["work"],
        by: "ann",
        concurrency: 1,
        failed: (error) => failures.push((error as { code?: unknown }).code),
        work: async (held) => {
          await held.rest(
            () => null,
            (record) => record.write({ value: poison[held.at.key] ?? "done" }),
          );
        },
      });
      for (let i = 0; i < 200 && (await pawl.kernel.read(keys.slice(-1)))[0]?.value !== '"done"'; i++) await drained();
      await worker.stop();
      const rows = await pawl.kernel.read(keys);
      expect(rows.map((row) => row?.value)).toEqual(["0", "0", "0", "0", '"done"']);
      expect(rows.every((row) => row?.holder === null)).toBe(true);
      expect(failures.slice(0, 4).sort()).toEqual([
        "invalid_value",
        "invalid_value",
        "invalid_value",
        "value_too_large",
      ]);
    },
  ],
  [
    34,
    "an unknown tag, or text of another codec, is not read, and no class is revived",
    async (pawl) => {
      const texts = [
        '{"$class":"Money"}',
        '{"$function":"process.exit()"}',
        '[{"deep":{"$unknown":1}}]',
        '{"$date":"yesterday"}',
        '{"$error":{"name":"Error","message":"m","evil":1}}',
        "~aes:AAAA",
        "not JSON",
        "",
        '{"a":',
      ];
      for (const text of texts) {
        const slot = pawl.slot<unknown>("planted");
        await slot.set(new Planted(text));
        expect(await codeOf(slot.get()), text).toBe("unsupported_encoding");
        expect(await codeOf(pawl.transact((tx) => tx.slot(slot).get().value as number)), text).toBe(
          "unsupported_encoding",
        );
        expect(await codeOf(slot.update(() => "new")), text).toBe("unsupported_encoding");
        // It can still be replaced or deleted by whoever does not need to read it.
        await slot.set("mended");
        expect((await slot.get()).value).toBe("mended");
      }
      expect(await planted(pawl, '{"$error":{"name":"DatabaseSync","message":"m"}}')).toBeInstanceOf(Error);
    },
  ],
  [
    38,
    "a sleep of 25 days does not end immediately",
    async (pawl) => {
      const held = await claimJob(pawl);
      await held.rest((tx) => tx.nowMs + 25 * DAY_MS);
      const looks = vi.spyOn(pawl.kernel, "due");
      const woken: unknown[] = [];
      const worker = new Worker(pawl.kernel, {
        kinds: ["job"],
        by: "ann",
        leaseMs: DAY_MS,
        pollMs: 30 * DAY_MS,
        work: async () => void woken.push(1),
        failed: () => {},
      });
      await new Promise((resolve) => setTimeout(resolve, 60));
      const lookCount = looks.mock.calls.length;
      looks.mockRestore();
      await worker.stop();
      expect(woken).toEqual([]);
      expect(lookCount).toBeLessThanOrEqual(2);
    },
  ],
  [
    39,
    "the first and the last moment that a Date can hold are kept",
    async (pawl) => {
      for (const ms of [-8.64e15, -1, 0, 8.64e15]) expect(await kept(pawl, new Date(ms))).toEqual(new Date(ms));
    },
  ],
  [
    40,
    "the shortest and the longest lease are given",
    async (pawl) => {
      for (const leaseMs of [10, DAY_MS]) {
        const { held } = await claimDue(pawl.kernel, { kinds: ["job"], by: "ann", leaseMs, limit: 1 });
        expect(held.length).toBe(1);
        await held[0]?.rest((tx) => tx.nowMs);
      }
    },
  ],
  [
    42,
    "a stale version gets the current one",
    async (pawl) => {
      const slot = pawl.slot<string>("there");
      await slot.set("now");
      const stale = { code: "version_conflict", data: { expected: 1, current: 2 } };
      await expect(slot.set("new", { expectedVersion: 1 })).rejects.toMatchObject(stale);
      expect(await slot.trySet("new", { expectedVersion: 1 })).toEqual({
        ok: false,
        code: "version_conflict",
        current: 2,
      });
    },
  ],
];

describe.each(stores)("on %s", (_, place) => {
  describe("is refused, and nothing is written", () => {
    test.each(refusals)("%d: %s", async (_number, _name, act, code) => {
      const at = await furnished(place());
      // The claim that some attacks need is made by the attack, so only what it may change is compared.
      const isClaimed = /a rest until|a renewal/.test(_name);
      const before = await everything(at);
      expect(await codeOf((async () => act(at.pawl))())).toBe(code);
      if (isClaimed) {
        const [row] = await at.pawl.kernel.read([job]);
        expect(row).toMatchObject({ holder: "ann", version: 2, tries: 1 });
      } else expect(await everything(at)).toEqual(before);
      await at.pawl.close();
    });
  });

  describe("is taken for what it is", () => {
    test.each(tried)("%d: %s", async (_number, _name, act) => {
      const { pawl } = await furnished(place());
      await act(pawl);
      await pawl.close();
    });
  });
});

test("every number from 20 to 34 and from 38 to 42 is tried", () => {
  const numbers = new Set([...refusals, ...tried].map(([number]) => number));
  const wanted = [...Array.from({ length: 15 }, (_, i) => 20 + i), 38, 39, 40, 41, 42];
  expect([...numbers].sort((x, y) => x - y)).toEqual(wanted);
});
