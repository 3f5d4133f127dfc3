/**
 * The time of a decision, where a record says that something happened later.
 *
 * A commit has one time: that of its first locks. Records that a decision asks for later are locked later, and meanwhile another process may have written
 * them, at a later time. A decision that compares the two times must not take that for the future: it happens after what the record says.
 */

/** A commit has all of its locks within this time. What a record says of later than that was written before the store's clock was set back. */
const ALL_LOCKED_MS = 10_000;

/** The time of the decision: not before `lastMs`, when the record was written, unless the store's clock was set back since. */
export const notBefore = (nowMs: number, lastMs: number): number =>
  lastMs > nowMs && lastMs - nowMs <= ALL_LOCKED_MS ? lastMs : nowMs;
