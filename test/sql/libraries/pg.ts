/** The shop through `pg`: a client is an executor as it is. */

import pg from "pg";
import type { Connect } from "./library.ts";

export const connect: Connect = async (url) => {
  const pool = new pg.Pool({ connectionString: url });
  pool.on("error", () => {});
  return {
    async order(id, rest, { isSerializable = false } = {}) {
      const client = await pool.connect();
      const silent = () => {};
      client.on("error", silent);
      let isBroken = false;
      try {
        await client.query(`begin isolation level ${isSerializable ? "serializable" : "read committed"}`);
        await client.query("insert into orders (id, item) values ($1, $2)", [id, "teapot"]);
        const value = await rest(client);
        await client.query("commit");
        return value;
      } catch (error) {
        await client.query("rollback").catch(() => {
          isBroken = true;
        });
        throw error;
      } finally {
        client.off("error", silent);
        client.release(isBroken);
      }
    },
    loose: pool,
    close: () => pool.end(),
  };
};
