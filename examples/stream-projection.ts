// A projection: rows made of events, to look up and to list. A rebuild runs beside what readers see, and a caller waits for what it appended.

// biome-ignore lint/style/noRestrictedImports: the example waits for a rebuild.
import { setTimeout as sleep } from "node:timers/promises";
import { event, open, projection } from "pawl";

const Deposited = event<{ amount: number }>("Deposited");
const Withdrawn = event<{ amount: number }>("Withdrawn");

interface Balance {
  balance: number;
  movements: number;
}

const balances = projection(
  "balances",
  { on: [Deposited, Withdrawn] },
  (row: Balance | undefined, e): Balance => ({
    balance: (row?.balance ?? 0) + (e.name === "Deposited" ? e.data.amount : -e.data.amount),
    movements: (row?.movements ?? 0) + 1,
  }),
);

await using pawl = await open("bank.db");
await pawl.stream("ann").append([Deposited({ amount: 100 }), Withdrawn({ amount: 30 })]);
pawl.work([balances]);

const appended = await pawl.stream("bob").append([Deposited({ amount: 5 })]);
const rows = pawl.projection(balances);
await rows.waitFor(appended);
console.log(await rows.get("bob"), await rows.get("eve"));
console.log((await rows.list()).rows);

const generation = await rows.rebuild();
while ((await rows.status()).live?.generation !== generation) await sleep(10);
console.log("rebuilt:", await rows.get("ann"));

// Output:
// { balance: 5, movements: 1 } undefined
// [
//   { key: 'ann', row: { balance: 70, movements: 2 } },
//   { key: 'bob', row: { balance: 5, movements: 1 } }
// ]
// rebuilt: { balance: 70, movements: 2 }
