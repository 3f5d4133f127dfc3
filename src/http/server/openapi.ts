/**
 * `GET /v1/openapi.json`: the API as an OpenAPI 3.1 document, made of the same objects as the routes. It needs no key, because it says nothing that the
 * documentation does not.
 */

import type { App, Routing } from "./route.ts";

/** Returns what makes the document, once all routes are there. */
export function documentOf(app: App, prefix: string): () => ApiDocument {
  app.openAPIRegistry.registerComponent("securitySchemes", "key", {
    type: "http",
    scheme: "bearer",
    description: "An API key, `pawl_…`.",
  });
  let made: ApiDocument | undefined;
  return () => {
    made ??= app.getOpenAPI31Document({
      openapi: "3.1.0",
      info: {
        title: "Pawl",
        version: "1",
        description: "Durable workflows, locks, one-time actions, event streams and tasks over HTTP.",
        license: { name: "MIT", url: "https://opensource.org/license/mit" },
      },
      servers: [{ url: prefix === "" ? "/" : prefix }],
    });
    return made;
  };
}

export type ApiDocument = ReturnType<App["getOpenAPI31Document"]>;

export function openapi({ app, document }: Routing): void {
  let text: string | undefined;
  app.get("/v1/openapi.json", () => {
    text ??= JSON.stringify(document());
    return new Response(text, { headers: { "content-type": "application/json", "cache-control": "no-cache" } });
  });
}
