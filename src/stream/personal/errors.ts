/**
 * Errors about the people that events are about. When one is thrown, nothing was appended.
 */

import { PawlError } from "../../kernel/errors.ts";

/** The person was forgotten, so no personal event of this subject can be appended. If the person is back, use another subject. */
export class SubjectForgottenError extends PawlError<"subject_forgotten", { readonly subject: string }> {
  constructor(subject: string) {
    super(
      "subject_forgotten",
      `subject "${subject}" was forgotten, and no personal event of it can be appended: use another subject`,
      { subject },
    );
  }
}

/**
 * A decision needs a key that `subjectKeys` has and this process does not have yet. `pawl.transact`, appends, commands and reactions fetch it and
 * decide again; in `transact.sql`, `within`, `idempotent` and `dedupe`, append an event of the subject by one of those first.
 */
export class SubjectKeyNotLoadedError extends PawlError<
  "subject_key_not_loaded",
  { readonly subjects: readonly string[] }
> {
  constructor(subjects: readonly string[]) {
    super(
      "subject_key_not_loaded",
      `the key of subject "${subjects[0]}" is not in this process yet: append its events with pawl.transact or pawl.stream(…).append`,
      { subjects },
    );
  }
}
