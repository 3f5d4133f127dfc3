/**
 * Projections: `pawl.projections`. Their rows are not served: they are read in the application.
 */

import { z } from "@hono/zod-openapi";
import type { ProjectionInfo } from "../../../stream/projections/status.ts";
import { idSchema } from "../ids.ts";
import { given } from "../pages.ts";
import { add, type Routing } from "../route.ts";
import { list, time, timeOrNull } from "../schemas.ts";
import { withoutStack } from "../values.ts";

const TAG = "projections";
const params = { name: idSchema("The name of the projection.", "balances") };
const NOT_FOUND = ["projection_not_found", "invalid_id"] as const;

const Generation = z
  .object({
    generation: z.number().int(),
    behind: z.number().int().openapi({ description: "How many events it lacks; at most 1,000 are counted." }),
    behindSince: timeOrNull,
    failure: z
      .object({
        count: z.number().int(),
        message: z.string(),
        code: z.string().nullable(),
        at: time,
        stream: z.string(),
        version: z.number().int().openapi({ description: "0 where no event is to blame." }),
      })
      .nullable(),
    worker: z.string().nullable(),
  })
  .openapi("ProjectionGeneration");

const status = {
  live: Generation.nullable().openapi({ description: "What readers see; null while it is built for the first time." }),
  building: Generation.nullable().openapi({ description: "What is being built beside it." }),
};

const Info = z.object({ name: z.string(), ...status }).openapi("Projection");

const sentOf = (one: ProjectionInfo) => ({
  ...one,
  live: one.live && withoutStack(one.live, "failure"),
  building: one.building && withoutStack(one.building, "failure"),
});

export function projections(routing: Routing): void {
  add(routing, {
    method: "get",
    path: "/v1/projections",
    tag: TAG,
    operation: "listProjections",
    summary: "Lists the projections that a worker has begun to build",
    scope: "read",
    returns: { 200: z.object({ items: list(Info), next: z.null() }).openapi("Projections") },
    handle: async ({ pawl }) => ({
      status: 200,
      json: { items: (await pawl.projections.list()).map(sentOf), next: null },
    }),
  });

  add(routing, {
    method: "get",
    path: "/v1/projections/{name}",
    tag: TAG,
    operation: "getProjection",
    summary: "Gets a projection: how far it is, and why it does not get ahead",
    scope: "read",
    params,
    returns: { 200: Info },
    refuses: NOT_FOUND,
    handle: async ({ pawl, params: { name } }) => ({
      status: 200,
      json: sentOf({ name, ...(await pawl.projection(name).status()) }),
    }),
  });

  add(routing, {
    method: "post",
    path: "/v1/projections/{name}/rebuild",
    tag: TAG,
    operation: "rebuildProjection",
    summary: "Builds a projection again, beside what readers see, with the code that built it last",
    scope: "operate",
    params,
    body: z.strictObject({
      from: z.enum(["kept"]).optional().openapi({ description: "Leaves out events that were removed." }),
    }),
    returns: { 200: z.object({ generation: z.number().int() }).openapi("RebuiltProjection") },
    refuses: [...NOT_FOUND, "invalid_argument"],
    handle: async ({ pawl, params, body }) => ({
      status: 200,
      json: { generation: await pawl.projection(params.name).rebuild(given(body)) },
    }),
  });

  add(routing, {
    method: "delete",
    path: "/v1/projections/{name}",
    tag: TAG,
    operation: "deleteProjection",
    summary: "Deletes a projection, with its rows where they are in Pawl's records",
    scope: "operate",
    params,
    returns: { 204: null },
    refuses: NOT_FOUND,
    handle: async ({ pawl, params }) => {
      await pawl.projection(params.name).delete();
      return { status: 204 };
    },
  });
}
