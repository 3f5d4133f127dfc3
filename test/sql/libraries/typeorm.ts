/** The shop through TypeORM: its entity manager is an executor as it is. */

import { DataSource, EntitySchema } from "typeorm";
import type { Connect } from "./library.ts";

const orders = new EntitySchema<{ id: string; item: string }>({
  name: "order",
  tableName: "orders",
  columns: { id: { type: "text", primary: true }, item: { type: "text" } },
});

export const connect: Connect = async (url) => {
  const db = await new DataSource({ type: "postgres", url, entities: [orders], poolErrorHandler() {} }).initialize();
  return {
    order: (id, rest, { isSerializable = false } = {}) =>
      db.transaction(isSerializable ? "SERIALIZABLE" : "READ COMMITTED", async (manager) => {
        await manager.insert(orders, { id, item: "teapot" });
        return rest(manager);
      }),
    loose: db.manager,
    close: () => db.destroy(),
  };
};
