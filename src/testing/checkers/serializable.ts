/**
 * Serializability: is there one order of all transactions, over all their keys, in which each reads what it read?
 *
 * Each key holds a list; a transaction reads lists, appends values that no other transaction appends, and creates and deletes lists. The reads
 * then show the order of the writes: a list that was read is the order of its appends (list-append, the approach of Elle). Deletions and
 * re-creations are ordered by the versions that the writers got. From the order of each key follow the dependencies between
 * transactions, including those of reads that found nothing: a transaction that found a list absent comes before the one that created it. A
 * cycle of dependencies means that there is no such order (Adya).
 *
 * It finds: dirty writes (G0), aborted reads (G1a), intermediate reads (G1b), circular information flow (G1c), cycles with one
 * anti-dependency (G-single: read skew, lost updates) or several (G2: write skew, also between absent keys), lists that contradict
 * each other, values that vanish, appear twice or were never written, and transactions that do not see their own writes. With
 * `realTime`, also orders that contradict the time: what was acknowledged before another began must come before it.
 *
 * An unknown outcome counts as committed if something it wrote was read, and as aborted otherwise. Reads of aborted transactions count
 * as reads: a refusal depends on what was read too. Leave them out of the history where nothing was decided.
 *
 * Histories that share no key can be checked one by one: if each is serializable then so are all of them together, in real time too.
 * So a long run is checked window by window, each with keys of its own, in bounded memory.
 */

import { type Cycle, type CycleName, DependencyGraph, type Edge, RT, RW, WR, WW } from "./cycles.ts";

export type ListValue = number | string;

/**
 * What a transaction read or wrote, in order. A list is null where there is none. Versions increase with every write of the key, through
 * deletion and re-creation; they are needed only to order several lives of a key.
 */
export type ListOperation =
  | {
      readonly op: "read";
      readonly key: string;
      readonly list: readonly ListValue[] | null;
      readonly version?: number | undefined;
    }
  | {
      readonly op: "create" | "append";
      readonly key: string;
      readonly value: ListValue;
      readonly version?: number | undefined;
    }
  | { readonly op: "delete"; readonly key: string; readonly version?: number | undefined };

export interface ListTransaction {
  readonly id: string;
  readonly outcome: "committed" | "aborted" | "unknown";
  readonly operations: readonly ListOperation[];
  /** In any unit; for `realTime`. */
  readonly startedAt?: number | undefined;
  /** When its outcome was known to its caller; undefined if never. */
  readonly endedAt?: number | undefined;
  /** Printed with its id. */
  readonly about?: string | undefined;
}

/** The last state of a key, read after all transactions. */
export interface LastRead {
  readonly list: readonly ListValue[] | null;
  readonly version?: number | undefined;
}

export interface SerializableOptions {
  /** Whether a transaction that had ended before another began must come before it. */
  readonly realTime?: boolean | undefined;
  /** The final state of each key, where it was read. */
  readonly last?: ReadonlyMap<string, LastRead> | undefined;
}

export type Anomaly =
  | CycleName
  | "G1a"
  | "G1b"
  | "lost update"
  | "incompatible orders"
  | "duplicate"
  | "vanished"
  | "never written"
  | "own writes not seen";

export interface Violation {
  readonly anomaly: Anomaly;
  /** Wrong only in real time: because one transaction had ended before another began. */
  readonly needsTime: boolean;
  /** A description, with one line for each step of a cycle. */
  readonly message: string;
  /** The ids of the transactions in it. */
  readonly transactions: readonly string[];
}

export interface SerializableReport {
  readonly violations: readonly Violation[];
  readonly transactions: number;
  readonly committed: number;
  readonly aborted: number;
  /** Unknown outcomes, and those of them whose writes were read. */
  readonly unknown: number;
  readonly unknownCommitted: number;
  readonly keys: number;
  readonly edges: { readonly ww: number; readonly wr: number; readonly rw: number };
  /** Reads of an absent list, with a dependency on the transaction that created it afterwards. */
  readonly absentReads: number;
  /** Reads of absence that could be before several lives of a key: they give no dependency. */
  readonly ambiguousReads: number;
}

/** The most violations that are reported for a history. */
const MAX_VIOLATIONS = 10;

export function checkSerializable(
  transactions: readonly ListTransaction[],
  options: SerializableOptions = {},
): SerializableReport {
  return new Check(transactions, options).report();
}

/** Returns a few lines with what was checked and what is wrong. */
export function describeSerializable(report: SerializableReport): string {
  const { transactions, committed, aborted, unknown, unknownCommitted, keys, edges, violations } = report;
  const outcomes = `${committed} committed, ${aborted} aborted, ${unknown} unknown of which ${unknownCommitted} committed`;
  const summary =
    `${transactions} transactions (${outcomes}) over ${keys} keys; ` +
    `${edges.ww} ww, ${edges.wr} wr and ${edges.rw} rw dependencies, ${report.absentReads} of them from reads of absence`;
  return [summary, ...violations.map(({ message }) => message)].join("\n");
}

/** The writer of the state before all transactions. */
const NO_WRITER = -1;

interface Writing {
  readonly node: number;
  readonly value: ListValue;
  readonly version: number | undefined;
}

interface Reading {
  readonly node: number;
  readonly list: readonly ListValue[] | null;
  readonly version: number | undefined;
  /** The first value of the life that the reader itself creates next, which shows when the list was absent. */
  readonly creates: ListValue | undefined;
}

interface Deletion {
  readonly node: number;
  /** The first value of the list that was deleted, if the transaction had seen it. */
  readonly birth: ListValue | undefined;
  readonly version: number | undefined;
}

/** A list from its creation to its deletion, named after its first value. */
interface Life {
  readonly birth: ListValue;
  /** The longest list seen of it. */
  order: readonly ListValue[];
  readonly deletions: Deletion[];
  /** One of the lists that were read contradicts the others. */
  isBroken: boolean;
  /** A transaction with an unknown outcome deleted it, and it is not known which. */
  isUnclear: boolean;
}

/** A state of a key; length 0 for absent. */
interface State {
  readonly writer: number;
  readonly life: number;
  readonly length: number;
}

interface KeyHistory {
  readonly name: string;
  readonly writers: Map<ListValue, Writing>;
  readonly readings: Reading[];
  readonly deletions: Deletion[];
  /** Deletions by transactions that were aborted. */
  readonly undone: Deletion[];
  readonly lives: Map<ListValue, Life>;
  /** Values of transactions that did not see what they appended to. */
  readonly blind: Writing[];
  /** The first values of its lives, in their order. */
  births: readonly ListValue[];
  states: readonly State[];
}

/** What one transaction did to one key. */
interface Access {
  readonly node: number;
  readonly key: KeyHistory;
  reading: Reading | undefined;
  /** The lists as the transaction left them, as far as it knew them. */
  readonly left: (readonly ListValue[])[];
  readonly deletions: Deletion[];
}

interface Note {
  readonly key: KeyHistory;
  readonly state: number;
}

class Check {
  readonly #transactions: readonly ListTransaction[];
  readonly #options: SerializableOptions;
  readonly #keys = new Map<string, KeyHistory>();
  readonly #violations: Violation[] = [];
  /** Of transactions whose outcome is not known. */
  readonly #doubtful = new Map<number, Access[]>();
  /** Keys that a transaction whose outcome stays unknown may have deleted. */
  readonly #mayBeDeleted = new Set<KeyHistory>();
  readonly #graph: DependencyGraph;
  /** The key and the number of the state that an edge is about. */
  readonly #notes: Note[] = [];
  readonly #edges = { ww: 0, wr: 0, rw: 0 };
  #absentReads = 0;
  #ambiguousReads = 0;
  #unknownCommitted = 0;

  constructor(transactions: readonly ListTransaction[], options: SerializableOptions) {
    this.#transactions = transactions;
    this.#options = options;
    this.#graph = new DependencyGraph(transactions.length);
  }

  report(): SerializableReport {
    // All writers must be known before the reads are checked.
    const all = this.#transactions.map((transaction, node) => this.#accesses(transaction, node));
    this.#transactions.forEach(({ outcome }, node) => {
      const accesses = all[node] ?? [];
      if (outcome === "unknown") this.#doubtful.set(node, accesses);
      else for (const access of accesses) this.#observe(access, outcome === "committed");
    });
    for (const [name, { list }] of this.#options.last ?? [])
      if (list !== null) this.#see(this.#key(name), list, NO_WRITER);
    const lost = this.#resolveDoubts();
    for (const key of this.#keys.values()) this.#order(key);
    for (const key of this.#keys.values()) this.#depend(key);
    const spans = this.#options.realTime === true ? this.#spans(lost) : [];
    if (spans.length > 0) this.#graph.addTime(spans);
    for (const cycle of this.#graph.cycles(MAX_VIOLATIONS)) this.#tell(this.#describeCycle(cycle));
    const count = (outcome: ListTransaction["outcome"]) =>
      this.#transactions.reduce((sum, one) => sum + (one.outcome === outcome ? 1 : 0), 0);
    return {
      violations: this.#violations,
      transactions: this.#transactions.length,
      committed: count("committed"),
      aborted: count("aborted"),
      unknown: count("unknown"),
      unknownCommitted: this.#unknownCommitted,
      keys: this.#keys.size,
      edges: this.#edges,
      absentReads: this.#absentReads,
      ambiguousReads: this.#ambiguousReads,
    };
  }

  #key(name: string): KeyHistory {
    let key = this.#keys.get(name);
    if (key === undefined) {
      key = {
        name,
        writers: new Map(),
        readings: [],
        deletions: [],
        undone: [],
        lives: new Map(),
        blind: [],
        births: [],
        states: [],
      };
      this.#keys.set(name, key);
    }
    return key;
  }

  // ------------------------------------------------------------------------------------------- what was seen

  /** Returns what a transaction did, key by key; it must have read its own writes. */
  #accesses(transaction: ListTransaction, node: number): Access[] {
    const accesses: Access[] = [];
    /** By key: the list as the transaction knows it; undefined if it does not. */
    const now = new Map<KeyHistory, readonly ListValue[] | null | undefined>();
    /** By key: what it appended to a list that it had not seen. */
    const unseen = new Map<KeyHistory, ListValue[]>();
    const accessOf = (key: KeyHistory): Access => {
      let access = accesses.find((one) => one.key === key);
      if (access === undefined) {
        access = { node, key, reading: undefined, left: [], deletions: [] };
        accesses.push(access);
      }
      return access;
    };
    for (const operation of transaction.operations) {
      const key = this.#key(operation.key);
      const access = accessOf(key);
      const known = now.get(key);
      switch (operation.op) {
        case "read": {
          const { list, version } = operation;
          // Before a read, it may have appended to a list that it had not seen.
          const mine = unseen.get(key) ?? [];
          const others = mine.length === 0 ? list : (list?.slice(0, -mine.length) ?? null);
          const isOwn =
            known === undefined ? isSame(list?.slice(others?.length ?? 0) ?? [], mine) : isSame(known, list);
          if (now.has(key) && !isOwn)
            this.#tell({
              anomaly: "own writes not seen",
              needsTime: false,
              message: `${this.#name(node)} read ${quote(key)} as ${show(list)}, where it knew ${show(known ?? mine)} from itself`,
              transactions: [transaction.id],
            });
          if (access.reading === undefined && known === undefined && (mine.length === 0 || (others?.length ?? 0) > 0))
            access.reading = { node, list: others, version, creates: undefined };
          unseen.delete(key);
          now.set(key, list);
          break;
        }
        case "create":
        case "append": {
          const { value, version } = operation;
          const writing: Writing = { node, value, version };
          const other = key.writers.get(value);
          if (other !== undefined)
            throw new Error(
              `${value} is written to ${quote(key)} by ${this.#name(other.node)} and by ${this.#name(node)}: values must be unique`,
            );
          key.writers.set(value, writing);
          const isCreation = operation.op === "create";
          if (isCreation && access.reading?.list === null && access.reading.creates === undefined)
            access.reading = { ...access.reading, creates: value };
          if (!isCreation && known === null)
            throw new Error(`${this.#name(node)} appends to ${quote(key)}, which it knew to be absent`);
          if (isCreation) now.set(key, [value]);
          else if (known === undefined || known === null) {
            key.blind.push(writing);
            unseen.set(key, [...(unseen.get(key) ?? []), value]);
            now.set(key, undefined);
          } else now.set(key, [...known, value]);
          break;
        }
        case "delete":
          access.deletions.push({ node, birth: known?.[0], version: operation.version });
          // What it wrote and deleted itself was never visible to others.
          while (key.blind.at(-1)?.node === node) key.blind.pop();
          if (known != null && key.writers.get(known[0] as ListValue)?.node === node) access.deletions.pop();
          now.set(key, null);
          break;
      }
    }
    for (const access of accesses) {
      const list = now.get(access.key);
      if (list != null) access.left.push(list);
    }
    return accesses;
  }

  /** Notes what a transaction saw and, if it is committed, what it left. */
  #observe({ node, key, reading, left, deletions }: Access, isCommitted: boolean): void {
    if (reading !== undefined) {
      key.readings.push(reading);
      if (reading.list !== null) this.#see(key, reading.list, node);
    }
    if (!isCommitted) {
      key.undone.push(...deletions);
      return;
    }
    for (const list of left) this.#see(key, list, node);
    key.deletions.push(...deletions);
  }

  /** Records a list that was read. */
  #see(key: KeyHistory, list: readonly ListValue[], node: number): void {
    const birth = list[0];
    if (birth === undefined) throw new Error(`an empty list of ${quote(key)} must be given as null`);
    const life = key.lives.get(birth);
    if (life === undefined) {
      key.lives.set(birth, { birth, order: list, deletions: [], isBroken: false, isUnclear: false });
      return;
    }
    const { order } = life;
    const shared = Math.min(list.length, order.length);
    for (let i = 0; i < shared; i++)
      if (list[i] !== order[i]) {
        if (!life.isBroken) this.#tell(this.#contradiction(key, list, order, i, node));
        life.isBroken = true;
        return;
      }
    if (list.length > order.length) life.order = list;
  }

  #contradiction(
    key: KeyHistory,
    one: readonly ListValue[],
    other: readonly ListValue[],
    at: number,
    node: number,
  ): Violation {
    const writers = [one[at], other[at]].map((value) => (value === undefined ? undefined : key.writers.get(value)));
    const ids = writers.flatMap((writer) => (writer === undefined ? [] : [this.#id(writer.node)]));
    const [first, second] = writers;
    const names = writers.map((writer) => (writer === undefined ? "no transaction" : this.#name(writer.node)));
    if (first !== undefined && second !== undefined && first.node !== second.node)
      return {
        anomaly: "lost update",
        needsTime: false,
        message:
          `lost update of ${quote(key)}: ${names[1]} made ${show(other)}, and ${names[0]} made ${show(one)}; ` +
          `both wrote on ${show(one.slice(0, at))}, and neither has what the other wrote`,
        transactions: ids,
      };
    return {
      anomaly: "incompatible orders",
      needsTime: false,
      message: `${quote(key)} was ${show(other)} and also ${show(one)}${node === NO_WRITER ? "" : ` (seen by ${this.#name(node)})`}: neither begins with the other`,
      transactions: ids,
    };
  }

  /**
   * Unknown outcomes: committed if a value of theirs was read, or if a list is gone that only they can have deleted. What they read and left
   * counts then, and may prove others to be committed. The rest never happened.
   */
  #resolveDoubts(): ReadonlySet<number> {
    for (let isNews = true; isNews; ) {
      isNews = this.#happened(this.#seenDoubts());
      if (!isNews) isNews = this.#happened(this.#missedDeletions());
    }
    for (const accesses of this.#doubtful.values())
      for (const { key, deletions } of accesses) if (deletions.length > 0) this.#mayBeDeleted.add(key);
    return new Set(this.#doubtful.keys());
  }

  #happened(nodes: readonly number[]): boolean {
    for (const node of nodes) {
      for (const access of this.#doubtful.get(node) ?? []) this.#observe(access, true);
      this.#doubtful.delete(node);
      this.#unknownCommitted += 1;
    }
    return nodes.length > 0;
  }

  /** Those of which a value was read. */
  #seenDoubts(): number[] {
    const seen = new Map<KeyHistory, Set<ListValue>>();
    const isSeen = (key: KeyHistory, value: ListValue): boolean => {
      let values = seen.get(key);
      if (values === undefined) {
        values = new Set();
        for (const { order } of key.lives.values()) for (const one of order) values.add(one);
        seen.set(key, values);
      }
      return values.has(value);
    };
    return [...this.#doubtful.keys()].filter((node) =>
      this.#transactions[node]?.operations.some(
        (one) => (one.op === "create" || one.op === "append") && isSeen(this.#key(one.key), one.value),
      ),
    );
  }

  /** A transaction that must have deleted a list, because the list is gone and no other can have deleted it. */
  #missedDeletions(): number[] {
    const candidates = new Map<Life, { readonly key: KeyHistory; readonly nodes: number[] }>();
    for (const [node, accesses] of this.#doubtful)
      for (const { key, deletions } of accesses)
        for (const { birth } of deletions) {
          const life = birth === undefined ? undefined : key.lives.get(birth);
          if (life === undefined || key.deletions.some((one) => one.birth === birth)) continue;
          const { nodes } = candidates.get(life) ?? { nodes: [] };
          candidates.set(life, { key, nodes: [...nodes, node] });
        }
    for (const [life, { key, nodes }] of candidates) {
      if (!this.#isGone(key, life)) continue;
      const [node] = nodes;
      if (nodes.length === 1 && node !== undefined) return [node];
      // It is not known which of them it was.
      life.isUnclear = true;
    }
    return [];
  }

  /** Whether a transaction read that this list is gone. */
  #isGone(key: KeyHistory, { birth }: Life): boolean {
    const born = key.writers.get(birth)?.version ?? 0;
    const last = this.#options.last?.get(key.name);
    return (
      (last !== undefined && last.list?.[0] !== birth) ||
      key.readings.some(({ list, version }) => list === null && version !== undefined && version > born) ||
      [...key.lives.keys()].some((other) => (key.writers.get(other)?.version ?? 0) > born)
    );
  }

  // ------------------------------------------------------------------------------------------- the order of each key

  /** Puts the states of a key in order: absent, then each life with its appends, and absent after its deletion. */
  #order(key: KeyHistory): void {
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
          this.#tell({
            anomaly: "duplicate",
            needsTime: false,
            message: `${value}, which ${this.#writerName(key, value)} wrote once, is in ${quote(key)} twice: ${show(life.order)}`,
            transactions: this.#idsOf(key, value),
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
      this.#tell({
        anomaly: "lost update",
        needsTime: false,
        message: `lost update of ${quote(key)}: ${this.#name(deletion.node)} and ${this.#name(second.node)} both deleted ${show(life.order)}`,
        transactions: [this.#id(deletion.node), this.#id(second.node)],
      });
    const next = lives[index + 1];
    const last = this.#options.last?.get(key.name);
    const isLast = next === undefined;
    if (deletion !== undefined) states.push({ writer: deletion.node, life: index + 1, length: 0 });
    else if (!isLast || life.isUnclear) {
      // The creator of the next list read that this one was gone.
      states.push({ writer: NO_WRITER, life: index + 1, length: 0 });
    }
    if (deletion === undefined && !isLast && !life.isUnclear)
      this.#tell({
        anomaly: "vanished",
        needsTime: false,
        message: `${quote(key)} was ${show(life.order)}, which no committed transaction deleted; then ${this.#writerName(key, next.birth)} created it again`,
        transactions: [...this.#idsOf(key, life.order.at(-1)), ...this.#idsOf(key, next.birth)],
      });
    if (!isLast || last === undefined || life.isUnclear) return;
    const expected = deletion === undefined ? life.order : null;
    if (life.isBroken || isSame(last.list, expected)) return;
    const lost = deletion === undefined ? life.order[last.list?.length ?? 0] : undefined;
    const who = deletion !== undefined ? this.#name(deletion.node) : this.#writerName(key, lost);
    this.#tell({
      anomaly: "vanished",
      needsTime: false,
      message: `${quote(key)} was ${show(expected)}, as ${who} left it, and is ${show(last.list)} in the end`,
      transactions: deletion !== undefined ? [this.#id(deletion.node)] : this.#idsOf(key, lost),
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
      this.#tell({
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
      this.#tell({
        anomaly: "G1a",
        needsTime: false,
        message:
          `aborted read (G1a): ${reader === undefined ? "the last read" : this.#name(reader.node)} found ${value} in ${quote(key)}, ` +
          `which ${this.#name(writing.node)} wrote, and that was aborted`,
        transactions: [this.#id(writing.node), ...(reader === undefined ? [] : [this.#id(reader.node)])],
      });
    }
    return writing.node;
  }

  /** Values that were appended without a read must be in the list, once all states of the key are known. */
  #checkBlind(key: KeyHistory, lives: readonly Life[], all: ReadonlySet<ListValue>): void {
    const isAllKnown =
      this.#options.last?.has(key.name) === true &&
      lives.every(({ deletions }) => deletions.every(({ birth }) => birth !== undefined)) &&
      !this.#mayBeDeleted.has(key);
    if (!isAllKnown) return;
    for (const { node, value } of key.blind) {
      const isCommitted = this.#transactions[node]?.outcome === "committed";
      if (all.has(value) || !isCommitted) continue;
      this.#tell({
        anomaly: "vanished",
        needsTime: false,
        message: `${this.#name(node)} appended ${value} to ${quote(key)}, and no read ever found it there`,
        transactions: [this.#id(node)],
      });
    }
  }

  // ------------------------------------------------------------------------------------------- dependencies

  /** Adds the dependencies that follow from the order of a key and from its reads. */
  #depend(key: KeyHistory): void {
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
        this.#tell({
          anomaly: "G1b",
          needsTime: false,
          message:
            `intermediate read (G1b): ${this.#name(node)} read ${quote(key)} as ${show(list)}, ` +
            `which ${this.#name(state.writer)} had only on the way to something else`,
          transactions: [this.#id(node), this.#id(state.writer)],
        });
      this.#edge(state.writer, node, WR, key, at);
      if (next === undefined) continue;
      this.#edge(node, next.writer, RW, key, at);
      if (list === null && next.writer !== node) this.#absentReads += 1;
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
      this.#ambiguousReads += 1;
      return undefined;
    }
    let life = 0;
    for (let i = 1; i < births.length; i++) if ((births[i] ?? 0) > 0 && (births[i] ?? 0) <= version) life = i;
    if (gaps[life] === undefined) this.#tell(this.#notDeleted(key, node, life));
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
          `aborted read (G1a): ${this.#name(node)} found ${quote(key)} absent, which was ${show(order)}; ` +
          `only ${this.#name(aborted.node)} deleted it, and that was aborted`,
        transactions: [this.#id(node), this.#id(aborted.node)],
      };
    return {
      anomaly: "vanished",
      needsTime: false,
      message: `${this.#name(node)} found ${quote(key)} absent, which was ${show(order)} and which no committed transaction deleted`,
      transactions: [this.#id(node), ...this.#idsOf(key, birth)],
    };
  }

  #edge(from: number, to: number, kind: typeof WW | typeof WR | typeof RW, key: KeyHistory, state: number): void {
    if (from === NO_WRITER || to === NO_WRITER || from === to) return;
    this.#graph.add(from, to, kind, this.#notes.length);
    this.#notes.push({ key, state });
    if (kind === WW) this.#edges.ww += 1;
    else if (kind === WR) this.#edges.wr += 1;
    else this.#edges.rw += 1;
  }

  /** The times of each transaction that happened. */
  #spans(lost: ReadonlySet<number>): { node: number; startedAt: number; endedAt: number }[] {
    const spans: { node: number; startedAt: number; endedAt: number }[] = [];
    this.#transactions.forEach(({ startedAt, endedAt, outcome }, node) => {
      if (startedAt === undefined || lost.has(node)) return;
      const isHeard = endedAt !== undefined && outcome !== "unknown";
      spans.push({ node, startedAt, endedAt: isHeard ? endedAt : Number.POSITIVE_INFINITY });
    });
    return spans;
  }

  // ------------------------------------------------------------------------------------------- words

  #tell(violation: Violation): void {
    if (this.#violations.length < MAX_VIOLATIONS) this.#violations.push(violation);
  }

  #id(node: number): string {
    return this.#transactions[node]?.id ?? "no transaction";
  }

  #idsOf(key: KeyHistory, value: ListValue | undefined): string[] {
    const writing = value === undefined ? undefined : key.writers.get(value);
    return writing === undefined ? [] : [this.#id(writing.node)];
  }

  #name(node: number): string {
    const transaction = this.#transactions[node];
    if (transaction === undefined) return "no transaction";
    return transaction.about === undefined ? transaction.id : `${transaction.id} (${transaction.about})`;
  }

  #writerName(key: KeyHistory, value: ListValue | undefined): string {
    const writing = value === undefined ? undefined : key.writers.get(value);
    return writing === undefined ? "no transaction" : this.#name(writing.node);
  }

  #describeCycle({ name, needsTime, edges }: Cycle): Violation {
    const steps = edges.map((edge) => `  ${this.#describeEdge(edge)}`);
    const time = needsTime ? ", given what had ended before something else began" : "";
    return {
      anomaly: name,
      needsTime,
      message: [`${WORDS[name]} (${name}), a cycle of ${count(edges)}${time}:`, ...steps].join("\n"),
      transactions: edges.map(({ from }) => this.#id(from)),
    };
  }

  #describeEdge({ from, to, kind, note }: Edge): string {
    const one = this.#name(from);
    const other = this.#name(to);
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

const quote = ({ name }: KeyHistory): string => `"${name}"`;

/** Only the end of a long list is shown. */
function show(list: readonly ListValue[] | null | undefined): string {
  if (list == null) return "absent";
  return list.length <= 6 ? `[${list.join(", ")}]` : `[${list.length - 4} more, ${list.slice(-4).join(", ")}]`;
}

function isSame(one: readonly ListValue[] | null, other: readonly ListValue[] | null): boolean {
  if (one === null || other === null) return one === other;
  return one.length === other.length && one.every((value, i) => value === other[i]);
}

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
