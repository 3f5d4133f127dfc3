// A bank account: its events are what happened, its state is folded from them, and its commands keep the invariant that the balance is never
// negative, however many callers there are at the same moment.

import { aggregate, CommandRefusedError, event, open } from "pawl";

const Deposited = event<{ amount: number }>("Deposited");
const Withdrawn = event<{ amount: number }>("Withdrawn");

const account = aggregate("account", {
  initial: { balance: 0 },
  on: [
    [Deposited, ({ balance }, { amount }) => ({ balance: balance + amount })],
    [Withdrawn, ({ balance }, { amount }) => ({ balance: balance - amount })],
  ],
  commands: {
    deposit: ({ balance }, amount: number, { emit }) => {
      emit(Deposited({ amount }));
      return balance + amount;
    },
    withdraw: ({ balance }, amount: number, { emit, refuse }) => {
      if (amount > balance) refuse("insufficient_funds", { balance });
      emit(Withdrawn({ amount }));
      return balance - amount;
    },
  },
});

await using pawl = await open("bank.db");
const ann = pawl.aggregate(account, "account-42");
await ann.execute("deposit", 100, { actor: "ann" });

// Two withdrawals race for the last of it: one succeeds, the other is refused, with the data that the command gave.
const [first, second] = await Promise.allSettled([ann.execute("withdraw", 80), ann.execute("withdraw", 80)]);
if (first.status === "fulfilled") console.log("left:", first.value.output);
if (second.status === "rejected" && second.reason instanceof CommandRefusedError)
  console.log(second.reason.data.reason, second.reason.data.details);

// The stream is the truth: read it, also backwards, and ask for the state as it was.
for await (const { version, name, data } of pawl.stream("account-42").read({ events: [Deposited, Withdrawn] }))
  console.log(version, name, data.amount);
console.log("before the withdrawal:", (await ann.state({ asOf: 1 })).state.balance);

// A plain append says which version it expects, so that nothing that came in between is overlooked.
const tried = await pawl.stream("account-42").tryAppend([Deposited({ amount: 5 })], { expectedVersion: 1 });
console.log(tried);

// A transfer is one commit: if Ann has too little, Bob gets nothing.
const transfer = (amount: number) =>
  pawl.transact((tx) => {
    tx.aggregate(account, "account-42").execute("withdraw", amount);
    return tx.aggregate(account, "account-43").execute("deposit", amount).output;
  });
console.log("bob has:", await transfer(15));
await transfer(15).catch((error: Error) => console.log(error.message));
console.log("bob still has:", (await pawl.aggregate(account, "account-43").state()).state.balance);

// Output:
// left: 20
// insufficient_funds { balance: 20 }
// 1 Deposited 100
// 2 Withdrawn 80
// before the withdrawal: 100
// { ok: false, code: 'concurrency_conflict', version: 2 }
// bob has: 15
// command "withdraw" of account "account-42" was refused: insufficient_funds
// bob still has: 15
