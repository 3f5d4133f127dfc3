// A provider's webhooks arrive in any order, and some of them twice. An early event waits until it is legal; a repeated one has no effect; one
// that can never become legal is refused.

import { machine, open } from "pawl";

interface Shipment {
  readonly receipt?: string;
  readonly parcel?: string;
}

const order = machine<Shipment>()("order", {
  initial: "pending",
  transitions: {
    pending: ["paid", "canceled"],
    paid: ["shipped"],
    shipped: ["delivered"],
    delivered: [],
    canceled: [],
  },
  initialData: {},
  unknown: "create", // the first event of an order creates it
});

await using pawl = await open("webhooks.db");
const orders = pawl.machine(order);

interface Webhook {
  readonly id: string;
  readonly order: string;
  readonly state: "paid" | "shipped" | "delivered" | "canceled";
  readonly data?: Shipment;
}

async function receive({ id, order, state, data = {} }: Webhook): Promise<void> {
  const now = await orders.tryTransition(order, state, {
    eventId: id,
    whenEarly: "park",
    patch: data,
    actor: "provider",
  });
  console.log(id, state, "->", now.ok ? `${now.outcome}${now.deduplicated ? " before" : ""}: ${now.state}` : now.code);
}

await receive({ id: "evt-3", order: "o-1", state: "delivered" });
await receive({ id: "evt-2", order: "o-1", state: "shipped", data: { parcel: "p-7" } });
await receive({ id: "evt-2", order: "o-1", state: "shipped", data: { parcel: "p-7" } });
await receive({ id: "evt-1", order: "o-1", state: "paid", data: { receipt: "r-9" } }); // applies the other two as well
await receive({ id: "evt-3", order: "o-1", state: "delivered" });
await receive({ id: "evt-4", order: "o-1", state: "canceled" });

console.log((await orders.get("o-1"))?.data);
for (const { outcome, from, to, eventId } of await orders.history("o-1"))
  console.log(`${outcome}: ${from} -> ${to}${eventId === undefined ? "" : ` by ${eventId}`}`);

// Output:
// evt-3 delivered -> parked: pending
// evt-2 shipped -> parked: pending
// evt-2 shipped -> parked before: pending
// evt-1 paid -> moved: delivered
// evt-3 delivered -> moved before: delivered
// evt-4 canceled -> illegal_transition
// { receipt: 'r-9', parcel: 'p-7' }
// created: null -> pending
// parked: pending -> delivered by evt-3
// parked: pending -> shipped by evt-2
// moved: pending -> paid by evt-1
// applied: paid -> shipped by evt-2
// applied: shipped -> delivered by evt-3
// refused: delivered -> canceled by evt-4
