/**
 * More room under a limit than before: when the code of its workflow was changed to another `max`, runs that wait are admitted, as many as there is room for.
 *
 * One commit admits a bounded number, and the limit is due again until no room is left. The runs and lines that a commit will touch are in lists, so a
 * decision would find each of them only after the one before it, and begin anew each time. So they are read beforehand, without locks; what has
 * changed since then is found by the decision.
 */

import { type Address, address } from "../../kernel/contract.ts";
import type { Kernel } from "../../kernel/kernel.ts";
import { readRun } from "../history/read-run.ts";
import { runAt } from "../stored.ts";
import { nextLane, withoutRun } from "./decide.ts";
import { admitMore, declareLimit } from "./places.ts";
import { type Lane, type LimitValue, type LineValue, limitAt, lineAt, type PlaceRef, placeOf } from "./stored.ts";

/** One commit admits at most this many where they were read beforehand. */
const MOST_AHEAD = 200;

/** Declares the limit for all its keys that runs wait for, as they are found without locks. */
export async function declareLimits(kernel: Kernel, name: string, max: number, isOver: () => boolean): Promise<void> {
  const declare = async (ref: PlaceRef, value: LimitValue): Promise<void> => {
    if (value.first === undefined || value.max === max) return;
    await kernel.transact((tx) => declareLimit(tx, ref, max), [limitAt(ref)]);
  };
  const [row] = await kernel.read([limitAt([name])]);
  if (row?.value != null) await declare([name], kernel.decode(row, row.value) as LimitValue);
  for await (const row of kernel.rows(`limit/${name}`)) {
    if (isOver()) return;
    if (row.value === null) continue;
    await declare(placeOf(address(row.space, row.key)), kernel.decode(row, row.value) as LimitValue);
  }
}

/** A limit has more to admit than the commit before did. */
export async function continueAdmitting(kernel: Kernel, at: Address): Promise<void> {
  const { records, runs } = await new Ahead(kernel).read(placeOf(at));
  await kernel.transact((tx) => admitMore(tx, tx.record(at), runs), [at, ...records]);
}

/** A line as far as it was read: what is left of it after the runs that will be admitted. */
interface LineAhead {
  readonly line: LineValue;
  lanes: readonly Lane[];
}

/** Reads what the next runs under a limit and their lines are. */
class Ahead {
  readonly #kernel: Kernel;
  readonly #records = new Map<string, Address>();

  constructor(kernel: Kernel) {
    this.#kernel = kernel;
  }

  async read(ref: PlaceRef): Promise<{ readonly records: readonly Address[]; readonly runs: number }> {
    const limit = await this.#value<LimitValue>(limitAt(ref));
    const room = limit === undefined ? 0 : Math.min(MOST_AHEAD, limit.max - limit.held);
    const lines: LineAhead[] = [];
    for (let id = limit?.first ?? null; id !== null && lines.length < room; ) {
      const line: LineValue | undefined = await this.#value<LineValue>(lineAt(id));
      if (line === undefined) break;
      lines.push({ line, lanes: line.lanes });
      id = line.next;
    }
    const runs = await this.#readRuns(lines, room);
    await this.#readEnds(limit, lines);
    return { records: [...this.#records.values()], runs };
  }

  /** The lines take turns: the next runs of all of them are read together. */
  async #readRuns(lines: readonly LineAhead[], room: number): Promise<number> {
    let count = 0;
    for (let waiting = lines; waiting.length > 0 && count < room; ) {
      const next = waiting.slice(0, room - count).flatMap((ahead) => {
        const lane = nextLane(ahead.lanes);
        return lane === undefined ? [] : [{ ahead, lane, at: runAt(lane[1]) }];
      });
      const rows = await this.#kernel.read(next.map(({ at }) => at));
      const left: LineAhead[] = [];
      for (const [index, { ahead, lane, at }] of next.entries()) {
        const row = rows[index];
        const queued = row?.value == null ? undefined : readRun(this.#kernel, row).value?.gate?.queued;
        if (queued === undefined) continue;
        this.#records.set(at.text, at);
        count += 1;
        ahead.lanes = withoutRun(ahead.lanes, at.key, lane[0], { ...queued, prev: null });
        if (ahead.lanes.length > 0) left.push(ahead);
      }
      waiting = left;
    }
    return count;
  }

  /** A line that had its turn goes to the end of a ring: of this limit, or of another one that has no room. */
  async #readEnds(limit: LimitValue | undefined, lines: readonly LineAhead[]): Promise<void> {
    const others = new Map(lines.flatMap(({ line }) => line.places.map((ref) => [limitAt(ref).text, limitAt(ref)])));
    for (const [text, at] of others) this.#records.set(text, at);
    const rows = await this.#kernel.read([...others.values()]);
    for (const row of rows) {
      if (row?.value == null) continue;
      const { last } = this.#kernel.decode(row, row.value) as LimitValue;
      if (last !== undefined) this.#records.set(lineAt(last).text, lineAt(last));
    }
    const after = lines.at(-1)?.line.next ?? limit?.last;
    if (after != null) this.#records.set(lineAt(after).text, lineAt(after));
  }

  async #value<Value>(at: Address): Promise<Value | undefined> {
    const [row] = await this.#kernel.read([at]);
    if (row?.value == null) return undefined;
    this.#records.set(at.text, at);
    return this.#kernel.decode(row, row.value) as Value;
  }
}
