// A webhook is delivered twice at the same moment, and once more later. Each delivery succeeds; the money is booked once.

import { open } from "pawl";

await using pawl = await open("shop.db");
const balance = pawl.slot<number>("balance", { initial: 0 });

async function receive(event: { id: string; amount: number }): Promise<string> {
  const { deduplicated, value } = await pawl.dedupe(
    "bookkeeping",
    event.id,
    (tx) => tx.slot(balance).update((sum) => sum + event.amount).value,
  );
  return deduplicated ? "200, seen before" : `200, booked: ${value}`;
}

const event = { id: "evt-1", amount: 25 };
console.log(await Promise.all([receive(event), receive(event)]));
console.log(await receive(event));
console.log(await receive({ id: "evt-2", amount: 5 }));

// Output:
// [ '200, booked: 25', '200, seen before' ]
// 200, seen before
// 200, booked: 30
