// An order changes its state only as its machine allows. A misspelled state does not compile; a transition that is not allowed is refused with
// an error that names those that are, and is in the audit log too.

import { IllegalTransitionError, machine, open } from "pawl";

const order = machine("order", {
  initial: "pending",
  transitions: {
    pending: ["paid", "canceled"],
    paid: ["shipped", "refunded"],
    shipped: [],
    refunded: [],
    canceled: [],
  },
  initialData: { cents: 0, paidCents: 0 },
  guards: {
    pending: {
      paid: (data, { next }) => next.paidCents >= data.cents || `${data.cents - next.paidCents} cents are missing`,
    },
  },
});
console.log(order.toText());

await using pawl = await open("orders.db");
const orders = pawl.machine(order);
await orders.create("o-1", { data: { cents: 1200, paidCents: 0 }, actor: "ann" });

// The guard sees the data as it is and as it would be.
console.log(await orders.tryTransition("o-1", "paid", { patch: { paidCents: 1000 }, actor: "bank" }));
const { state, allowed } = await orders.transition("o-1", "paid", { patch: { paidCents: 1200 }, actor: "bank" });
console.log(state, allowed);

// Two concurrent transitions that exclude each other: one succeeds, the other is refused.
const [shipped, refunded] = await Promise.allSettled([
  orders.transition("o-1", "shipped", { actor: "warehouse" }),
  orders.transition("o-1", "refunded", { actor: "support", reason: "she called" }),
]);
if (refunded.status === "rejected" && refunded.reason instanceof IllegalTransitionError)
  console.log(shipped.status, refunded.reason.code, refunded.reason.data);

for (const { outcome, from, to, actor, code } of await orders.history("o-1"))
  console.log(`${outcome}: ${from} -> ${to} by ${actor}${code === undefined ? "" : `, ${code}`}`);

// In one commit with everything else: if the order cannot be paid, the counter is not incremented.
const payments = pawl.slot<number>("payments", { initial: 0 });
await pawl
  .transact((tx) => {
    tx.slot(payments).update((n) => n + 1);
    tx.machine(order).transition("o-1", "paid");
  })
  .catch((error: Error) => console.log(error.message));
console.log((await payments.get()).value);

// Output:
// order
// ● pending  → paid?, canceled
//   paid     → shipped, refunded
// ◎ shipped
// ◎ refunded
// ◎ canceled
// ● first   ◎ final   ? guarded
// {
//   ok: false,
//   code: 'guard_refused',
//   from: 'pending',
//   to: 'paid',
//   why: '200 cents are missing'
// }
// paid [ 'shipped', 'refunded' ]
// fulfilled illegal_transition {
//   machine: 'order',
//   id: 'o-1',
//   from: 'shipped',
//   to: 'refunded',
//   allowed: []
// }
// created: null -> pending by ann
// refused: pending -> paid by bank, guard_refused
// moved: pending -> paid by bank
// moved: paid -> shipped by warehouse
// refused: shipped -> refunded by support, illegal_transition
// order "o-1" cannot become paid: it is shipped, which is a final state
// 0
