/**
 * What the tests of webhooks share: secrets, and deliveries signed by the reference implementation of Standard Webhooks.
 */

import { Webhook } from "standardwebhooks";

export const OLD = `whsec_${Buffer.alloc(24, 1).toString("base64")}`;
export const NEW = `whsec_${Buffer.alloc(24, 2).toString("base64")}`;

export interface Signed {
  readonly headers: Record<string, string>;
  readonly body: string | Uint8Array;
}

export interface Unsigned {
  readonly id: string;
  readonly body: string;
  readonly atMs?: number;
  readonly secret?: string;
  readonly headers?: Record<string, string>;
}

export function sign({ id, body, atMs = Date.now(), secret = OLD, headers = {} }: Unsigned): Signed & { body: string } {
  return {
    headers: {
      "webhook-id": id,
      "webhook-timestamp": String(Math.floor(atMs / 1000)),
      "webhook-signature": new Webhook(secret).sign(id, new Date(atMs), body),
      ...headers,
    },
    body,
  };
}
