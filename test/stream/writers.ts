/** What the processes that write to the same streams agree on. */

import { event } from "../../src/index.ts";

export const PROCESSES = 8;
/** In each process, so that there are 32. */
export const WRITERS_EACH = 4;
/** In each process, so that there are more than a hundred. */
export const CREATORS_EACH = 13;

/** Names the process, the life of it, and the attempt; no two have the same. */
export const Written = event<{ readonly mark: string }>("Written");

export type Wish =
  /** Each writer appends where it has read, until it has won as often. */
  | { readonly append: string; readonly wins: number }
  /** All creators try to create each of these. */
  | { readonly create: readonly string[] };

export interface Won {
  readonly stream: string;
  /** The version that it expected. */
  readonly after: number;
  readonly version: number;
  readonly id: string;
  readonly mark: string;
}

/** The life that made an attempt. */
export const lifeOf = (mark: string): string => mark.split(".")[0] ?? "";
