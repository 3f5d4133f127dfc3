/**
 * Reactions: `pawl.reactions`.
 */

import { z } from "@hono/zod-openapi";
import { checkId } from "../../../kernel/check.ts";
import type { DeadLetterInfo, ReactionInfo } from "../../../stream/reactions/reactions.ts";
import { idSchema } from "../ids.ts";
import { all, checkFilter, given, pageOf, pageQuery, readPage } from "../pages.ts";
import { add, type Routing } from "../route.ts";
import { list, text, time, timeOrNull, version } from "../schemas.ts";
import { withoutStack } from "../values.ts";

const TAG = "reactions";
const params = { name: idSchema("The name of the reaction.", "mail") };
const NOT_FOUND = ["reaction_not_found", "invalid_id"] as const;

const Info = z
  .object({
    name: z.string(),
    on: list(z.string()),
    pausedAt: timeOrNull,
    worker: z.string().nullable(),
    unrouted: z.number().int(),
    unroutedSince: timeOrNull,
    failure: z.object({ message: z.string(), stream: z.string(), version, at: time }).nullable(),
  })
  .openapi("Reaction");

const Target = z
  .object({
    target: z.string(),
    status: z.enum(["idle", "due", "running", "retrying", "blocked", "paused"]),
    handled: z.number().int(),
    pending: z.number().int(),
    failures: z.number().int(),
    lastError: z.object({ name: z.string(), message: z.string(), at: time }).nullable(),
    blockedSince: timeOrNull,
    nextAttemptAt: timeOrNull,
    lostLeases: z.number().int(),
    worker: z.string().nullable(),
  })
  .openapi("ReactionTarget");

const Letter = z
  .object({
    stream: z.string(),
    version,
    target: z.string().nullable(),
    message: z.string(),
    actor: z.string().nullable(),
    reason: z.string().nullable(),
    at: time,
  })
  .openapi("DeadLetter");

const status = z.enum(["blocked", "paused"]).optional();

const filter = z
  .strictObject({
    target: z.string().optional(),
    status,
    prefix: z.string().optional(),
    dryRun: z.boolean().optional().openapi({ description: "Counts them, and changes nothing." }),
    all,
  })
  .openapi("TargetFilter");

/** The filter of a request, as the library takes it. */
function filterOf({ all, dryRun, ...conditions }: z.output<typeof filter>) {
  checkFilter(conditions, all);
  return given({ ...conditions, dryRun });
}

const Changed = z.object({ changed: z.number().int() }).openapi("ChangedTargets");

/** The `next` of a page is the key of a record. */
function checkAfter({ after }: { readonly after?: string | undefined }): void {
  if (after !== undefined) checkId(after, "after");
}

const infoOf = (one: ReactionInfo) => withoutStack(one, "failure");
const letterOf = ({ stack: _, ...letter }: DeadLetterInfo) => letter;

export function reactions(routing: Routing): void {
  add(routing, {
    method: "get",
    path: "/v1/reactions",
    tag: TAG,
    operation: "listReactions",
    summary: "Lists the reactions that a worker has ever known",
    scope: "read",
    returns: { 200: z.object({ items: list(Info), next: z.null() }).openapi("Reactions") },
    handle: async ({ pawl }) => ({
      status: 200,
      json: { items: (await pawl.reactions.list()).map(infoOf), next: null },
    }),
  });

  add(routing, {
    method: "get",
    path: "/v1/reactions/{name}",
    tag: TAG,
    operation: "getReaction",
    summary: "Gets a reaction",
    scope: "read",
    params,
    returns: { 200: Info },
    refuses: NOT_FOUND,
    handle: async ({ pawl, params }) => ({ status: 200, json: infoOf(await pawl.reactions.get(params.name)) }),
  });

  add(routing, {
    method: "get",
    path: "/v1/reactions/{name}/targets",
    tag: TAG,
    operation: "listTargets",
    summary: "Lists the targets of a reaction, in the order of their names",
    scope: "read",
    params,
    query: { status, prefix: z.string().optional(), ...pageQuery },
    returns: { 200: pageOf(Target).openapi("ReactionTargets") },
    refuses: NOT_FOUND,
    handle: async ({ pawl, params, query }) => {
      checkAfter(query);
      await pawl.reactions.get(params.name);
      const { targets, next } = await pawl.reactions.targets(params.name, given(query));
      return { status: 200, json: { items: targets.map((one) => withoutStack(one, "lastError")), next } };
    },
  });

  const operations = {
    unblock: "Lets blocked targets continue with the event that failed",
    reset: "Lets targets handle all of their events again, from the first",
    prioritize: "Lets targets be claimed before all others that are due",
  } as const;
  for (const [verb, summary] of Object.entries(operations) as [keyof typeof operations, string][])
    add(routing, {
      method: "post",
      path: `/v1/reactions/{name}/${verb}`,
      tag: TAG,
      operation: `${verb}Targets`,
      summary,
      scope: "operate",
      params,
      body: filter,
      returns: { 200: Changed },
      refuses: [...NOT_FOUND, "events_archived", "invalid_argument"],
      handle: async ({ pawl, params, body }) => ({
        status: 200,
        json: { changed: await pawl.reactions[verb](params.name, filterOf(body)) },
      }),
    });

  const pausing = {
    pause: "Pauses targets, or without a filter the reaction: no more events are routed",
    resume: "Resumes targets, or without a filter the reaction",
  } as const;
  for (const [verb, summary] of Object.entries(pausing) as [keyof typeof pausing, string][])
    add(routing, {
      method: "post",
      path: `/v1/reactions/{name}/${verb}`,
      tag: TAG,
      operation: `${verb}Reaction`,
      summary,
      scope: "operate",
      params,
      body: z.strictObject({ targets: filter.optional() }),
      returns: { 200: z.object({ changed: z.number().int().nullable() }).openapi("ChangedReaction") },
      refuses: [...NOT_FOUND, "invalid_argument"],
      handle: async ({ pawl, params, body: { targets } }) => {
        if (targets === undefined) {
          await pawl.reactions[verb](params.name);
          return { status: 200, json: { changed: null } };
        }
        const changed = await pawl.reactions[`${verb}Targets`](params.name, filterOf(targets));
        return { status: 200, json: { changed } };
      },
    });

  add(routing, {
    method: "post",
    path: "/v1/reactions/{name}/skip",
    tag: TAG,
    operation: "skipEvent",
    summary: "Puts the next event of a blocked or paused target aside, as a dead letter",
    scope: "operate",
    params,
    body: z.strictObject({ target: z.string(), reason: text }),
    returns: { 200: Letter },
    refuses: [...NOT_FOUND, "target_not_found", "invalid_argument"],
    handle: async ({ pawl, params, body: { target, reason }, keyId }) => {
      const actor = keyId === null ? "http" : `key:${keyId}`;
      return { status: 200, json: letterOf(await pawl.reactions.skip(params.name, target, { actor, reason })) };
    },
  });

  add(routing, {
    method: "get",
    path: "/v1/reactions/{name}/dead-letters",
    tag: TAG,
    operation: "listDeadLetters",
    summary: "Lists events that were put aside",
    scope: "read",
    params,
    query: pageQuery,
    returns: { 200: pageOf(Letter).openapi("DeadLetters") },
    refuses: NOT_FOUND,
    handle: async ({ pawl, params, query }) => {
      checkAfter(query);
      await pawl.reactions.get(params.name);
      const { items, next } = await readPage(query, async (part) => {
        const { letters, ...rest } = await pawl.reactions.deadLetters(params.name, given(part));
        return { items: letters.map(letterOf), ...rest };
      });
      return { status: 200, json: { items, next } };
    },
  });

  add(routing, {
    method: "post",
    path: "/v1/reactions/{name}/dead-letters/redrive",
    tag: TAG,
    operation: "redriveDeadLetter",
    summary: "Sends a dead letter again, to its target",
    scope: "operate",
    params,
    body: z.strictObject({ stream: z.string(), version, target: z.string().nullable().optional() }),
    returns: { 204: null },
    refuses: [...NOT_FOUND, "dead_letter_not_found", "invalid_argument"],
    handle: async ({ pawl, params, body }) => {
      await pawl.reactions.redrive(params.name, given(body));
      return { status: 204 };
    },
  });
}
