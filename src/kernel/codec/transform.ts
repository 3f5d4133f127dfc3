/**
 * Transforms: encryption, compression and the like, around any codec.
 *
 *     const codec = transformed(transformed(jsonCodec, deflate), aes);   // deflated first, then encrypted
 *
 * Text that is written is sealed with the transform's name (codec.ts). Text that was written before the transform was added is not
 * sealed with it, and is passed to the inner codec unchanged; so unsealed text stays readable, also under encryption.
 * A transform that must refuse unsealed text refuses it in its own codec; one that rotates keys puts the key's id into what it seals.
 *
 * Out of scope: the algorithms and keys. A transform that must detect moved text binds what it seals to the place.
 */

import { InvalidArgumentError, InvalidValueError, PawlError, UnsupportedEncodingError } from "../errors.ts";
import { isAwaitable } from "../sync.ts";
import type { Codec, Place } from "./codec.ts";
import { sealOf } from "./codec.ts";

export interface Transform {
  /** Stored with each text, so it must never change. Letters, digits, `.`, `_` and `-`. */
  readonly name: string;
  /** Returns text that a text column keeps unchanged: no NUL, no lone surrogates. Base64 is the easy choice. */
  seal(text: string, at: Place): string;
  /** Returns the text that was sealed, or throws. */
  open(sealed: string, at: Place): string;
}

export function transformed(inner: Codec, transform: Transform): Codec {
  if (typeof inner?.encode !== "function" || typeof inner.decode !== "function")
    throw new InvalidArgumentError("the codec", "must have the methods encode and decode");
  if (typeof transform?.seal !== "function" || typeof transform.open !== "function")
    throw new InvalidArgumentError("the transform", "must have the methods seal and open");
  if (!/^[\w.-]{1,64}$/.test(transform.name)) {
    throw new InvalidArgumentError(
      "the name of a transform",
      "must be 1 to 64 letters, digits, dots, hyphens or underscores",
    );
  }
  const seal = sealOf(transform.name);
  return {
    encode: (value, at) => {
      const text: unknown = inner.encode(value, at);
      // What is no text is refused where it would be stored.
      return typeof text === "string" ? seal + sealed(transform, text, at) : (text as string);
    },
    decode: (text, at) =>
      inner.decode(text.startsWith(seal) ? opened(transform, text.slice(seal.length), at) : text, at),
  };
}

/** Only text is accepted: appended to the seal, any value would become text, and a promise would be stored as "[object Promise]". */
function sealed(transform: Transform, text: string, at: Place): string {
  const result: unknown = transform.seal(text, at);
  if (typeof result === "string") return result;
  throw new InvalidValueError("$", notText(transform, result));
}

/** An error of Pawl passes through: a transform may know better why it cannot open the text. */
function opened(transform: Transform, sealed: string, at: Place): string {
  let text: unknown;
  try {
    text = transform.open(sealed, at);
  } catch (error) {
    if (error instanceof PawlError) throw error;
    throw new UnsupportedEncodingError("$", `the transform "${transform.name}" could not open it`, { cause: error });
  }
  if (typeof text === "string") return text;
  throw new UnsupportedEncodingError("$", notText(transform, text));
}

const notText = ({ name }: Transform, returned: unknown): string =>
  `the transform "${name}" must return text synchronously, and returned ${isAwaitable(returned) ? "a promise" : typeof returned}`;
