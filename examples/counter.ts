// A shared counter. A hundred callers increment it concurrently, and no increment is lost: `update` runs under the slot's lock.

import { open } from "pawl";

await using pawl = await open("counter.db");
const visits = pawl.slot<number>("visits", { initial: 0 });

await Promise.all(Array.from({ length: 100 }, () => visits.update((n) => n + 1)));

console.log((await visits.get()).value);

// Output:
// 100
