// The three kinds of step, and what a crash in the middle of each does: a process kills itself right after the effect and before anything
// is recorded, and another continues. `step` runs again, with the same key. The SQL of `step.tx` was rolled back with its record, and runs
// again. `step.atMostOnce` does not run again: `reconcile` finds out that it happened.

import { spawnSync } from "node:child_process";
import { appendFileSync, existsSync, readFileSync } from "node:fs";
import { open, workflow } from "pawl";

const [, , killAt] = process.argv;

/** An effect outside: a line in a file. */
function write(file: string, line: string): string {
  appendFileSync(file, `${line}\n`);
  if (killAt === file) process.kill(process.pid, "SIGKILL");
  return line;
}
const linesOf = (file: string) => (existsSync(file) ? readFileSync(file, "utf8").trim().split("\n") : []);

const receipt = workflow("receipt", async (ctx, order: string) => {
  const paid = await ctx.step("charge", ({ key }) => write("charges", key));
  await ctx.step.tx("book", async (sql) => {
    await sql.query("insert into ledger (name, charge) values (?, ?)", [order, paid]);
    write("bookings", order);
  });
  await ctx.step.atMostOnce("print", () => write("prints", order), {
    reconcile: () => (linesOf("prints").includes(order) ? { done: true, value: order } : { done: false }),
  });
});

await using pawl = await open("receipts.db");
// Processes that will be killed have a short lease, so that their runs are taken over soon.
pawl.work([receipt], { lease: killAt === undefined ? "30s" : "2s" });

if (killAt !== undefined) await (await pawl.start(receipt, killAt, { id: killAt })).result();
else {
  await pawl.transact.sql((sql) => sql.query("create table if not exists ledger (name text, charge text)"));
  for (const file of ["charges", "bookings", "prints"]) {
    spawnSync(process.execPath, [...process.execArgv, import.meta.filename, file]);
    await pawl.run(receipt, file).result();
  }
  const { rows } = await pawl.transact.sql((sql) => sql.query("select * from ledger"));
  console.log("charge:", linesOf("charges").length, "calls with", new Set(linesOf("charges")).size, "keys");
  console.log("book:", linesOf("bookings").length, "calls and", rows.length, "rows");
  console.log("print:", linesOf("prints").length, "calls");
}

// Output:
// charge: 4 calls with 3 keys
// book: 4 calls and 3 rows
// print: 3 calls
