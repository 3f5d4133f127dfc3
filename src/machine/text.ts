/**
 * A machine as lines of text: each state with where it leads to, in the order of the definition.
 */

import type { Rules } from "./decide.ts";

export interface Drawn extends Rules {
  readonly name: string;
}

/**
 *     order
 *     ● pending   → paid?, canceled
 *       paid      → shipped
 *     ◎ shipped
 *     ◎ canceled
 *     ● first   ◎ final   ? guarded
 */
export function drawText(machine: Drawn): string {
  const { name, targets, guards, initial } = machine;
  const width = Math.max(...Array.from(targets.keys(), (state) => [...shown(state)].length));
  const lines = Array.from(targets, ([state, to]) => {
    const sign = state === initial ? "●" : to.length === 0 ? "◎" : " ";
    const ways = to.map((target) => `${shown(target)}${guards.get(state)?.has(target) ? "?" : ""}`);
    const ending = isDead(machine, state) ? ["(nothing leads here)"] : [];
    const way = ways.length === 0 ? [] : [`→ ${ways.join(", ")}`];
    const padding = " ".repeat(width - [...shown(state)].length);
    return [`${sign} ${shown(state)}${padding}`, ...way, ...ending].join(" ").trimEnd();
  });
  return [shown(name), ...lines, "● first   ◎ final   ? guarded"].join("\n");
}

/** A state that no new instance can come to; it may be kept for those that are in it. */
export const isDead = ({ initial, reachable }: Rules, state: string): boolean =>
  state !== initial && !reachable.get(initial)?.has(state);

/** Characters that turn the direction of text around, or are not seen at all, would make a name look like another. */
const UNSEEN = /[\u00ad\u061c\u200b-\u200f\u202a-\u202e\u2060-\u206f\ufeff]/g;

export const shown = (name: string): string =>
  name.replace(UNSEEN, (char) => `\\u${char.charCodeAt(0).toString(16).padStart(4, "0")}`);
