/** The shop through Kysely. */

import { CompiledQuery, Kysely, PostgresDialect } from "kysely";
import pg from "pg";
import type { Connect } from "./library.ts";

interface Database {
  orders: { id: string; item: string };
}

const inKysely = (transaction: Kysely<Database>) => (text: string, values: string[]) =>
  transaction.executeQuery(CompiledQuery.raw(text, values));

export const connect: Connect = async (url) => {
  const pool = new pg.Pool({ connectionString: url });
  pool.on("error", () => {});
  pool.on("connect", (client) => client.on("error", () => {}));
  const db = new Kysely<Database>({ dialect: new PostgresDialect({ pool }) });
  return {
    order: (id, rest, { isSerializable = false } = {}) =>
      db
        .transaction()
        .setIsolationLevel(isSerializable ? "serializable" : "read committed")
        .execute(async (transaction) => {
          await transaction.insertInto("orders").values({ id, item: "teapot" }).execute();
          return rest(inKysely(transaction));
        }),
    loose: inKysely(db),
    close: () => db.destroy(),
  };
};
