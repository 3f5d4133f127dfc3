// A rate limit that all processes share: a caller that has to wait learns when its turn comes, and sleeps until then. There is no polling.

import { open, RateLimitedError } from "pawl";

await using pawl = await open("mail.db");

// Three immediately, and one more every 20 minutes.
const mail = pawl.rateLimit("mail", { max: 3, per: "1 hour" });
console.log(await mail.tryAcquire({ count: 2 }));

// A bucket for each customer.
console.log(await mail.tryAcquire({ key: "ann" }), await mail.tryAcquire({ key: "bob" }));

// In one commit with everything else: if there is no token, nothing is counted as sent.
const sent = pawl.slot<number>("sent", { initial: 0 });
const send = () =>
  pawl.transact((tx) => {
    tx.slot(sent).update((n) => n + 1);
    tx.rateLimit(mail).take();
  });
await send();
await send().catch((error: unknown) => {
  if (!(error instanceof RateLimitedError)) throw error;
  console.log(error.code, "for", Math.ceil(error.data.retryAfterMs / 60_000), "minutes");
});
console.log("sent:", (await sent.get()).value);

// `acquire` waits, first come, first served. If its turn would come after the timeout, it is refused immediately and takes no token.
const vendor = pawl.rateLimit("vendor", { max: 20, per: "1s", strict: true });
const calls = ["a", "b", "c"].map(async (name) => {
  const { waitedMs } = await vendor.acquire({ timeout: "10s" });
  console.log(name, "waited", waitedMs, "ms");
});
await Promise.all(calls);

// Output:
// { ok: true, remaining: 1 }
// { ok: true, remaining: 2 } { ok: true, remaining: 2 }
// rate_limited for 20 minutes
// sent: 1
// a waited 0 ms
// b waited 50 ms
// c waited 100 ms
