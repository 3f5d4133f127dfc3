/**
 * Responses with a secret, as they are stored for repeated requests: sealed with the API key of the caller, of which only a hash is stored. So a stolen
 * database does not reveal them (G27), and only the same key, not rotated since, gets them again.
 */

import { createHmac } from "node:crypto";
import { nonceFor, openText, placeOf, sealText } from "../../kernel/seal/cipher.ts";
import type { Reply } from "../middleware/reply.ts";

/** Seals the replies of one API key. */
export class ReplySeal {
  readonly #key: Uint8Array;

  constructor(apiKey: string) {
    this.#key = createHmac("sha256", apiKey).update("pawl.http response").digest();
  }

  seal(reply: Reply, idempotencyKey: string): Reply {
    const place = placeOf("response", idempotencyKey);
    const text = String(reply.body);
    return { ...reply, body: sealText(this.#key, place, text, nonceFor(this.#key, place, text)) };
  }

  /** Undefined if it was sealed with another key. */
  open(reply: Reply, idempotencyKey: string): Reply | undefined {
    try {
      return { ...reply, body: openText(this.#key, placeOf("response", idempotencyKey), String(reply.body)) };
    } catch {
      return undefined;
    }
  }
}
