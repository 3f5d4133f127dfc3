/**
 * Appends: lists in slots that all workers append to, so that lost writes are visible.
 *
 * A mark is appended to one list, to two in one commit, or once for each message under an id that is asked again. Each list is short and is written by
 * all workers now and then, so that each of them remembers rows of many lists.
 *
 * Checked, where the store may lose commits: whatever was acknowledged outside of the times in which it did is there; nothing is there twice,
 * by half, or unasked for (G29, G31).
 */

import type { Slot } from "../../../src/index.ts";
import type { Pawl } from "../../../src/pawl.ts";
import type { Bench } from "../bench.ts";
import { monotonicNs } from "../ledger.ts";
import { type Evidence, type Losses, overlaps, type Work } from "./work.ts";

const NAME = "appends";
const LISTS = 120;
const CALLERS = 4;
const MAX_PAUSE_MS = 20;
/** After so long everybody moves on to new lists: long values are not remembered. */
const WINDOW_MS = 15_000;

type List = readonly string[];

export interface Addition {
  readonly mark: string;
  readonly lists: readonly string[];
  readonly isMessage: boolean;
}

export const appends: Work = {
  name: NAME,

  async act(bench) {
    await Promise.all(Array.from({ length: CALLERS }, () => call(bench)));
  },

  // Only a message may be asked again.
  again(operation) {
    const addition = operation.input as Addition;
    return addition.isMessage ? { id: addition.mark, task: addition } : null;
  },

  isCommit: ({ answer, output }) => answer === "yes" && (output as { isNew: boolean }).isNew,

  async judge(pawl, evidence) {
    const state = await look(pawl);
    const unknown = evidence.operations.filter(({ answer }) => answer === "unknown");
    const happened = unknown.filter(({ input }) => isThere(state, input as Addition)).length;
    return { ...checkLists(evidence, state), unknown: unknown.length, happened };
  },
};

const slotOf = (pawl: Pawl, list: string): Slot<List, never> => pawl.slot<List>(`list/${list}`, { initial: [] });

async function call(bench: Bench): Promise<void> {
  const { random } = bench;
  while (!bench.isOver) {
    const task = bench.take(NAME) as Addition | undefined;
    if (task === undefined && bench.isHealing) {
      await bench.sleep(20);
      continue;
    }
    const addition = task ?? draw(bench);
    await bench.attempt(NAME, addition, () => add(bench.pawl, addition));
    await bench.sleep(random.unit() * MAX_PAUSE_MS);
  }
}

function draw(bench: Bench): Addition {
  const { random } = bench;
  const window = Math.floor(monotonicNs() / 1e6 / WINDOW_MS);
  const kind = random.unit();
  const first = random.below(LISTS);
  const places = kind < 0.3 ? [first, (first + 1 + random.below(LISTS - 1)) % LISTS] : [first];
  return { mark: bench.mark(), lists: places.map((place) => `${window}/${place}`), isMessage: kind > 0.7 };
}

async function add(pawl: Pawl, { mark, lists: names, isMessage }: Addition): Promise<{ readonly isNew: boolean }> {
  const slots = names.map((name) => slotOf(pawl, name));
  const append = (list: List): List => [...list, mark];
  if (isMessage) {
    const { deduplicated } = await pawl.dedupe(NAME, mark, (tx) => {
      for (const slot of slots) tx.slot(slot).update(append);
    });
    return { isNew: !deduplicated };
  }
  const [only] = slots;
  if (slots.length === 1 && only !== undefined) await only.update(append);
  else
    await pawl.transact(
      (tx) => {
        for (const slot of slots) tx.slot(slot).update(append);
      },
      { touches: slots },
    );
  return { isNew: true };
}

export type ListsState = ReadonlyMap<string, List>;

async function look(pawl: Pawl): Promise<ListsState> {
  const found = new Map<string, List>();
  for (let after: string | null = null; ; ) {
    const page = await pawl.slots.list({ prefix: "list/", after, limit: 1000 });
    for (const { name, value } of page.slots) found.set(name.slice("list/".length), value as List);
    if (page.next === null) return found;
    after = page.next;
  }
}

const isThere = (state: ListsState, { mark, lists: names }: Addition): boolean =>
  names.every((name) => state.get(name)?.includes(mark) === true);

/** Holds what was acknowledged against the lists; also tells how much of it was lost while the store could lose it. */
export function checkLists({ operations, doubts }: Evidence, state: ListsState): Losses {
  const wrong: string[] = [];
  const asked = new Map<string, Addition>();
  const lost = new Set<string>();
  for (const { input, answer, life, startedAt, endedAt } of operations) {
    const addition = input as Addition;
    asked.set(addition.mark, addition);
    if (answer !== "yes" || isThere(state, addition)) continue;
    if (overlaps(doubts, startedAt, endedAt ?? startedAt)) lost.add(addition.mark);
    else wrong.push(`${life} was told that ${addition.mark} is in ${addition.lists.join(" and ")}, and it is not`);
  }
  for (const [name, list] of state) {
    for (const mark of new Set(list)) {
      const addition = asked.get(mark);
      const times = list.filter((one) => one === mark).length;
      if (times > 1) wrong.push(`${mark} is in ${name} ${times} times`);
      if (addition?.lists.includes(name) !== true) wrong.push(`${mark} is in ${name}, where no worker requested it`);
      else if (!isThere(state, addition))
        wrong.push(`${mark} is in ${name} and not in all of ${addition.lists.join(", ")}`);
    }
  }
  return { wrong, lost: lost.size };
}
