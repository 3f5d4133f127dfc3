/**
 * `Idempotency-Key` on every request that changes something, by the core of `pawl/middleware`.
 *
 * The keys of two namespaces, and of two API keys, are independent of each other. A request is the same if its method, path, query, `If-Match`,
 * `If-None-Match` and body are the same. What a route wants to keep out of the database, because it is a secret, is not in the stored response; where nothing of a response may be
 * stored, a repeated request is refused with `response_not_kept`, and not carried out again; unless the call itself gives the same result again.
 *
 * A route that is a decision stores its response in the commit of its effect (`decideOnce`): whatever crashes, a request with a key has one
 * effect. For other routes (`once`) the response is stored afterwards: if the process dies in between, a repeated request is carried out again.
 */

import type { KeyOptions } from "../../idempotency/idempotency.ts";
import { ValueTooLargeError } from "../../kernel/errors.ts";
import { inProgress, isNotKept, MiddlewareCore, refusalOf, replyAgain, scopeOf } from "../middleware/core.ts";
import { describe, finishFetch, replyFrom, responseOf } from "../middleware/fetch.ts";
import type { Reply } from "../middleware/reply.ts";
import type { Caller } from "./auth.ts";
import type { ServedTx } from "./handle.ts";
import { given } from "./pages.ts";
import { Problem, type ProblemStatus } from "./problem.ts";

export interface IdempotentRequest {
  readonly caller: Caller;
  readonly key: string;
  readonly method: string;
  readonly path: string;
  readonly query: string;
  readonly ifMatch: string | undefined;
  readonly ifNoneMatch: string | undefined;
  /** What it is compared by: bytes, or a value. */
  readonly body: unknown;
  readonly maxBytes: number;
}

/** A response, and what of it is stored: itself, another, or nothing. */
export interface Handled {
  readonly response: Response;
  readonly kept: Response | undefined;
}

/** What a decision came to: the response, and what of it is stored. */
export interface Decided {
  readonly reply: Reply;
  /** Undefined if nothing may be stored. */
  readonly kept: Reply | undefined;
}

/** What a repeated request is compared by. */
function fingerprintOf({ method, path, query, ifMatch, ifNoneMatch, body }: IdempotentRequest): unknown {
  const described = describe(method, path, query, body);
  if (ifMatch === undefined && ifNoneMatch === undefined) return described;
  return { described, ...given({ ifMatch, ifNoneMatch }) };
}

/** Gives the response again that was not stored; undefined if that is not possible. */
export type Again = () => Promise<Response | undefined>;

/** Is stored in place of a response. */
const NOT_STORED = { tooLarge: true } as const;

/**
 * Runs the decision of the first request with a key, and stores its response in the same commit; returns the stored response to the others.
 * What the decision throws leaves the key free. `open` opens a stored response that was sealed; undefined if it cannot.
 */
export async function decideOnce(
  request: IdempotentRequest,
  decide: (tx: ServedTx) => Decided,
  again: Again | undefined,
  open: (stored: Reply) => Reply | undefined = (stored) => stored,
): Promise<Response> {
  const { caller, key } = request;
  const options: KeyOptions = { scope: scopeOf(whoOf(caller)), fingerprint: fingerprintOf(request) };
  let reply: Reply | undefined;
  const run = (isStored: boolean) =>
    caller.pawl.transact((tx) =>
      tx.idempotent(key, options, () => {
        const decided = decide(tx);
        reply = decided.reply;
        return (isStored ? decided.kept : undefined) ?? NOT_STORED;
      }),
    );
  let answered: Awaited<ReturnType<typeof run>>;
  try {
    answered = await run(true).catch((error: unknown) => {
      // It may be the response that is too large. The effect is to happen all the same.
      if (!(error instanceof ValueTooLargeError) || reply === undefined) throw error;
      return run(false);
    });
  } catch (error) {
    return respondWith(refusalOf(error, { inProgress }), again);
  }
  if (!answered.replayed && reply !== undefined) return respondWith(reply, undefined);
  const stored = replyAgain(answered.value);
  return respondWith(isNotKept(stored) ? stored : (open(stored) ?? replyAgain(NOT_STORED)), again);
}

/** The response of a reply. Of a repeated request, if it was not kept, what is given again. */
async function respondWith(reply: Reply, again: Again | undefined): Promise<Response> {
  const response = (isNotKept(reply) ? await again?.() : undefined) ?? responseOf(reply);
  if (response.headers.get("content-type") !== "application/problem+json") return response;
  throw await problemIn(response);
}

const whoOf = ({ keyId }: Caller): string => `pawl.server\n${keyId ?? ""}`;

/** Runs the handler for the first request with a key, and returns the stored response for the others. */
export async function once(
  request: IdempotentRequest,
  handle: () => Promise<Handled>,
  again: Again | undefined,
): Promise<Response> {
  const { caller, key, method, maxBytes } = request;
  const core = new MiddlewareCore<ServedTx, never, null>(caller.root, {
    scope: () => whoOf(caller),
    methods: [method],
    maxBodyBytes: maxBytes,
  });
  const begun = await core.begin({
    method,
    key: `"${key.replace(/["\\]/g, "\\$&")}"`,
    scope: () => core.scope(null),
    fingerprint: async () => ({ of: fingerprintOf(request) }),
  });
  if (begun.is === "pass") return (await handle()).response;
  if (begun.is === "reply") return respondWith(begun.reply, again);
  const { pending } = begun;
  let handled: Handled;
  try {
    handled = await handle();
  } catch (error) {
    await pending.fail(error);
    throw error;
  }
  const { response, kept } = handled;
  if (kept === response) return finishFetch(pending, response, maxBytes);
  const outcome =
    kept === undefined
      ? { tooLarge: true as const }
      : { reply: replyFrom(kept, new Uint8Array(await kept.arrayBuffer())) };
  const instead = await pending.finish(outcome);
  return instead === null ? response : responseOf(instead);
}

/** A refusal, of the core or a stored one, gets a request id like all others. */
async function problemIn(response: Response): Promise<Problem> {
  const { code, detail, data } = (await response.json()) as {
    readonly code: string;
    readonly detail: string;
    readonly data?: unknown;
  };
  const headers: Record<string, string> = {};
  for (const name of ["retry-after", "idempotent-replayed"]) {
    const value = response.headers.get(name);
    if (value !== null) headers[name] = value;
  }
  return new Problem(response.status as ProblemStatus, code, detail, { data, headers });
}
