/**
 * What is stored of projections. Names here are permanent.
 *
 * A projection is one record that says which of its *generations* readers see, and which one is being built. A generation is one record with a
 * cursor into the order of all streams, and the rows that were made of the events up to it, in a space of their own. A rebuild is a new generation
 * beside the old one; the commit in which it has caught up makes it the one that readers see.
 */

import { checkId } from "../../kernel/check.ts";
import { type Address, address } from "../../kernel/contract.ts";
import type { ArchivedProgress } from "../reactions/stored.ts";

export const PROJECTIONS = "projection";
export const GENERATIONS = "projection-generation";

export const projectionAt = (name: unknown): Address => address(PROJECTIONS, checkId(name, "the projection's name"));

export interface ProjectionValue {
  /** The generation that readers see; none before the first one has caught up. */
  readonly live?: number;
  readonly building?: number;
  /** A person was forgotten since that was begun: it is built once more after it. */
  readonly isStale?: true;
  /** The number of the last generation that was begun. */
  readonly last: number;
  /** The code (`by`) of generations that were replaced by other code: a worker that still has it does not build it again by itself. */
  readonly retired?: readonly string[];
}

export const generationAt = (name: string, generation: number): Address =>
  address(GENERATIONS, `${generation} ${name}`);

export interface GenerationValue {
  readonly projection: string;
  readonly generation: number;
  /** Names the code that makes it. */
  readonly by: string;
  /** The position up to which events are in it, in the order of all streams. */
  readonly cursor: number;
  /** The names of its events. */
  readonly on: readonly string[];
  /** Events that were removed are applied first: how far that got, and what had been removed when it began. */
  readonly archived?: ArchivedProgress;
  readonly removals?: { readonly upTo: number; readonly at: number };
  /** All events that had been removed when it began are in it: the highest position of them, and the version of the record that says so. */
  readonly archivedUpTo?: number;
  readonly archivedAt?: number;
  /** Events that had been removed when it began are left out: its definition, or the call of `rebuild`, says that those that are kept are enough. */
  readonly kept?: true;
  /** Some of its events have personal fields, so that its rows may have, too. */
  readonly isPersonal?: true;
  /** It is in tables of the user's own. */
  readonly isSql?: true;
  /** The tables of this generation were set up. */
  readonly isSetUp?: true;
  /** Why it does not get ahead. */
  readonly failure?: ProjectionFailure;
  /**
   * Readers see this one, and another generation is about to take its place: this one stays where it is for as long as the worker with this fence holds the
   * other. Otherwise the other one would never be where this one is, while events keep coming.
   */
  readonly heldFor?: HeldFor;
}

export interface HeldFor {
  readonly generation: number;
  readonly fence: number;
}

export interface ProjectionFailure {
  readonly count: number;
  readonly message: string;
  /** Where it was thrown (`kernel/stack.ts`). */
  readonly stack?: string;
  /** That of an error of Pawl's. */
  readonly code?: string;
  readonly atMs: number;
  /** The first event that could not be applied. */
  readonly stream: string;
  readonly version: number;
}

/** The queue in which generations wait for a worker that has their code. */
export const generationQueueOf = (name: string, by: string): string => `projection/${by}/${name}`;

/** The queue of generations whose rows are to be removed. */
export const RETIRED = "projection-retired";

export const rowSpaceOf = (name: string, generation: number): string => `projection-row/${generation}/${name}`;
export const rowAt = (name: string, generation: number, key: string): Address =>
  address(rowSpaceOf(name, generation), checkId(key, "the key"));
