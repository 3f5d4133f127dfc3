// Goal: a user's own code under the simulator: an order is paid once, whatever the payment provider and the network do, and old
// and new releases of the code work side by side (G2, and the ground for G24).
// Method: two shops pay the same orders through a provider that fails, does not answer, or acts after its caller gave up. The
// provider keeps its promise to do a payment once for each idempotency key. The release before wrote its orders in another form.

import { ServiceError, type World } from "../../../src/testing/index.ts";
import { until } from "./transfers.ts";

type Order = { readonly paid: boolean } | { readonly status: "open" | "paid"; readonly receipt: string };

const isPaid = (order: Order): boolean => ("paid" in order ? order.paid : order.status === "paid");

export const payments = {
  name: "an order is paid once, by old and new releases",
  async scenario(world: World): Promise<void> {
    const charged = new Map<string, number>();
    const provider = world.service("provider", (request: { readonly key: string }) => {
      charged.set(request.key, (charged.get(request.key) ?? 0) + 1);
      return { receipt: `receipt-${request.key}` };
    });
    for (const name of ["shop-1", "shop-2"])
      world.process(name, async (process) => {
        for (const id of ["o1", "o2"]) {
          const order = process.pawl.slot<Order>(id, { initial: { status: "open", receipt: "" } });
          await until(async () => {
            while (!isPaid((await order.get()).value)) {
              try {
                const { receipt } = await process.call(provider, { key: id });
                await order.update(() => (process.isPreviousRelease ? { paid: true } : { status: "paid", receipt }));
              } catch (error) {
                if (!(error instanceof ServiceError)) throw error;
                await process.sleep(1_000);
              }
            }
          }, process);
        }
      });
    await world.finish();
    world.check(charged.size === 2, `${charged.size} payments were made for two orders`);
    const pawl = world.open();
    for (const id of ["o1", "o2"]) {
      const { value } = await pawl.slot<Order>(id).get();
      world.check(value !== undefined && isPaid(value), `${id} is not paid`);
      world.check(charged.has(id), `${id} was never charged`);
    }
  },
};
