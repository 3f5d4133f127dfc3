// An order moves through a reaction into a workflow and back: placing it is an event, the reaction starts the run in the commit that records the event
// as handled, and the run appends the end of the story. A crash anywhere starts no run twice and forgets none.

import { event, open, reaction, workflow } from "pawl";

const Placed = event<{ item: string }>("Placed");
const Shipped = event<{ parcel: string }>("Shipped");

const ship = workflow("ship", async (ctx, order: { stream: string; item: string }) => {
  const parcel = await ctx.step("pack", () => `a box with ${order.item}`);
  await ctx.stream(order.stream).append([Shipped({ parcel })]);
});

const shipping = reaction("shipping", { on: [Placed] }, async (e, { commit }) => {
  await commit((tx) => tx.start(ship, { stream: e.stream, item: e.data.item }, { id: `ship-${e.stream}` }));
});

const shipped = Promise.withResolvers<string>();
const mailing = reaction("mailing", { on: [Shipped] }, (e) => shipped.resolve(`mail: ${e.data.parcel} is on its way`));

await using pawl = await open("orders.db");
pawl.work([ship, shipping, mailing]);
const request = pawl.with({ actor: "ann", correlationId: "request-1" });
await request.stream("order-7").append([Placed({ item: "a lamp" })]);
console.log(await shipped.promise);
for await (const { version, name, data, actor, correlationId } of pawl.stream("order-7").read())
  console.log(version, name, data, actor, correlationId);

// Output:
// mail: a box with a lamp is on its way
// 1 Placed { item: 'a lamp' } ann request-1
// 2 Shipped { parcel: 'a box with a lamp' } ann request-1
