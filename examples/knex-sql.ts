// Pawl inside a transaction of Knex: the order through the query builder, the stock through `within`.

import knex, { type Knex } from "knex";
import { open } from "pawl";

const url = process.env["DATABASE_URL"] ?? "postgres://localhost/shop";
const db = knex({ client: "pg", connection: url });
const pawl = await open(url);
const stock = pawl.slot<number>("stock/teapot", { initial: 1 });
await db.schema.createTable("orders", (table) => {
  table.text("id").primary();
  table.text("item").notNullable();
});

/** Runs Pawl's statements in a transaction of Knex, which uses ? for parameters where PostgreSQL uses $1. */
const inKnex = (transaction: Knex.Transaction) => (text: string, values: string[]) =>
  transaction.raw(text.replace("$1", "?"), values);

function order(id: string): Promise<number> {
  return db.transaction(async (transaction) => {
    await transaction("orders").insert({ id, item: "teapot" });
    return pawl.within(inKnex(transaction), (tx) => {
      const { value } = tx.slot(stock).get();
      if (value === 0) throw new Error("sold out");
      tx.slot(stock).set(value - 1);
      return value - 1;
    });
  });
}

console.log("left:", await order("o-1"));
await order("o-2").catch((error: Error) => console.log("refused:", error.message));
console.log(await db("orders").select("id"), (await stock.get()).value);

await pawl.close();
await db.destroy();

// Output:
// left: 0
// refused: sold out
// [ { id: 'o-1' } ] 0
