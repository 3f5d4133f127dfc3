/**
 * What is stored of the people that events are about. Names here are permanent.
 *
 * A *subject* is such a person, by an id that the user chooses. It has one record in a space of its own, with the key of its personal fields; when
 * it is forgotten, the record stays without the key. A second space for each subject has a record for each stream with personal events of it.
 */

import { checkId } from "../../kernel/check.ts";
import { type Address, address } from "../../kernel/contract.ts";
import type { Sealed } from "../../kernel/seal/ring.ts";

export const SUBJECTS = "stream-subject";

export const subjectAt = (subject: unknown): Address => address(SUBJECTS, checkId(subject, "the subject"));

/** The queue of subjects that are being forgotten: folded states with their data are not all dropped yet. */
export const FORGETTING = "stream-forgetting";

/** The status of a subject that was forgotten. */
export const FORGOTTEN_STATUS = "forgotten";

export interface SubjectValue {
  /** Its key, sealed by the key ring; none where `subjectKeys` has it, and none once it was forgotten. */
  readonly key?: Sealed;
  readonly forgotten?: {
    readonly atMs: number;
    readonly actor?: string;
    readonly reason?: string;
    /** It had no key, and so no personal events, when it was forgotten. */
    readonly isUnknown?: true;
  };
}

/** The streams with personal events of a subject; written in the commit of the first such event. */
export const streamsOf = (subject: string): string => `stream-of-subject/${subject}`;
export const streamOfAt = (subject: string, stream: string): Address => address(streamsOf(subject), stream);

/** The personal fields of an event, in its entry of the log. */
export interface StoredPersonal {
  readonly subject: string;
  /** Their names. */
  readonly fields: readonly string[];
  /** Their values, as one sealed text. */
  readonly sealed: string;
}
