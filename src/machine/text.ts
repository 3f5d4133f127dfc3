/**
 * A machine as text: each state with the states it leads to, in the order of the definition.
 */

import type { Rules } from "./decide.ts";

export interface NamedRules extends Rules {
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
export function drawText(machine: NamedRules): string {
  const { name, targets, guards, initial } = machine;
  const width = Math.max(...Array.from(targets.keys(), (state) => [...escapeInvisible(state)].length));
  const lines = Array.from(targets, ([state, to]) => {
    const mark = state === initial ? "●" : to.length === 0 ? "◎" : " ";
    const names = to.map((target) => `${escapeInvisible(target)}${guards.get(state)?.has(target) ? "?" : ""}`);
    const ending = isUnreachable(machine, state) ? ["(nothing leads here)"] : [];
    const arrow = names.length === 0 ? [] : [`→ ${names.join(", ")}`];
    const padding = " ".repeat(width - [...escapeInvisible(state)].length);
    return [`${mark} ${escapeInvisible(state)}${padding}`, ...arrow, ...ending].join(" ").trimEnd();
  });
  return [escapeInvisible(name), ...lines, "● first   ◎ final   ? guarded"].join("\n");
}

/** Whether no new instance can reach the state. Such a state can be kept for the instances that are in it. */
const isUnreachable = ({ initial, reachable }: Rules, state: string): boolean =>
  state !== initial && !reachable.get(initial)?.has(state);

/** Invisible characters, and those that reverse the direction of text: with them, one name can look like another. */
const INVISIBLE = /[\u00ad\u061c\u200b-\u200f\u202a-\u202e\u2060-\u206f\ufeff]/g;

export const escapeInvisible = (name: string): string =>
  name.replace(INVISIBLE, (char) => `\\u${char.charCodeAt(0).toString(16).padStart(4, "0")}`);
