/**
 * ETags: where something has a version, its ETag is that version in quotation marks, and `If-Match` expects it.
 *
 * `If-None-Match: *` and `If-Match: "0"` expect that nothing is stored. `If-Match: *` is not supported: nothing in the library means "any version, but
 * something". A stale version is refused with 412 and the current one in `data`; `If-None-Match` on a read gives 304.
 */

import { PawlError } from "../../kernel/errors.ts";
import { Problem, refuse } from "./problem.ts";

export const etagOf = (version: number): string => `"${version}"`;

/** What a write may be conditional on: its headers, and `expectedVersion` in its body. */
interface Conditions {
  readonly match: string | undefined;
  readonly noneMatch?: string | undefined;
  readonly inBody?: number | undefined;
}

/** The version that the headers of a write expect; undefined if they expect none. Refuses headers that contradict the body. */
export function expectedBy({ match, noneMatch, inBody }: Conditions): number | undefined {
  const expected = expectedByHeaders(match, noneMatch);
  if (expected !== undefined && inBody !== undefined && expected !== inBody)
    throw refuse(
      "invalid_request",
      "The headers expect another version than the expectedVersion in the body: give one of them.",
    );
  return expected;
}

function expectedByHeaders(match: string | undefined, noneMatch: string | undefined): number | undefined {
  if (noneMatch !== undefined) {
    if (noneMatch.trim() !== "*" || match !== undefined)
      throw refuse(
        "invalid_request",
        "If-None-Match of a write must be *, without If-Match: nothing may be stored yet. A version is given with If-Match.",
      );
    return 0;
  }
  if (match === undefined) return undefined;
  const digits = /^"(\d{1,16})"$/.exec(match.trim())?.[1];
  const version = Number(digits);
  if (digits === undefined || !Number.isSafeInteger(version))
    throw refuse("invalid_request", 'If-Match must be one version in quotation marks, as the ETag of a response: "7".');
  return version;
}

/** Whether the client has this version already. */
export const isKnown = (header: string | undefined, version: number): boolean =>
  header?.split(",").some((one) => one.trim().replace(/^W\//, "") === etagOf(version)) ?? false;

const CONFLICTS: ReadonlySet<string> = new Set(["version_conflict", "concurrency_conflict"]);

/** Runs a write of a decision; where a header gave the version, a conflict is a failed precondition. */
export function matching<T>(expected: number | undefined, write: () => T): T {
  try {
    return write();
  } catch (error) {
    throw unmatched(expected, error);
  }
}

/** What is to be thrown in place of a write's error. */
export function unmatched(expected: number | undefined, error: unknown): unknown {
  if (expected === undefined || !(error instanceof PawlError) || !CONFLICTS.has(error.code)) return error;
  return new Problem(412, error.code, error.message, { data: error.data });
}
