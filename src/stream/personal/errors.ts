/**
 * Errors about the people that events are about. When one is thrown, nothing was appended.
 */

import { PawlError } from "../../kernel/errors.ts";

/**
 * The person was forgotten, so no personal event of this subject can be appended. If the person is back, use another subject. Where `data.isClosed` is
 * true, that was found out when a stream was to be restarted, which is closed already: call `pawl.streams.close` again with another opening event, or
 * with none.
 */
export class SubjectForgottenError extends PawlError<
  "subject_forgotten",
  { readonly subject: string; readonly isClosed?: true }
> {
  /** `closed` is a stream that was to be restarted with the event. */
  constructor(subject: string, closed?: string) {
    const what = `subject "${subject}" was forgotten, and no personal event of it can be appended`;
    if (closed === undefined) super("subject_forgotten", `${what}: use another subject`, { subject });
    else
      super(
        "subject_forgotten",
        `${what}. Stream "${closed}" is closed already: call close again with another opening event, or with none`,
        { subject, isClosed: true },
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
