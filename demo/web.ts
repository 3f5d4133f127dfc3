/**
 * A web process: receives the orders that the payment provider delivers, and confirms each once it is committed.
 *
 * The provider delivers many orders twice, to two of these processes at the same moment, and repeats what was not
 * confirmed. The first process that commits has placed the order; for all others it exists already.
 *
 * Run by crew.ts: `web.ts <database> <name>`.
 */

import { open } from "../src/index.ts";
import { onParentMessage, sendToParent, type ToWeb } from "./messages.ts";
import { type Order, placeOrder } from "./shop.ts";

const [database = "", name = ""] = process.argv.slice(2);
const by = `${name} (pid ${process.pid})`;
const pawl = await open(database);

onParentMessage<ToWeb>((message) => {
  if (message.is === "order") void receive(message);
  else void stop();
});
sendToParent({ is: "ready" });

async function receive(order: Order): Promise<void> {
  const isNew = await placeOrder(pawl, order, by);
  sendToParent({ is: "placed", order: order.id, isNew });
}

async function stop(): Promise<void> {
  await pawl.close();
  process.exit();
}
