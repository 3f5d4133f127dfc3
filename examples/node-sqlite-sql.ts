// Pawl inside a transaction of your own connection to the same SQLite file: `within` takes the DatabaseSync as it is.

import { DatabaseSync } from "node:sqlite";
import { open } from "pawl";

await using pawl = await open("shop.db");
const stock = pawl.slot<number>("stock/teapot", { initial: 1 });

using db = new DatabaseSync("shop.db", { timeout: 1000 });
db.exec("create table orders (id text primary key, item text not null)");
const insert = db.prepare("insert into orders (id, item) values (?, ?)");

async function order(id: string): Promise<number> {
  db.exec("begin immediate");
  try {
    insert.run(id, "teapot");
    const left = await pawl.within(db, (tx) => {
      const { value } = tx.slot(stock).get();
      if (value === 0) throw new Error("sold out");
      tx.slot(stock).set(value - 1);
      return value - 1;
    });
    db.exec("commit");
    return left;
  } catch (error) {
    db.exec("rollback");
    throw error;
  }
}

console.log("left:", await order("o-1"));
await order("o-2").catch((error: Error) => console.log("refused:", error.message));
console.log(db.prepare("select count(*) as orders from orders").get()?.["orders"], (await stock.get()).value);

// Output:
// left: 0
// refused: sold out
// 1 0
