/**
 * Traps around values and rows that the server refuses: they fail for their own caller, and for no other.
 */

import assert from "node:assert/strict";
import type { Codec } from "../../../src/kernel/codec/codec.ts";
import { PawlError } from "../../../src/kernel/errors.ts";
import type { Kernel } from "../../../src/kernel/kernel.ts";
import { isCommit } from "../watched.ts";
import { type Arena, addOne, at, type Trap, trap, within } from "./arena.ts";

/** Text as it is. */
const plainCodec: Codec = { encode: (value) => String(value), decode: (text) => text };

const write = (kernel: Kernel, key: string, value: string): Promise<string> =>
  kernel
    .transact((tx) => tx.record(at(key)).write({ value }), [at(key)])
    .then(
      () => "written",
      (error: unknown) => {
        if (error instanceof PawlError) return error.code;
        throw error;
      },
    );

/** The server refuses a row whose value is an SQLSTATE, with that state. With `once`, only the first time. */
async function refuseRows(arena: Arena, once = false): Promise<void> {
  await arena.sql(`create sequence ${arena.s}.refusals`);
  // A sequence is not rolled back with the transaction that fails.
  const isNew = once ? `nextval('${arena.s}.refusals') = 1` : "true";
  await arena.sql(`
    create function ${arena.s}.refuse() returns trigger language plpgsql as $$ begin
      if new.value ~ '^[0-9A-Z]{5}$' and ${isNew} then raise exception 'refused' using errcode = new.value; end if;
      return new; end $$`);
  await arena.sql(`create trigger refuse before insert or update on ${arena.s}.record
    for each row execute function ${arena.s}.refuse()`);
}

/** Writes all of it in one batch, and then in as many as it takes; says what became of each. */
async function amongOthers(
  arena: Arena,
  values: Readonly<Record<string, string>>,
  batches: number,
): Promise<Record<string, string>> {
  const pool = arena.watched();
  const store = await arena.store({ pool, lanes: 1 });
  const kernel = arena.kernelOn(store, { codec: plainCodec });
  const before = pool.pipelines.length;
  const answers = Object.entries(values).map(async ([key, value]) => [key, await write(kernel, key, value)] as const);
  const said = Object.fromEntries(await within("every call has ended", Promise.all(answers)));
  assert.equal(pool.pipelines.slice(before).filter(isCommit).length, batches, "batches that were sent");
  return said;
}

const refused = (state: string): Trap =>
  trap(`a row that the server refuses with ${state} does not fail the whole batch`, async (arena) => {
    await arena.store();
    await refuseRows(arena);
    const said = await amongOthers(arena, { a: "fine", b: state, c: "fine" }, 4);
    assert.deepEqual(said, { a: "written", b: "store_refused", c: "written" });
    assert.deepEqual(await arena.sql(`select key from ${arena.s}.record order by key`), [["a"], ["c"]]);
  });

const passing = (state: string, batches = 2): Trap =>
  trap(`a batch that the server refuses with ${state} temporarily is sent again`, async (arena) => {
    await arena.store();
    await refuseRows(arena, true);
    const said = await amongOthers(arena, { a: "fine", b: state, c: "fine" }, batches);
    assert.deepEqual(said, { a: "written", b: "written", c: "written" });
  });

export const poison: readonly Trap[] = [
  trap(
    "a value with a NUL or a lone surrogate is refused before it is sent, and the others of the batch are not",
    async (arena) => {
      const said = await amongOthers(arena, { a: "fine", nul: "a\0b", half: "\ud800", c: "fine" }, 1);
      assert.deepEqual(said, { a: "written", nul: "invalid_value", half: "invalid_value", c: "written" });
      assert.deepEqual(await arena.sql(`select key from ${arena.s}.now order by key`), [["a"], ["c"]]);
    },
  ),

  refused("22001"),
  refused("23514"),
  refused("54000"),
  passing("40001"),
  passing("40P01"),
  // One of the keys is being made by another transaction, which may take long: from now on each decision goes alone.
  passing("55P03", 4),

  trap("a decision that throws leaves nothing, and the others of its batch are committed", async (arena) => {
    const kernel = await arena.kernel({ lanes: 1 });
    const throws = kernel.transact(
      (tx) => {
        tx.record(at("a")).write({ value: "left behind" });
        throw new RangeError("no");
      },
      [at("a")],
    );
    const others = [addOne(kernel, at("a")), addOne(kernel, at("b"))];
    await assert.rejects(throws, RangeError);
    assert.deepEqual(await Promise.all(others), [1, 1]);
  }),
];
