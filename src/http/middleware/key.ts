/**
 * The header `Idempotency-Key`, after the IETF draft "The Idempotency-Key HTTP Header Field": a string of structured fields, in
 * quotation marks. Many clients send the bare key, so a token is taken as well; the two ways of writing it are one key.
 */

export const KEY_HEADER = "idempotency-key";

export type ParsedKey =
  | { readonly is: "missing" }
  | { readonly is: "malformed" }
  | { readonly is: "key"; readonly key: string };

/** Visible ASCII and blanks; a quotation mark and a backslash come after a backslash. */
const QUOTED = /^"((?:[\x20\x21\x23-\x5b\x5d-\x7e]|\\["\\])*)"$/;
/** No blank, comma, semicolon or quotation mark: the header sent twice, or with parameters, is no key. */
const BARE = /^[A-Za-z0-9!#$%&'*+\-.^_`|~:/=@]+$/;
const MAX_CHARS = 255;

/** Reads the header; of one that was sent twice, the two are joined by a comma, and it is malformed. */
export function parseKey(header: string | null | undefined): ParsedKey {
  if (header === null || header === undefined) return { is: "missing" };
  const text = header.replace(/^[ \t]+|[ \t]+$/g, "");
  const quoted = QUOTED.exec(text)?.[1]?.replace(/\\(["\\])/g, "$1");
  const key = quoted ?? (BARE.test(text) ? text : "");
  if (key === "" || key.length > MAX_CHARS) return { is: "malformed" };
  return { is: "key", key };
}
