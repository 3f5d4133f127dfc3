/**
 * Middleware for tRPC: `t.procedure.use(trpcIdempotency(pawl, { key: ({ ctx }) => ctx.req.headers.get("idempotency-key"), scope: … }))`.
 *
 * It is about mutations; queries pass through. What is stored is the procedure's data, before it is sent, and a repetition gets the same
 * data. A mutation that fails frees its key, unless `storeErrors` says that its error is to be kept: then it is thrown again. Refusals are
 * errors of tRPC: BAD_REQUEST without a key where one is required, CONFLICT while it is under way, UNPROCESSABLE_CONTENT for another input.
 */

import { IdempotencyInProgressError, IdempotencyMismatchError, isReplayed } from "../../idempotency/errors.ts";
import { type Duration, optionNames } from "../../kernel/check.ts";
import { FencedError, InvalidArgumentError } from "../../kernel/errors.ts";
import { checkCommon, type IdempotentHandle } from "./gate.ts";
import { parseKey } from "./key.ts";

/** What is used of a call of tRPC. */
export interface TrpcCall<Ctx> {
  readonly ctx: Ctx;
  readonly path: string;
  readonly type: string;
  getRawInput(): Promise<unknown>;
}

/** What the rest of a call came to. */
export type TrpcResult = { readonly ok: true; readonly data: unknown } | { readonly ok: false; readonly error: Error };

export interface TrpcOptions<Ctx> {
  /** The key, as the header `Idempotency-Key` has it. */
  readonly key: (call: TrpcCall<Ctx>) => string | null | undefined;
  /** Who is calling. The keys of two callers have nothing to do with each other. */
  readonly scope: (call: TrpcCall<Ctx>) => string | Promise<string>;
  /** Refuse mutations without a key; they pass through otherwise. */
  readonly required?: boolean | undefined;
  /** What tells one call from another, instead of its path and input. */
  readonly fingerprint?: ((call: TrpcCall<Ctx>) => unknown) | undefined;
  /** Which errors are stored, and thrown again. */
  readonly storeErrors?: ((error: unknown) => boolean) | undefined;
  readonly ttl?: Duration | undefined;
  readonly lease?: Duration | undefined;
}

const OPTIONS = optionNames<TrpcOptions<never>>({
  key: true,
  scope: true,
  required: true,
  fingerprint: true,
  storeErrors: true,
  ttl: true,
  lease: true,
});

export function trpcIdempotency<Face, Touch, Ctx>(
  pawl: IdempotentHandle<Face, Touch>,
  options: TrpcOptions<Ctx>,
): <Result extends object>(call: TrpcCall<Ctx> & { next(): Promise<Result> }) => Promise<Result> {
  if (typeof pawl?.idempotent !== "function")
    throw new InvalidArgumentError("the handle", "must be a Pawl, as open gives it");
  checkCommon(options, ["key", "scope"], ["fingerprint", "storeErrors"], OPTIONS);
  const { ttl, lease, storeErrors } = options;
  return async <Result extends object>(call: TrpcCall<Ctx> & { next(): Promise<Result> }): Promise<Result> => {
    if (call.type !== "mutation") return call.next();
    const parsed = parseKey(options.key(call));
    if (parsed.is === "missing" && options.required !== true) return call.next();
    if (parsed.is !== "key") throw refusal("BAD_REQUEST", `the idempotency key is ${parsed.is}`);
    const scope = await options.scope(call);
    if (typeof scope !== "string" || scope === "")
      throw new InvalidArgumentError("the scope", "must give a text that says who is calling");
    const fingerprint =
      options.fingerprint === undefined
        ? { path: call.path, input: await call.getRawInput() }
        : await options.fingerprint(call);
    let first: Result | undefined;
    try {
      const { value } = await pawl.idempotent(
        parsed.key,
        { scope: `pawl.trpc\n${scope}`, fingerprint, ttl, lease, storeErrors },
        async () => {
          first = await call.next();
          const result = first as unknown as TrpcResult;
          if (!result.ok) throw result.error;
          return result.data;
        },
      );
      // With the data as it was stored, so that the first caller hears what later ones do.
      return { marker: "middlewareMarker", ctx: call.ctx, ...first, ok: true, data: value } as unknown as Result;
    } catch (error) {
      throw translated(error);
    }
  };
}

function translated(error: unknown): unknown {
  if (isReplayed(error)) return error;
  if (error instanceof IdempotencyMismatchError) return refusal("UNPROCESSABLE_CONTENT", error.message, error);
  if (error instanceof IdempotencyInProgressError || error instanceof FencedError)
    return refusal("CONFLICT", error.message, error);
  return error;
}

/** tRPC knows its errors by their name, so that it need not be imported. */
function refusal(code: string, message: string, cause?: Error): Error {
  const error = Object.assign(new Error(message, cause === undefined ? {} : { cause }), { code });
  error.name = "TRPCError";
  return error;
}
