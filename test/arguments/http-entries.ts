/**
 * The table of `pawl/client` and `pawl/webhook`: what they refuse by themselves. The methods of a client, which send what they are given, are in
 * `client-entries.ts`.
 */

import * as client from "../../src/http/client/index.ts";
import * as webhook from "../../src/http/webhook/index.ts";
import { CLIENT_OWNERS } from "./client-entries.ts";
import type { EntryPoint } from "./entries.ts";
import { type Fields, options, type Row } from "./table.ts";

export const CLIENT: EntryPoint = {
  path: "src/http/client/index.ts",
  module: client,
  owners: {
    "": {
      where: "plain",
      on: () => undefined,
      rows: {
        createClient: {
          takes: {
            options: options(
              {
                abortSignal: "abortSignal?",
                attemptTimeout: "duration?",
                fetch: "function?",
                key: "secretText?",
                patience: "duration?",
                url: "address",
              },
              { url: "http://localhost" },
              "object",
            ),
          },
          good: () => [{ url: "http://localhost" }],
        },
        // Asked of whatever was read or caught: they must not throw.
        isForgotten: { takes: { value: "unchecked" }, good: () => ["ann"] },
        isPawlError: { takes: { error: "unchecked", code: "unchecked" } },
        named: { takes: { name: "unchecked" }, good: () => ["flow"] },
      },
    },
  },
  remote: CLIENT_OWNERS,
  elsewhere: {
    ClientOptions: "callbacks that the user writes",
    Paged: "a promise: what it takes is what promises take",
  },
  engine: new Set(),
  besides: [],
};

const SECRET = `whsec_${Buffer.alloc(32, 7).toString("base64")}`;
const VERIFY_FIELDS = { maxBodyBytes: "count?", secrets: "receiverSecrets", tolerance: "duration?" };
const WEBHOOK_FIELDS = { ...VERIFY_FIELDS, consumer: "id", lease: "lease?", ttl: "positive?" };
const RECEIVING = options(WEBHOOK_FIELDS, { consumer: "shop", secrets: SECRET }, "options");
const HANDLE: Fields = { kind: "handle", fields: { idempotent: "function" }, good: {} };
const receiver: Row = {
  takes: { pawl: HANDLE, options: RECEIVING },
  good: ({ pawl }) => [pawl, RECEIVING.good],
};
const REQUEST = options({ body: "bytes", headers: "object" }, { body: "{}", headers: {} }, "object");

export const WEBHOOK: EntryPoint = {
  path: "src/http/webhook/index.ts",
  module: webhook,
  owners: {
    "": {
      where: "plain",
      on: () => undefined,
      rows: {
        expressWebhook: receiver,
        fastifyWebhook: receiver,
        honoWebhook: receiver,
        verifyWebhook: {
          takes: {
            request: { ...REQUEST, kind: "handle" },
            options: options(VERIFY_FIELDS, { secrets: SECRET }, "options"),
          },
          good: () => [{ body: "{}", headers: {} }, { secrets: SECRET }],
        },
        webhookFetch: {
          takes: { pawl: HANDLE, handler: "function", options: RECEIVING },
          good: ({ pawl }) => [pawl, () => new Response(), RECEIVING.good],
        },
      },
    },
  },
  elsewhere: {
    ExpressResponse: "of the framework",
    ExpressWebhook: "takes the framework's request, and gives nothing for another",
    FastifyReply: "of the framework",
    FastifyWebhook: "takes the framework's request, and gives nothing for another",
    FastifyWebhookInstance: "of the framework",
    HonoContext: "of the framework",
    HonoWebhook: "takes the framework's context, and gives nothing for another",
    HttpAttempt: "what a handler is given: Attempt of the main entry point",
    IdempotentHandle: "the part of Pawl that is needed",
    ReceivedWebhook: "takes nothing",
    WebhookDelivery: "takes nothing",
  },
  engine: new Set(),
  besides: [],
};
