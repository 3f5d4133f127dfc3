// Everything in one commit: the coupon is consumed, the order changes its state, its run is started and the response is stored. Whatever
// crashes, and whatever is refused, all of it happens or nothing.

import { machine, open, workflow } from "pawl";

const order = machine("order", {
  initial: "pending",
  transitions: { pending: ["placed", "canceled"], placed: [], canceled: [] },
});

const fulfil = workflow("fulfil", (ctx, id: string) => ctx.step("ship", () => `${id} is on its way`));

await using pawl = await open("shop.db");
pawl.work([fulfil]);
await pawl.actions.create({ id: "WELCOME10" });
await pawl.actions.create({ id: "SPRING" });
const orders = pawl.machine(order);
for (const id of ["o-1", "o-2", "o-3"]) await orders.create(id);
await orders.transition("o-3", "canceled");

/** POST /orders/:id/place, with the Idempotency-Key that the page was given. */
function place(key: string, request: { id: string; coupon: string }) {
  return pawl.transact((tx) =>
    tx.idempotent(key, { scope: "ann", fingerprint: request }, () => {
      tx.actions.consume(request.coupon, { by: request.id }); // refused: nothing below happens either
      tx.machine(order).transition(request.id, "placed"); // refused: nothing above has happened either
      const run = tx.start(fulfil, request.id, { id: `fulfil-${request.id}` });
      return { status: 201, run };
    }),
  );
}

async function show(id: string, coupon: string): Promise<void> {
  const { runs } = await pawl.runs.list();
  const [state, action] = [(await orders.get(id))?.state, await pawl.actions.get(coupon)];
  console.log(`  ${id} is ${state}, ${coupon} is ${action?.state}, runs: ${runs.map((run) => run.id).join()}`);
}

const placed = await place("key-1", { id: "o-1", coupon: "WELCOME10" });
console.log("placed:", placed.value);
await show("o-1", "WELCOME10");
console.log(await pawl.run(fulfil, placed.value.run).result());

const again = await place("key-1", { id: "o-1", coupon: "WELCOME10" });
console.log("repeated:", again.value, again.replayed);

const refused = (error: { code: string }) => console.log("refused:", error.code);
await place("key-2", { id: "o-2", coupon: "WELCOME10" }).catch(refused);
await show("o-2", "WELCOME10");

await place("key-3", { id: "o-3", coupon: "SPRING" }).catch(refused);
await show("o-3", "SPRING");

// Output:
// placed: { status: 201, run: 'fulfil-o-1' }
//   o-1 is placed, WELCOME10 is consumed, runs: fulfil-o-1
// o-1 is on its way
// repeated: { status: 201, run: 'fulfil-o-1' } true
// refused: already_used
//   o-2 is pending, WELCOME10 is consumed, runs: fulfil-o-1
// refused: illegal_transition
//   o-3 is canceled, SPRING is active, runs: fulfil-o-1
