// Tests of streams: a reaction and a projection work in memory, weeks pass in milliseconds, and a failure that only an operator would notice
// fails the test. This file prints what a test would check.

import { event, NonRetryableError, projection, reaction, workflow } from "pawl";
import { openTest } from "pawl/testing";

// The code under test: a reminder a week after an invoice, and what is owed.

const Sent = event<{ customer: string; cents: number }>("Sent");
const Reminded = event("Reminded");

const remindLater = workflow("remindLater", async (ctx, customer: string) => {
  await ctx.sleep("7 days");
  await ctx.stream(`reminders-${customer}`).append([Reminded()]);
});

const remind = reaction("remind", { on: [Sent] }, (e, { commit }) =>
  commit((tx) => tx.start(remindLater, e.data.customer, { id: `remind-${e.id}` })),
);

const owed = projection("owed", { on: [Sent], key: (e) => e.data.customer }, (cents: number | undefined, e) => {
  return (cents ?? 0) + e.data.cents;
});

// Nothing happens until the test advances the clock, and then everything that is due does.
{
  await using pawl = openTest({ now: new Date("2030-01-01T00:00:00Z") });
  await pawl.work([remind, remindLater, owed]).ready;

  const appended = await pawl.stream("invoice-1").append([Sent({ customer: "ann", cents: 500 })]);
  await pawl.projection(owed).waitFor(appended);
  console.log("owed:", await pawl.projection(owed).get("ann"));

  await pawl.clock.advance("6 days");
  console.log("reminders after 6 days:", await pawl.stream("reminders-ann").head());

  await pawl.clock.advance("1 day");
  console.log("reminders after 7 days:", await pawl.stream("reminders-ann").head());
}

// A target that is blocked until an operator unblocks it fails the test.
{
  await using pawl = openTest();
  const mail = reaction("mail", { on: [Sent] }, () => {
    throw new NonRetryableError("no address");
  });
  pawl.work([mail]);
  await pawl.stream("invoice-1").append([Sent({ customer: "ann", cents: 500 })]);
  await pawl.clock.advance("1 minute").catch((failure: Error) => console.log(failure.message));
}

// A test about a failure allows it.
{
  await using pawl = openTest({ mayFail: ["mail"] });
  let isFixed = false;
  const mail = reaction("mail", { on: [Sent], retry: { attempts: 3, delay: "1 hour" } }, () => {
    if (!isFixed) throw new Error("no answer");
  });
  pawl.work([mail]);
  await pawl.stream("invoice-1").append([Sent({ customer: "ann", cents: 500 })]);
  await pawl.clock.advance("1 day");
  const { status, failures } = await pawl.reactions.target("mail", "invoice-1");
  console.log(status, failures);

  isFixed = true;
  await pawl.reactions.unblock("mail", {});
  await pawl.clock.advance("1 minute");
  console.log((await pawl.reactions.target("mail", "invoice-1")).status);
}

// Output:
// owed: 500
// reminders after 6 days: 0
// reminders after 7 days: 1
// target "invoice-1" of reaction "mail" is blocked: no address
// blocked 3
// idle
