/**
 * Rate limits: `pawl.rateLimit`.
 */

import { z } from "@hono/zod-openapi";
import { InvalidIdError } from "../../../kernel/errors.ts";
import { idSchema } from "../ids.ts";
import { given } from "../pages.ts";
import { serverClosing, tooManyWaiting } from "../problem.ts";
import { add, type Routing } from "../route.ts";
import { duration, durationText } from "../schemas.ts";
import { checkWait, DISPLACED, isCutShort } from "../wait.ts";

const TAG = "rate-limits";
const params = { name: idSchema("The name of the rate limit.", "mail") };

const Info = z
  .object({
    max: z.number().int(),
    perMs: z.number().int(),
    burst: z.number().int(),
    remaining: z.number().int(),
    waitMs: z.number().int(),
  })
  .openapi("RateLimit");

const Taken = z.object({ waitedMs: z.number().int() }).openapi("TakenTokens");

/** Names that begin with this are the server's own. */
const RESERVED = "pawl.";

function own(name: string): string {
  if (name.startsWith(RESERVED)) throw new InvalidIdError("the rate limit's name", `must not begin with "${RESERVED}"`);
  return name;
}

export function rates(routing: Routing): void {
  add(routing, {
    method: "post",
    path: "/v1/rate-limits/{name}/acquire",
    tag: TAG,
    operation: "acquireTokens",
    summary: "Takes tokens, and waits for them if asked to",
    description: "The figures that were given last count, in all processes.",
    scope: "write",
    params,
    body: z.strictObject({
      max: z.number().openapi({ type: "integer", minimum: 1 }),
      per: duration,
      burst: z.number().optional().openapi({ type: "integer", minimum: 1 }),
      strict: z.boolean().optional(),
      count: z.number().optional().openapi({ type: "integer", minimum: 1 }),
      key: idSchema("A bucket of its own for each key.", "customer-7").optional(),
      wait: duration.optional().openapi({ description: "At most 60 s. Default: 0." }),
    }),
    returns: { 200: Taken },
    refuses: [
      "rate_limited",
      "server_closing",
      "too_many_waiting",
      "invalid_id",
      "invalid_argument",
      "invalid_duration",
    ],
    // A decision cannot wait.
    decide: ({ pawl, params, body: { count, key, wait = 0, ...figures } }) => {
      if (checkWait(wait) > 0) return undefined;
      const limit = pawl.rateLimit(own(params.name), given(figures));
      return (tx) => {
        tx.rateLimit(limit).take(count, given({ key }));
        return { status: 200, json: { waitedMs: 0 } };
      };
    },
    handle: async ({ pawl, params, body: { count, key, wait = 0, ...figures }, abortSignal, enter }) => {
      const limit = pawl.rateLimit(own(params.name), given(figures));
      const leave = enter();
      // Without a place to wait, it takes what is there.
      const timeout = leave === undefined ? 0 : checkWait(wait);
      try {
        return { status: 200, json: await limit.acquire(given({ count, key, timeout, abortSignal })) };
      } catch (error) {
        if (!isCutShort(error, abortSignal)) throw error;
        throw error === DISPLACED ? tooManyWaiting() : serverClosing();
      } finally {
        leave?.();
      }
    },
  });

  add(routing, {
    method: "get",
    path: "/v1/rate-limits/{name}",
    tag: TAG,
    operation: "getRateLimit",
    summary: "Gets the figures and the tokens of a rate limit",
    description: "`max` and `per` are what is shown for one that was not used yet.",
    scope: "read",
    params,
    query: {
      max: z
        .string()
        .regex(/^\d{1,7}$/)
        .transform(Number)
        .openapi({ type: "integer", minimum: 1 }),
      per: durationText,
      key: z.string().optional(),
    },
    returns: { 200: Info },
    refuses: ["invalid_id", "invalid_argument", "invalid_duration"],
    handle: async ({ pawl, params, query: { max, per, key } }) => ({
      status: 200,
      json: await pawl.rateLimit(own(params.name), { max, per }).inspect(given({ key })),
    }),
  });
}
