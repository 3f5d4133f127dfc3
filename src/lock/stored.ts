/**
 * A lock as it is stored: without names, because a lock is written twice each time somebody has it, and every byte of it with it.
 */

import type { Holder, LockValue } from "./records.ts";

/** What most holders do not have. */
type More = Pick<Holder, "owner" | "by" | "group">;

/** Everything about the holders, one after the other; and about the line, if there is one or the permits are counted. */
export type StoredLock = readonly [
  holders: readonly (string | number | null | More)[],
  permits?: number | null,
  first?: string | null,
  last?: string | null,
  waiting?: number,
  groups?: number,
];

/** So many for each holder. */
const FIELDS = 6;
const EXCLUSIVE = 1;

export function storedLock({ permits, holders, first, last, waiting, groups }: LockValue): StoredLock {
  const flat: (string | number | null | More)[] = [];
  for (const { ticket, fence, mode, sinceMs, untilMs, owner, by, group } of holders) {
    const isPlain = owner === undefined && by === undefined && group === undefined;
    const more: More | null = isPlain
      ? null
      : {
          ...(owner === undefined ? {} : { owner }),
          ...(by === undefined ? {} : { by }),
          ...(group === undefined ? {} : { group }),
        };
    flat.push(ticket, fence, mode === "exclusive" ? EXCLUSIVE : 0, sinceMs, untilMs, more);
  }
  if (permits === null && first === null) return [flat];
  return groups === undefined ? [flat, permits, first, last, waiting] : [flat, permits, first, last, waiting, groups];
}

export function lockOf(stored: unknown): LockValue {
  const [flat, permits = null, first = null, last = null, waiting = 0, groups] = stored as StoredLock;
  const holders: Holder[] = [];
  for (let i = 0; i < flat.length; i += FIELDS)
    holders.push({
      ticket: flat[i] as string,
      fence: flat[i + 1] as number,
      mode: flat[i + 2] === EXCLUSIVE ? "exclusive" : "shared",
      sinceMs: flat[i + 3] as number,
      untilMs: flat[i + 4] as number | null,
      ...(flat[i + 5] as More | null),
    });
  return { permits, holders, first, last, waiting, ...(groups === undefined ? {} : { groups }) };
}
