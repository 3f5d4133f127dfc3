// Taking a place in line without waiting: the code does something else, and then waits for its turn.

import { open } from "pawl";

await using pawl = await open("reports.db");

// tryAcquire never waits, and takes no place in line.
const other = await pawl.mutex("report").acquire({ by: "manual" });
console.log(await pawl.mutex("report").tryAcquire());

// enqueue takes a place. It expires with its lease, unless it is renewed or waited for.
const entered = await pawl.mutex("report", { lease: "1 minute" }).enqueue({ by: "nightly" });
if (!entered.granted) {
  console.log("place", await entered.place.position());
  console.log("renewed:", await entered.place.renew());
  await other.release();
}
const hold = entered.granted ? entered.hold : await entered.place.acquire({ timeout: "10s" });
console.log("held by", (await pawl.mutex("report").inspect()).holders[0]?.by);
await hold.release();

// Output:
// { ok: false, code: 'lock_busy', place: 1 }
// place 1
// renewed: true
// held by nightly
