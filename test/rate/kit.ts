/** What the processes that share a rate limit agree on. */

export interface Figures {
  readonly max: number;
  readonly perMs: number;
  readonly burst: number;
}

/** The record whose log has every take. */
export const GRANTS = { space: "test", key: "grants" };
