/**
 * Generates a client from an OpenAPI document, with @hey-api/openapi-ts: `node generate.mjs <document> <folder>`.
 *
 * The generator uses the API of TypeScript 5, and is installed beside TypeScript 7 of the repository, which has another. So here it gets the
 * TypeScript of this folder.
 */

import { registerHooks } from "node:module";

registerHooks({
  resolve: (specifier, context, next) =>
    next(specifier, specifier === "typescript" ? { ...context, parentURL: import.meta.url } : context),
});

const [input, path] = process.argv.slice(2);
const { createClient } = await import("@hey-api/openapi-ts");
await createClient({
  input,
  output: { path, module: { extension: ".ts" } },
  plugins: ["@hey-api/typescript", "@hey-api/sdk", "@hey-api/client-fetch"],
  logs: { level: "warn", file: false },
});
