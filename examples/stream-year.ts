// The books of an account are closed at the end of the year: its events go to an archive, and the new year begins with one event that carries the
// balance over. The store keeps the last entry of the old year and what comes after it; the archive is read where something needs the rest.

import { aggregate, event, isPawlError, jsonLinesArchive, open } from "pawl";

const Deposited = event<{ amount: number }>("Deposited");
const Carried = event<{ amount: number }>("Carried");

const account = aggregate("account", {
  initial: { balance: 0 },
  on: [
    [Deposited, ({ balance }, { amount }) => ({ balance: balance + amount })],
    [Carried, (_, { amount }) => ({ balance: amount })],
  ],
  commands: {
    deposit: ({ balance }, amount: number, { emit }) => {
      emit(Deposited({ amount }));
      return balance + amount;
    },
  },
});

await using pawl = await open("books.db", { archive: jsonLinesArchive("archive") });
const ann = pawl.aggregate(account, "account-42");
for (let month = 1; month <= 12; month++) await ann.execute("deposit", 100);

// Closed at the version that the balance is of. If a deposit came in between, this throws, and nothing is closed.
const { state, version } = await ann.state();
const closed = await pawl.streams.close("account-42", {
  expectedVersion: version,
  restart: Carried({ amount: state.balance }),
  actor: "auditor",
  reason: "year 2029",
});
console.log(closed);

// The new year: versions continue.
await ann.execute("deposit", 50);
for await (const { version, name, data } of pawl.stream("account-42").read({ from: "kept" }))
  console.log(version, name, data);
console.log("balance:", (await ann.state()).state.balance);

// What was archived can still be read, and so can a state of that time.
let events = 0;
for await (const _ of pawl.stream("account-42").read()) events += 1;
console.log("events:", events, "in March:", (await ann.state({ asOf: 3 })).state.balance);

// A stream that ends for good takes no more events.
await pawl.streams.close("account-42", { reason: "the customer left" });
await ann.execute("deposit", 1).catch((error: unknown) => {
  if (isPawlError(error, "stream_closed")) console.log(error.message);
});

// Output:
// { version: 13, archived: 12, restartedAt: 14 }
// 13 $closed { reason: 'year 2029' }
// 14 Carried { amount: 1200 }
// 15 Deposited { amount: 50 }
// balance: 1250
// events: 15 in March: 300
// stream "account-42" was closed with version 16: it takes no more events
