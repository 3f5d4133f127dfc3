/**
 * State machines: an instance is in one of a few states, and moves from one to another only as the definition allows.
 *
 * An instance is one record, and its log is the audit log. A transition is a decision under the record's lock: of two that exclude each other,
 * one succeeds, and the other gets the instance's state. Every attempt is in the log, a refused one too, written in the commit that decided it.
 * Outside `transact`, a refusal is committed and then thrown. Inside, `transition` throws and writes nothing, because an error discards the
 * whole decision; `tryTransition` returns the refusal, which is in the log if the decision commits.
 *
 * Guarantees: the log is a path that the definition allows, and ends in the instance's state; an event with an id takes effect once (G2); a
 * parked event is applied in the commit that makes it legal, in order of arrival.
 * Out of scope: the work that a state requires. Start a run in the same `transact`.
 */

import { checkCount, checkId, checkList, checkOptions, checkVersion, optionNames } from "../kernel/check.ts";
import type { Row } from "../kernel/contract.ts";
import type { Tx } from "../kernel/decision.ts";
import { showReadable } from "../kernel/encoding.ts";
import type { Kernel } from "../kernel/kernel.ts";
import { NO_ORIGIN, type Origin, withOrigin } from "../kernel/origin.ts";
import { checkState, type Machine, type MachineRules, rulesOf } from "./definition.ts";
import { deleteInstance } from "./delete.ts";
import { create, instanceOf, transition } from "./records.ts";
import { checkCreate, checkTransition, instanceAt } from "./request.ts";
import {
  createdOrThrow,
  fieldsOf,
  type MachineEvent,
  type MachineInstance,
  type MachineListOptions,
  type MachinePage,
  movedOrThrow,
  type Transitioned,
  type TransitionOptions,
  type TryCreate,
  type TryTransition,
  toPublic,
  type WithData,
} from "./results.ts";
import { type EntryData, type EntryName, type InstanceValue, instanceSpace } from "./stored.ts";

const LIST_OPTIONS = optionNames<MachineListOptions>({ state: true, after: true, limit: true });
const HISTORY_OPTIONS = optionNames<{ after?: unknown; limit?: unknown }>({ after: true, limit: true });

/** The machines of one `Pawl`. */
export class Machines {
  readonly #kernel: Kernel;

  constructor(kernel: Kernel) {
    this.#kernel = kernel;
  }

  of<State extends string, Data, Given>(
    machine: Machine<State, Data, Given>,
    origin?: Origin,
  ): MachineHandle<State, Data, Given> {
    return new MachineHandle<State, Data, Given>(this.#kernel, rulesOf(machine), origin);
  }

  within<State extends string, Data, Given>(
    tx: Tx,
    machine: Machine<State, Data, Given>,
  ): TxMachine<State, Data, Given> {
    return new TxMachine<State, Data, Given>(this.#kernel, tx, rulesOf(machine));
  }
}

/** The instances of one machine. */
export class MachineHandle<State extends string = string, Data = unknown, Given = Data | undefined> {
  readonly #kernel: Kernel;
  readonly #rules: MachineRules;
  readonly #origin: Origin;

  /** @internal */
  constructor(kernel: Kernel, rules: MachineRules, origin: Origin = NO_ORIGIN) {
    this.#kernel = kernel;
    this.#rules = rules;
    this.#origin = origin;
  }

  /** Creates an instance in the initial state. Throws `machine_exists`. */
  async create(id: string, ...rest: WithData<Given>): Promise<MachineInstance<State, Data>> {
    return createdOrThrow(this.#rules, id, await this.tryCreate(id, ...rest));
  }

  /** Creates an instance in the initial state, or returns that one exists. */
  async tryCreate(id: string, ...[options]: WithData<Given>): Promise<TryCreate<State, Data>> {
    const request = checkCreate(this.#rules, id, options);
    return this.#kernel.transact(
      withOrigin((tx) => create(tx, this.#rules, request), this.#origin),
      [request.at],
    );
  }

  /** Returns the instance, or null if there is none. */
  async get(id: string): Promise<MachineInstance<State, Data> | null> {
    const at = instanceAt(this.#rules, id);
    const [row] = await this.#kernel.read([at]);
    return row == null || row.value === null ? null : this.#show(row);
  }

  /**
   * Moves an instance to a state, and records the attempt in the audit log, refused or not. Throws `illegal_transition`, `guard_refused`,
   * `version_conflict`, `parking_full`, `event_conflict` or `machine_not_found`.
   */
  async transition(id: string, to: State, options?: TransitionOptions<Data>): Promise<Transitioned<State, Data>> {
    return movedOrThrow(this.#rules, id, await this.tryTransition(id, to, options));
  }

  /** Moves an instance to a state, or returns why it cannot. The attempt is recorded in the audit log in both cases. */
  async tryTransition(id: string, to: State, options?: TransitionOptions<Data>): Promise<TryTransition<State, Data>> {
    const request = checkTransition(this.#rules, id, to, options);
    const { at, eventAt } = request;
    return this.#kernel.transact(
      withOrigin((tx) => transition(this.#kernel, tx, this.#rules, request, true), this.#origin),
      eventAt === undefined ? [at] : [at, eventAt],
    );
  }

  /** Returns the audit log, in order: every attempt to move the instance, and its outcome. Empty if there is no instance. Default limit: 1000. */
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
   * Deletes an instance with its audit log and the ids of its events. An instance that is created later with the same id is a new one. Throws
   * `machine_not_found`.
   */
  async delete(id: string): Promise<void> {
    await deleteInstance(this.#kernel, this.#rules, id);
  }

  /** Returns a page of instances, in the order of their ids' UTF-8 bytes. */
  async list(options: MachineListOptions<State> = {}): Promise<MachinePage<State, Data>> {
    checkOptions(options, LIST_OPTIONS);
    const { state } = options;
    const limit = checkCount(options.limit ?? 100, "the limit", 1000);
    const after = options.after == null ? null : checkId(options.after, "after");
    const states: readonly string[] | undefined = typeof state === "string" ? [state] : state;
    if (states !== undefined) checkList(states, "the state");
    for (const one of states ?? []) checkState(this.#rules.targets, one, "the state");
    const space = instanceSpace(this.#rules.name);
    // One row more than requested tells whether there is a next page.
    const rows = await this.#kernel.list({ space, prefix: "", after, statuses: states, limit: limit + 1 });
    const page = rows.slice(0, limit);
    const { shown: instances, unreadable } = showReadable(page, (row) => this.#show(row));
    return { instances, unreadable, next: rows.length > limit ? (page.at(-1)?.key ?? null) : null };
  }

  /** @internal */
  within(tx: Tx): TxMachine<State, Data, Given> {
    return new TxMachine<State, Data, Given>(this.#kernel, tx, this.#rules);
  }

  #show(row: Row): MachineInstance<State, Data> {
    const value = this.#kernel.decode(row, row.value ?? "null") as InstanceValue;
    return toPublic(this.#rules, { id: row.key, state: row.status ?? "", ...fieldsOf(value), head: row.head });
  }
}

/** The instances of one machine inside `transact`: the same methods, synchronous. */
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
    return createdOrThrow(this.#rules, id, this.tryCreate(id, ...rest));
  }

  tryCreate(id: string, ...[options]: WithData<Given>): TryCreate<State, Data> {
    return create(this.#tx, this.#rules, checkCreate(this.#rules, id, options));
  }

  get(id: string): MachineInstance<State, Data> | null {
    const instance = instanceOf(this.#tx.record(instanceAt(this.#rules, id)));
    return instance === undefined ? null : toPublic(this.#rules, instance);
  }

  /** Moves an instance to a state. Throws if it cannot; the audit log then does not have the attempt. */
  transition(id: string, to: State, options?: TransitionOptions<Data>): Transitioned<State, Data> {
    const request = checkTransition(this.#rules, id, to, options);
    return movedOrThrow(this.#rules, id, transition<State, Data>(this.#kernel, this.#tx, this.#rules, request, false));
  }

  /** Moves an instance to a state, or returns why it cannot. If the decision commits, the attempt is recorded in both cases. */
  tryTransition(id: string, to: State, options?: TransitionOptions<Data>): TryTransition<State, Data> {
    return transition(this.#kernel, this.#tx, this.#rules, checkTransition(this.#rules, id, to, options), true);
  }
}
