/**
 * Workflows: `pawl.workflows`.
 */

import { z } from "@hono/zod-openapi";
import { idSchema } from "../ids.ts";
import { given } from "../pages.ts";
import { add, type Routing } from "../route.ts";
import { list, text, time } from "../schemas.ts";

const TAG = "workflows";
const params = { name: idSchema("The name of the workflow.", "fulfil") };

const Paused = z.object({ workflow: z.string(), since: time, reason: z.string().nullable() }).openapi("PausedWorkflow");

export function workflows(routing: Routing): void {
  add(routing, {
    method: "get",
    path: "/v1/workflows/paused",
    tag: TAG,
    operation: "listPausedWorkflows",
    summary: "Lists the workflows whose runs do not begin for now",
    scope: "read",
    returns: { 200: z.object({ items: list(Paused), next: z.null() }).openapi("PausedWorkflows") },
    handle: async ({ pawl }) => ({ status: 200, json: { items: await pawl.workflows.paused(), next: null } }),
  });

  add(routing, {
    method: "post",
    path: "/v1/workflows/{name}/pause",
    tag: TAG,
    operation: "pauseWorkflow",
    summary: "Lets no more runs of a workflow begin",
    scope: "operate",
    params,
    body: z.strictObject({ reason: text.optional() }),
    returns: { 204: null },
    refuses: ["invalid_id"],
    handle: async ({ pawl, params, body }) => {
      await pawl.workflows.pause(params.name, given(body));
      return { status: 204 };
    },
  });

  add(routing, {
    method: "post",
    path: "/v1/workflows/{name}/resume",
    tag: TAG,
    operation: "resumeWorkflow",
    summary: "Lets its runs begin again",
    scope: "operate",
    params,
    returns: { 200: z.object({ wasPaused: z.boolean() }).openapi("ResumedWorkflow") },
    refuses: ["invalid_id"],
    handle: async ({ pawl, params }) => ({
      status: 200,
      json: { wasPaused: await pawl.workflows.resume(params.name) },
    }),
  });
}
