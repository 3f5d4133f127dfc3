/**
 * One-time actions: a coupon, a login link, a ticket, a licence. The first caller uses it, and no later one can.
 *
 * An action is one record, and all that happens to it is a decision (`records.ts`, by the rules of `decide.ts`), so the same verbs work
 * inside `transact`. What takes time is done outside: a payload is sealed before the commit, and a PIN is hashed between two commits, the
 * first of which counts the try. A process that dies in between has spent the try, and nothing else.
 *
 * Guarantees: one winner for each use, who gets the same result again with the same consumer key (G4); a wrong PIN never consumes, and
 * is counted before it is checked (G5); a stolen database reveals no PIN, payload, consumer key or generated id (G27).
 * Out of scope: renewing a claim's lease without a consumer key; several claims on one action at a time; and removing an action that never
 * expires: it is kept forever, because an action that is created again could be used again.
 */

import type { Queue } from "../kernel/capability.ts";
import { checkCount, checkOptions, checkVersion, type OptionNames, optionNames } from "../kernel/check.ts";
import type { Row } from "../kernel/contract.ts";
import type { Tx } from "../kernel/decision.ts";
import { InvalidArgumentError } from "../kernel/errors.ts";
import type { Kernel } from "../kernel/kernel.ts";
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
  type ActionResult,
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
import {
  type Abandoned,
  type ActionClaim,
  asTried,
  type Canceled,
  type Consumed,
  type Created,
  orThrow,
  shown,
  type Tried,
} from "./results.ts";
import { type ActionValue, actionAt, KIND } from "./stored.ts";
import { addressesOf, type Swept, sweepActionAt, sweepActions } from "./sweep.ts";
import { TxActions } from "./tx-actions.ts";

/** How many actions one call may create: a decision may touch a thousand records, and an action has up to three. */
const MAX_MANY = 300;

const HISTORY_OPTIONS = optionNames<{ after?: unknown; limit?: unknown }>({ after: true, limit: true });

/** One-time actions of one handle. */
export class Actions {
  readonly #core: Core;
  readonly #kernel: Kernel;
  /** @internal */
  readonly queues: readonly Queue[];

  /** @internal */
  constructor(kernel: Kernel, options: ActionsOptions = {}, ports: ActionPorts = {}) {
    this.#core = new Core(kernel, options, ports);
    this.#kernel = kernel;
    this.queues = [{ kind: KIND, chore: (at) => sweepActionAt(kernel, this.#core.deps, at) }];
  }

  /** Throws if the pepper is not the one that was used before. Otherwise the first use would throw. @internal */
  checkPepper(): Promise<void> {
    return this.#core.peppers.check(this.#kernel);
  }

  /** The same verbs inside a decision. @internal */
  within(tx: Tx): TxActions {
    return new TxActions(tx, this.#core);
  }

  /** Creates an action. The same id with the same request is the same action. Throws `action_conflict` for another request. */
  async create(options: ActionOptions = {}): Promise<Created> {
    const [created] = await this.createMany([options]);
    if (created === undefined) throw new Error("one action was requested");
    return created;
  }

  /** Creates up to 300 actions in one commit: all of them or none. */
  async createMany(list: readonly ActionOptions[]): Promise<readonly Created[]> {
    if (!Array.isArray(list) || list.length > MAX_MANY)
      throw new InvalidArgumentError("the actions", `must be a list of at most ${MAX_MANY}`);
    if (list.length === 0) return [];
    // All are checked before the first is hashed, which is slow.
    const checked = list.map((options) => checkAction(this.#core, options));
    const prepared: PreparedAction[] = [];
    for (const one of checked) prepared.push(await sealAction(this.#core, one));
    const hasOwners = prepared.some(({ plan }) => plan.request.owner !== undefined);
    // The name in an owner's list contains this time, so that all records are known before the commit.
    const createdAtMs = hasOwners ? await clockOf(this.#kernel) : undefined;
    const plans = prepared.map(({ plan }) => ({ ...plan, createdAtMs }));
    const { deps } = this.#core;
    const made = await this.#kernel.transact(
      (tx) => plans.map((plan) => createAction(tx, plan, deps)),
      plans.flatMap(addressesOf),
    );
    return prepared.map(({ id, ref }, i) => ({ id, ref, isNew: made[i]?.isNew ?? false }));
  }

  /** Hashes the PIN and seals the payload of an action, so that it can be created inside `transact`: `tx.actions.create(prepared)`. */
  async prepare(options: ActionOptions = {}): Promise<PreparedAction> {
    return sealAction(this.#core, checkAction(this.#core, options));
  }

  /** Returns the action as it is now, or null. Changes nothing. */
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

  /** The audit trail: what happened to the action, the oldest entry first. */
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

  /** Uses the action. One caller for each use succeeds, ever; the others get an error that says why not. */
  async consume<Payload = unknown>(id: string, options: ConsumeOptions = {}): Promise<Consumed<Payload>> {
    return orThrow(await this.#consume(id, options), shown.consumed<Payload>);
  }

  async tryConsume<Payload = unknown>(id: string, options: ConsumeOptions = {}): Promise<Tried<Consumed<Payload>>> {
    return asTried(await this.#consume(id, options), shown.consumed<Payload>);
  }

  #consume(id: string, options: ConsumeOptions): Promise<ActionResult<Taken>> {
    const { deps } = this.#core;
    return this.#take(id, options, CONSUME_OPTIONS, (tx, taker) => consumeAction(tx, taker, deps));
  }

  /**
   * Reserves the action for this caller, who does something before it is used: then call `complete`, or `abandon`. No other caller
   * can use it until the lease ends. One claim at a time, also if the action has several uses.
   */
  async claim(id: string, options: ClaimOptions = {}): Promise<ActionClaim> {
    return orThrow(await this.#claim(id, options), shown.claimed);
  }

  async tryClaim(id: string, options: ClaimOptions = {}): Promise<Tried<ActionClaim>> {
    return asTried(await this.#claim(id, options), shown.claimed);
  }

  #claim(id: string, options: ClaimOptions): Promise<ActionResult<Claimed>> {
    const leaseMs = leaseOf(options);
    return this.#take(id, options, CLAIM_OPTIONS, (tx, taker) => claimAction(tx, taker, leaseMs));
  }

  /** Uses a claimed action, and returns the payload. The same fence again gets the same result. Throws `fenced` for a stale fence. */
  async complete<Payload = unknown>(id: string, options: CompleteOptions): Promise<Consumed<Payload>> {
    return orThrow(await this.#complete(id, options), shown.consumed<Payload>);
  }

  async tryComplete<Payload = unknown>(id: string, options: CompleteOptions): Promise<Tried<Consumed<Payload>>> {
    return asTried(await this.#complete(id, options), shown.consumed<Payload>);
  }

  #complete(id: string, options: CompleteOptions): Promise<ActionResult<Taken>> {
    const holder = this.#core.holder(id, options, COMPLETE_OPTIONS);
    return this.#commit(holder, (tx) => completeAction(tx, holder, this.#core.deps));
  }

  /** Releases a claimed action, unused. */
  async abandon(id: string, options: HeldOptions): Promise<Abandoned> {
    return orThrow(await this.#abandon(id, options), shown.abandoned);
  }

  async tryAbandon(id: string, options: HeldOptions): Promise<Tried<Abandoned>> {
    return asTried(await this.#abandon(id, options), shown.abandoned);
  }

  #abandon(id: string, options: HeldOptions): Promise<ActionResult<Abandoned>> {
    const holder = this.#core.holder(id, options, HELD_OPTIONS);
    return this.#commit(holder, (tx) => abandonAction(tx, holder, this.#core.deps));
  }

  /** Makes the action unusable. Throws `already_used`, `expired`, or `claimed` if it is claimed now. */
  async cancel(target: ActionTarget, options: Asking = {}): Promise<Canceled> {
    return orThrow(await this.#cancel(target, options), shown.canceled);
  }

  async tryCancel(target: ActionTarget, options: Asking = {}): Promise<Tried<Canceled>> {
    return asTried(await this.#cancel(target, options), shown.canceled);
  }

  #cancel(target: ActionTarget, options: Asking): Promise<ReturnType<typeof cancelAction>> {
    const canceler = { ref: refOfTarget(target), consumers: [], ...checkAsking(options, ASKING) };
    return this.#commit(canceler, (tx) => cancelAction(tx, canceler, this.#core.deps));
  }

  /** Takes the action in one decision, or in two with the hashing of the PIN between them. */
  async #take<T>(
    id: string,
    options: ConsumeOptions,
    known: OptionNames,
    act: (tx: Tx, taker: Taker) => ActionResult<T>,
  ): Promise<ActionResult<T>> {
    const taker = this.#core.taker(id, options, known);
    if (options.pin === undefined) return this.#commit(taker, (tx) => act(tx, taker));
    const pin = checkPin(options.pin);
    const { peppers, gate, slowHash } = this.#core;
    const [newest] = peppers.for("a PIN");
    await peppers.check(this.#kernel);
    try {
      return await gate.run(async () => {
        const begun = await this.#commit(taker, (tx): Try | ActionResult<T> => {
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
   * Removes actions whose retention has ended, and records leases that ended without `complete` or `abandon`: about `limit` records at a
   * time. Default: 100. It also runs automatically in processes that create actions.
   */
  async sweep(limit = 100): Promise<Swept> {
    return sweepActions(this.#kernel, this.#core.deps, limit);
  }
}
