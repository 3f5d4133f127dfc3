// A function from Request to Response, as Deno, Bun, workers and Next have them. A response that cannot be stored in one commit with its
// effect is stored before it is sent.

import { open } from "pawl";
import { idempotentFetch, nextIdempotency } from "pawl/middleware";

await using pawl = await open("shop.db");
let charges = 0;

/** The bank gets the attempt's key: if this process dies meanwhile, the next attempt passes the same one. */
async function charge(_amount: number, _idempotencyKey: string | undefined): Promise<string> {
  charges += 1;
  return `receipt-${charges}`;
}

const pay = idempotentFetch(
  pawl,
  async (request, attempt) => {
    const { amount } = (await request.json()) as { amount: number };
    return Response.json({ receipt: await charge(amount, attempt?.key) }, { status: 201 });
  },
  { scope: (request) => request.headers.get("authorization") ?? "anonymous", required: true },
);

// The same as a route of Next, in app/payments/[id]/route.ts: the request may be a NextRequest.
export const POST = nextIdempotency(
  pawl,
  async (_request: Request, context: { params: Promise<{ id: string }> }, attempt) => {
    const { id } = await context.params;
    return Response.json({ id, attempt: attempt?.attempt });
  },
  { scope: (request) => request.headers.get("authorization") ?? "anonymous" },
);

const request = (key: string) =>
  new Request("http://shop/payments/7", {
    method: "POST",
    headers: { authorization: "ann", "idempotency-key": key },
    body: JSON.stringify({ amount: 25 }),
  });

for (let i = 0; i < 2; i++) {
  const response = await pay(request("payment-1"));
  console.log(response.status, await response.text(), response.headers.get("idempotent-replayed") ?? "first");
}
console.log("charges:", charges);

const routed = await POST(request("payment-2"), { params: Promise.resolve({ id: "7" }) });
console.log(await routed.text());

// Output:
// 201 {"receipt":"receipt-1"} first
// 201 {"receipt":"receipt-1"} true
// charges: 1
// {"id":"7","attempt":1}
