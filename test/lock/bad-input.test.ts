/**
 * Bad input for locks: numbers 20 to 22 and 38 to 41 of the list of attacks, and likely mistakes with the verbs.
 *
 * Goal: each is refused with its code and a message that says what was wrong, and nothing is written.
 * Method: one table, as plain JavaScript would call it. Every commit that reaches the store is noted, and a refusal has none.
 */

import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { type Hold, type LockPlace, open, type Pawl, PawlError, workflow } from "../../src/index.ts";
import { wallMs } from "../../src/node/ports.ts";
import { MemoryDatabase } from "../../src/stores/memory/memory.ts";
import { openTest } from "../../src/testing/index.ts";
import { noteCommits, OPERATOR } from "./kit.ts";

let written = 0;
let pawl: Pawl;
let other: Pawl;
/** Held, and waited for, while bad input comes in. */
let hold: Hold;
let waiter: LockPlace;
let foreign: Hold;

beforeAll(async () => {
  const database = new MemoryDatabase(wallMs);
  const store = database.connect("test");
  noteCommits(store, ({ puts }) => {
    written += puts.length;
  });
  pawl = await open({ store, namespace: "test" });
  other = await open({ store: database.connect("test"), namespace: "test" });
  hold = await pawl.mutex("held").acquire();
  const entered = await pawl.mutex("held").enqueue();
  if (entered.granted) throw new Error("it is held");
  waiter = entered.place;
  foreign = await other.mutex("foreign").acquire();
});

afterAll(async () => {
  await pawl.close();
  await other.close();
});

/** What it was refused with: its code and its message. */
async function refusal(act: () => unknown): Promise<string> {
  try {
    await act();
  } catch (error) {
    if (error instanceof PawlError) return `${error.code}: ${error.message}`;
    throw error;
  }
  throw new Error("it was not refused");
}

// biome-ignore lint/suspicious/noExplicitAny: plain JavaScript has no types.
type Anything = any;

interface Row {
  readonly what: string;
  readonly act: (pawl: Anything) => unknown;
  readonly code: string;
  readonly says: RegExp;
}

const LONG = "ü".repeat(129);

const names: readonly [string, unknown, string, RegExp][] = [
  ["empty", "", "invalid_id", /the lock's name must not be empty/],
  ["of 258 bytes", LONG, "invalid_id", /longer than 256 bytes/],
  ["with a control character", "a\nb", "invalid_id", /control characters/],
  ["with a NUL", "a\0b", "invalid_id", /control characters/],
  ["with a lone surrogate", "a\ud800", "invalid_id", /lone surrogates/],
  ["a number", 5, "invalid_id", /must be a string, not number/],
  ["an object", {}, "invalid_id", /must be a string, not object/],
  ["null", null, "invalid_id", /must be a string, not null/],
  ["missing", undefined, "invalid_id", /must be a string, not undefined/],
];

const kinds: readonly [string, (pawl: Anything, name: unknown) => unknown][] = [
  ["mutex", (it, name) => it.mutex(name)],
  ["semaphore", (it, name) => it.semaphore(name)],
  ["rwlock", (it, name) => it.rwlock(name)],
  ["lock", (it, name) => it.lock(name, () => {})],
];

const durations: readonly [string, unknown][] = [
  ["NaN", Number.NaN],
  ["below zero", -5],
  ["without end", Number.POSITIVE_INFINITY],
  ['"5", which has no unit', "5"],
  ["words", "soon"],
  ["more than a hundred years", "40000 days"],
  ["an object", {}],
];

const leases: readonly [string, unknown][] = [
  ...durations,
  ["zero", 0],
  ["9 ms", 9],
  ["ten years", "3650 days"],
  ["25 hours", "25h"],
];

const permits: readonly [string, unknown][] = [
  ["0", 0],
  ["-1", -1],
  ["1.5", 1.5],
  ["NaN", Number.NaN],
  ["Infinity", Number.POSITIVE_INFINITY],
  ['"3"', "3"],
  ["10001", 10_001],
];

const interventions: readonly [string, unknown, RegExp][] = [
  ["missing", undefined, /who intervenes \(by\) must be a string/],
  ["null", null, /who intervenes \(by\) must be a string/],
  ["without a name", { reason: "why" }, /who intervenes \(by\) must be a string/],
  ["with an empty name", { by: "", reason: "why" }, /who intervenes \(by\) must not be empty/],
  ["without a reason", { by: "ann" }, /the reason must be a string/],
  ["with an empty reason", { by: "ann", reason: "" }, /the reason must not be empty/],
];

const DURATION = /must be milliseconds from 0 to a hundred years|must be a lease from 10 ms to 24 hours/;

const rows: readonly Row[] = [
  ...kinds.flatMap(([kind, make]) =>
    names.map(
      ([what, name, code, says]): Row => ({ what: `${kind}: a name ${what}`, act: (it) => make(it, name), code, says }),
    ),
  ),
  {
    what: "several: none",
    act: (it) => it.mutex([]),
    code: "invalid_argument",
    says: /the locks must be 1 to 50 names/,
  },
  {
    what: "several: too many",
    act: (it) => it.mutex(Array.from({ length: 51 }, (_, n) => `m${n}`)),
    code: "invalid_argument",
    says: /the locks must be 1 to 50 names/,
  },
  {
    what: "several: one that is none",
    act: (it) => it.mutex(["a", ""]),
    code: "invalid_id",
    says: /must not be empty/,
  },
  {
    what: "several: one that is a number",
    act: (it) => it.mutex(["a", 5]),
    code: "invalid_id",
    says: /must be a string/,
  },
  {
    what: "a semaphore of several names",
    act: (it) => it.semaphore(["a", "b"]),
    code: "invalid_id",
    says: /the lock's name must be a string/,
  },
  {
    what: "a reader-writer lock of several names",
    act: (it) => it.rwlock(["a", "b"]),
    code: "invalid_id",
    says: /the lock's name must be a string/,
  },

  ...leases.flatMap(([what, lease]): Row[] => [
    {
      what: `a mutex's lease: ${what}`,
      act: (it) => it.mutex("m", { lease }),
      code: "invalid_duration",
      says: DURATION,
    },
    {
      what: `a semaphore's lease: ${what}`,
      act: (it) => it.semaphore("m", { lease }),
      code: "invalid_duration",
      says: DURATION,
    },
    {
      what: `a reader-writer lock's lease: ${what}`,
      act: (it) => it.rwlock("m", { lease }),
      code: "invalid_duration",
      says: DURATION,
    },
    {
      what: `lock's lease: ${what}`,
      act: (it) => it.lock("m", () => {}, { lease }),
      code: "invalid_duration",
      says: DURATION,
    },
  ]),
  ...durations.flatMap(([what, timeout]): Row[] => [
    {
      what: `acquire's timeout: ${what}`,
      act: (it) => it.mutex("m").acquire({ timeout }),
      code: "invalid_duration",
      says: /the timeout must/,
    },
    {
      what: `with's timeout: ${what}`,
      act: (it) => it.mutex("m").with(() => {}, { timeout }),
      code: "invalid_duration",
      says: /the timeout must/,
    },
    {
      what: `a waiter's timeout: ${what}`,
      act: () => waiter.acquire({ timeout: timeout as number }),
      code: "invalid_duration",
      says: /the timeout must/,
    },
  ]),
  ...permits.map(
    ([what, given]): Row => ({
      what: `permits: ${what}`,
      act: (it) => it.semaphore("s", { permits: given }),
      code: "invalid_argument",
      says: /the permits must be a whole number from 1 to 10000, not /,
    }),
  ),

  ...["", LONG, 5, null].flatMap((by): Row[] => [
    {
      what: `acquire by ${String(by).slice(0, 5)}`,
      act: (it) => it.mutex("m").acquire({ by }),
      code: "invalid_id",
      says: /who asks must/,
    },
    {
      what: `tryAcquire by ${String(by).slice(0, 5)}`,
      act: (it) => it.mutex("m").tryAcquire({ by }),
      code: "invalid_id",
      says: /who asks must/,
    },
  ]),
  ...[undefined, null, 5, "name", {}].flatMap((work): Row[] => [
    {
      what: `lock does ${work}`,
      act: (it) => it.lock("m", work),
      code: "invalid_argument",
      says: /what to do under the lock must be a function, not /,
    },
    {
      what: `with does ${work}`,
      act: (it) => it.mutex("m").with(work),
      code: "invalid_argument",
      says: /what to do under the lock must be a function/,
    },
  ]),

  ...[0, -1, 1.5, 1001, "5", Number.NaN].map(
    (limit): Row => ({
      what: `inspect's limit: ${limit}`,
      act: (it) => it.mutex("held").inspect({ limit }),
      code: "invalid_argument",
      says: /the limit must be a whole number from 1 to 1000/,
    }),
  ),
  ...[0, -1, 1.5, "5", Number.NaN].map(
    (limit): Row => ({
      what: `history's limit: ${limit}`,
      act: (it) => it.mutex("held").history({ limit }),
      code: "invalid_argument",
      says: /the limit must be a whole number/,
    }),
  ),
  ...[-1, 1.5, 2 ** 53, "5", Number.NaN].map(
    (after): Row => ({
      what: `history after ${after}`,
      act: (it) => it.mutex("held").history({ after }),
      code: "invalid_argument",
      says: /must be a whole number from 0/,
    }),
  ),

  ...interventions.flatMap(([what, given, says]): Row[] => [
    {
      what: `forceRelease, an intervention ${what}`,
      act: (it) => it.mutex("held").forceRelease(given),
      code: "invalid_id",
      says,
    },
    {
      what: `removeWaiter, an intervention ${what}`,
      act: (it) => it.mutex("held").removeWaiter(waiter.ticket, given),
      code: "invalid_id",
      says,
    },
  ]),
  ...["", 5, null, undefined].flatMap((ticket): Row[] => [
    {
      what: `removeWaiter of ${String(ticket)}`,
      act: (it) => it.mutex("held").removeWaiter(ticket, OPERATOR),
      code: "invalid_id",
      says: /the ticket must/,
    },
  ]),
  ...["", 5, null].flatMap((ticket): Row[] => [
    {
      what: `forceRelease of ${String(ticket)}`,
      act: (it) => it.mutex("held").forceRelease({ ...OPERATOR, ticket }),
      code: "invalid_id",
      says: /the ticket must/,
    },
  ]),

  ...[undefined, null, {}, "m", 5].map(
    (given): Row => ({
      what: `tx.lock of ${String(given)}`,
      act: (it) => it.transact((tx: Anything) => tx.lock(given).get()),
      code: "invalid_argument",
      says: /the lock must be of the handle whose transact this is, as pawl.mutex gives it/,
    }),
  ),
  {
    what: "tx.lock of another handle's lock",
    act: (it) => it.transact((tx: Anything) => tx.lock(other.mutex("held")).get()),
    code: "invalid_argument",
    says: /must be of the handle whose transact this is/,
  },
  ...["check", "release"].flatMap((verb): Row[] => [
    ...[undefined, null, {}, "ticket"].map(
      (given): Row => ({
        what: `tx.lock.${verb} of ${String(given)}`,
        act: (it) => it.transact((tx: Anything) => tx.lock(pawl.mutex("held"))[verb](given)),
        code: "invalid_argument",
        says: /the hold must be a hold of this handle and this lock/,
      }),
    ),
    {
      what: `tx.lock.${verb} of another handle's hold`,
      act: (it) => it.transact((tx: Anything) => tx.lock(pawl.mutex("foreign"))[verb](foreign)),
      code: "invalid_argument",
      says: /the hold must be a hold of this handle/,
    },
    {
      what: `tx.lock.${verb} of a hold on another lock`,
      act: (it) => it.transact((tx: Anything) => tx.lock(pawl.mutex("not held"))[verb](hold)),
      code: "invalid_argument",
      says: /the hold must be /,
    },
  ]),

  ...[undefined, null, {}, "m", 5].map(
    (subject): Row => ({
      what: `whyWaiting about ${String(subject)}`,
      act: (it) => it.whyWaiting(subject),
      code: "invalid_argument",
      says: /what to ask about must be \{ run \} or \{ lock \}/,
    }),
  ),
  {
    what: "whyWaiting about a run without a name",
    act: (it) => it.whyWaiting({ run: "" }),
    code: "invalid_id",
    says: /the run's id must not be empty/,
  },
  {
    what: "whyWaiting about a run that is not there",
    act: (it) => it.whyWaiting({ run: "none" }),
    code: "run_not_found",
    says: /"none"/,
  },
  {
    what: "whyWaiting about a lock without a name",
    act: (it) => it.whyWaiting({ lock: "" }),
    code: "invalid_id",
    says: /the lock's name must not be empty/,
  },
  {
    what: "whyWaiting about a waiter without a name",
    act: (it) => it.whyWaiting({ lock: "held", waiter: "" }),
    code: "invalid_id",
    says: /the waiter must not be empty/,
  },
  ...["spinlock", "", 5, "__proto__"].map(
    (kind): Row => ({
      what: `whyWaiting about a lock of the kind ${kind || "''"}`,
      act: (it) => it.whyWaiting({ lock: "held", kind }),
      code: "invalid_argument",
      says: /the lock's kind must be /,
    }),
  ),
];

describe("plain code is refused:", () => {
  test.each(rows)("$what", async ({ act, code, says }) => {
    const before = written;
    const words = await refusal(() => act(pawl));
    expect(words).toMatch(new RegExp(`^${code}: `));
    expect(words).toMatch(says);
    expect(written).toBe(before);
  });

  test("after all of them, what was held is still held, and what waited still waits", async () => {
    expect(await hold.renew()).toBe(true);
    expect(await waiter.position()).toBe(1);
    expect(await foreign.renew()).toBe(true);
    const { holders, waiting } = await pawl.mutex("held").inspect();
    expect([holders.length, waiting, (await pawl.mutex("held").history()).length]).toEqual([1, 1, 0]);
  });

  test("a handle that is closed", async () => {
    const closed = await open("memory:");
    await closed.close();
    expect(await refusal(() => closed.mutex("m").acquire())).toMatch(/^closed: /);
    expect(await refusal(() => closed.lock("m", () => {}))).toMatch(/^closed: /);
    expect(await refusal(() => closed.mutex("m").tryAcquire())).toMatch(/^closed: /);
    expect(await refusal(() => closed.whyWaiting({ lock: "m" }))).toMatch(/^closed: /);
  });
});

describe("the code of a run is refused:", () => {
  const inRuns: readonly {
    readonly what: string;
    readonly act: (ctx: Anything) => unknown;
    readonly code: string;
    readonly says: RegExp;
  }[] = [
    ...names.map(([what, name, code, says]) => ({
      what: `a name ${what}`,
      act: (ctx: Anything) => ctx.mutex(name),
      code,
      says,
    })),
    {
      what: "no names",
      act: (ctx) => ctx.lock([], () => {}),
      code: "invalid_argument",
      says: /the locks must be 1 to 50 names/,
    },
    ...permits.map(([what, given]) => ({
      what: `permits: ${what}`,
      act: (ctx: Anything) => ctx.semaphore("s", { permits: given }),
      code: "invalid_argument",
      says: /the permits must be a whole number/,
    })),
    ...durations.flatMap(([what, timeout]) => [
      {
        what: `acquire's timeout: ${what}`,
        act: (ctx: Anything) => ctx.mutex("m").acquire({ timeout }),
        code: "invalid_duration",
        says: /the timeout must/,
      },
      {
        what: `lock's timeout: ${what}`,
        act: (ctx: Anything) => ctx.lock("m", () => {}, { timeout }),
        code: "invalid_duration",
        says: /the timeout must/,
      },
    ]),
    ...[undefined, null, "name"].map((code) => ({
      what: `lock does ${code}`,
      act: (ctx: Anything) => ctx.lock("m", code),
      code: "invalid_argument",
      says: /what to do under the lock must be a function/,
    })),
  ];

  test.each(inRuns)("$what", async ({ act, code, says }) => {
    await using lab = openTest();
    const it = workflow("it", async (ctx) => {
      await act(ctx);
      return "not refused";
    });
    lab.work([it]);
    const error = await (await lab.start(it)).result().catch((reason: unknown) => reason);
    expect(error).toMatchObject({ code: "run_failed", cause: { code, message: expect.stringMatching(says) } });
    for (const lock of [lab.mutex("m"), lab.semaphore("s")])
      expect(await lock.inspect()).toMatchObject({ holders: [], permits: null, waiting: 0 });
  });

  test("the handle in place of ctx", async () => {
    await using lab = openTest();
    const it = workflow("it", async () => lab.lock("m", () => "acquired"));
    lab.work([it]);
    const error = await (await lab.start(it)).result().catch((reason: unknown) => reason);
    expect(error).toMatchObject({ code: "run_failed", cause: { code: "used_in_body" } });
    expect(await lab.mutex("m").inspect()).toMatchObject({ holders: [] });
  });

  test("but not the handle in a step", async () => {
    await using lab = openTest();
    const it = workflow("it", async (ctx) => ctx.step("s", () => lab.lock("m", () => "acquired")));
    lab.work([it]);
    expect(await (await lab.start(it)).result()).toBe("acquired");
  });
});
