/**
 * Every public name of `pawl/webhook`, by hand.
 */

export type { HttpAttempt, IdempotentHandle } from "../middleware/core.ts";
export type { ExpressRequest, ExpressResponse } from "../middleware/express.ts";
export type { FastifyReply, FastifyRequest } from "../middleware/fastify.ts";
export type { HonoContext } from "../middleware/hono.ts";
export type { Reply, ReplyInit } from "../middleware/reply.ts";
export type { ReceivedWebhook, WebhookOptions } from "./core.ts";
export { BodyTooLargeError, SignatureInvalidError, TimestampOutOfRangeError } from "./errors.ts";
export { type ExpressWebhook, expressWebhook } from "./express.ts";
export { type FastifyWebhook, type FastifyWebhookInstance, fastifyWebhook } from "./fastify.ts";
export { webhookFetch } from "./fetch.ts";
export { type HonoWebhook, honoWebhook } from "./hono.ts";
export {
  type VerifyOptions,
  verifyWebhook,
  type WebhookDelivery,
  type WebhookRequest,
  type WebhookSecret,
  type WebhookTask,
} from "./verify.ts";
