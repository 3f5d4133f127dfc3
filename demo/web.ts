/**
 * A web process: takes in the orders that the payment provider delivers, and confirms each once it is committed.
 *
 * The provider delivers many orders twice, to two of these processes at the same moment, and repeats what was not
 * confirmed. Whoever commits first has placed the order; for all others it is there already.
 *
 * Run by crew.ts: `web.ts <database> <name>`.
 */

import { open } from "../src/index.ts";
import { hearParent, type ToWeb, tellParent } from "./messages.ts";
import { type Order, placeOrder } from "./shop.ts";

const [database = "", name = ""] = process.argv.slice(2);
const by = `${name} (pid ${process.pid})`;
const pawl = await open(database);

hearParent<ToWeb>((message) => {
  if (message.is === "order") void receive(message);
  else void stop();
});
tellParent({ is: "ready" });

async function receive(order: Order): Promise<void> {
  const isNew = await placeOrder(pawl, order, by);
  tellParent({ is: "placed", order: order.id, isNew });
}

async function stop(): Promise<void> {
  await pawl.close();
  process.exit();
}
