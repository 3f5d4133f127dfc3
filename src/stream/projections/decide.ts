/**
 * Projections, as rules: what a worker with some code does about the generations that are there, and what of them a rebuild, a swap and a deletion
 * leave. Pure: every rule is a row of `decide.test.ts`.
 */

import type { HeldFor, ProjectionValue } from "./stored.ts";

/** The code of the generations that a projection has. */
export interface Codes {
  readonly live: string | undefined;
  readonly building: string | undefined;
}

/**
 * What a worker does whose code is `by`. "work": a generation of its code is there. "build": it begins one, in place of one that other code is
 * building. "leave": other code has replaced it, so this is the older of two releases.
 */
export function decideCode(value: ProjectionValue | undefined, codes: Codes, by: string): "work" | "build" | "leave" {
  if (value === undefined) return "build";
  if (codes.live === by || codes.building === by) return "work";
  return value.retired?.includes(by) === true ? "leave" : "build";
}

/** What changes: the projection's record, and the generations that are not needed any more. */
export interface Change {
  readonly value: ProjectionValue;
  readonly retired: readonly number[];
}

/** The generation that is being built. */
export interface Building {
  readonly by: string;
  /** It cannot apply an event, or lacks events that were removed. */
  readonly hasFailed: boolean;
  /** It leaves out events that were removed. */
  readonly isKept: boolean;
}

/**
 * What `rebuild` does that is to make a generation of this kind. "keep": one is under way. One that does not get ahead is replaced: the next one begins with what can be read now,
 * and has no rows that were made before the cause was mended, or before a person was forgotten.
 */
export function decideRebuild(
  building: Building | undefined,
  { by, isKept }: Pick<Building, "by" | "isKept">,
): "keep" | "build" {
  return building?.by === by && building.isKept === isKept && !building.hasFailed ? "keep" : "build";
}

/**
 * A new generation is begun. One that was being built is given up; and of people who were forgotten until now, the new one has nothing. `used` is at least the number of the last generation that a projection of
 * this name had, where it was deleted.
 */
export function decideBuild(value: ProjectionValue | undefined, codes: Codes, by: string, used: number): Change {
  const { building, last, isStale: _, ...rest } = value ?? { last: used };
  const isReplaced = building !== undefined && codes.building !== undefined;
  const next = { ...rest, building: last + 1, last: last + 1 };
  return {
    value: isReplaced ? withRetired(next, codes.building, by) : next,
    retired: building === undefined ? [] : [building],
  };
}

/** The generation that is built has caught up: readers see it from now on. Null if it is not the one that is built, or is behind the one they see. */
export function decideSwap(
  value: ProjectionValue | undefined,
  codes: Codes,
  mine: { readonly generation: number; readonly by: string; readonly cursor: number },
  liveCursor: number | undefined,
): Change | null {
  if (value?.building !== mine.generation || (liveCursor ?? 0) > mine.cursor) return null;
  const { live, building, isStale: _, ...rest } = value;
  return {
    value: withRetired({ ...rest, live: building }, codes.live, mine.by),
    retired: live === undefined ? [] : [live],
  };
}

/** What is known of the generation that another one stays behind for. */
export interface Builder {
  readonly fence: number;
  readonly isHeld: boolean;
  /** When the lease of its worker ends. */
  readonly dueMs: number | null;
  readonly hasFailed: boolean;
}

/**
 * Whether the generation that readers see still stays where it is. It does not where the one that is built has lost its worker, cannot apply an event or is
 * gone: then it may never get there.
 */
export function isHeldBack({ fence }: HeldFor, builder: Builder | undefined, nowMs: number): boolean {
  if (builder === undefined || builder.fence !== fence || !builder.isHeld || builder.hasFailed) return false;
  return builder.dueMs !== null && builder.dueMs > nowMs;
}

/**
 * A person was forgotten, and rows may have personal data: "build" begins another generation; "mark" leaves that to the end of the one that is being built,
 * so that it ends however many are forgotten meanwhile.
 */
export function decideRefresh(value: ProjectionValue, isPersonal: boolean): "build" | "mark" | "nothing" {
  if (!isPersonal || value.isStale === true) return "nothing";
  return value.building === undefined ? "build" : "mark";
}

/** How many replaced codes are remembered. */
const MOST_RETIRED = 20;

/** Remembers code that was replaced by other code; code that is used again is not replaced any more. */
function withRetired(value: ProjectionValue, replaced: string | undefined, by: string): ProjectionValue {
  const { retired = [], ...rest } = value;
  const others = retired.filter((one) => one !== by && one !== replaced);
  const all = replaced === undefined || replaced === by ? others : [...others, replaced].slice(-MOST_RETIRED);
  return all.length === 0 ? rest : { ...rest, retired: all };
}
