/**
 * Races: concurrent writers on the same rows. No other batch can change the rows of a batch until it ends, including those that
 * it only reads and those that are absent.
 */

import assert from "node:assert/strict";
import { keyText, type Row } from "../../../kernel/contract.ts";
import { at, blank, changing, type KnownRows, making, type Rule, range, rule } from "../law-context.ts";

const WRITERS = 4;

const rowOf = (rows: KnownRows, key: string): Row | null | undefined => rows.get(keyText(at(key)));

const plusOne = (row: Row | null | undefined, key: string, said: string) =>
  row ? changing(row, { value: String(Number(row.value) + 1) }, said) : making(blank(key, { value: "1" }), said);

export const races: readonly Rule[] = [
  rule("of many writers that create the same key concurrently, one succeeds", async (context) => {
    const writers = await context.connectAll(WRITERS);
    for (const round of range(0, 5)) {
      const key = `k${round}`;
      const winners: number[] = [];
      await Promise.all(
        writers.map(async (writer, who) => {
          let won = false;
          await writer.transact([at(key)], (rows) => {
            won = rowOf(rows, key) === null;
            return won ? [making(blank(key, { value: String(who) }), `made by ${who}`)] : [];
          });
          if (won) winners.push(who);
        }),
      );
      assert.equal(winners.length, 1, `${winners.length} writers created the key`);
      assert.equal((await writers[0]?.readOne(at(key)))?.value, String(winners[0]));
      assert.equal((await writers[0]?.entries(at(key)))?.length, 1);
    }
  }),

  rule("many writers that count on one row lose no count, and their log has no gap", async (context) => {
    const writers = await context.connectAll(WRITERS);
    const each = 10;
    await Promise.all(
      writers.map(async (writer, who) => {
        for (const n of range(0, each))
          await writer.transact([at("count")], (rows) => [plusOne(rowOf(rows, "count"), "count", `${who}-${n}`)]);
      }),
    );
    const [writer] = writers;
    assert.ok(writer);
    const row = await writer.readOne(at("count"));
    const total = WRITERS * each;
    assert.deepEqual([row?.value, row?.version, row?.head], [String(total), total, total]);
    const log = await writer.log(at("count"));
    assert.deepEqual(
      log.map(({ version }) => version),
      range(1, total + 1),
    );
    assert.equal(new Set(log.map(({ data }) => data)).size, total, "an entry is there twice");
  }),

  rule("writers that request the same rows late, in different orders, all succeed", async (context) => {
    const writers = await context.connectAll(WRITERS);
    const each = 6;
    await Promise.all(
      writers.map(async (writer, who) => {
        const [first, second] = who % 2 ? ["a", "b"] : ["b", "a"];
        for (const n of range(0, each))
          await writer.transact([at(first)], (rows) => {
            if (rowOf(rows, second) === undefined) return [at(second)];
            return [first, second].map((key) => plusOne(rowOf(rows, key), key, `${who}-${n}`));
          });
      }),
    );
    const rows = await writers[0]?.read(at("a"), at("b"));
    assert.deepEqual(
      rows?.map((row) => row?.value),
      range(0, 2).map(() => String(WRITERS * each)),
    );
  }),

  rule("a row that a batch only reads is protected as well", async (context) => {
    const [writer, other] = await context.connectTwo();
    for (const round of range(0, 5)) {
      const names = [`a${round}`, `b${round}`];
      await writer.make(...names.map((name) => blank(name, { value: "on" })));
      // Each may switch off its own as long as the other is on, so never both are off.
      await Promise.all(
        [writer, other].map((who, index) =>
          who.transact(
            names.map((name) => at(name)),
            (rows) => {
              const [mine, yours] = [rowOf(rows, names[index] ?? ""), rowOf(rows, names[1 - index] ?? "")];
              return mine && yours?.value === "on" ? [changing(mine, { value: "off" })] : [];
            },
          ),
        ),
      );
      const values = (await writer.read(...names.map((name) => at(name)))).map((row) => row?.value);
      assert.deepEqual(values.sort(), ["off", "on"]);
    }
  }),

  rule("an absent key that a batch only reads is protected as well", async (context) => {
    const [writer, other] = await context.connectTwo();
    for (const round of range(0, 5)) {
      const names = [`a${round}`, `b${round}`];
      const isLate = round % 2 === 1;
      // Each may create its own as long as the other is absent, so never both exist.
      await Promise.all(
        [writer, other].map((who, index) => {
          const [mine, yours] = [names[index] ?? "", names[1 - index] ?? ""];
          return who.transact(isLate ? [at(mine)] : [at(mine), at(yours)], (rows) => {
            const seen = rowOf(rows, yours);
            if (seen === undefined) return [at(yours)];
            return seen === null ? [making(blank(mine))] : [];
          });
        }),
      );
      const rows = await writer.read(...names.map((name) => at(name)));
      assert.equal(rows.filter((row) => row !== null).length, 1);
    }
  }),
];
