// A webhook arrives twice at the same moment. The mark and the effect are one commit, so the effect happens once.

import { open } from "pawl";

await using pawl = await open("shop.db");
const balance = pawl.slot<number>("balance", { initial: 0 });

function deposit(eventId: string, amount: number): Promise<"done" | "already done"> {
  const seen = pawl.slot<boolean>(`seen/${eventId}`, { initial: false });
  return pawl.transact<"done" | "already done">((tx) => {
    if (tx.slot(seen).get().value) return "already done";
    tx.slot(seen).set(true);
    tx.slot(balance).update((sum) => sum + amount);
    return "done";
  });
}

console.log(await Promise.all([deposit("evt-1", 25), deposit("evt-1", 25)]));
console.log((await balance.get()).value);

// Output:
// [ 'done', 'already done' ]
// 25
