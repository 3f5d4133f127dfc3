/**
 * Middleware for tRPC: `t.procedure.use(trpcIdempotency(pawl, { key: ({ ctx }) => ctx.req.headers.get("idempotency-key"), scope: … }))`.
 *
 * It applies to mutations; queries pass through. The procedure's data is stored before it is sent, and a repetition gets the same data. A
 * mutation that fails frees its key, unless `storeErrors` returns true for its error: then the error is stored and thrown again. Refusals are
 * errors of tRPC: BAD_REQUEST without a required key, CONFLICT while the first call is in progress, UNPROCESSABLE_CONTENT for another input.
 */

import { IdempotencyInProgressError, IdempotencyMismatchError, isReplayed } from "../../idempotency/errors.ts";
import { type Duration, optionNames } from "../../kernel/check.ts";
import { FencedError, InvalidArgumentError } from "../../kernel/errors.ts";
import { checkCommon, type IdempotentHandle } from "./core.ts";
import { parseKey } from "./key.ts";

/** The part of a tRPC call that is used. */
export interface TrpcCall<Ctx> {
  readonly ctx: Ctx;
  readonly path: string;
  readonly type: string;
  getRawInput(): Promise<unknown>;
}

/** The result of the rest of a call. */
export type TrpcResult = { readonly ok: true; readonly data: unknown } | { readonly ok: false; readonly error: Error };

export interface TrpcOptions<Ctx> {
  /** Returns the key: the value of the header `Idempotency-Key`. */
  readonly key: (call: TrpcCall<Ctx>) => string | null | undefined;
  /** Returns who is calling. The keys of two callers are independent of each other. */
  readonly scope: (call: TrpcCall<Ctx>) => string | Promise<string>;
  /** Refuse mutations without a key. Default: they pass through. */
  readonly required?: boolean | undefined;
  /** Returns a value that differs between different calls. Default: path and input. */
  readonly fingerprint?: ((call: TrpcCall<Ctx>) => unknown) | undefined;
  /** Returns whether an error is stored and thrown again. Default: none is. */
  readonly storeErrors?: ((error: unknown) => boolean) | undefined;
  /** How long a result is kept. Default: 24 hours. */
  readonly ttl?: Duration | undefined;
  /** How long a call whose process died keeps its key. Default: 30 s. */
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

export function trpcIdempotency<TxView, TxOptions, Ctx>(
  pawl: IdempotentHandle<TxView, TxOptions>,
  options: TrpcOptions<Ctx>,
): <Result extends object>(call: TrpcCall<Ctx> & { next(): Promise<Result> }) => Promise<Result> {
  if (typeof pawl?.idempotent !== "function")
    throw new InvalidArgumentError("the handle", "must be a Pawl, as open returns it");
  checkCommon(options, ["key", "scope"], ["fingerprint", "storeErrors"], OPTIONS);
  const { ttl, lease, storeErrors } = options;
  return async <Result extends object>(call: TrpcCall<Ctx> & { next(): Promise<Result> }): Promise<Result> => {
    if (call.type !== "mutation") return call.next();
    const parsed = parseKey(options.key(call));
    if (parsed.is === "missing" && options.required !== true) return call.next();
    if (parsed.is !== "key") throw refusal("BAD_REQUEST", `the idempotency key is ${parsed.is}`);
    const scope = await options.scope(call);
    if (typeof scope !== "string" || scope === "")
      throw new InvalidArgumentError("the scope", "must return a string that identifies the caller");
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
      // The data as it was stored, so that the first caller gets the same as later ones.
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

/** tRPC recognizes its errors by name, so it need not be imported. */
function refusal(code: string, message: string, cause?: Error): Error {
  const error = Object.assign(new Error(message, cause === undefined ? {} : { cause }), { code });
  error.name = "TRPCError";
  return error;
}
