/** A handle on a store of any kind, with connections of the application's own beside it for `within`. */

import { DatabaseSync } from "node:sqlite";
import pg from "pg";
import { open, type Pawl } from "../../src/index.ts";
import type { Plain } from "./paths.ts";

export interface Client {
  readonly pawl: Pawl;
  readonly hasSql: boolean;
  readonly plains: readonly Plain[];
  close(): Promise<void>;
}

const PLAINS = 2;

export async function openClient(store: string, options: { readonly namespace: string }): Promise<Client> {
  const isPostgres = store.startsWith("postgres");
  const pawl = await open(store, { namespace: options.namespace, ...(isPostgres ? {} : { durability: "process" }) });
  const opened = await Promise.all(
    Array.from({ length: PLAINS }, () => (isPostgres ? plainPostgres(store) : plainSqlite(store))),
  );
  return {
    pawl,
    hasSql: true,
    plains: opened.map(({ plain }) => plain),
    async close() {
      await pawl.close();
      for (const { end } of opened) await end();
    },
  };
}

async function plainPostgres(url: string): Promise<{ plain: Plain; end: () => Promise<void> }> {
  const client = new pg.Client({ connectionString: url });
  client.on("error", () => {});
  await client.connect();
  return { plain: { executor: client, query: (text) => client.query(text) }, end: () => client.end() };
}

/** It waits for the file's one write lock as an application would: by asking again. */
async function plainSqlite(path: string): Promise<{ plain: Plain; end: () => Promise<void> }> {
  const db = new DatabaseSync(path, { timeout: 0 });
  const query = async (text: string): Promise<void> => {
    for (;;)
      try {
        db.exec(text === "begin" ? "begin immediate" : text);
        return;
      } catch (error) {
        if (!(error instanceof Error) || !/locked|busy/.test(error.message)) throw error;
        await new Promise((resolve) => setTimeout(resolve, 1 + Math.random() * 3));
      }
  };
  return { plain: { executor: db, query }, end: async () => db.close() };
}
