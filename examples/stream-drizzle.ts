// A read model in a table of your own, with Drizzle: the rows and the progress of the projection are one transaction. Each build has a table of its own;
// the view that readers use is switched in the transaction in which the build has caught up.

import { sql as raw } from "drizzle-orm";
import { drizzle } from "drizzle-orm/node-postgres";
import { integer, pgTable, text } from "drizzle-orm/pg-core";
import { event, open, projection } from "pawl";
import pg from "pg";

const Placed = event<{ customer: string; total: number }>("Placed");

const pool = new pg.Pool({ connectionString: process.env["DATABASE_URL"] });
const db = drizzle(pool);
const pawl = await open({ pool });

const salesOf = (name: string) =>
  pgTable(name, { customer: text().primaryKey(), orders: integer().notNull(), total: integer().notNull() });
const tableOf = (generation: number) => `sales_${generation}`;

const sales = projection.sql(
  "sales",
  {
    on: [Placed],
    setUp: (sql, { generation }) =>
      sql.query(
        `create table ${tableOf(generation)} (customer text primary key, orders int not null, total int not null)`,
      ),
    swap: async (sql, { generation, previous }) => {
      await sql.query(`create or replace view sales as select * from ${tableOf(generation)}`);
      if (previous !== null) await sql.query(`drop table ${tableOf(previous)}`);
    },
  },
  async (events, sql, { generation }) => {
    const table = salesOf(tableOf(generation));
    for (const { data } of events) {
      const statement = db
        .insert(table)
        .values({ customer: data.customer, orders: 1, total: data.total })
        .onConflictDoUpdate({
          target: table.customer,
          set: { orders: raw`${table.orders} + 1`, total: raw`${table.total} + excluded.total` },
        })
        .toSQL();
      await sql.query(statement.sql, statement.params);
    }
  },
);

pawl.work([sales]);
await pawl.stream("order-1").append([Placed({ customer: "ann", total: 30 })]);
const last = await pawl.stream("order-2").append([Placed({ customer: "ann", total: 12 })]);
await pawl.projection(sales).waitFor(last);
console.log(await db.select().from(salesOf("sales")));

await pawl.close();
await pool.end();

// Output:
// [ { customer: 'ann', orders: 2, total: 42 } ]
