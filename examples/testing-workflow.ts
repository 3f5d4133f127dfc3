// Tests of a workflow: its steps are replaced by stubs, days pass in milliseconds, it crashes at every moment, and an old history is replayed
// with new code. This file prints what a test would check.

import { signal, workflow } from "pawl";
import { crashEverywhere, openTest, replayHistory, saveHistory, stub, withSteps } from "pawl/testing";

// The code under test. Its payments are real, and no test must reach them.

type Order = { readonly id: string; readonly cents: number };

const payments = {
  charge: async (_order: Order, _key: string): Promise<{ id: string }> => {
    throw new Error("this would cost money");
  },
  refund: async (_charge: string): Promise<string> => {
    throw new Error("this would cost money");
  },
};

const approved = signal<{ by: string }>("approved");

const fulfil = workflow("fulfil", async (ctx, order: Order) => {
  const charge = await ctx.step("charge", ({ key }) => payments.charge(order, key));
  const approval = await ctx.waitForSignal(approved, { timeout: "2 days" });
  if (!approval.ok) return ctx.step("refund", () => payments.refund(charge.id));
  await ctx.sleep("1 hour");
  return `${charge.id} approved by ${approval.value.by}`;
});

const order: Order = { id: "42", cents: 1000 };

// Time does not pass until the test advances it, or waits for something.
{
  await using pawl = openTest({ now: new Date("2030-01-01T00:00:00Z") });
  const charge = stub({ id: "ch_1" }, { failures: 2 });
  const refund = stub("refunded");
  pawl.work([withSteps(fulfil, { charge, refund })]);

  const run = await pawl.start(fulfil, order);
  await run.until("waiting");
  console.log(`charged at attempt ${charge.calls.at(-1)?.attempt}`);

  await pawl.clock.advance("1 day");
  console.log((await run.status()).status, refund.calls.length);

  await pawl.clock.advance("1 day");
  console.log((await run.status()).status, refund.calls.length);
}

// A mistake that would only be logged in production fails the test.
{
  await using pawl = openTest();
  const careless = workflow("careless", async (ctx) => {
    void ctx.step("mail", () => "sent");
    return "done";
  });
  pawl.work([careless]);
  const run = await pawl.start(careless, undefined, { id: "careless-1" });
  await run.result().catch((mistake: Error) => console.log(mistake.message));
}

// The process dies before and after every call of its store, and a peer continues. The bank is outside, and recognizes a request by its key.
const report = await crashEverywhere(fulfil, {
  input: order,
  world: () => new Map<string, number>(),
  workflows: (bank) => [
    withSteps(fulfil, {
      charge: ({ key }) => {
        bank.set(key, order.cents);
        return { id: "ch_1" };
      },
    }),
  ],
  script: async (run) => {
    await run.until("waiting");
    await run.signal(approved, { by: "ann" }, { id: "click-1" });
  },
  check: ({ world: bank }) => {
    if (bank.size !== 1) throw new Error(`charged ${bank.size} times`);
  },
});
console.log(`crashes: ${report.crashes > 20 ? "many" : "few"}; the charge ran`, report.steps["charge"]);

// A history is kept in the repository as a file: of a run in a test, or of one in production. The current code must be able to replay it.
async function savedHistory(): Promise<string> {
  await using pawl = openTest();
  pawl.work([withSteps(fulfil, { charge: stub({ id: "ch_1" }) })]);
  const run = await pawl.start(fulfil, order, { id: "fulfil-42" });
  await run.until("waiting");
  return await saveHistory(pawl, run);
}

const golden = await savedHistory();
console.log(await replayHistory(fulfil, golden));

const renamed = workflow("fulfil", async (ctx, order: Order) => {
  const charge = await ctx.step("chargeCard", ({ key }) => payments.charge(order, key));
  return charge.id;
});
const replayed = await replayHistory(renamed, golden);
if (!replayed.ok) console.log(replayed.contradiction.message);

// Output:
// charged at attempt 3
// waiting 0
// completed 1
// run "careless-1": the workflow's function returned without awaiting step "mail"
// crashes: many; the charge ran { least: 1, most: 2 }
// { ok: true, status: 'waiting', waitsFor: [ 'signal approved' ] }
// run "fulfil-42": the history says "step charge", but the code waits for "step chargeCard"
