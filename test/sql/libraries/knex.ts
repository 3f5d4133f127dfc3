/** The shop through Knex. */

import knex, { type Knex } from "knex";
import type { Connect } from "./library.ts";

const inKnex = (transaction: Knex) => (text: string, values: string[]) =>
  transaction.raw(text.replace("$1", "?"), values);

export const connect: Connect = async (url) => {
  const db = knex({ client: "pg", connection: url, pool: { min: 0, max: 10 }, log: { warn() {}, error() {} } });
  return {
    order: (id, rest, { isSerializable = false } = {}) =>
      db.transaction(
        async (transaction) => {
          await transaction("orders").insert({ id, item: "teapot" });
          return rest(inKnex(transaction));
        },
        { isolationLevel: isSerializable ? "serializable" : "read committed" },
      ),
    loose: inKnex(db),
    close: () => db.destroy(),
  };
};
