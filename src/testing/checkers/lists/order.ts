/**
 * The order of the states of each key: absent, then each life with its appends, and absent after its deletion.
 */

import { type Deletion, isSame, type KeyHistory, type Life, NO_WRITER, quote, type State, show } from "./history.ts";
import type { Report } from "./report.ts";
import type { LastRead, ListTransaction, ListValue } from "./transactions.ts";

export class Order {
  readonly #transactions: readonly ListTransaction[];
  readonly #last: ReadonlyMap<string, LastRead>;
  /** Keys that a transaction whose outcome stays unknown may have deleted. */
  readonly #mayBeDeleted: ReadonlySet<KeyHistory>;
  readonly #report: Report;

  constructor(
    transactions: readonly ListTransaction[],
    last: ReadonlyMap<string, LastRead>,
    mayBeDeleted: ReadonlySet<KeyHistory>,
    report: Report,
  ) {
    this.#transactions = transactions;
    this.#last = last;
    this.#mayBeDeleted = mayBeDeleted;
    this.#report = report;
  }

  /** Puts the states of a key in order: absent, then each life with its appends, and absent after its deletion. */
  of(key: KeyHistory): void {
    const lives = [...key.lives.values()];
    const bornAt = ({ birth }: Life) => key.writers.get(birth)?.version;
    if (lives.length > 1) {
      for (const life of lives)
        if (bornAt(life) === undefined && key.writers.has(life.birth))
          throw new Error(`${quote(key)} was created more than once: the versions of its creations must be given`);
      lives.sort((a, b) => (bornAt(a) ?? 0) - (bornAt(b) ?? 0));
    }
    for (const deletion of key.deletions) this.#lifeOf(key, lives, deletion)?.deletions.push(deletion);
    const states: State[] = [{ writer: NO_WRITER, life: 0, length: 0 }];
    const all = new Set<ListValue>();
    lives.forEach((life, index) => {
      life.order.forEach((value, i) => {
        states.push({ writer: this.#writerOf(key, value), life: index + 1, length: i + 1 });
        if (all.has(value))
          this.#report.tell({
            anomaly: "duplicate",
            needsTime: false,
            message: `${value}, which ${this.#report.writerName(key, value)} wrote once, is in ${quote(key)} twice: ${show(life.order)}`,
            transactions: this.#report.idsOf(key, value),
          });
        all.add(value);
      });
      this.#endLife(key, lives, index, states);
    });
    key.births = lives.map(({ birth }) => birth);
    key.states = states;
    this.#checkBlind(key, lives, all);
  }

  /** The state after a list was deleted, if it was. */
  #endLife(key: KeyHistory, lives: readonly Life[], index: number, states: State[]): void {
    const life = lives[index] as Life;
    const [deletion, second] = life.deletions;
    if (deletion !== undefined && second !== undefined)
      this.#report.tell({
        anomaly: "lost update",
        needsTime: false,
        message: `lost update of ${quote(key)}: ${this.#report.name(deletion.node)} and ${this.#report.name(second.node)} both deleted ${show(life.order)}`,
        transactions: [this.#report.id(deletion.node), this.#report.id(second.node)],
      });
    const next = lives[index + 1];
    const last = this.#last.get(key.name);
    const isLast = next === undefined;
    if (deletion !== undefined) states.push({ writer: deletion.node, life: index + 1, length: 0 });
    else if (!isLast || life.isUnclear) {
      // The creator of the next list read that this one was gone.
      states.push({ writer: NO_WRITER, life: index + 1, length: 0 });
    }
    if (deletion === undefined && !isLast && !life.isUnclear)
      this.#report.tell({
        anomaly: "vanished",
        needsTime: false,
        message: `${quote(key)} was ${show(life.order)}, which no committed transaction deleted; then ${this.#report.writerName(key, next.birth)} created it again`,
        transactions: [...this.#report.idsOf(key, life.order.at(-1)), ...this.#report.idsOf(key, next.birth)],
      });
    if (!isLast || last === undefined || life.isUnclear) return;
    const expected = deletion === undefined ? life.order : null;
    if (life.isBroken || isSame(last.list, expected)) return;
    const lost = deletion === undefined ? life.order[last.list?.length ?? 0] : undefined;
    const who = deletion !== undefined ? this.#report.name(deletion.node) : this.#report.writerName(key, lost);
    this.#report.tell({
      anomaly: "vanished",
      needsTime: false,
      message: `${quote(key)} was ${show(expected)}, as ${who} left it, and is ${show(last.list)} in the end`,
      transactions: deletion !== undefined ? [this.#report.id(deletion.node)] : this.#report.idsOf(key, lost),
    });
  }

  /** The life that a deletion ended: the one it saw, or the last one created before it. */
  #lifeOf(key: KeyHistory, lives: readonly Life[], { birth, version }: Deletion): Life | undefined {
    if (birth !== undefined) return key.lives.get(birth);
    if (lives.length === 1) return lives[0];
    if (version === undefined) return undefined;
    return lives.findLast((life) => (key.writers.get(life.birth)?.version ?? 0) < version);
  }

  #writerOf(key: KeyHistory, value: ListValue): number {
    const writing = key.writers.get(value);
    if (writing === undefined) {
      this.#report.tell({
        anomaly: "never written",
        needsTime: false,
        message: `${value} is in ${quote(key)}, and no transaction wrote it`,
        transactions: [],
      });
      return NO_WRITER;
    }
    const outcome = this.#transactions[writing.node]?.outcome;
    if (outcome === "aborted") {
      const reader = key.readings.find(({ list }) => list?.includes(value) === true);
      this.#report.tell({
        anomaly: "G1a",
        needsTime: false,
        message:
          `aborted read (G1a): ${reader === undefined ? "the last read" : this.#report.name(reader.node)} found ${value} in ${quote(key)}, ` +
          `which ${this.#report.name(writing.node)} wrote, and that was aborted`,
        transactions: [this.#report.id(writing.node), ...(reader === undefined ? [] : [this.#report.id(reader.node)])],
      });
    }
    return writing.node;
  }

  /** Values that were appended without a read must be in the list, once all states of the key are known. */
  #checkBlind(key: KeyHistory, lives: readonly Life[], all: ReadonlySet<ListValue>): void {
    const isAllKnown =
      this.#last.has(key.name) &&
      lives.every(({ deletions }) => deletions.every(({ birth }) => birth !== undefined)) &&
      !this.#mayBeDeleted.has(key);
    if (!isAllKnown) return;
    for (const { node, value } of key.blind) {
      const isCommitted = this.#transactions[node]?.outcome === "committed";
      if (all.has(value) || !isCommitted) continue;
      this.#report.tell({
        anomaly: "vanished",
        needsTime: false,
        message: `${this.#report.name(node)} appended ${value} to ${quote(key)}, and no read ever found it there`,
        transactions: [this.#report.id(node)],
      });
    }
  }
}
