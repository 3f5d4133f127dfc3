/** The shop through `node:sqlite`: a DatabaseSync is an executor as it is. One connection has one transaction, so orders take turns. */

import { DatabaseSync } from "node:sqlite";
import type { Connect } from "./library.ts";

export const connect: Connect = async (path) => {
  const db = new DatabaseSync(path, { timeout: 5000 });
  const insert = db.prepare("insert into orders (id, item) values (?, ?)");
  let last: Promise<unknown> = Promise.resolve();
  return {
    order(id, rest) {
      const mine = last.then(async () => {
        db.exec("begin immediate");
        try {
          insert.run(id, "teapot");
          const value = await rest(db);
          db.exec("commit");
          return value;
        } catch (error) {
          db.exec("rollback");
          throw error;
        }
      });
      last = mine.catch(() => {});
      return mine;
    },
    loose: db,
    close: async () => db.close(),
  };
};
