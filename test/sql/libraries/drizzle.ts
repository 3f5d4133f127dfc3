/** The shop through Drizzle. */

import { sql } from "drizzle-orm";
import { drizzle, type NodePgDatabase } from "drizzle-orm/node-postgres";
import { pgTable, text } from "drizzle-orm/pg-core";
import pg from "pg";
import type { Connect } from "./library.ts";

const orders = pgTable("orders", { id: text().primaryKey(), item: text().notNull() });

const inDrizzle = (transaction: Pick<NodePgDatabase, "execute">) => (text: string, values: string[]) => {
  const [before = "", after = ""] = text.split("$1").map((part) => sql.raw(part));
  return transaction.execute(values.length === 0 ? sql`${before}` : sql`${before}${values[0]}${after}`);
};

export const connect: Connect = async (url) => {
  const pool = new pg.Pool({ connectionString: url });
  pool.on("error", () => {});
  pool.on("connect", (client) => client.on("error", () => {}));
  const db = drizzle(pool);
  return {
    order: (id, rest, { isSerializable = false } = {}) =>
      db.transaction(
        async (transaction) => {
          await transaction.insert(orders).values({ id, item: "teapot" });
          return rest(inDrizzle(transaction));
        },
        { isolationLevel: isSerializable ? "serializable" : "read committed" },
      ),
    loose: inDrizzle(db),
    close: () => pool.end(),
  };
};
