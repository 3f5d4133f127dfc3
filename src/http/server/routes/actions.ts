/**
 * One-time actions: `pawl.actions`.
 *
 * A consumer that lost a response repeats the request: with the same `consumerKey` it gets the same result. Where none is given, an `Idempotency-Key` stands for
 * it, as far as the handle has a pepper. PINs and payloads are neither in stored responses nor in what requests are compared by: a payload comes from the
 * action again.
 */

import { createHash } from "node:crypto";
import { z } from "@hono/zod-openapi";
import { ActionNotFoundError, PepperMissingError } from "../../../action/errors.ts";
import type { ActionEntry } from "../../../action/info.ts";
import type { ConsumeOptions } from "../../../action/options.ts";
import type { Consumed } from "../../../action/results.ts";
import type { ActionState } from "../../../action/stored.ts";
import { idSchema } from "../ids.ts";
import { given, pageOf, pageQuery, readEntries, readPage, readSealedPage, unreadable } from "../pages.ts";
import { add, type Call, type Routing } from "../route.ts";
import { anyValue, count, duration, list, moment, text, time, timeOrNull } from "../schemas.ts";
import { fromWire, toWire } from "../values.ts";

const TAG = "actions";
const id = idSchema("The id of the action, or `ref:` and its ref where it is only read or canceled.", "coupon-42");
const params = { id };
const state = z.enum([
  "pending",
  "active",
  "consumed",
  "expired",
  "canceled",
  "locked",
]) satisfies z.ZodType<ActionState>;

const Mark = { at: time, by: z.string().nullable(), reason: z.string().nullable() };

const Info = z
  .object({
    id: z.string().nullable(),
    ref: z.string(),
    state,
    owner: z.string().nullable(),
    reason: z.string().nullable(),
    tags: list(z.string()),
    createdAt: time,
    activeAt: timeOrNull,
    expiresAt: timeOrNull,
    uses: z.number().int(),
    usesLeft: z.number().int(),
    hasPin: z.boolean(),
    pinTriesLeft: z.number().int().nullable(),
    lastUse: z.object(Mark).nullable(),
    claim: z.object({ ...Mark, until: time, fence: z.number().int() }).nullable(),
    canceled: z.object(Mark).nullable(),
  })
  .openapi("Action");

const Created = z
  .object({
    id: z.string().openapi({ description: "A generated id is a secret, and is returned only here." }),
    ref: z.string(),
    isNew: z.boolean(),
  })
  .openapi("CreatedAction");

const Used = z
  .object({
    payload: anyValue.optional(),
    consumedAt: time,
    replayed: z.boolean(),
    usesLeft: z.number().int(),
  })
  .openapi("ConsumedAction");

const Claim = z.object({ fence: z.number().int(), leaseEndsAt: time, replayed: z.boolean() }).openapi("ActionClaim");

const Entry = z
  .object({ version: z.number().int(), name: z.string(), at: time, data: anyValue.optional() })
  .openapi("ActionEntry");

const asking = {
  by: idSchema("Who asks; later callers see it in their error.", "order-7").optional(),
  reason: text.optional(),
};
const using = {
  ...asking,
  consumerKey: z
    .string()
    .optional()
    .openapi({ description: "A secret of the consumer: with the same one the result is the same." }),
  pin: z.string().optional(),
};
const SECRETS = ["pin", "payload", "consumerKey"];
const REFUSALS = [
  "action_not_found",
  "not_active",
  "already_used",
  "expired",
  "canceled",
  "locked",
  "claimed",
  "invalid_pin",
  "busy",
  "pepper_missing",
  "invalid_id",
  "invalid_argument",
] as const;

const show = ({ payload, ...used }: Consumed) => ({ ...used, payload: toWire(payload) });
/** A payload is decrypted for the consumer, and must not be in the database in the clear. */
const withoutPayload = <Used extends { readonly payload?: unknown }>(used: Used) =>
  used.payload === undefined ? used : undefined;

const targetOf = (given: string) => (given.startsWith("ref:") ? { ref: given.slice(4) } : given);

type Using = Call<typeof params, Record<never, z.ZodType>, z.ZodType<ConsumeOptions>>;

/** The options with the consumer key; where the client gave none, with the idempotency key of its request. */
function asConsumer({ body, keyId, idempotencyKey }: Using): ConsumeOptions {
  const options = given(body);
  if (body.consumerKey !== undefined || idempotencyKey === undefined) return options;
  const consumerKey = createHash("sha256").update(`${keyId}\n${idempotencyKey}`).digest("base64url");
  return { ...options, consumerKey };
}

/** Without a pepper an idempotency key cannot be a consumer key. */
function consuming<T>(call: Using, use: (options: ConsumeOptions) => T): T {
  try {
    return use(asConsumer(call));
  } catch (error) {
    if (!(error instanceof PepperMissingError) || call.body.consumerKey !== undefined) throw error;
    return use(given(call.body));
  }
}

/** A use that is repeated with the same consumer key; undefined if there is none. */
async function usedAgain<T>(call: Using, use: (options: ConsumeOptions) => Promise<T>): Promise<T | undefined> {
  try {
    return await use(asConsumer(call));
  } catch (error) {
    if (error instanceof PepperMissingError) return undefined;
    throw error;
  }
}

export function actions(routing: Routing): void {
  add(routing, {
    method: "post",
    path: "/v1/actions",
    tag: TAG,
    operation: "createAction",
    summary: "Creates a one-time action",
    description:
      "The same id with the same request is the same action. The response to a request without an id has a secret: it is kept for a repeated one so that only the same API key can read it.",
    scope: "write",
    body: z.strictObject({
      id: id.optional(),
      owner: z.string().optional(),
      reason: text.optional(),
      tags: z.array(z.string()).optional(),
      activeAt: moment.optional(),
      expiresAt: moment.optional(),
      expiresIn: duration.optional(),
      uses: z.number().optional().openapi({ type: "integer", minimum: 1 }),
      pin: z.string().optional(),
      maxPinTries: z.number().optional().openapi({ type: "integer", minimum: 1 }),
      payload: anyValue.optional(),
    }),
    returns: { 201: Created },
    refuses: ["action_conflict", "pepper_missing", "keys_missing", "busy", "invalid_id", "invalid_argument"],
    secrets: SECRETS,
    isSecret: (body) => body.id === undefined,
    decide: async ({ pawl, body: { payload, ...options } }) => {
      const prepared = await pawl.actions.prepare(given({ ...options, payload: fromWire(payload) }));
      return (tx) => ({ status: 201, json: tx.actions.create(prepared) });
    },
  });

  add(routing, {
    method: "get",
    path: "/v1/actions",
    tag: TAG,
    operation: "listActions",
    summary: "Lists actions, the newest first",
    scope: "read",
    query: {
      owner: z.string().optional(),
      state: z.union([state, z.array(state)]).optional(),
      tag: z.string().optional(),
      createdAfter: moment.optional(),
      createdBefore: moment.optional(),
      ...pageQuery,
    },
    returns: { 200: pageOf(Info).extend({ unreadable }).openapi("Actions") },
    handle: async ({ pawl, namespace, query }) => {
      const read = async (part: { readonly limit: number; readonly after: string | undefined }) => {
        const { actions: items, ...rest } = await pawl.actions.list(given({ ...query, ...part }));
        return { items, ...rest };
      };
      const cursors = () => routing.cursors.of(namespace);
      // Those of an owner are in the order of a key of their own.
      const page = await (query.owner === undefined ? readSealedPage(query, cursors, read) : readPage(query, read));
      return { status: 200, json: page };
    },
  });

  add(routing, {
    method: "get",
    path: "/v1/actions/{id}",
    tag: TAG,
    operation: "getAction",
    summary: "Gets an action as it is now",
    scope: "read",
    params,
    returns: { 200: Info },
    refuses: ["action_not_found", "invalid_id"],
    handle: async ({ pawl, params }) => {
      const target = targetOf(params.id);
      const action = await pawl.actions.get(target);
      if (action === null) throw new ActionNotFoundError({ id: null, ref: "" });
      return { status: 200, json: action };
    },
  });

  add(routing, {
    method: "get",
    path: "/v1/actions/{id}/history",
    tag: TAG,
    operation: "getActionHistory",
    summary: "Gets the audit trail of an action",
    scope: "read",
    params,
    query: {
      limit: pageQuery.limit,
      after: count(Number.MAX_SAFE_INTEGER, "The version to continue after.").optional(),
    },
    returns: { 200: pageOf(Entry).openapi("ActionHistory") },
    refuses: ["action_not_found", "invalid_id"],
    handle: async ({ pawl, params, query }) => {
      const target = targetOf(params.id);
      const page = await readEntries(query, async (part) => {
        const entries = await pawl.actions.history(target, part);
        return entries.map((entry: ActionEntry) => ({ ...entry, data: toWire(entry.data) }));
      });
      if (page.items.length === 0 && (query.after ?? 0) === 0) throw new ActionNotFoundError({ id: null, ref: "" });
      return { status: 200, json: page };
    },
  });

  add(routing, {
    method: "post",
    path: "/v1/actions/{id}/consume",
    tag: TAG,
    operation: "consumeAction",
    summary: "Uses an action, and returns its payload",
    scope: "write",
    params,
    body: z.strictObject(using),
    returns: { 200: Used },
    refuses: REFUSALS,
    secrets: SECRETS,
    kept: withoutPayload,
    again: async (call) => {
      const used = await usedAgain(call, (options) => call.pawl.actions.consume(call.params.id, options));
      return used && { status: 200, json: show(used) };
    },
    // A PIN is hashed between two commits; there is a pepper then, so the request is that of one consumer.
    decide: (call) => {
      if (call.body.pin !== undefined) return undefined;
      return (tx) => {
        const used = consuming(call, (options) => tx.actions.consume(call.params.id, options));
        return { status: 200, json: show(used) };
      };
    },
    handle: async (call) => ({
      status: 200,
      json: show(await call.pawl.actions.consume(call.params.id, asConsumer(call))),
    }),
  });

  add(routing, {
    method: "post",
    path: "/v1/actions/{id}/claim",
    tag: TAG,
    operation: "claimAction",
    summary: "Reserves an action for an effect that takes time",
    scope: "write",
    params,
    body: z.strictObject({ ...using, lease: duration.optional() }),
    returns: { 200: Claim },
    refuses: [...REFUSALS, "invalid_duration"],
    secrets: SECRETS,
    decide: (call) => {
      if (call.body.pin !== undefined) return undefined;
      return (tx) => ({
        status: 200,
        json: consuming(call, (options) => tx.actions.claim(call.params.id, options)),
      });
    },
    handle: async (call) => ({
      status: 200,
      json: await call.pawl.actions.claim(call.params.id, asConsumer(call)),
    }),
  });

  add(routing, {
    method: "post",
    path: "/v1/actions/{id}/complete",
    tag: TAG,
    operation: "completeAction",
    summary: "Uses an action that was claimed, and returns its payload",
    scope: "write",
    params,
    body: z.strictObject({
      ...asking,
      fence: z.number().openapi({ type: "integer" }),
      consumerKey: z.string().optional(),
    }),
    returns: { 200: Used },
    refuses: [...REFUSALS, "fenced"],
    secrets: SECRETS,
    kept: withoutPayload,
    // The same fence again gets the same result.
    again: async ({ pawl, params, body }) => ({
      status: 200,
      json: show(await pawl.actions.complete(params.id, given(body))),
    }),
    decide:
      ({ params, body }) =>
      (tx) => ({ status: 200, json: show(tx.actions.complete(params.id, given(body))) }),
  });

  add(routing, {
    method: "post",
    path: "/v1/actions/{id}/abandon",
    tag: TAG,
    operation: "abandonAction",
    summary: "Releases an action that was claimed",
    scope: "write",
    params,
    body: z.strictObject({ ...asking, fence: z.number().openapi({ type: "integer" }) }),
    returns: { 200: z.object({ isNew: z.boolean() }).openapi("AbandonedAction") },
    refuses: ["action_not_found", "fenced", "invalid_id", "invalid_argument", "already_used"],
    decide:
      ({ params, body }) =>
      (tx) => ({ status: 200, json: tx.actions.abandon(params.id, given(body)) }),
  });

  add(routing, {
    method: "post",
    path: "/v1/actions/{id}/cancel",
    tag: TAG,
    operation: "cancelAction",
    summary: "Cancels an action, so that it cannot be used",
    scope: "write",
    params,
    body: z.strictObject(asking),
    returns: { 200: z.object({ canceledAt: time, isNew: z.boolean() }).openapi("CanceledAction") },
    refuses: ["action_not_found", "already_used", "expired", "claimed", "invalid_id"],
    decide:
      ({ params, body }) =>
      (tx) => ({ status: 200, json: tx.actions.cancel(targetOf(params.id), given(body)) }),
  });
}
