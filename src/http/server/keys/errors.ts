/** Errors of API keys. */

import { PawlError } from "../../../kernel/errors.ts";

/** There is no API key of this id, or it was revoked and cannot be rotated. */
export class ApiKeyNotFoundError extends PawlError<"key_not_found", { key: string }> {
  constructor(key: string) {
    super("key_not_found", `there is no API key "${key}", or it was revoked`, { key });
  }
}
