/**
 * Ids and names in paths and queries.
 *
 * An id is what the text between two slashes decodes to, and nothing else: `a%2Fb` is the id `a/b`, `%2e%2e` is the id `..`. So the path is taken as it was
 * sent, before a URL parser resolves dots. What does not decode, or decodes to text that is not well-formed, is refused; the library refuses the
 * rest (`invalid_id`: empty, longer than 256 bytes, control characters).
 */

import { createHash } from "node:crypto";
import { z } from "@hono/zod-openapi";
import { InvalidIdError } from "../../kernel/errors.ts";
import { refuse } from "./problem.ts";

/** The path and the query of a request as they were sent, without what is above the app. */
export interface Target {
  readonly path: string;
  readonly query: string;
}

/** What the Node server passes along with a request. */
interface NodeEnv {
  readonly incoming?: { readonly url?: string | undefined } | undefined;
}

const DOTS = /\/(?:\.|%2e){1,2}(?=[/?]|$)|\\/i;

/** Where the app is: `/pawl` for one that is at `/pawl/v1/…`. */
export function pathOf(request: Request, env: unknown, prefix: string): string {
  const path = sentPath(request, env);
  return prefix !== "" && (path === prefix || path.startsWith(`${prefix}/`)) ? path.slice(prefix.length) : path;
}

/** The path as the client sent it, where it is known; without what a mount has taken from it. */
function sentPath(request: Request, env: unknown): string {
  const { pathname } = new URL(request.url);
  const sent = (env as NodeEnv | undefined)?.incoming?.url?.split("?")[0];
  if (sent === undefined || !DOTS.test(sent)) return pathname;
  const whole = new URL(sent, "http://pawl").pathname;
  // A mount takes the beginning of the path.
  const taken = whole.endsWith(pathname) ? whole.slice(0, whole.length - pathname.length) : undefined;
  return taken !== undefined && sent.startsWith(taken) ? sent.slice(taken.length) : pathname;
}

/** Refuses a path or query that does not decode, and an empty id. */
export function checkTarget(path: string, url: string): void {
  const query = url.indexOf("?") < 0 ? "" : url.slice(url.indexOf("?"));
  if (!decodes(path)) throw new InvalidIdError("an id in the path", "has an escape that is not UTF-8: write % as %25");
  if (!decodes(query)) throw refuse("invalid_request", "The query has an escape that is not UTF-8: write % as %25.");
}

function decodes(text: string): boolean {
  if (!text.includes("%")) return true;
  try {
    decodeURIComponent(text);
    return true;
  } catch {
    return false;
  }
}

/** An id or name, in a path, a query or a body. The library checks it. */
export const idSchema = (description: string, example: string) =>
  z.string().openapi({ minLength: 1, maxLength: 256, description, example });

/** The id that an idempotency key stands for. The keys of two API keys are independent. */
export function ownKey(keyId: string | null, key: string | undefined): string | undefined {
  if (key === undefined) return undefined;
  return `http:${createHash("sha256")
    .update(`${keyId ?? ""}\n${key}`)
    .digest("base64url")}`;
}
