// Accounts do not grow for ever, and those that no one uses any more are closed by themselves: a policy says when, and workers do it. Time is simulated
// here, so that a year passes in a moment.

import { aggregate, event, streamPolicy } from "pawl";
import { openTest } from "pawl/testing";

const Deposited = event<{ amount: number }>("Deposited");

const account = aggregate("account", {
  initial: { balance: 0 },
  on: [[Deposited, ({ balance }, { amount }) => ({ balance: balance + amount })]],
  commands: {
    deposit: ({ balance }, amount: number, { emit }) => {
      emit(Deposited({ amount }));
      return balance + amount;
    },
  },
});

const tidyAccounts = streamPolicy("tidy-accounts", {
  prefix: "account-",
  prune: { keep: 10 },
  close: { idleFor: "365 days" },
  archive: {
    write: async (stream, events) => {
      let count = 0;
      for await (const _ of events) count += 1;
      console.log(`archived ${count} events of ${stream}`);
    },
  },
});

await using pawl = openTest();
pawl.work([tidyAccounts]);

// The state of an account has its events, so those before the last ten can go.
const ann = pawl.aggregate(account, "account-1");
for (let i = 0; i < 25; i++) await ann.execute("deposit", 100);
for (let look = 0; look < 3; look++) await pawl.clock.advance("2 minutes");
console.log("balance:", (await ann.state()).state.balance);

// An account that is used stays open.
await pawl.clock.advance("300 days");
await ann.execute("deposit", 100);
await pawl.clock.advance("300 days");
console.log("deposit:", (await ann.tryExecute("deposit", 100)).ok);

// One that is not is closed.
for (let look = 0; look < 3; look++) await pawl.clock.advance("366 days");
console.log("deposit:", await ann.tryExecute("deposit", 100));

const [status] = await pawl.streams.policies();
console.log(status);

// Output:
// archived 15 events of account-1
// balance: 2500
// deposit: true
// archived 12 events of account-1
// deposit: { ok: false, code: 'stream_closed', version: 28 }
// {
//   name: 'tidy-accounts',
//   closed: 1,
//   pruned: 1,
//   removed: 27,
//   skipped: { inUse: 0, noState: 0 },
//   failures: 0,
//   lastSkip: null,
//   lastError: null
// }
