/**
 * A database for the tests of one file. Separate from `kit.ts`, which programs without a test runner use too.
 */

import pg from "pg";
import { afterAll, beforeAll } from "vitest";
import { type FreshDatabase, freshDatabase } from "./server.ts";

/** A database of the file's own, and a connection to it beside Pawl's. Both are gone when the tests have ended. */
export function ownDatabase(): { readonly url: string; readonly admin: pg.Client } {
  let database: FreshDatabase | undefined;
  let admin: pg.Client | undefined;
  beforeAll(async () => {
    database = await freshDatabase();
    admin = new pg.Client({ connectionString: database.url });
    await admin.connect();
  });
  afterAll(async () => {
    await admin?.end();
    await database?.drop();
  });
  const there = <T>(one: T | undefined): T => {
    if (one === undefined) throw new Error("the database is there while tests run");
    return one;
  };
  return {
    get url() {
      return there(database).url;
    },
    get admin() {
      return there(admin);
    },
  };
}
