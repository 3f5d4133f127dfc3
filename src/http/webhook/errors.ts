/**
 * Errors of received webhooks: why a delivery is refused before anything is done with it.
 */

import { PawlError } from "../../kernel/errors.ts";

/** A header is missing, or no signature fits the body and a secret. Refuse the delivery; check that both sides have the same secret. */
export class SignatureInvalidError extends PawlError<"signature_invalid", { reason: string }> {
  constructor(reason: string) {
    super("signature_invalid", `the delivery is not signed by its sender: ${reason}`, { reason });
  }
}

/** The delivery was signed too long ago, or in the future: it may be an old one that is sent again, or a clock is wrong. */
export class TimestampOutOfRangeError extends PawlError<
  "timestamp_out_of_range",
  { sentAtMs: number; toleranceMs: number }
> {
  constructor(sentAtMs: number, toleranceMs: number) {
    super(
      "timestamp_out_of_range",
      `the delivery was signed at ${new Date(sentAtMs).toISOString()}, which is more than ${toleranceMs} ms from now: check the clocks, or raise tolerance`,
      { sentAtMs, toleranceMs },
    );
  }
}

/** The body is longer than `maxBodyBytes`. It was not read to its end. */
export class BodyTooLargeError extends PawlError<"body_too_large", { maxBytes: number }> {
  constructor(maxBytes: number) {
    super("body_too_large", `the body of a delivery may have at most ${maxBytes} bytes`, { maxBytes });
  }
}
