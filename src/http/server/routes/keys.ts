/**
 * API keys: `apiKeys(pawl)`.
 *
 * An administrator of the handle's own namespace manages the keys of all namespaces; one of another namespace only those of its own, and the others do
 * not exist for it.
 */

import { z } from "@hono/zod-openapi";
import type { Caller } from "../auth.ts";
import { idSchema } from "../ids.ts";
import { SCOPES } from "../keys/decide.ts";
import { ApiKeyNotFoundError } from "../keys/errors.ts";
import type { ApiKeyInfo } from "../keys/keys.ts";
import { given, pageOf, pageQuery } from "../pages.ts";
import { Problem } from "../problem.ts";
import { add, type Routing } from "../route.ts";
import { duration, list, moment, time, timeOrNull } from "../schemas.ts";

const TAG = "keys";
const id = idSchema("The id of the API key.", "k3Jx0aQyXvL2mN5p");
const scope = z.enum(SCOPES);
const refuses = ["key_not_found"] as const;

const Key = z
  .object({
    id: z.string(),
    name: z.string(),
    namespace: z.string(),
    scopes: list(scope),
    createdAt: time,
    expiresAt: timeOrNull,
    revokedAt: timeOrNull,
  })
  .openapi("ApiKey");

const Created = Key.extend({
  key: z
    .string()
    .openapi({ description: "The key itself: it is shown only here, and not when the request is repeated." }),
}).openapi("CreatedApiKey");

const Entry = z
  .object({ version: z.number().int(), name: z.string(), by: z.string().nullable(), at: time })
  .openapi("ApiKeyEntry");

const withoutKey = ({ key: _, ...info }: { readonly key?: string | undefined }) => info;

export function keys(routing: Routing): void {
  const { keys, namespace } = routing;
  const isRoot = (caller: Caller): boolean => caller.namespace === namespace;
  const actor = ({ keyId }: Caller) => (keyId === null ? {} : { by: `key:${keyId}` });

  /** Throws as for an unknown key if it is not the caller's to manage. */
  const own = async (caller: Caller, key: string): Promise<ApiKeyInfo> => {
    const info = await keys.get(key);
    if (!isRoot(caller) && info.namespace !== caller.namespace) throw new ApiKeyNotFoundError(key);
    return info;
  };

  add(routing, {
    method: "post",
    path: "/v1/keys",
    tag: TAG,
    operation: "createKey",
    summary: "Creates an API key",
    scope: "admin",
    body: z.strictObject({
      name: z.string().openapi({ maxLength: 200 }),
      scopes: z.array(scope).min(1),
      namespace: idSchema("Default: the namespace of the key that asks.", "acme").optional(),
      expiresAt: moment.optional(),
    }),
    returns: { 201: Created },
    refuses: ["invalid_id", "invalid_argument"],
    kept: withoutKey,
    handle: async (call) => {
      const { namespace: wanted = call.namespace } = call.body;
      if (!isRoot(call) && wanted !== call.namespace)
        throw new Problem(403, "scope_missing", "This needs an API key of the server's own namespace.");
      const created = await keys.create(given({ ...call.body, namespace: wanted, ...actor(call) }));
      return { status: 201, json: created };
    },
  });

  add(routing, {
    method: "get",
    path: "/v1/keys",
    tag: TAG,
    operation: "listKeys",
    summary: "Lists API keys",
    scope: "admin",
    query: { namespace: z.string().optional(), ...pageQuery },
    returns: { 200: pageOf(Key).openapi("ApiKeys") },
    handle: async (call) => {
      const only = isRoot(call) ? {} : { namespace: call.namespace };
      const page = await keys.list({ ...given(call.query), ...only });
      return { status: 200, json: { items: page.keys, next: page.next } };
    },
  });

  add(routing, {
    method: "get",
    path: "/v1/keys/{id}",
    tag: TAG,
    operation: "getKey",
    summary: "Gets an API key, without the key",
    scope: "admin",
    params: { id },
    returns: { 200: Key },
    refuses,
    handle: async (call) => ({ status: 200, json: await own(call, call.params.id) }),
  });

  add(routing, {
    method: "get",
    path: "/v1/keys/{id}/history",
    tag: TAG,
    operation: "getKeyHistory",
    summary: "Says what was done to an API key, and by whom",
    scope: "admin",
    params: { id },
    returns: { 200: z.object({ items: list(Entry), next: z.null() }).openapi("ApiKeyHistory") },
    refuses,
    handle: async (call) => {
      await own(call, call.params.id);
      return { status: 200, json: { items: await keys.history(call.params.id), next: null } };
    },
  });

  add(routing, {
    method: "post",
    path: "/v1/keys/{id}/rotate",
    tag: TAG,
    operation: "rotateKey",
    summary: "Replaces an API key; its id stays",
    scope: "admin",
    params: { id },
    body: z.strictObject({
      grace: duration.optional().openapi({ description: "How long the old key is accepted, too." }),
    }),
    returns: { 200: Created },
    refuses: [...refuses, "invalid_duration"],
    kept: withoutKey,
    handle: async (call) => {
      await own(call, call.params.id);
      return { status: 200, json: await keys.rotate(call.params.id, given({ ...call.body, ...actor(call) })) };
    },
  });

  add(routing, {
    method: "post",
    path: "/v1/keys/{id}/revoke",
    tag: TAG,
    operation: "revokeKey",
    summary: "Ends an API key for good",
    scope: "admin",
    params: { id },
    returns: { 200: Key },
    refuses,
    handle: async (call) => {
      await own(call, call.params.id);
      return { status: 200, json: await keys.revoke(call.params.id, actor(call)) };
    },
  });
}
