// Your own code under the simulator. A shop pays an order through a provider that fails, does not answer, or acts after its
// caller gave up; processes crash at any moment. The order must be charged once.

import { type Process, ServiceError, SimulationError, simulate, type World } from "pawl/testing";

type Order = { readonly status: "open" | "paid" };
type Provider = (process: Process, orderId: string) => Promise<void>;

/** The code under test: pays an order, however often it is started. */
async function payOrder(process: Process, charge: Provider): Promise<void> {
  const order = process.pawl.slot<Order>("order-1", { initial: { status: "open" } });
  while ((await order.get()).value.status === "open") {
    try {
      await charge(process, "order-1");
      await order.set({ status: "paid" });
    } catch (error) {
      if (!(error instanceof ServiceError)) throw error;
      await process.sleep(1_000);
    }
  }
}

/** The world around it. The provider charges again, unless the request has a key by which it recognizes a repetition. */
function shop(sendsKey: boolean) {
  return async (world: World): Promise<void> => {
    const charges = new Map<string, number>();
    let requests = 0;
    const provider = world.service("provider", ({ key }: { key: string }) => {
      charges.set(key, 1);
    });
    const charge: Provider = (process, orderId) => {
      requests += 1;
      return process.call(provider, { key: sendsKey ? orderId : `request-${requests}` });
    };
    world.process("shop", (process) => payOrder(process, charge));
    await world.finish();
    world.check(charges.size === 1, `the order was charged ${charges.size} times`);
  };
}

const faults = { seeds: 200, crash: 0.02, httpTimeout: 0.1, httpLate: 0.1 };

try {
  await simulate("without an idempotency key", faults, shop(false));
} catch (error) {
  if (!(error instanceof SimulationError)) throw error;
  // The message has the seed, the faults, the trace, and how to run just this one again.
  console.log("found:", error.cause instanceof Error ? error.cause.message : error.cause);
}

const report = await simulate("with an idempotency key", faults, shop(true));
console.log(`${report.schedules} schedules without a failure; crashes struck: ${report.struck.crash > 0}`);

// Output:
// found: the order was charged 2 times
// 200 schedules without a failure; crashes struck: true
