// Pawl opens the transaction, and your SQL runs in it. If the reply to COMMIT is lost, Pawl finds out whether it was committed.

import { open } from "pawl";
import pg from "pg";

const pool = new pg.Pool({ connectionString: process.env["DATABASE_URL"] });
const pawl = await open({ pool });
const stock = pawl.slot<number>("stock/teapot", { initial: 1 });
await pool.query("create table orders (id text primary key, item text not null)");

function order(id: string): Promise<number> {
  return pawl.transact.sql(async (sql, tx) => {
    await sql.query("insert into orders (id, item) values ($1, $2)", [id, "teapot"]);
    return tx((tx) => {
      const { value } = tx.slot(stock).get();
      if (value === 0) throw new Error("sold out");
      tx.slot(stock).set(value - 1);
      return value - 1;
    });
  });
}

console.log("left:", await order("o-1"));
await order("o-2").catch((error: Error) => console.log("refused:", error.message));
const { rows } = await pool.query<{ id: string }>("select id from orders");
console.log(rows, (await stock.get()).value);

await pawl.close();
await pool.end();

// Output:
// left: 0
// refused: sold out
// [ { id: 'o-1' } ] 0
