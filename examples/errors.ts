// Errors are distinguished by their codes. TypeScript knows every code, and the type of its `data`.

import { isPawlError, open, signal, workflow } from "pawl";

await using pawl = await open("memory:");
const visits = pawl.slot<number>("visits", { initial: 0 });
await visits.set(1);

try {
  await visits.set(2, { expectedVersion: 7 });
} catch (error) {
  if (!isPawlError(error)) throw error;
  switch (error.code) {
    case "version_conflict":
      console.log(`another caller has written version ${error.data.current}`);
      break;
    case "store_unreachable":
      console.log("the database is unreachable");
      break;
    default:
      throw error;
  }
}

// In a workflow: a step's error is recorded and read again. It is then no instance of its class any more, but isPawlError recognizes it.
const approved = signal<{ by: string }>("approved");
const rejected = signal<{ reason: string }>("rejected");
const decide = workflow("decide", async (ctx) => {
  const received = await ctx.waitForAny([approved, rejected]);
  if (rejected.is(received)) return `rejected: ${received.value.reason}`;
  try {
    await ctx.step("write", () => visits.set(3, { expectedVersion: 7 }).then(() => {}), { retry: { attempts: 1 } });
  } catch (error) {
    if (isPawlError(error, "version_conflict")) return `approved, but it is at version ${error.data.current}`;
    throw error;
  }
  return "approved and written";
});

await using _worker = pawl.work([decide]);
const { id } = await pawl.start(decide);
await pawl.run(id).signal(approved, { by: "ann" });
console.log(await pawl.run(id).result());

// Output:
// another caller has written version 1
// approved, but it is at version 1
