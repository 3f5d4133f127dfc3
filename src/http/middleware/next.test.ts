/**
 * Goal: the wrapper satisfies its laws around route handlers of Next, and passes them Next's request and context.
 * Method: the laws of all adapters, with a request as Next's is: a subclass of `Request` that carries more. Next itself is a few
 * hundred megabytes, and adds nothing to what a route handler sees.
 */

import { expect, test } from "vitest";
import { adapterLaws, CALLER, shopResponse } from "../../../test/idempotency/adapters.ts";
import { Idempotency } from "../../idempotency/idempotency.ts";
import { open } from "../../index.ts";
import { plainly } from "../../kernel/sql/in-sql.ts";
import { nextIdempotency } from "./next.ts";

class RouteRequest extends Request {
  readonly nextUrl = new URL(this.url);
}

type Context = { readonly params: Promise<{ readonly id: string }> };
const context: Context = { params: Promise.resolve({ id: "7" }) };

adapterLaws(
  "nextIdempotency",
  async (pawl, shop, options) => {
    const route = nextIdempotency(
      pawl,
      async (request: RouteRequest, _context: Context, attempt) => {
        const body = request.method === "GET" ? null : await request.json();
        return shopResponse(await shop.handle(new URL(request.url).pathname, body, attempt));
      },
      { ...options, scope: (request) => request.headers.get(CALLER) ?? "" },
    );
    return {
      fetch: async (path, init) => route(new RouteRequest(`http://shop${path}`, init), context),
      close: async () => {},
    };
  },
  { readsRequest: true },
);

test("the handler has its own request and params, and its response is sent and sent again", async () => {
  await using pawl = await open("memory:");
  const POST = nextIdempotency(
    new Idempotency(pawl.kernel, plainly),
    async (request: RouteRequest, { params }: Context) => {
      const { id } = await params;
      return Response.json({ id, query: new URL(request.url).searchParams.get("q"), body: await request.text() });
    },
    { scope: () => "ann" },
  );
  for (const replayed of [null, "true"]) {
    const init = { method: "POST", headers: { "idempotency-key": "k" }, body: "{}" };
    const response = await POST(new RouteRequest("http://shop/orders/7?q=a", init), context);
    expect(response.headers.get("idempotent-replayed")).toBe(replayed);
    expect(await response.json()).toEqual({ id: "7", query: "a", body: "{}" });
  }
});
