/**
 * Goal: decisions of one batch are isolated from each other's failures and see each other's writes; what they see cannot
 * be changed, and what they draw stays the same in every run.
 * Method: kernels on a memory store; decisions submitted together share a batch, which is asserted where it matters.
 */

import { describe, expect, test } from "vitest";
import {
  bench,
  codeOf,
  countingChance,
  type ScriptedStore,
  storeError,
  unhandledDuring,
} from "../../test/kernel/kit.ts";
import { trapAmbient } from "../node/trap.ts";
import { type Address, address, DELETED_KEPT_MS, type Row } from "./contract.ts";
import type { Decision, Tx } from "./decision.ts";
import { DecisionImpureError } from "./errors.ts";
import type { Kernel } from "./kernel.ts";

const a = address("thing", "a");
const b = address("thing", "b");
const c = address("thing", "c");

async function rowOf(kernel: Kernel, at: Address): Promise<Row | null> {
  const [row = null] = await kernel.read([at]);
  return row;
}

async function storedValue(kernel: Kernel, at: Address): Promise<unknown> {
  const row = await rowOf(kernel, at);
  return row === null || row.value === null ? undefined : kernel.decode(row, row.value);
}

/** Runs the decisions in one batch, in this order. */
async function together(
  kernel: Kernel,
  store: ScriptedStore,
  keys: readonly Address[],
  decisions: Decision<unknown>[],
) {
  const before = store.batches.length;
  const answers = await Promise.allSettled(decisions.map((decide) => kernel.transact(decide, keys)));
  expect(store.batches.length - before, "batches").toBe(1);
  return answers.map((answer) => (answer.status === "fulfilled" ? answer.value : { threw: answer.reason }));
}

const put = (tx: Tx, at: Address, value: unknown) => tx.record(at).write({ value });

describe("the decisions of a batch", () => {
  test("each sees what the one before it wrote", async () => {
    const { kernel, store } = bench();
    const count: Decision<unknown> = (tx) => {
      const record = tx.record(a);
      const next = Number(record.value ?? 0) + 1;
      record.write({ value: next });
      return next;
    };
    expect(await together(kernel, store, [a], [count, count, count])).toEqual([1, 2, 3]);
    expect(await rowOf(kernel, a)).toMatchObject({ version: 3, value: "3" });
  });

  test("one that throws leaves nothing, in any of its records, and the others go on", async () => {
    const { kernel, store } = bench();
    const mistake = new Error("a mistake");
    const answers = await together(
      kernel,
      store,
      [a, b, c],
      [
        (tx) => put(tx, a, "first"),
        (tx) => {
          put(tx, a, "bad");
          put(tx, b, "bad");
          tx.record(a).append("bad", 1);
          tx.record(a).remove();
          throw mistake;
        },
        (tx) => {
          const seen = tx.record(a).value;
          put(tx, c, "last");
          return seen;
        },
      ],
    );
    expect(answers).toEqual([undefined, { threw: mistake }, "first"]);
    expect(await rowOf(kernel, a)).toMatchObject({ version: 1, head: 0, value: '"first"' });
    expect(await rowOf(kernel, b)).toBeNull();
    expect(await storedValue(kernel, c)).toBe("last");
    expect(await kernel.entries(a, 0, 10)).toEqual([]);
  });

  test.each([undefined, null, 0, "text"])("what is thrown reaches the caller as it is: %j", async (thrown) => {
    const { kernel } = bench();
    const refused = kernel.transact(() => {
      throw thrown;
    }, [a]);
    await expect(refused.catch((error: unknown) => ({ thrown: error }))).resolves.toEqual({ thrown });
  });

  test("log entries of several decisions are numbered through, without a gap for one that threw", async () => {
    const { kernel, store } = bench();
    const append = (name: string, fails = false): Decision<unknown> => {
      return (tx) => {
        const version = tx.record(a).append(name, { name });
        if (fails) throw new Error(name);
        return version;
      };
    };
    await kernel.transact((tx) => put(tx, a, 0), [a]);
    const answers = await together(kernel, store, [a], [append("one"), append("bad", true), append("two")]);
    expect([answers[0], answers[2]]).toEqual([1, 2]);
    const entries = await kernel.entries(a, 0, 10);
    expect(entries.map(({ version, name, data }) => [version, name, data])).toEqual([
      [1, "one", '{"name":"one"}'],
      [2, "two", '{"name":"two"}'],
    ]);
    expect(await rowOf(kernel, a)).toMatchObject({ head: 2, version: 3 });
  });

  test("a decision that only reads raises no version", async () => {
    const { kernel } = bench();
    await kernel.transact((tx) => put(tx, a, 1), [a]);
    expect(await kernel.transact((tx) => tx.record(a).value, [a])).toBe(1);
    expect(await rowOf(kernel, a)).toMatchObject({ version: 1 });
  });

  test("several writes of one decision are one version", async () => {
    const { kernel } = bench();
    await kernel.transact(
      (tx) => {
        put(tx, a, 1);
        put(tx, a, 2);
        tx.record(a).write({ status: "on" });
        tx.record(a).append("x", 1);
      },
      [a],
    );
    expect(await rowOf(kernel, a)).toMatchObject({ version: 1, value: "2", status: "on", head: 1 });
  });

  test("a write names what it changes and leaves the rest", async () => {
    const { kernel } = bench();
    const all = { kind: "job", status: "on", dueMs: 5, holder: "ann", fence: 6, wakes: 7, tries: 8 };
    await kernel.transact((tx) => tx.record(a).write({ value: 1, ...all }), [a]);
    await kernel.transact((tx) => tx.record(a).write({ status: null }), [a]);
    expect(await rowOf(kernel, a)).toMatchObject({ ...all, status: null, value: "1", version: 2 });
    await kernel.transact(
      (tx) => tx.record(a).write({ dueMs: null, holder: null, kind: null, fence: 0, wakes: 0, tries: 0 }),
      [a],
    );
    const none = { kind: null, dueMs: null, holder: null, fence: 0, wakes: 0, tries: 0 };
    expect(await rowOf(kernel, a)).toMatchObject({ ...none, value: "1", version: 3 });
  });

  test("undefined is a value like others", async () => {
    const { kernel } = bench();
    await kernel.transact((tx) => put(tx, a, undefined), [a]);
    const seen = await kernel.transact((tx) => [tx.record(a).exists, tx.record(a).value], [a]);
    expect(seen).toEqual([true, undefined]);
  });

  test("what outlives its decision can write nothing any more, and takes nobody's write away", async () => {
    const { kernel, store } = bench();
    store.slowRounds = true;
    let leaked: Tx | undefined;
    const late: Decision<unknown> = (tx) => {
      // Touching b late gives the leaked one a moment in which the batch waits for the store.
      tx.record(b);
      put(tx, a, "real");
    };
    const answers = Promise.allSettled([
      kernel.transact(
        (tx) => {
          leaked = tx;
        },
        [a],
      ),
      kernel.transact(late, [a]),
    ]);
    while (leaked === undefined) await new Promise(setImmediate);
    try {
      put(leaked, a, "ghost");
    } catch {
      // Refusing it is as good as ignoring it.
    }
    expect(await answers).toMatchObject([{ status: "fulfilled" }, { status: "fulfilled" }]);
    expect(await storedValue(kernel, a)).toBe("real");
  });
});

describe("values", () => {
  test("what a decision sees is frozen, all the way down", async () => {
    const { kernel } = bench();
    await kernel.transact((tx) => put(tx, a, { list: [{ deep: 1 }] }), [a]);
    for (const act of [
      (value: { list: { deep: number }[] }) => value.list.push({ deep: 2 }),
      (value: { list: { deep: number }[] }) => Object.assign(value.list[0] ?? {}, { deep: 2 }),
      (value: { list: { deep: number }[] }) => Object.assign(value, { more: 1 }),
    ]) {
      const refused = kernel.transact((tx) => act(tx.record(a).value as { list: { deep: number }[] }), [a]);
      await expect(refused).rejects.toThrow(TypeError);
    }
    expect(await storedValue(kernel, a)).toEqual({ list: [{ deep: 1 }] });
  });

  test("what a decision wrote is frozen too when it reads it back, and later changes to the original do not count", async () => {
    const { kernel } = bench();
    const mine = { n: 1 };
    const seen = await kernel.transact(
      (tx) => {
        put(tx, a, mine);
        const written = tx.record(a).value;
        return [Object.isFrozen(written), written === mine];
      },
      [a],
    );
    mine.n = 2;
    expect(seen).toEqual([true, false]);
    expect(await storedValue(kernel, a)).toEqual({ n: 1 });
  });

  const mutable: [string, unknown, (value: never) => unknown][] = [
    ["a Map", new Map([["n", 1]]), (value: Map<string, number>) => value.set("n", 2)],
    ["a Set", new Set([1]), (value: Set<number>) => value.add(2)],
    ["a Date", new Date(0), (value: Date) => value.setTime(1)],
    ["bytes", new Uint8Array([1]), (value: Uint8Array) => value.fill(2)],
    [
      "a Map in an object",
      { deep: [new Map([["n", 1]])] },
      (value: { deep: Map<string, number>[] }) => value.deep[0]?.set("n", 2),
    ],
    [
      "an object in a Map",
      new Map([["n", { x: 1 }]]),
      (value: Map<string, { x: number }>) => Object.assign(value.get("n") ?? {}, { x: 2 }),
    ],
    [
      "an object in a Set",
      new Set([{ x: 1 }]),
      (value: Set<{ x: number }>) => Object.assign([...value][0] ?? {}, { x: 2 }),
    ],
    [
      "the cause of an Error",
      new Error("no", { cause: { x: 1 } }),
      (value: Error) => Object.assign(value.cause as object, { x: 2 }),
    ],
    [
      "an Error",
      Object.assign(new Error("no"), { code: 1 }),
      (value: Error) => Object.assign(value, { code: 2, message: "yes" }),
    ],
  ];
  test.each(mutable)("%s that one decision changes is unchanged for the next", async (_, value, change) => {
    const { kernel, store } = bench();
    await kernel.transact((tx) => put(tx, a, value), [a]);
    const look: Decision<unknown> = (tx) => {
      const seen = tx.record(a).value;
      const message = seen instanceof Error ? [seen.message, structuredClone(seen.cause)] : undefined;
      return structuredClone([seen, message]);
    };
    const [before, , after] = await together(
      kernel,
      store,
      [a],
      [
        look,
        (tx) => {
          try {
            change(tx.record(a).value as never);
          } catch (error) {
            if (!(error instanceof TypeError)) throw error;
          }
        },
        look,
      ],
    );
    expect(after).toEqual(before);
  });

  test("a value is as large as is allowed, to the byte", async () => {
    // The quotes of JSON take two bytes.
    const { kernel } = bench({ maxValueBytes: 12 });
    const fits = ["x".repeat(10), "é".repeat(5), "€€€x"];
    for (const value of fits) await kernel.transact((tx) => put(tx, a, value), [a]);
    const tooLarge = ["x".repeat(11), `${"é".repeat(5)}x`, "€€€xx"];
    for (const value of tooLarge) {
      const refused = kernel.transact((tx) => put(tx, a, value), [a]);
      await expect(refused).rejects.toMatchObject({ code: "value_too_large", data: { bytes: 13, maxBytes: 12 } });
    }
    expect(await codeOf(kernel.transact((tx) => tx.record(a).append("x", "x".repeat(11)), [a]))).toBe(
      "value_too_large",
    );
    expect(await rowOf(kernel, a)).toMatchObject({ version: 3, head: 0, value: '"€€€x"' });
  });

  test("a write that was refused and caught changes nothing", async () => {
    const { kernel } = bench({ maxValueBytes: 12 });
    await kernel.transact((tx) => put(tx, a, 1), [a]);
    await kernel.transact(
      (tx) => {
        expect(() => tx.record(a).write({ value: "x".repeat(100), status: "bad" })).toThrow();
        expect(() => tx.record(a).write({ value: () => 1, status: "bad" })).toThrow();
        expect(() => tx.record(a).append("bad", Symbol("bad"))).toThrow();
      },
      [a],
    );
    expect(await rowOf(kernel, a)).toMatchObject({ version: 1, status: null, head: 0, value: "1" });
  });

  test("the first write of a record needs a value", async () => {
    const { kernel } = bench();
    await expect(kernel.transact((tx) => tx.record(a).write({ status: "on" }), [a])).rejects.toThrow(
      /first write needs a value/,
    );
    await expect(kernel.transact((tx) => tx.record(a).append("x", 1), [a])).rejects.toThrow(
      /first write needs a value/,
    );
    expect(await rowOf(kernel, a)).toBeNull();
    await kernel.transact((tx) => put(tx, a, 1), [a]);
    await kernel.transact((tx) => tx.record(a).remove(), [a]);
    await expect(kernel.transact((tx) => tx.record(a).write({ status: "on" }), [a])).rejects.toThrow(
      /first write needs a value/,
    );
    await expect(kernel.transact((tx) => tx.record(a).append("x", 1), [a])).rejects.toThrow(
      /first write needs a value/,
    );
    expect(await rowOf(kernel, a)).toMatchObject({ version: 2, value: null, status: null });
  });
});

describe("removing", () => {
  const full = { value: 1, kind: "job", status: "on", dueMs: 5, holder: "ann", fence: 6, wakes: 7, tries: 8 };

  test("ends every claim and keeps the numbers that must go on", async () => {
    const { kernel, clock } = bench();
    await kernel.transact(
      (tx) => {
        tx.record(a).write(full);
        tx.record(a).append("x", 1);
      },
      [a],
    );
    await kernel.transact((tx) => tx.record(a).remove(), [a]);
    const gone = {
      value: null,
      kind: null,
      status: null,
      holder: null,
      tries: 0,
      fence: 6,
      wakes: 7,
      head: 1,
      version: 2,
    };
    expect(await rowOf(kernel, a)).toMatchObject({ ...gone, dueMs: clock.wallMs() + DELETED_KEPT_MS });
    expect(await kernel.transact((tx) => [tx.record(a).exists, tx.record(a).value, tx.record(a).version], [a])).toEqual(
      [false, undefined, 2],
    );
  });

  test("what is made again goes on with versions, fence, wake-ups and log, and has no timer", async () => {
    const { kernel } = bench();
    await kernel.transact(
      (tx) => {
        tx.record(a).write(full);
        tx.record(a).append("x", 1);
      },
      [a],
    );
    await kernel.transact((tx) => tx.record(a).remove(), [a]);
    await kernel.transact(
      (tx) => {
        tx.record(a).write({ value: 2, kind: "job" });
        expect(tx.record(a).append("y", 2)).toBe(2);
      },
      [a],
    );
    const again = {
      value: "2",
      kind: "job",
      status: null,
      holder: null,
      tries: 0,
      fence: 6,
      wakes: 7,
      head: 2,
      version: 3,
    };
    expect(await rowOf(kernel, a)).toMatchObject({ ...again, dueMs: null });
    expect((await kernel.entries(a, 0, 10)).map((entry) => entry.name)).toEqual(["x", "y"]);
  });

  test("what is removed and made again in one decision is the same as in two", async () => {
    const { kernel } = bench();
    await kernel.transact((tx) => tx.record(a).write(full), [a]);
    await kernel.transact(
      (tx) => {
        tx.record(a).remove();
        tx.record(a).write({ value: 2, kind: "job" });
      },
      [a],
    );
    const again = { value: "2", kind: "job", status: null, holder: null, tries: 0, fence: 6, wakes: 7 };
    expect(await rowOf(kernel, a)).toMatchObject({ ...again, dueMs: null });
  });

  test("what is not there is removed without a trace", async () => {
    const { kernel } = bench();
    await kernel.transact((tx) => tx.record(a).remove(), [a]);
    expect(await rowOf(kernel, a)).toBeNull();
    await kernel.transact((tx) => put(tx, a, 1), [a]);
    await kernel.transact((tx) => tx.record(a).remove(), [a]);
    await kernel.transact((tx) => tx.record(a).remove(), [a]);
    expect(await rowOf(kernel, a)).toMatchObject({ version: 2 });
  });

  test("made and removed in one decision, it is a deleted record", async () => {
    const { kernel } = bench();
    await kernel.transact(
      (tx) => {
        put(tx, a, 1);
        tx.record(a).remove();
      },
      [a],
    );
    expect(await rowOf(kernel, a)).toMatchObject({ version: 1, value: null });
  });
});

describe("keys that come late", () => {
  test("are loaded, and the decision runs again with them", async () => {
    const { kernel, store } = bench();
    await kernel.transact((tx) => put(tx, b, "there"), [b]);
    let runs = 0;
    const seen = await kernel.transact((tx) => {
      runs += 1;
      return [tx.record(a).exists, tx.record(b).value, tx.record(c).exists];
    }, []);
    expect(seen).toEqual([false, "there", false]);
    expect(runs).toBe(4);
    expect(store.batches.length).toBe(2);
  });

  test("make the run void, even if the decision caught what was thrown", async () => {
    const { kernel } = bench();
    await kernel.transact((tx) => put(tx, b, "there"), [b]);
    const seen = await kernel.transact(
      (tx) => {
        let answer: unknown = "caught";
        try {
          answer = tx.record(b).value;
        } catch {
          put(tx, a, "written by the void run");
        }
        return answer;
      },
      [a],
    );
    expect(seen).toBe("there");
    expect(await rowOf(kernel, a)).toBeNull();
  });

  test("make the run void, even if the decision throws something else", async () => {
    const { kernel } = bench();
    const seen = kernel.transact(
      (tx) => {
        try {
          return tx.record(b).exists;
        } catch {
          throw new Error("disguised");
        }
      },
      [a],
    );
    expect(await seen).toBe(false);
  });

  test("of one decision do not keep the others from being decided", async () => {
    const { kernel, store } = bench();
    const runs = { late: 0, early: 0 };
    const late: Decision<unknown> = (tx) => {
      runs.late += 1;
      return tx.record(c).exists;
    };
    const early: Decision<unknown> = (tx) => {
      runs.early += 1;
      put(tx, a, 1);
    };
    await together(kernel, store, [a], [late, early]);
    expect(runs).toEqual({ late: 2, early: 1 });
  });
});

describe("what a decision draws", () => {
  test("is the same in every run, and goes on from there", async () => {
    const { kernel } = bench();
    const runs: unknown[][] = [];
    await kernel.transact((tx) => {
      const drawn: unknown[] = [tx.uuid(), tx.random()];
      runs.push(drawn);
      tx.record(a);
      drawn.push(tx.uuid(), tx.random());
      tx.record(b);
      drawn.push(tx.uuid(), tx.random());
    }, []);
    const [first, second, third] = runs;
    expect(runs.length).toBe(3);
    expect(second).toEqual(third?.slice(0, 4));
    expect(first).toEqual(third?.slice(0, 2));
    expect(new Set(third?.filter((drawn) => typeof drawn === "string")).size).toBe(3);
  });

  test("is another for each decision of a batch", async () => {
    const { kernel, store } = bench();
    const drawn = await together(kernel, store, [a], [(tx) => tx.uuid(), (tx) => tx.uuid()]);
    expect(new Set(drawn).size).toBe(2);
  });

  test("stays the same when the store must be asked again", async () => {
    const { kernel, store, clock } = bench();
    const runs: string[] = [];
    store.commits.push(async (batch, pass) => {
      await pass({
        ...batch,
        decide(found) {
          batch.decide(found);
          return { puts: [] };
        },
      });
      throw storeError("store_busy", "retry");
    });
    const answer = kernel.transact(
      (tx) => {
        runs.push(tx.uuid());
        put(tx, a, tx.uuid());
        return tx.record(a).value;
      },
      [a],
    );
    expect(await clock.finish(answer)).toBe("uuid-2");
    expect(runs).toEqual(["uuid-1", "uuid-1"]);
  });

  test("the clock is the store's, and one for the whole batch", async () => {
    const { kernel, store, clock } = bench();
    await clock.advance(250);
    const times = await together(kernel, store, [a], [(tx) => tx.nowMs, (tx) => tx.nowMs]);
    expect(times).toEqual([clock.wallMs(), clock.wallMs()]);
  });

  test("no fence below the clock or the store's floor is given out", async () => {
    const { kernel, database, clock } = bench();
    expect(await kernel.transact((tx) => tx.fenceFloor, [a])).toBe(clock.wallMs());
    database.fenceFloor = clock.wallMs() + 5;
    expect(await kernel.transact((tx) => tx.fenceFloor, [a])).toBe(clock.wallMs() + 5);
  });
});

describe("asynchronous decisions", () => {
  const asynchronous: [string, (tx: Tx) => unknown][] = [
    ["an async function", async (tx) => put(tx, a, 1)],
    [
      "one that rejects",
      async (tx) => {
        put(tx, a, 1);
        throw new Error("rejected");
      },
    ],
    [
      "one that rejects later",
      async (tx) => {
        put(tx, a, 1);
        await Promise.resolve();
        throw new Error("rejected");
      },
    ],
    ["one that returns a rejected promise", () => Promise.reject(new Error("rejected"))],
    // biome-ignore lint/suspicious/noThenProperty: a thenable is what is tried.
    ["one that returns a thenable", () => ({ then: () => {} })],
  ];
  for (const [trapped, trap] of [
    ["", undefined],
    [" under the trap", trapAmbient],
  ] as const)
    test.each(asynchronous)(`%s is refused${trapped}, writes nothing and ends no process`, async (_, decide) => {
      const { kernel } = bench(trap === undefined ? {} : { trap });
      const unhandled = await unhandledDuring(async () => {
        expect(await codeOf(kernel.transact(decide, [a]))).toBe("decision_async");
      });
      expect(unhandled).toEqual([]);
      expect(await rowOf(kernel, a)).toBeNull();
    });

  test("the others of the batch go on", async () => {
    const { kernel, store } = bench();
    await together(kernel, store, [a, b], [async (tx) => put(tx, a, 1), (tx) => put(tx, b, 1)]);
    expect(await rowOf(kernel, a)).toBeNull();
    expect(await storedValue(kernel, b)).toBe(1);
  });
});

describe("purity, where it is checked", () => {
  test("a decision that writes something else the second time is refused", async () => {
    const { kernel } = bench({ trap: trapAmbient });
    let runs = 0;
    const refused = kernel.transact(
      (tx) => {
        runs += 1;
        put(tx, a, runs);
      },
      [a],
    );
    expect(await codeOf(refused)).toBe("decision_impure");
    expect(runs).toBe(2);
    expect(await rowOf(kernel, a)).toBeNull();
  });

  const impure: [string, (tx: Tx, run: number) => unknown][] = [
    ["writes another record", (tx, run) => put(tx, run === 1 ? a : b, 1)],
    ["writes nothing", (tx, run) => run === 1 && put(tx, a, 1)],
    [
      "appends more",
      (tx, run) => {
        put(tx, a, 1);
        for (let i = 0; i < run; i++) tx.record(a).append("x", 1);
      },
    ],
    ["changes another column", (tx, run) => tx.record(a).write({ value: 1, status: String(run) })],
    [
      "throws",
      (tx, run) => {
        put(tx, a, 1);
        if (run === 2) throw new Error("only now");
      },
    ],
  ];
  test.each(impure)("so is one that %s the second time", async (_, decide) => {
    const { kernel } = bench({ trap: trapAmbient });
    let run = 0;
    const refused = kernel.transact(
      (tx) => {
        run += 1;
        return decide(tx, run);
      },
      [a, b],
    );
    await expect(refused).rejects.toBeInstanceOf(DecisionImpureError);
    expect(await rowOf(kernel, a)).toBeNull();
    expect(await rowOf(kernel, b)).toBeNull();
  });

  test("a decision that draws through its tape is pure", async () => {
    const { kernel } = bench({ trap: trapAmbient });
    const seen: unknown[] = [];
    await kernel.transact(
      (tx) => {
        const value = { at: tx.nowMs, by: tx.uuid(), luck: tx.random(), on: new Date(tx.nowMs) };
        put(tx, a, value);
        seen.push(structuredClone(tx.record(a).value));
      },
      [a],
    );
    expect(seen[0]).toEqual(seen[1]);
    expect(await storedValue(kernel, a)).toEqual(seen[0]);
  });

  test("chance itself is asked once for both runs", async () => {
    const chance = countingChance();
    const { kernel } = bench({ trap: trapAmbient });
    expect(await kernel.transact((tx) => tx.uuid(), [a])).toBe(chance.uuid());
    expect(await kernel.transact((tx) => tx.uuid(), [a])).toBe(chance.uuid());
  });

  test("reaching for ambient time is refused by name, and what was written before is dropped", async () => {
    const { kernel } = bench({ trap: trapAmbient });
    const refused = kernel.transact((tx) => put(tx, a, Date.now()), [a]);
    await expect(refused).rejects.toMatchObject({
      code: "decision_impure",
      data: { reason: expect.stringMatching(/Date\.now\(\).*nowMs of tx/) },
    });
    expect(await rowOf(kernel, a)).toBeNull();
    expect(Date.now()).toBeGreaterThan(0);
  });
});
