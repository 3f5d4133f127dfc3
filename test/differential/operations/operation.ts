/**
 * Operations: what is done to every subject, drawn from the seed and not from the results of a subject. What depends on the state, such as
 * "the version that it has now", is stated in these terms and looked up in each subject separately.
 *
 * A *local* kind works on one name alone, so that many of them on different names may run concurrently and return the same in any order.
 */

import type { Draw } from "../draw.ts";
import type { World } from "../world.ts";

export interface Operation {
  /** Its place in the chapter. */
  readonly number: number;
  readonly kind: string;
  /** What it was drawn with, to be shown. */
  readonly args: unknown;
  run(on: World): Promise<unknown>;
}

export interface Kind {
  readonly name: string;
  /** How often it comes up, compared to others. */
  readonly weight: number;
  make(draw: Draw): Operation;
}

export interface LocalKind<Name> extends Kind {
  makeFor(name: Name, draw: Draw): Operation;
}

export function kind<Args>(
  name: string,
  weight: number,
  choose: (draw: Draw) => Args,
  run: (on: World, args: Args) => Promise<unknown>,
): Kind {
  return { name, weight, make: (draw) => operation(name, draw, choose(draw), run) };
}

export function localKind<Name, Args extends object>(
  kindName: string,
  weight: number,
  nameOf: (draw: Draw) => Name,
  choose: (draw: Draw) => Args,
  run: (on: World, args: Args & { readonly at: Name }) => Promise<unknown>,
): LocalKind<Name> {
  const makeFor = (at: Name, draw: Draw) => operation(kindName, draw, { at, ...choose(draw) }, run);
  return { name: kindName, weight, make: (draw) => makeFor(nameOf(draw), draw), makeFor };
}

function operation<Args>(
  kindName: string,
  { number }: Draw,
  args: Args,
  run: (on: World, args: Args) => Promise<unknown>,
): Operation {
  return { number, kind: kindName, args, run: (on) => on.attempt(() => run(on, args)) };
}

/** Takes one of the kinds, the weighty ones more often. */
export function pickKind<K extends Kind>(kinds: readonly K[], draw: Draw): K {
  let left = draw.unit() * kinds.reduce((sum, { weight }) => sum + weight, 0);
  for (const one of kinds) {
    left -= one.weight;
    if (left < 0) return one;
  }
  return draw.pick(kinds);
}
