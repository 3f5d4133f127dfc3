/**
 * Every public name of `pawl/server`, by hand.
 */

export { createApp } from "./app.ts";
export { type RunMetrics, runMetrics } from "./counts.ts";
export type { ServedPawl, ServedVerbs } from "./handle.ts";
export type { Scope } from "./keys/decide.ts";
export { ApiKeyNotFoundError } from "./keys/errors.ts";
export {
  type ApiKeyEntry,
  type ApiKeyInfo,
  type ApiKeyListOptions,
  type ApiKeyPage,
  type ApiKeys,
  apiKeys,
  type CreateApiKeyOptions,
  type CreatedApiKey,
  type RevokeApiKeyOptions,
  type RotateApiKeyOptions,
} from "./keys/keys.ts";
export { type ServeOptions, type Server, serve } from "./serve.ts";
export type { AppOptions, ServerLimits } from "./settings.ts";
