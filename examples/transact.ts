// Several slots change together or not at all. A decision that throws writes nothing.

import { open } from "pawl";

await using pawl = await open("bank.db");
const ann = pawl.slot<number>("account/ann", { initial: 100 });
const bob = pawl.slot<number>("account/bob", { initial: 0 });
const last = pawl.slot<{ id: string; amount: number }>("last-transfer");

function transfer(amount: number) {
  return pawl.transact((tx) => {
    tx.slot(bob).update((balance) => balance + amount);
    tx.slot(ann).update((balance) => balance - amount);
    if (tx.slot(ann).get().value < 0) throw new Error("not enough money");
    tx.slot(last).set({ id: tx.uuid(), amount });
    return tx.slot(ann).get().value;
  });
}

console.log("left:", await transfer(70));
await transfer(70).catch((error: Error) => console.log("refused:", error.message));
console.log((await ann.get()).value, (await bob.get()).value, (await last.get()).value?.amount);

// Output:
// left: 30
// refused: not enough money
// 30 70 70
