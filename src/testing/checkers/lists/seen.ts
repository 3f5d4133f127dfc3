/**
 * What transactions saw and left, key by key: from it follow the lives of each key, and which of the unknown outcomes were commits.
 */

import {
  type Deletion,
  isSame,
  type KeyHistories,
  type KeyHistory,
  type Life,
  NO_WRITER,
  quote,
  type Reading,
  show,
  type Writing,
} from "./history.ts";
import type { Report, Violation } from "./report.ts";
import type { LastRead, ListTransaction, ListValue } from "./transactions.ts";

/** What one transaction did to one key. */
interface Access {
  readonly node: number;
  readonly key: KeyHistory;
  reading: Reading | undefined;
  /** The lists as the transaction left them, as far as it knew them. */
  readonly left: (readonly ListValue[])[];
  readonly deletions: Deletion[];
}

export class Seen {
  readonly #transactions: readonly ListTransaction[];
  readonly #last: ReadonlyMap<string, LastRead>;
  readonly #keys: KeyHistories;
  readonly #report: Report;
  /** Of transactions whose outcome is not known. */
  readonly #doubtful = new Map<number, Access[]>();
  /** Keys that a transaction whose outcome stays unknown may have deleted. */
  readonly mayBeDeleted = new Set<KeyHistory>();
  unknownCommitted = 0;

  constructor(
    transactions: readonly ListTransaction[],
    last: ReadonlyMap<string, LastRead>,
    keys: KeyHistories,
    report: Report,
  ) {
    this.#transactions = transactions;
    this.#last = last;
    this.#keys = keys;
    this.#report = report;
  }

  /** Fills in the histories of the keys. Returns the transactions that never happened, as far as is known. */
  collect(): ReadonlySet<number> {
    // All writers must be known before the reads are checked.
    const all = this.#transactions.map((transaction, node) => this.#accesses(transaction, node));
    this.#transactions.forEach(({ outcome }, node) => {
      const accesses = all[node] ?? [];
      if (outcome === "unknown") this.#doubtful.set(node, accesses);
      else for (const access of accesses) this.#observe(access, outcome === "committed");
    });
    for (const [name, { list }] of this.#last) if (list !== null) this.#see(this.#keys.of(name), list, NO_WRITER);
    return this.#resolveDoubts();
  }

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
      const key = this.#keys.of(operation.key);
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
            this.#report.tell({
              anomaly: "own writes not seen",
              needsTime: false,
              message: `${this.#report.name(node)} read ${quote(key)} as ${show(list)}, where it knew ${show(known ?? mine)} from itself`,
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
              `${value} is written to ${quote(key)} by ${this.#report.name(other.node)} and by ${this.#report.name(node)}: values must be unique`,
            );
          key.writers.set(value, writing);
          const isCreation = operation.op === "create";
          if (isCreation && access.reading?.list === null && access.reading.creates === undefined)
            access.reading = { ...access.reading, creates: value };
          if (!isCreation && known === null)
            throw new Error(`${this.#report.name(node)} appends to ${quote(key)}, which it knew to be absent`);
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
        if (!life.isBroken) this.#report.tell(this.#contradiction(key, list, order, i, node));
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
    const ids = writers.flatMap((writer) => (writer === undefined ? [] : [this.#report.id(writer.node)]));
    const [first, second] = writers;
    const names = writers.map((writer) => (writer === undefined ? "no transaction" : this.#report.name(writer.node)));
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
      message: `${quote(key)} was ${show(other)} and also ${show(one)}${node === NO_WRITER ? "" : ` (seen by ${this.#report.name(node)})`}: neither begins with the other`,
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
      for (const { key, deletions } of accesses) if (deletions.length > 0) this.mayBeDeleted.add(key);
    return new Set(this.#doubtful.keys());
  }

  #happened(nodes: readonly number[]): boolean {
    for (const node of nodes) {
      for (const access of this.#doubtful.get(node) ?? []) this.#observe(access, true);
      this.#doubtful.delete(node);
      this.unknownCommitted += 1;
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
        (one) => (one.op === "create" || one.op === "append") && isSeen(this.#keys.of(one.key), one.value),
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
    const last = this.#last.get(key.name);
    return (
      (last !== undefined && last.list?.[0] !== birth) ||
      key.readings.some(({ list, version }) => list === null && version !== undefined && version > born) ||
      [...key.lives.keys()].some((other) => (key.writers.get(other)?.version ?? 0) > born)
    );
  }
}
