/**
 * PostgreSQL: the same API, for any number of processes on any number of machines.
 *
 * Give it a database: DATABASE_URL=postgres://… node examples/postgres.ts
 */

import { open } from "pawl";
import pg from "pg";

{
  const pawl = await open(process.env["DATABASE_URL"] ?? "postgres://localhost/app");
  const visits = pawl.slot<number>("visits", { initial: 0 });
  await Promise.all(Array.from({ length: 100 }, () => visits.update((n) => n + 1)));
  console.log("by a connection string:", (await visits.get()).value);
  await pawl.close();
}

{
  const connectionString = process.env["DATABASE_URL"] ?? "postgres://localhost/app";
  const pool = new pg.Pool({ connectionString, max: 10 });
  const pawl = await open({ pool, schema: "jobs", namespace: "billing" });
  const visits = pawl.slot<number>("visits", { initial: 0 });
  console.log("in a schema of its own:", (await visits.update((n) => n + 1)).value);
  await pawl.close();

  // The pool belongs to the application: `close` leaves it open.
  const { rows } = await pool.query<{ space: string; key: string; value: string }>(
    "select space, key, value from jobs.now",
  );
  console.log("as psql sees it:", rows);
  await pool.end();
}

// Output:
// by a connection string: 100
// in a schema of its own: 1
// as psql sees it: [ { space: 'slot', key: 'visits', value: '1' } ]
