/**
 * Every public name of `pawl/middleware`, by hand.
 */

export type { HttpAttempt, IdempotentHandle, MiddlewareOptions } from "./core.ts";
export { type ExpressIdempotency, type ExpressRequest, type ExpressResponse, expressIdempotency } from "./express.ts";
export {
  type FastifyIdempotency,
  type FastifyInstance,
  type FastifyReply,
  type FastifyRequest,
  fastifyIdempotency,
} from "./fastify.ts";
export { idempotentFetch } from "./fetch.ts";
export { type HonoContext, type HonoIdempotency, honoIdempotency } from "./hono.ts";
export { nextIdempotency } from "./next.ts";
export type { HeaderList, Reply, ReplyInit } from "./reply.ts";
export { type TrpcCall, type TrpcOptions, type TrpcResult, trpcIdempotency } from "./trpc.ts";
