// A step whose SQL and whose record are one transaction on SQLite. Its function is synchronous, so the file is locked no longer than its
// statements take; an async function does not compile.

import { open, workflow } from "pawl";

await using pawl = await open("bookings.db");
await pawl.transact.sql((sql) => sql.query("create table seats (number integer primary key, guest text)"));
await pawl.transact.sql((sql) => sql.query("insert into seats (number) values (1), (2)"));

const book = workflow("book", async (ctx, guest: string) => {
  const seat = await ctx.step.tx.sync("take", (db) => {
    const free = db
      .prepare("select min(number) as number from seats where guest is null")
      .get<{ number: number | null }>();
    if (typeof free?.number !== "number") return null;
    db.prepare("update seats set guest = ? where number = ?").run(guest, free.number);
    return free.number;
  });
  return ctx.step("tell", () => (seat === null ? `${guest}: sold out` : `${guest}: seat ${seat}`));
});

pawl.work([book]);
for (const guest of ["ann", "bob", "cy"]) console.log(await (await pawl.start(book, guest)).result());

// Output:
// ann: seat 1
// bob: seat 2
// cy: sold out
