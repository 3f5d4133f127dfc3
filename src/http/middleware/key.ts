/**
 * The header `Idempotency-Key`, as in the IETF draft "The Idempotency-Key HTTP Header Field": a quoted string of structured fields. Many
 * clients send the key without quotes, so that is accepted too; both forms are the same key.
 */

export const KEY_HEADER = "idempotency-key";

export type ParsedKey =
  | { readonly is: "missing" }
  | { readonly is: "malformed" }
  | { readonly is: "key"; readonly key: string };

/** Visible ASCII and spaces; quotation marks and backslashes are escaped with a backslash. */
const QUOTED = /^"((?:[\x20\x21\x23-\x5b\x5d-\x7e]|\\["\\])*)"$/;
/** Without space, comma, semicolon or quotation mark: the header sent twice, or with parameters, is malformed. */
const BARE = /^[A-Za-z0-9!#$%&'*+\-.^_`|~:/=@]+$/;
const MAX_CHARS = 255;
/** The longest key with each character escaped, in quotation marks, and some space around it. What is longer is not looked at: that would take time. */
const MAX_HEADER = 1024;

/** Parses the header. One that was sent twice arrives joined by a comma, and is malformed. */
export function parseKey(header: string | null | undefined): ParsedKey {
  if (header === null || header === undefined) return { is: "missing" };
  if (header.length > MAX_HEADER) return { is: "malformed" };
  const text = header.replace(/^[ \t]+|[ \t]+$/g, "");
  const quoted = QUOTED.exec(text)?.[1]?.replace(/\\(["\\])/g, "$1");
  const key = quoted ?? (BARE.test(text) ? text : "");
  if (key === "" || key.length > MAX_CHARS) return { is: "malformed" };
  return { is: "key", key };
}
