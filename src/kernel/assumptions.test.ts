// Goal: what may be assumed of a record, and the path of a decision, follow the rules in the header of `assumptions.ts`.
// Method: tables of setbacks and of what an assumption turned out to be; then a kernel on a store in memory with lanes, to see that each
// setback leads to the batch that the table says.

import { describe, expect, test } from "vitest";
import { bench, codeOf } from "../../test/kernel/kit.ts";
import { blank } from "../testing/conformance/law-context.ts";
import { Assumptions, MOST_ROUNDS, nextPath, type Path, type Setback } from "./assumptions.ts";
import { type Address, address, newAddress, type Receipt, type Row } from "./contract.ts";
import type { Decision } from "./decision.ts";

describe("the path of a decision", () => {
  const rules: readonly { path: Path; setback: Setback; rounds: number; next: Path }[] = [
    { path: "optimistic", setback: "not-as-assumed", rounds: 0, next: "locked" },
    { path: "optimistic", setback: "wants-lock", rounds: 0, next: "locked" },
    { path: "optimistic", setback: "put-off", rounds: 1, next: "optimistic" },
    { path: "optimistic", setback: "put-off", rounds: MOST_ROUNDS - 1, next: "optimistic" },
    { path: "optimistic", setback: "put-off", rounds: MOST_ROUNDS, next: "waiting" },
    { path: "locked", setback: "not-as-assumed", rounds: 0, next: "locked" },
    { path: "locked", setback: "wants-lock", rounds: 9, next: "locked" },
    { path: "locked", setback: "put-off", rounds: MOST_ROUNDS - 1, next: "locked" },
    { path: "locked", setback: "put-off", rounds: MOST_ROUNDS, next: "waiting" },
    { path: "waiting", setback: "not-as-assumed", rounds: 9, next: "waiting" },
    { path: "waiting", setback: "wants-lock", rounds: 9, next: "waiting" },
    { path: "waiting", setback: "put-off", rounds: 9, next: "waiting" },
  ];
  test.each(rules)("$path, $setback for the time $rounds: $next", ({ path, setback, rounds, next }) => {
    expect(nextPath(path, setback, rounds)).toBe(next);
  });
});

const a = address("n", "a");
const b = address("n", "b");

const row = (at: Address, columns: Partial<Row> = {}): Row =>
  blank(at.key, { space: at.space, id: 7, value: "1", ...columns });

const put = (at: Address, columns: Partial<Row> = {}): [text: string, row: Row] => [at.text, row(at, columns)];

describe("what may be assumed", () => {
  const rules: readonly { rule: string; given: (known: Assumptions) => void; at?: Address; is: unknown }[] = [
    { rule: "nothing of a record that was never seen", given: () => {}, is: undefined },
    { rule: "absence of one that is most probably new", given: () => {}, at: newAddress(a), is: null },
    { rule: "the row that was written last", given: (known) => known.wrote(...put(a), 7), is: row(a) },
    {
      rule: "the row that was written last, for one that was thought to be new",
      given: (known) => known.wrote(...put(a), 7),
      at: newAddress(a),
      is: row(a),
    },
    {
      rule: "nothing of a new row whose number did not arrive",
      given: (known) => known.wrote(...put(a, { id: 0 }), undefined),
      is: undefined,
    },
    { rule: "nothing of a deleted row", given: (known) => known.wrote(...put(a, { value: null }), 7), is: undefined },
    {
      rule: "nothing of a long value",
      given: (known) => known.wrote(...put(a, { value: "x".repeat(2049) }), 7),
      is: undefined,
    },
    {
      rule: "nothing of a row that was not as assumed",
      given: (known) => {
        known.wrote(...put(a), 7);
        known.refuted(a.text);
      },
      is: undefined,
    },
    { rule: "the row that is held", given: (known) => known.hold(a.text, row(a)), is: row(a) },
    {
      rule: "a held row as it was last written here",
      given: (known) => {
        known.hold(a.text, row(a));
        known.wrote(...put(a, { version: 2 }), 7);
      },
      is: row(a, { version: 2 }),
    },
    {
      rule: "a held row as it was last read under a lock",
      given: (known) => {
        known.hold(a.text, row(a));
        known.saw(a.text, row(a, { version: 3 }));
      },
      is: row(a, { version: 3 }),
    },
    { rule: "nothing of a row that is read and not held", given: (known) => known.saw(a.text, row(a)), is: undefined },
    {
      rule: "a row that was expected, once it is written",
      given: (known) => {
        known.expect(a.text, true);
        known.wrote(...put(a, { id: 0, value: "x".repeat(5000) }), 7);
      },
      is: row(a, { value: "x".repeat(5000) }),
    },
    {
      rule: "nothing of a row that is not held any more",
      given: (known) => {
        known.hold(a.text, row(a));
        known.letGo(a.text);
      },
      is: undefined,
    },
    {
      rule: "a row that was released, as it was last written here",
      given: (known) => {
        known.hold(a.text, row(a));
        known.wrote(...put(a, { version: 2 }), 7);
        known.released(a.text);
      },
      is: row(a, { version: 2 }),
    },
    {
      rule: "nothing of a released row whose assumption was wrong before it was held again",
      given: (known) => {
        known.wrote(...put(a), 7);
        known.refuted(a.text);
        known.hold(a.text, row(a));
        known.released(a.text);
      },
      is: undefined,
    },
    {
      rule: "nothing of a record that is released and was never held",
      given: (known) => known.released(a.text),
      is: undefined,
    },
    {
      rule: "no absence after one that was none",
      given: (known) => known.absenceRefuted(),
      at: newAddress(a),
      is: undefined,
    },
    {
      rule: "nothing once all is cleared",
      given: (known) => {
        known.hold(a.text, row(a));
        known.wrote(...put(b), 8);
        known.clear();
      },
      is: undefined,
    },
  ];
  test.each(rules)("$rule", ({ given, at = a, is }) => {
    const known = new Assumptions(true);
    given(known);
    expect(known.of(at)).toEqual(is);
  });

  test("where a read is no round trip, only what is held", () => {
    const known = new Assumptions(false);
    known.wrote(...put(a), 7);
    expect(known.of(a)).toBeUndefined();
    expect(known.of(newAddress(b))).toBeUndefined();
    known.hold(a.text, row(a));
    expect(known.of(a)).toEqual(row(a));
  });

  test("all records of a decision, or it is not optimistic", () => {
    const known = new Assumptions(true);
    known.wrote(...put(a), 7);
    expect(known.coversAll([a])).toBe(true);
    expect(known.coversAll([a, b])).toBe(false);
    expect(known.coversAll([a, newAddress(b)])).toBe(true);
    expect(known.coversAll([])).toBe(false);
  });

  test("absence again after so many new records were looked for, twice as many each time", () => {
    const known = new Assumptions(true);
    const lookedFor = () => {
      let count = 0;
      while (!known.coversAll([newAddress(a)])) count += 1;
      return count;
    };
    const counts = [0, 1, 2].map(() => {
      known.absenceRefuted();
      return lookedFor();
    });
    expect(counts).toEqual([128, 256, 512]);
    for (let times = 0; times < 10; times++) known.absenceConfirmed();
    known.absenceRefuted();
    expect(lookedFor()).toBe(128);
  });
});

describe("a decision", () => {
  const add =
    (at: Address): Decision<number> =>
    (tx) => {
      const sum = Number(tx.record(at).value ?? 0) + 1;
      tx.record(at).write({ value: sum });
      return sum;
    };
  const moved = async (): Promise<Receipt> => ({ committed: false, moved: [a] });

  test("that is put off again and again goes alone in the end, and its records are waited for in order", async () => {
    const { kernel, store, clock } = bench({ lanes: 2, patienceMs: 100_000 });
    const keys = ["d", "a", "c", "b"].map((key) => address("n", key));
    store.found = (found, asked, { mayWait }) =>
      mayWait === true ? found : { ...found, rows: asked.map(() => undefined) };
    const others = address("n", "other");
    const many = kernel.transact((tx) => keys.map((at) => add(at)(tx)), keys);
    const other = kernel.transact(add(others), [others]);
    expect(await clock.finish(many)).toEqual([1, 1, 1, 1]);
    store.found = (found) => found;
    expect(await clock.finish(other)).toBe(1);
    const waiting = store.batches.filter(({ mayWait, lock }) => mayWait === true && lock.length > 1);
    expect(waiting.map(({ lock }) => lock.map(({ key }) => key))).toEqual([["a", "b", "c", "d"]]);
    expect(store.batches.filter(({ lock }) => lock.length === 4 || lock.length === 5).length).toBe(MOST_ROUNDS + 1);
  });

  test("whose records keep changing is told so when its patience ends, after a few attempts with pauses", async () => {
    const { kernel, store, clock } = bench({ patienceMs: 1000 });
    for (let times = 0; times < 1000; times++) store.commits.push(moved);
    const startedMs = clock.nowMs();
    expect(await codeOf(clock.finish(kernel.transact(add(a), [a])))).toBe("store_busy");
    expect(clock.nowMs() - startedMs).toBeLessThan(1200);
    expect(store.batches.length).toBeLessThan(100);
  });

  test("that is given up while it waits for its turn keeps no one from closing", async () => {
    const { kernel, store, clock } = bench({ patienceMs: 100 });
    for (let times = 0; times < 1000; times++) store.commits.push(moved);
    const all = Array.from({ length: 20 }, () => codeOf(kernel.transact(add(a), [a])));
    const closed = kernel.close();
    expect(await clock.finish(Promise.all(all))).toEqual(all.map(() => "store_busy"));
    await clock.finish(closed);
  });

  test("that was refused once is decided again at once, whatever its patience", async () => {
    const { kernel, store } = bench({ patienceMs: 0 });
    store.commits.push(moved);
    expect(await kernel.transact(add(a), [a])).toBe(1);
  });

  test("that needs a key which another transaction is making goes alone from then on, and the others without it", async () => {
    const { kernel, store, clock } = bench({ patienceMs: 10_000 });
    const isHeld = async (): Promise<Receipt> => ({ committed: false, moved: [a], isHeld: true });
    store.commits.push(isHeld, isHeld);
    const both = Promise.all([kernel.transact(add(a), [a]), kernel.transact(add(b), [b])]);
    expect(await clock.finish(both)).toEqual([1, 1]);
    expect(store.batches.map(({ lock }) => lock.map(({ key }) => key))).toEqual([["a", "b"], ["a"], ["a"], ["b"]]);
  });
});
