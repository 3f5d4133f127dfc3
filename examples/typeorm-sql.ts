// Pawl inside a transaction of TypeORM: the order through the entity manager, the stock through `within`, which takes the manager as it is.

import { open } from "pawl";
import { DataSource, EntitySchema } from "typeorm";

interface Order {
  id: string;
  item: string;
}

const orders = new EntitySchema<Order>({
  name: "order",
  tableName: "orders",
  columns: { id: { type: "text", primary: true }, item: { type: "text" } },
});

const url = process.env["DATABASE_URL"] ?? "postgres://localhost/shop";
const db = await new DataSource({ type: "postgres", url, entities: [orders], synchronize: true }).initialize();
const pawl = await open(url);
const stock = pawl.slot<number>("stock/teapot", { initial: 1 });

function order(id: string): Promise<number> {
  return db.transaction(async (manager) => {
    await manager.insert(orders, { id, item: "teapot" });
    return pawl.within(manager, (tx) => {
      const { value } = tx.slot(stock).get();
      if (value === 0) throw new Error("sold out");
      tx.slot(stock).set(value - 1);
      return value - 1;
    });
  });
}

console.log("left:", await order("o-1"));
await order("o-2").catch((error: Error) => console.log("refused:", error.message));
console.log(await db.getRepository(orders).find({ select: { id: true } }), (await stock.get()).value);

await pawl.close();
await db.destroy();

// Output:
// left: 0
// refused: sold out
// [ { id: 'o-1' } ] 0
