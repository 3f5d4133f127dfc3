/** What the processes that place orders agree on. */

import type { ActionsOptions } from "../../src/index.ts";
import type { Request } from "./shop.ts";

/** The second is a planted mistake: each part of an order is a commit of its own. */
export type Way = "together" | "apart";

export const OPTIONS: ActionsOptions = { pepper: "a pepper that all processes have" };
export const LEASE_MS = 1_000;

/** Two orders in a row want the same coupon, and one of ten is canceled before it can be placed. */
export const requestOf = (number: number): Request => ({ id: `o${number}`, coupon: `c${number >> 1}` });
export const isCanceled = (number: number): boolean => number % 10 === 0;

/** What the observer saw. */
export interface Sight {
  /** How often it looked, and how often it saw some orders placed that were not all yet. */
  readonly looks: number;
  readonly midway: number;
  /** Every part that it saw without the others. */
  readonly parts: readonly string[];
}
