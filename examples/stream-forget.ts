// A customer asks to be forgotten: her personal fields become unreadable in all events, and everything else stays.

import { hkdfSync } from "node:crypto";
import { aggregate, event, isForgotten, open } from "pawl";

interface Order {
  customer: string;
  email: string;
  total: number;
}

const Ordered = event("Ordered", {
  personal: { subject: (order: Order) => order.customer, fields: ["email"] },
});

const shop = aggregate("shop", {
  initial: { sold: 0, mailTo: [] as string[] },
  on: [
    [
      Ordered,
      ({ sold, mailTo }, { email, total }) => ({
        sold: sold + total,
        mailTo: isForgotten(email) ? mailTo : [...mailTo, email],
      }),
    ],
  ],
  commands: {
    order: (_, order: Order, { emit }) => emit(Ordered(order)),
  },
});

// From your secret store, and not in the database: the keys of all customers are sealed with it.
const key = new Uint8Array(hkdfSync("sha256", "a secret from your key store", "", "people", 32));
await using pawl = await open("shop.db", { actions: { keys: { current: "2030", ring: { 2030: key } } } });

const orders = pawl.aggregate(shop, "orders");
await orders.execute("order", { customer: "c-1", email: "ann@example.com", total: 30 });
await orders.execute("order", { customer: "c-2", email: "bob@example.com", total: 12 });
console.log((await orders.state()).state);

await pawl.forget("c-1", { actor: "support", reason: "request 815" });

for await (const { version, data } of pawl.stream("orders").read({ events: [Ordered] }))
  console.log(version, data.total, isForgotten(data.email) ? "forgotten" : data.email);
console.log((await orders.state()).state);

// Nothing personal can be appended about her any more.
const again = orders.execute("order", { customer: "c-1", email: "ann@example.com", total: 5 });
await again.catch((error: Error) => console.log(error.message));

// After an older backup was restored, this list is what has to be forgotten again: keep it elsewhere.
const { subjects } = await pawl.forgotten.list();
await pawl.forgotten.reapply(subjects);
console.log(subjects.map(({ subject, reason }) => `${subject}: ${reason}`));

// Output:
// { sold: 42, mailTo: [ 'ann@example.com', 'bob@example.com' ] }
// 1 30 forgotten
// 2 12 bob@example.com
// { sold: 42, mailTo: [ 'bob@example.com' ] }
// subject "c-1" was forgotten, and no personal event of it can be appended: use another subject
// [ 'c-1: request 815' ]
