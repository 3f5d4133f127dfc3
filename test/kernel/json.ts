/** The JSON codec at one place, for its tests. */

import type { Place } from "../../src/kernel/codec/codec.ts";
import { jsonCodec } from "../../src/kernel/codec/json.ts";
import { InvalidValueError, UnsupportedEncodingError } from "../../src/kernel/errors.ts";

export const at: Place = { namespace: "n", space: "s", key: "k" };
export const encode = (value: unknown): string => jsonCodec.encode(value, at);
export const decode = (text: string): unknown => jsonCodec.decode(text, at);
export const again = (value: unknown): unknown => decode(encode(value));

/** A value in so many levels of others. */
export function nested(
  levels: number,
  wrap: (inner: unknown) => unknown = (inner) => [inner],
  core: unknown = 1,
): unknown {
  let value = core;
  for (let i = 0; i < levels; i++) value = wrap(value);
  return value;
}

export function refusalOf(act: () => unknown): unknown {
  try {
    return { notRefused: act() };
  } catch (error) {
    if (error instanceof InvalidValueError || error instanceof UnsupportedEncodingError)
      return { code: error.code, ...error.data };
    throw error;
  }
}

export const refusedAt = (path: string, reason: string): object => ({ code: "invalid_value", path, reason });
