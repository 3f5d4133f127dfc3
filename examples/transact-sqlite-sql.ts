// Your SQL and Pawl's records in one transaction on an SQLite file. It holds the file's only write lock, so it must be short: no I/O inside.

import { open } from "pawl";

await using pawl = await open("shop.db");
const stock = pawl.slot<number>("stock/teapot", { initial: 1 });
await pawl.transact.sql((sql) => sql.query("create table orders (id text primary key, item text not null)"));

function order(id: string): Promise<number> {
  return pawl.transact.sql(async (sql, tx) => {
    await sql.query("insert into orders (id, item) values (?, ?)", [id, "teapot"]);
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
const { rows } = await pawl.transact.sql((sql) => sql.query("select count(*) as orders from orders"));
console.log(rows[0]?.["orders"], (await stock.get()).value);

// Output:
// left: 0
// refused: sold out
// 1 0
