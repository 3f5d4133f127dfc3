// tRPC: a mutation that is repeated with the same key returns the same data, with the types of its procedure.

import { initTRPC } from "@trpc/server";
import { open } from "pawl";
import { trpcIdempotency } from "pawl/middleware";

interface Ctx {
  readonly headers: Headers;
}

await using pawl = await open("shop.db");
let orders = 0;

const t = initTRPC.context<Ctx>().create();
const idempotent = t.procedure.use(
  trpcIdempotency(pawl, {
    key: ({ ctx }: { ctx: Ctx }) => ctx.headers.get("idempotency-key"),
    scope: ({ ctx }) => ctx.headers.get("authorization") ?? "anonymous",
    required: true,
  }),
);
const router = t.router({
  order: idempotent
    .input((input: unknown) => input as { item: string })
    .mutation(({ input }) => {
      orders += 1;
      return { order: orders, item: input.item };
    }),
});

const as = (headers: Record<string, string>) => t.createCallerFactory(router)({ headers: new Headers(headers) });
const ann = as({ authorization: "ann", "idempotency-key": "order-1" });
const first: { order: number; item: string } = await ann.order({ item: "cup" });
console.log(first, await ann.order({ item: "cup" }));
await ann.order({ item: "pot" }).catch((error) => console.log(error.code));
await as({ authorization: "ann" })
  .order({ item: "cup" })
  .catch((error) => console.log(error.code));

// Output:
// { order: 1, item: 'cup' } { order: 1, item: 'cup' }
// UNPROCESSABLE_CONTENT
// BAD_REQUEST
