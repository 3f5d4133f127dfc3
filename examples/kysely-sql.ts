// Pawl inside a transaction of Kysely: the order through `insertInto`, the stock through `within`.

import { CompiledQuery, Kysely, PostgresDialect, type Transaction } from "kysely";
import { open } from "pawl";
import pg from "pg";

interface Database {
  orders: { id: string; item: string };
}

const pool = new pg.Pool({ connectionString: process.env["DATABASE_URL"] });
const db = new Kysely<Database>({ dialect: new PostgresDialect({ pool }) });
const pawl = await open({ pool });
const stock = pawl.slot<number>("stock/teapot", { initial: 1 });
await db.schema
  .createTable("orders")
  .addColumn("id", "text", (column) => column.primaryKey())
  .addColumn("item", "text", (column) => column.notNull())
  .execute();

/** Runs Pawl's statements in a transaction of Kysely. */
const inKysely = (transaction: Transaction<Database>) => (text: string, values: string[]) =>
  transaction.executeQuery(CompiledQuery.raw(text, values));

function order(id: string): Promise<number> {
  return db.transaction().execute(async (transaction) => {
    await transaction.insertInto("orders").values({ id, item: "teapot" }).execute();
    return pawl.within(inKysely(transaction), (tx) => {
      const { value } = tx.slot(stock).get();
      if (value === 0) throw new Error("sold out");
      tx.slot(stock).set(value - 1);
      return value - 1;
    });
  });
}

console.log("left:", await order("o-1"));
await order("o-2").catch((error: Error) => console.log("refused:", error.message));
console.log(await db.selectFrom("orders").select("id").execute(), (await stock.get()).value);

await pawl.close();
await db.destroy();

// Output:
// left: 0
// refused: sold out
// [ { id: 'o-1' } ] 0
