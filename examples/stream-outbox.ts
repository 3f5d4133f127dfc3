// An outbox: each event of an account is sent to a webhook, in order for each account. The receiver is down at first: only the account whose event
// fails waits, its event is retried by itself, and then blocks until an operator has looked at it.

import { event, open, reaction } from "pawl";

const Deposited = event<{ amount: number }>("Deposited");

const received: string[] = [];
const isReceived = { bob: Promise.withResolvers<void>(), ann: Promise.withResolvers<void>() };
let isDown = true;
async function post(key: string, body: { account: string; amount: number }): Promise<void> {
  if (isDown && body.account === "ann") throw new Error("503 from the receiver");
  // The key is the same for each attempt: the receiver uses it to recognize a repetition.
  if (key !== "") received.push(`${body.account} ${body.amount}`);
  if (body.amount === 3) isReceived.bob.resolve();
  if (body.amount === 2) isReceived.ann.resolve();
}

const outbox = reaction(
  "outbox",
  { on: [Deposited], retry: { attempts: 2, delay: "10ms" }, timeout: "10s" },
  async (e, { key }) => post(key, { account: e.stream, amount: e.data.amount }),
);

// A blocked target is one line for operators.
const alarm = Promise.withResolvers<string>();
await using pawl = await open("bank.db", { logger: { warn: () => {}, error: alarm.resolve } });
pawl.work([outbox]);
await pawl.stream("ann").append([Deposited({ amount: 1 }), Deposited({ amount: 2 })]);
await pawl.stream("bob").append([Deposited({ amount: 3 })]);
console.log(await alarm.promise);
await isReceived.bob.promise;
const ann = await pawl.reactions.target("outbox", "ann");
console.log(ann.status, "after", ann.failures, "attempts,", ann.pending, "events wait; received:", received);

isDown = false;
console.log("unblocked:", await pawl.reactions.unblock("outbox", { status: "blocked" }));
await isReceived.ann.promise;
console.log("received:", received);

// Output:
// pawl: target "ann" of reaction "outbox" is blocked until an operator unblocks it: 503 from the receiver
// blocked after 2 attempts, 2 events wait; received: [ 'bob 3' ]
// unblocked: 1
// received: [ 'bob 3', 'ann 1', 'ann 2' ]
