/**
 * Machines: things that are in one of a few states, and move from one to another only as their definition allows.
 *
 * An instance is one record, and its log is the audit log. A transition is a decision under the record's lock, so of two that exclude each
 * other one wins, and the other is told where the instance is now. Every attempt at a move is in the log, a refused one too, written in the commit
 * that decided it: outside of `transact` the refusal is committed and then thrown. Inside, `transition` throws and leaves nothing,
 * as a throw drops the decision whole; `tryTransition` answers, and what it refused is in the log if the decision commits.
 *
 * Promises: the log is a path that the definition allows, and leads to the state the instance is in; an event with an id counts once (G2); an early
 * event that was parked is applied in the commit that makes it legal, first come first.
 * Leaves out: what is done about a state. Start a run in the same `transact`.
 */

import { checkCount, checkId, checkList, checkOptions, checkVersion, optionNames } from "../kernel/check.ts";
import type { Row } from "../kernel/contract.ts";
import type { Tx } from "../kernel/decision.ts";
import { showReadable } from "../kernel/encoding.ts";
import type { Kernel } from "../kernel/kernel.ts";
import {
  fieldsOf,
  type MachineEvent,
  type MachineInstance,
  type MachineListOptions,
  type MachinePage,
  made,
  moved,
  shown,
  type Transitioned,
  type TransitionOptions,
  type TryCreate,
  type TryTransition,
  type WithData,
} from "./answers.ts";
import { checkState, type Machine, type MachineRules, rulesOf } from "./definition.ts";
import { deleteInstance } from "./delete.ts";
import { attempt, checkAttempt, checkCreate, create, instanceAt, instanceOf } from "./records.ts";
import { type EntryData, type EntryName, type InstanceValue, instanceSpace } from "./words.ts";

const LIST_OPTIONS = optionNames<MachineListOptions>({ state: true, after: true, limit: true });
const HISTORY_OPTIONS = optionNames<{ after?: unknown; limit?: unknown }>({ after: true, limit: true });

/** All machines of one handle. */
export class Machines {
  readonly #kernel: Kernel;

  constructor(kernel: Kernel) {
    this.#kernel = kernel;
  }

  /** A handle on the instances of a machine. */
  of<State extends string, Data, Given>(machine: Machine<State, Data, Given>): MachineHandle<State, Data, Given> {
    return new MachineHandle<State, Data, Given>(this.#kernel, rulesOf(machine));
  }

  /** The same inside a decision. */
  within<State extends string, Data, Given>(
    tx: Tx,
    machine: Machine<State, Data, Given>,
  ): TxMachine<State, Data, Given> {
    return new TxMachine<State, Data, Given>(this.#kernel, tx, rulesOf(machine));
  }
}

/** A handle on the instances of one machine. */
export class MachineHandle<State extends string = string, Data = unknown, Given = Data | undefined> {
  readonly #kernel: Kernel;
  readonly #rules: MachineRules;

  /** @internal */
  constructor(kernel: Kernel, rules: MachineRules) {
    this.#kernel = kernel;
    this.#rules = rules;
  }

  /** Makes an instance in the machine's first state; throws `machine_exists` if there is one. */
  async create(id: string, ...rest: WithData<Given>): Promise<MachineInstance<State, Data>> {
    return made(this.#rules, id, await this.tryCreate(id, ...rest));
  }

  /** Makes an instance, or says that there is one. */
  async tryCreate(id: string, ...[options]: WithData<Given>): Promise<TryCreate<State, Data>> {
    const request = checkCreate(this.#rules, id, options);
    return this.#kernel.transact((tx) => create(tx, this.#rules, request), [request.at]);
  }

  /** The instance as it is, or null if there is none. */
  async get(id: string): Promise<MachineInstance<State, Data> | null> {
    const at = instanceAt(this.#rules, id);
    const [row] = await this.#kernel.read([at]);
    return row == null || row.value === null ? null : this.#show(row);
  }

  /** Moves an instance; throws if it cannot be moved there. The attempt is in the audit log either way. */
  async transition(id: string, to: State, options?: TransitionOptions<Data>): Promise<Transitioned<State, Data>> {
    return moved(this.#rules, id, await this.tryTransition(id, to, options));
  }

  /** Moves an instance, or says why not. The attempt is in the audit log either way. */
  async tryTransition(id: string, to: State, options?: TransitionOptions<Data>): Promise<TryTransition<State, Data>> {
    const request = checkAttempt(this.#rules, id, to, options);
    const { at, eventAt } = request;
    return this.#kernel.transact(
      (tx) => attempt(this.#kernel, tx, this.#rules, request, true),
      eventAt === undefined ? [at] : [at, eventAt],
    );
  }

  /** The audit log, in order: every attempt at a move of an instance that is there, and what it came to. Empty if there is no instance. */
  async history(
    id: string,
    options: { readonly after?: number | undefined; readonly limit?: number | undefined } = {},
  ): Promise<readonly MachineEvent<State>[]> {
    const at = instanceAt(this.#rules, id);
    checkOptions(options, HISTORY_OPTIONS);
    const after = checkVersion(options.after ?? 0, "after");
    const limit = checkCount(options.limit ?? 1000, "the limit");
    const [row] = await this.#kernel.read([at]);
    if (row == null || row.value === null) return [];
    const { deletedUpTo = 0 } = this.#kernel.decode(row, row.value) as InstanceValue;
    const entries = await this.#kernel.entries(at, Math.max(after, deletedUpTo), limit);
    return entries.map(({ version, name, data, atMs }) => {
      const { from, event, parked, to, ...rest } = this.#kernel.decode(at, data) as EntryData;
      return {
        version,
        at: new Date(atMs),
        outcome: name as EntryName,
        from: (from ?? null) as State | null,
        to: to as State,
        ...rest,
        ...(event === undefined ? {} : { eventId: event }),
        ...(parked === undefined ? {} : { parkedAs: parked }),
      };
    });
  }

  /**
   * Deletes an instance with its audit log, and forgets the ids of its events. Throws `machine_not_found`. An instance that is made under the
   * id later is another one.
   */
  async delete(id: string): Promise<void> {
    await deleteInstance(this.#kernel, this.#rules, id);
  }

  /** A page of instances in the order of their ids' UTF-8 bytes. */
  async list(options: MachineListOptions<State> = {}): Promise<MachinePage<State, Data>> {
    checkOptions(options, LIST_OPTIONS);
    const { state } = options;
    const limit = checkCount(options.limit ?? 100, "the limit", 1000);
    const after = options.after == null ? null : checkId(options.after, "after");
    const states: readonly string[] | undefined = typeof state === "string" ? [state] : state;
    if (states !== undefined) checkList(states, "the state");
    for (const one of states ?? []) checkState(this.#rules.targets, one, "the state");
    const space = instanceSpace(this.#rules.name);
    // One more than asked for tells whether there is a next page.
    const rows = await this.#kernel.list({ space, prefix: "", after, statuses: states, limit: limit + 1 });
    const page = rows.slice(0, limit);
    const { shown: instances, unreadable } = showReadable(page, (row) => this.#show(row));
    return { instances, unreadable, next: rows.length > limit ? (page.at(-1)?.key ?? null) : null };
  }

  /** The same machine inside a decision. @internal */
  within(tx: Tx): TxMachine<State, Data, Given> {
    return new TxMachine<State, Data, Given>(this.#kernel, tx, this.#rules);
  }

  #show(row: Row): MachineInstance<State, Data> {
    const value = this.#kernel.decode(row, row.value ?? "null") as InstanceValue;
    return shown(this.#rules, { id: row.key, state: row.status ?? "", ...fieldsOf(value), head: row.head });
  }
}

/** A machine inside a decision: the same verbs, at once. */
export class TxMachine<State extends string = string, Data = unknown, Given = Data | undefined> {
  readonly #kernel: Kernel;
  readonly #tx: Tx;
  readonly #rules: MachineRules;

  /** @internal */
  constructor(kernel: Kernel, tx: Tx, rules: MachineRules) {
    this.#kernel = kernel;
    this.#tx = tx;
    this.#rules = rules;
  }

  create(id: string, ...rest: WithData<Given>): MachineInstance<State, Data> {
    return made(this.#rules, id, this.tryCreate(id, ...rest));
  }

  tryCreate(id: string, ...[options]: WithData<Given>): TryCreate<State, Data> {
    return create(this.#tx, this.#rules, checkCreate(this.#rules, id, options));
  }

  get(id: string): MachineInstance<State, Data> | null {
    const instance = instanceOf(this.#tx.record(instanceAt(this.#rules, id)));
    return instance === undefined ? null : shown(this.#rules, instance);
  }

  /** Moves an instance; throws if it cannot be moved there, and then nothing is in the audit log either. */
  transition(id: string, to: State, options?: TransitionOptions<Data>): Transitioned<State, Data> {
    const request = checkAttempt(this.#rules, id, to, options);
    return moved(this.#rules, id, attempt<State, Data>(this.#kernel, this.#tx, this.#rules, request, false));
  }

  /** Moves an instance, or says why not; if the decision commits, the attempt is in the audit log either way. */
  tryTransition(id: string, to: State, options?: TransitionOptions<Data>): TryTransition<State, Data> {
    return attempt(this.#kernel, this.#tx, this.#rules, checkAttempt(this.#rules, id, to, options), true);
  }
}
