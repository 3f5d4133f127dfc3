// A workflow checks what it is started with, what it returns, and what is sent to it. A schema may transform: the caller gives what the schema takes, the code
// gets what the schema returns. Zod is one of many libraries that follow Standard Schema.

import { isPawlError, open, signal, workflow } from "pawl";
import { z } from "zod";

const Trip = z.object({
  to: z.string(),
  at: z.iso.date().transform((day) => new Date(day)),
  seats: z.int().default(1),
});
const Ticket = z.object({ code: z.string().regex(/^T-/) });
const paid = signal("paid", z.object({ cents: z.int().positive() }));

const book = workflow({ name: "book", input: Trip, output: Ticket }, async (ctx, { to, at, seats }) => {
  const { value } = await ctx.waitForSignal(paid);
  const year = at.getUTCFullYear(); // a Date
  return { code: `T-${to}-${year}-${seats}-${value.cents}` };
});

await using pawl = await open("trips.db");
pawl.work([book]);
const run = await pawl.start(book, { to: "ROME", at: "2030-05-01" }, { id: "trip-1" });
await run.signal(paid, { cents: 9900 });
console.log(await run.result());

await pawl.start(book, { to: "ROME", at: "tomorrow" }).catch((error: unknown) => {
  if (isPawlError(error, "schema_mismatch")) console.log(error.data.issues);
});

// Output:
// { code: 'T-ROME-2030-1-9900' }
// [ { message: 'Invalid ISO date', path: 'at' } ]
