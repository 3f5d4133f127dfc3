// A client sends its payment again while the first attempt is under way. The card is charged once, and both requests get the receipt.

import { IdempotencyInProgressError, IdempotencyMismatchError, open } from "pawl";

await using pawl = await open("shop.db");
const asked = Promise.withResolvers<void>();
const charged = Promise.withResolvers<string>();
let charges = 0;

/** Stands for a slow bank. It gets a key: if this process dies meanwhile, the next attempt passes the same one. */
function charge(_amount: number, _options: { idempotencyKey: string; signal: AbortSignal }): Promise<string> {
  charges += 1;
  asked.resolve();
  return charged.promise;
}

async function pay(request: { order: string; amount: number }): Promise<string> {
  try {
    const options = { scope: "ann", fingerprint: request };
    const { value, replayed } = await pawl.idempotent(request.order, options, async ({ key, abortSignal }) => {
      return { receipt: await charge(request.amount, { idempotencyKey: key, signal: abortSignal }) };
    });
    return `${value.receipt}${replayed ? ", replayed" : ""}`;
  } catch (error) {
    if (error instanceof IdempotencyInProgressError)
      return "409, under way; error.data.retryAfterMs says when to try again";
    if (error instanceof IdempotencyMismatchError) return "422, that key was used for another payment";
    throw error;
  }
}

const first = pay({ order: "o-1", amount: 25 });
await asked.promise;
console.log("a retry that overlaps:", await pay({ order: "o-1", amount: 25 }));
charged.resolve("receipt r-7");
console.log("the first attempt:", await first);
console.log("a retry after it:", await pay({ order: "o-1", amount: 25 }));
console.log("another amount:", await pay({ order: "o-1", amount: 99 }));
console.log("charges:", charges);

// Output:
// a retry that overlaps: 409, under way; error.data.retryAfterMs says when to try again
// the first attempt: receipt r-7
// a retry after it: receipt r-7, replayed
// another amount: 422, that key was used for another payment
// charges: 1
