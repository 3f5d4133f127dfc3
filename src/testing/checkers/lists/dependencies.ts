/**
 * Dependencies between transactions, which follow from the order of each key and from its reads, and the cycles among them.
 */

import { type Cycle, type CycleName, DependencyGraph, type Edge, RT, RW, WR, WW } from "../cycles.ts";
import { type KeyHistory, NO_WRITER, quote, type Reading, type State, show } from "./history.ts";
import { MAX_VIOLATIONS, type Report, type Violation } from "./report.ts";
import type { ListTransaction, ListValue } from "./transactions.ts";

interface Note {
  readonly key: KeyHistory;
  readonly state: number;
}

export class Dependencies {
  readonly #transactions: readonly ListTransaction[];
  readonly #report: Report;
  readonly #graph: DependencyGraph;
  /** The key and the number of the state that an edge is about. */
  readonly #notes: Note[] = [];
  readonly edges = { ww: 0, wr: 0, rw: 0 };
  absentReads = 0;
  ambiguousReads = 0;

  constructor(transactions: readonly ListTransaction[], report: Report) {
    this.#transactions = transactions;
    this.#report = report;
    this.#graph = new DependencyGraph(transactions.length);
  }

  /** Adds the dependencies that follow from the order of a key and from its reads. */
  add(key: KeyHistory): void {
    const { states } = key;
    const first = new Map<ListValue, number>();
    const gaps: number[] = [0];
    const births: number[] = [];
    states.forEach(({ life, length }, at) => {
      if (length === 1) {
        const birth = key.births[life - 1];
        if (birth !== undefined) {
          first.set(birth, at);
          births[life] = key.writers.get(birth)?.version ?? 0;
        }
      }
      if (length === 0 && life > 0) gaps[life] = at;
    });
    for (let at = 1; at + 1 < states.length; at++) {
      const one = states[at] as State;
      const next = states[at + 1] as State;
      this.#edge(one.writer, next.writer, WW, key, at);
    }
    for (const reading of key.readings) {
      const { node, list } = reading;
      const at = list === null ? this.#gapOf(key, reading, first, gaps, births) : placeOf(key, list, first);
      const state = at === undefined ? undefined : states[at];
      if (at === undefined || state === undefined) continue;
      const next = states[at + 1];
      if (state.writer !== NO_WRITER && state.writer !== node && next?.writer === state.writer)
        this.#report.tell({
          anomaly: "G1b",
          needsTime: false,
          message:
            `intermediate read (G1b): ${this.#report.name(node)} read ${quote(key)} as ${show(list)}, ` +
            `which ${this.#report.name(state.writer)} had only on the way to something else`,
          transactions: [this.#report.id(node), this.#report.id(state.writer)],
        });
      this.#edge(state.writer, node, WR, key, at);
      if (next === undefined) continue;
      this.#edge(node, next.writer, RW, key, at);
      if (list === null && next.writer !== node) this.absentReads += 1;
    }
  }

  /** The absence of the key in which it was read; undefined if that is not known. */
  #gapOf(
    key: KeyHistory,
    { node, creates, version }: Reading,
    first: ReadonlyMap<ListValue, number>,
    gaps: readonly number[],
    births: readonly number[],
  ): number | undefined {
    if (creates !== undefined) {
      const birth = first.get(creates);
      if (birth !== undefined) return birth - 1;
    }
    if (version === undefined) {
      if (gaps.length === 1) return 0;
      this.ambiguousReads += 1;
      return undefined;
    }
    let life = 0;
    for (let i = 1; i < births.length; i++) if ((births[i] ?? 0) > 0 && (births[i] ?? 0) <= version) life = i;
    if (gaps[life] === undefined) this.#report.tell(this.#notDeleted(key, node, life));
    return gaps[life];
  }

  /** Reports a list that was found gone, and that no committed transaction deleted. */
  #notDeleted(key: KeyHistory, node: number, life: number): Violation {
    const birth = key.births[life - 1];
    const isAborted = (one: number) => this.#transactions[one]?.outcome === "aborted";
    const aborted = key.undone.find((deletion) => deletion.birth === birth && isAborted(deletion.node));
    const order = birth === undefined ? [] : key.lives.get(birth)?.order;
    if (aborted !== undefined)
      return {
        anomaly: "G1a",
        needsTime: false,
        message:
          `aborted read (G1a): ${this.#report.name(node)} found ${quote(key)} absent, which was ${show(order)}; ` +
          `only ${this.#report.name(aborted.node)} deleted it, and that was aborted`,
        transactions: [this.#report.id(node), this.#report.id(aborted.node)],
      };
    return {
      anomaly: "vanished",
      needsTime: false,
      message: `${this.#report.name(node)} found ${quote(key)} absent, which was ${show(order)} and which no committed transaction deleted`,
      transactions: [this.#report.id(node), ...this.#report.idsOf(key, birth)],
    };
  }

  #edge(from: number, to: number, kind: typeof WW | typeof WR | typeof RW, key: KeyHistory, state: number): void {
    if (from === NO_WRITER || to === NO_WRITER || from === to) return;
    this.#graph.add(from, to, kind, this.#notes.length);
    this.#notes.push({ key, state });
    if (kind === WW) this.edges.ww += 1;
    else if (kind === WR) this.edges.wr += 1;
    else this.edges.rw += 1;
  }

  /** Adds that a transaction which had ended before another began comes before it. Those in `lost` never happened. */
  addTime(lost: ReadonlySet<number>): void {
    const spans: { node: number; startedAt: number; endedAt: number }[] = [];
    this.#transactions.forEach(({ startedAt, endedAt, outcome }, node) => {
      if (startedAt === undefined || lost.has(node)) return;
      const isHeard = endedAt !== undefined && outcome !== "unknown";
      spans.push({ node, startedAt, endedAt: isHeard ? endedAt : Number.POSITIVE_INFINITY });
    });
    if (spans.length > 0) this.#graph.addTime(spans);
  }

  /** Reports the cycles. */
  reportCycles(): void {
    for (const cycle of this.#graph.cycles(MAX_VIOLATIONS)) this.#report.tell(this.#describeCycle(cycle));
  }

  #describeCycle({ name, needsTime, edges }: Cycle): Violation {
    const steps = edges.map((edge) => `  ${this.#describeEdge(edge)}`);
    const time = needsTime ? ", given what had ended before something else began" : "";
    return {
      anomaly: name,
      needsTime,
      message: [`${WORDS[name]} (${name}), a cycle of ${count(edges)}${time}:`, ...steps].join("\n"),
      transactions: edges.map(({ from }) => this.#report.id(from)),
    };
  }

  #describeEdge({ from, to, kind, note }: Edge): string {
    const one = this.#report.name(from);
    const other = this.#report.name(to);
    if (kind === RT) return `${one} had ended before ${other} began [rt]`;
    const { key, state } = this.#notes[note] as Note;
    const read = this.#show(key, state);
    if (kind === WR) return `${one} ${this.#did(key, state)}, which ${other} read [wr]`;
    const then = this.#did(key, state + 1);
    if (kind === RW) return `${one} read ${quote(key)} as ${read}, before ${other} ${then} [rw]`;
    return `${one} ${this.#did(key, state)}, before ${other} ${then} [ww]`;
  }

  #show(key: KeyHistory, at: number): string {
    const { life, length } = key.states[at] as State;
    if (length === 0) return show(null);
    const birth = key.births[life - 1];
    return show(birth === undefined ? [] : (key.lives.get(birth)?.order.slice(0, length) ?? []));
  }

  /** Describes what the writer of a state did. */
  #did(key: KeyHistory, at: number): string {
    const { life, length } = key.states[at] as State;
    const birth = key.births[life - 1];
    const value = birth === undefined ? undefined : key.lives.get(birth)?.order[length - 1];
    if (length === 0) return `deleted ${quote(key)}`;
    return length === 1 ? `created ${quote(key)} with ${value}` : `appended ${value} to ${quote(key)}`;
  }
}

const WORDS: Readonly<Record<CycleName, string>> = {
  G0: "dirty write",
  G1c: "circular information flow",
  "G-single": "a read that is neither before nor after",
  G2: "write skew",
};

const count = ({ length }: readonly unknown[]): string => `${length} ${length === 1 ? "transaction" : "transactions"}`;

/** The index of a list among the states of its key; undefined for one that contradicts them, which was reported before. */
function placeOf(
  key: KeyHistory,
  list: readonly ListValue[],
  first: ReadonlyMap<ListValue, number>,
): number | undefined {
  const birth = list[0] as ListValue;
  const at = first.get(birth);
  const order = key.lives.get(birth)?.order;
  if (at === undefined || order === undefined || order[list.length - 1] !== list.at(-1)) return undefined;
  return at + list.length - 1;
}
