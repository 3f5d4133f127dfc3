// The data of an event gets another shape: what is stored stays as it is, and is converted when it is read.

import { event, open } from "pawl";

// As the first release had it.
const PaidOnce = event<{ cents: number }>("Paid");

await using pawl = await open("shapes.db");
await pawl.stream("order-1").append([PaidOnce({ cents: 250 })]);

// The next release.
const Paid = event<{ amount: number }>("Paid", {
  shape: 2,
  upcast: { 1: (old: { cents: number }) => ({ amount: old.cents / 100 }) },
});
await pawl.stream("order-1").append([Paid({ amount: 3 })], { expectedVersion: 1 });

for await (const { version, data } of pawl.stream("order-1").read({ events: [Paid] }))
  console.log(version, data.amount);

// Code that does not know the newer shape refuses it, and does not guess.
const reading = pawl.stream("order-1").read({ events: [PaidOnce], from: 2 });
await reading.next().catch((error: Error) => console.log(error.message));

// Output:
// 1 2.5
// 2 3
// event "Paid" has shape 2, and this code knows shapes up to 1
