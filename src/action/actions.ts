/**
 * One-time actions: a coupon, a login link, a ticket, a licence. Whoever comes first uses it, and nobody after.
 *
 * An action is one record, and all that happens to it is a decision (`records.ts`, by the rules of `decide.ts`), so the same verbs work
 * inside `transact`. What takes time is done outside: a payload is sealed before the commit, and a PIN is hashed between two commits, the
 * first of which counts the try. A process that dies in between has spent the try, and nothing else.
 *
 * Promises: one winner for each use, who can ask again with the same consumer key and hears the same (G4); a wrong PIN never consumes, and
 * is counted before it is checked (G5); a stolen database gives away no PIN, payload, consumer key or generated id (G27).
 * Leaves out: renewing a claim's lease without a consumer key; several claims on one action at a time; and removing an action that never
 * expires: it is kept for ever, because made again it could be used again.
 */

import { checkCount, checkOptions, checkVersion, type OptionNames, optionNames } from "../kernel/check.ts";
import type { Row } from "../kernel/contract.ts";
import type { Tx } from "../kernel/decision.ts";
import { InvalidArgumentError } from "../kernel/errors.ts";
import type { Kernel } from "../kernel/kernel.ts";
import {
  type Abandoned,
  type ActionClaim,
  type Canceled,
  type Consumed,
  type Created,
  orThrow,
  shown,
  type Tried,
  told,
} from "./answers.ts";
import { type ActionPorts, type ActionsOptions, Core } from "./core.ts";
import { usesOf } from "./decide.ts";
import { ActionNotFoundError, PinBusyError } from "./errors.ts";
import { type ActionEntry, type ActionInfo, showAction } from "./info.ts";
import { type ActionListOptions, type ActionPage, clockOf, listActions } from "./list.ts";
import {
  type ActionOptions,
  type ActionTarget,
  ASKING,
  type Asking,
  CLAIM_OPTIONS,
  type ClaimOptions,
  COMPLETE_OPTIONS,
  CONSUME_OPTIONS,
  type CompleteOptions,
  type ConsumeOptions,
  checkAsking,
  HELD_OPTIONS,
  type HeldOptions,
  leaseOf,
  refOfTarget,
} from "./options.ts";
import { checkPin } from "./pepper.ts";
import { checkAction, type PreparedAction, sealAction } from "./prepare.ts";
import {
  type Answer,
  abandonAction,
  type Claimed,
  cancelAction,
  claimAction,
  completeAction,
  consumeAction,
  countTry,
  createAction,
  type Taken,
  type Taker,
  type Try,
} from "./records.ts";
import { addressesOf, type Swept, sweepActions } from "./sweep.ts";
import { TxActions } from "./tx-actions.ts";
import { type ActionValue, actionAt } from "./words.ts";

/** Makes so many at once at most: a decision may touch a thousand records, and an action has up to three. */
const MAX_MANY = 300;
/** Each sweep may remove more than were made since the last one, or they would grow in number without end. */
const SWEEP_EVERY = 256;
const SWEPT_AT_ONCE = 500;

const HISTORY_OPTIONS = optionNames<{ after?: unknown; limit?: unknown }>({ after: true, limit: true });

/** One-time actions of one handle. */
export class Actions {
  readonly #core: Core;
  readonly #kernel: Kernel;

  /** @internal */
  constructor(kernel: Kernel, options: ActionsOptions = {}, ports: ActionPorts = {}) {
    this.#core = new Core(kernel, options, ports);
    this.#kernel = kernel;
  }

  #made = 0;

  /** Notices a pepper that is not the one of before, if there is one; the first use would. @internal */
  checkPepper(): Promise<void> {
    return this.#core.peppers.check(this.#kernel);
  }

  /** The same verbs inside a decision. @internal */
  within(tx: Tx): TxActions {
    return new TxActions(tx, this.#core);
  }

  /** Makes an action. The same id with the same request again is the same action; with another request it is refused. */
  async create(options: ActionOptions = {}): Promise<Created> {
    const [created] = await this.createMany([options]);
    if (created === undefined) throw new Error("one action was asked for");
    return created;
  }

  /** Makes up to 300 actions in one commit: all of them or none. */
  async createMany(list: readonly ActionOptions[]): Promise<readonly Created[]> {
    if (!Array.isArray(list) || list.length > MAX_MANY)
      throw new InvalidArgumentError("the actions", `must be a list of at most ${MAX_MANY}`);
    if (list.length === 0) return [];
    // All are checked before the first is hashed, which takes its time.
    const checked = list.map((options) => checkAction(this.#core, options));
    const prepared: PreparedAction[] = [];
    for (const one of checked) prepared.push(await sealAction(this.#core, one));
    const hasOwners = prepared.some(({ plan }) => plan.request.owner !== undefined);
    // The place in an owner's list goes by this time, so that all records are known before the commit.
    const createdAtMs = hasOwners ? await clockOf(this.#kernel) : undefined;
    const plans = prepared.map(({ plan }) => ({ ...plan, createdAtMs }));
    const { means } = this.#core;
    const made = await this.#kernel.transact(
      (tx) => plans.map((plan) => createAction(tx, plan, means)),
      plans.flatMap(addressesOf),
    );
    this.#tidy(plans.length);
    return prepared.map(({ id, ref }, i) => ({ id, ref, isNew: made[i]?.isNew ?? false }));
  }

  /** Whoever makes actions sweeps up: a small sweep for so many new ones. What is missed now is found by the next one. */
  #tidy(made: number): void {
    this.#made += made;
    if (this.#made < SWEEP_EVERY) return;
    this.#made = 0;
    this.sweep(SWEPT_AT_ONCE).catch(() => {});
  }

  /** Hashes the PIN and seals the payload of an action, so that it can be made inside `transact`: `tx.actions.create(prepared)`. */
  async prepare(options: ActionOptions = {}): Promise<PreparedAction> {
    return sealAction(this.#core, checkAction(this.#core, options));
  }

  /** The action as it is now, or null. Looking settles nothing. */
  async get(target: ActionTarget): Promise<ActionInfo | null> {
    const ref = refOfTarget(target);
    const [[row = null], nowMs] = await Promise.all([this.#kernel.read([actionAt(ref)]), clockOf(this.#kernel)]);
    return row === null || row.value === null ? null : showAction(ref, this.#valueOf(row), row, nowMs);
  }

  #valueOf(row: Row): ActionValue {
    return this.#kernel.decodeFresh(row, row.value ?? "null") as ActionValue;
  }

  /** A page of actions, the newest first. */
  async list(options: ActionListOptions = {}): Promise<ActionPage> {
    return listActions(this.#kernel, options);
  }

  /** The audit trail: what happened to the action, the first first. */
  async history(
    target: ActionTarget,
    options: { readonly after?: number | undefined; readonly limit?: number | undefined } = {},
  ): Promise<readonly ActionEntry[]> {
    const ref = refOfTarget(target);
    checkOptions(options, HISTORY_OPTIONS);
    const limit = checkCount(options.limit ?? 1000, "the limit");
    const after = checkVersion(options.after ?? 0, "after");
    const at = actionAt(ref);
    const [row = null] = await this.#kernel.read([at]);
    if (row === null || row.value === null) throw new ActionNotFoundError({ id: null, ref });
    const { from } = this.#valueOf(row);
    const entries = await this.#kernel.entries(at, Math.max(after, from - 1), limit);
    return entries.map(({ version, name, data, atMs }) => ({
      version,
      name,
      at: new Date(atMs),
      data: this.#kernel.decodeFresh(row, data),
    }));
  }

  /** Uses the action. One caller for each use succeeds, ever; the others are told why not. */
  async consume<Payload = unknown>(id: string, options: ConsumeOptions = {}): Promise<Consumed<Payload>> {
    return orThrow(await this.#consume(id, options), shown.consumed<Payload>);
  }

  async tryConsume<Payload = unknown>(id: string, options: ConsumeOptions = {}): Promise<Tried<Consumed<Payload>>> {
    return told(await this.#consume(id, options), shown.consumed<Payload>);
  }

  #consume(id: string, options: ConsumeOptions): Promise<Answer<Taken>> {
    const { means } = this.#core;
    return this.#take(id, options, CONSUME_OPTIONS, (tx, taker) => consumeAction(tx, taker, means));
  }

  /**
   * Keeps the action for this caller, who has an effect to bring about before it is used: then `complete`, or `abandon`. Nobody else
   * can use it until the lease ends. One claim at a time, also if the action has several uses.
   */
  async claim(id: string, options: ClaimOptions = {}): Promise<ActionClaim> {
    return orThrow(await this.#claim(id, options), shown.claimed);
  }

  async tryClaim(id: string, options: ClaimOptions = {}): Promise<Tried<ActionClaim>> {
    return told(await this.#claim(id, options), shown.claimed);
  }

  #claim(id: string, options: ClaimOptions): Promise<Answer<Claimed>> {
    const leaseMs = leaseOf(options);
    return this.#take(id, options, CLAIM_OPTIONS, (tx, taker) => claimAction(tx, taker, leaseMs));
  }

  /** Uses what was claimed, and gives the payload. The same fence again hears the same; a stale one is refused as `fenced`. */
  async complete<Payload = unknown>(id: string, options: CompleteOptions): Promise<Consumed<Payload>> {
    return orThrow(await this.#complete(id, options), shown.consumed<Payload>);
  }

  async tryComplete<Payload = unknown>(id: string, options: CompleteOptions): Promise<Tried<Consumed<Payload>>> {
    return told(await this.#complete(id, options), shown.consumed<Payload>);
  }

  #complete(id: string, options: CompleteOptions): Promise<Answer<Taken>> {
    const holder = this.#core.holder(id, options, COMPLETE_OPTIONS);
    return this.#commit(holder, (tx) => completeAction(tx, holder, this.#core.means));
  }

  /** Gives back what was claimed, unused. */
  async abandon(id: string, options: HeldOptions): Promise<Abandoned> {
    return orThrow(await this.#abandon(id, options), shown.abandoned);
  }

  async tryAbandon(id: string, options: HeldOptions): Promise<Tried<Abandoned>> {
    return told(await this.#abandon(id, options), shown.abandoned);
  }

  #abandon(id: string, options: HeldOptions): Promise<Answer<Abandoned>> {
    const holder = this.#core.holder(id, options, HELD_OPTIONS);
    return this.#commit(holder, (tx) => abandonAction(tx, holder, this.#core.means));
  }

  /** Makes the action unusable. One that is used up or expired is refused, and so is one that somebody is at work on. */
  async cancel(target: ActionTarget, options: Asking = {}): Promise<Canceled> {
    return orThrow(await this.#cancel(target, options), shown.canceled);
  }

  async tryCancel(target: ActionTarget, options: Asking = {}): Promise<Tried<Canceled>> {
    return told(await this.#cancel(target, options), shown.canceled);
  }

  #cancel(target: ActionTarget, options: Asking): Promise<ReturnType<typeof cancelAction>> {
    const canceler = { ref: refOfTarget(target), consumers: [], ...checkAsking(options, ASKING) };
    return this.#commit(canceler, (tx) => cancelAction(tx, canceler, this.#core.means));
  }

  /** Takes the action by one decision, or by two with the hashing of the PIN between them. */
  async #take<T>(
    id: string,
    options: ConsumeOptions,
    known: OptionNames,
    act: (tx: Tx, taker: Taker) => Answer<T>,
  ): Promise<Answer<T>> {
    const taker = this.#core.taker(id, options, known);
    if (options.pin === undefined) return this.#commit(taker, (tx) => act(tx, taker));
    const pin = checkPin(options.pin);
    const { peppers, gate, slowHash } = this.#core;
    const [newest] = peppers.for("a PIN");
    await peppers.check(this.#kernel);
    try {
      return await gate.run(async () => {
        const begun = await this.#commit(taker, (tx): Try | Answer<T> => {
          const step = countTry(tx, taker, (id) => peppers.find(id) !== undefined);
          return step.is === "settled" ? act(tx, taker) : step;
        });
        if (!("is" in begun)) return begun;
        const pepper = begun.is === "count" ? (peppers.find(begun.pepper) ?? newest) : newest;
        const hash = await pepper.pin(taker.ref, pin, slowHash);
        const proven = { ...taker, proof: { hash, isCounted: begun.is === "count" } };
        return this.#commit(taker, (tx) => act(tx, proven));
      });
    } catch (error) {
      if (!(error instanceof PinBusyError)) throw error;
      return { ok: false, name: { id: null, ref: taker.ref }, refusal: { code: "busy" } };
    }
  }

  async #commit<T>(taker: Taker, decide: (tx: Tx) => T): Promise<T> {
    const { peppers } = this.#core;
    if (taker.consumers.length > 0 && !peppers.isChecked) await peppers.check(this.#kernel);
    const { value, isShared } = await this.#kernel.transact((tx) => {
      const value = decide(tx);
      const record = tx.record(actionAt(taker.ref));
      return { value, isShared: record.exists && usesOf(record.value as ActionValue) > 1 };
    }, this.#core.touches(taker));
    this.#core.learn(taker.ref, isShared);
    return value;
  }

  /**
   * Removes what has been kept for long enough, and notes leases that ended without an answer: about `limit` records at a time, 100
   * unless said otherwise. It happens by itself, now and then, where actions are made.
   */
  async sweep(limit = 100): Promise<Swept> {
    return sweepActions(this.#kernel, this.#core.means, limit);
  }
}
