// Pawl inside a transaction of Drizzle: the order through Drizzle's own insert, the stock through `within`.

import { sql } from "drizzle-orm";
import { drizzle } from "drizzle-orm/node-postgres";
import { pgTable, text } from "drizzle-orm/pg-core";
import { open } from "pawl";
import pg from "pg";

const orders = pgTable("orders", { id: text().primaryKey(), item: text().notNull() });
const pool = new pg.Pool({ connectionString: process.env["DATABASE_URL"] });
const db = drizzle(pool);
const pawl = await open({ pool });
const stock = pawl.slot<number>("stock/teapot", { initial: 1 });
await db.execute("create table orders (id text primary key, item text not null)");

type Transaction = Parameters<Parameters<typeof db.transaction>[0]>[0];

/** Runs Pawl's statements in a transaction of Drizzle. They have at most one parameter, $1. */
const inDrizzle = (transaction: Transaction) => (text: string, values: string[]) => {
  const [before = "", after = ""] = text.split("$1").map((part) => sql.raw(part));
  return transaction.execute(values.length === 0 ? sql`${before}` : sql`${before}${values[0]}${after}`);
};

function order(id: string): Promise<number> {
  return db.transaction(async (transaction) => {
    await transaction.insert(orders).values({ id, item: "teapot" });
    return pawl.within(inDrizzle(transaction), (tx) => {
      const { value } = tx.slot(stock).get();
      if (value === 0) throw new Error("sold out");
      tx.slot(stock).set(value - 1);
      return value - 1;
    });
  });
}

console.log("left:", await order("o-1"));
await order("o-2").catch((error: Error) => console.log("refused:", error.message));
console.log(await db.select({ id: orders.id }).from(orders), (await stock.get()).value);

await pawl.close();
await pool.end();

// Output:
// left: 0
// refused: sold out
// [ { id: 'o-1' } ] 0
