/**
 * Chapters: operations of every kind, drawn from one seed.
 */

import { type Cast, Draw } from "../draw.ts";
import { burstKinds } from "./bursts.ts";
import { claimKinds } from "./claims.ts";
import { type Kind, type Operation, pickKind } from "./operation.ts";
import { recordKinds } from "./records.ts";
import { slotKinds } from "./slots.ts";
import { storeKinds } from "./stores.ts";

export const kinds: readonly Kind[] = [...slotKinds, ...recordKinds, ...claimKinds, ...burstKinds, ...storeKinds];

export interface Chapter {
  readonly seed: number;
  readonly cast: Cast;
  readonly operations: readonly Operation[];
}

/** The first operations of the seed. A longer list begins with the same ones. */
export function chapter(seed: number, count: number): Chapter {
  const draw = new Draw(seed);
  const operations = Array.from({ length: count }, (_, index) => {
    draw.number = index + 1;
    return pickKind(kinds, draw).make(draw);
  });
  return { seed, cast: draw.cast, operations };
}
