/**
 * Actions inside a decision: the same verbs, synchronous, on the records of the commit.
 */

import { checkOptions, type OptionNames } from "../kernel/check.ts";
import type { Tx } from "../kernel/decision.ts";
import { InvalidArgumentError } from "../kernel/errors.ts";
import { bytesFrom } from "../kernel/seal/cipher.ts";
import { type Core, newId } from "./core.ts";
import { type ActionInfo, showAction } from "./info.ts";
import {
  ACTION_OPTIONS,
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
  checkRequest,
  checkTries,
  HELD_OPTIONS,
  type HeldOptions,
  leaseOf,
  refOfId,
  refOfTarget,
} from "./options.ts";
import { PreparedAction } from "./prepare.ts";
import {
  type ActionPlan,
  type ActionResult,
  abandonAction,
  type Claimed,
  type ClaimHolder,
  cancelAction,
  claimAction,
  completeAction,
  consumeAction,
  createAction,
  type Taken,
  type Taker,
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
import { type ActionValue, actionAt } from "./stored.ts";

const refuseUnprepared = ({ pin, payload }: ActionOptions): void => {
  if (pin !== undefined || payload !== undefined)
    throw new InvalidArgumentError(
      "a PIN or a payload",
      "must be prepared outside of the decision: const prepared = await pawl.actions.prepare(options)",
    );
};

/** Actions inside a decision: the same verbs, synchronous. A PIN cannot be checked here, because hashing it is slow and asynchronous. */
export class TxActions {
  readonly #tx: Tx;
  readonly #core: Core;

  /** @internal */
  constructor(tx: Tx, core: Core) {
    this.#tx = tx;
    this.#core = core;
  }

  /** Creates an action in this commit. One with a PIN or a payload must be prepared. */
  create(action: ActionOptions | PreparedAction = {}): Created {
    const { id, plan } = this.#prepared(action);
    return { id, ref: plan.ref, ...createAction(this.#tx, plan, this.#core.deps) };
  }

  #prepared(action: ActionOptions | PreparedAction): { readonly id: string; readonly plan: ActionPlan } {
    if (action instanceof PreparedAction) {
      if (!action.isOf(this.#core))
        throw new InvalidArgumentError("the action", "must be prepared by the handle whose transact this is");
      return action;
    }
    checkOptions(action, ACTION_OPTIONS, "the action");
    refuseUnprepared(action);
    checkTries(action);
    const id = action.id ?? newId((size) => bytesFrom(() => this.#tx.uuid(), size));
    return { id, plan: { ref: refOfId(id), id: action.id ?? null, request: checkRequest(action) } };
  }

  get(target: ActionTarget): ActionInfo | null {
    const ref = refOfTarget(target);
    const record = this.#tx.record(actionAt(ref));
    return record.exists ? showAction(ref, record.value as ActionValue, record, this.#tx.nowMs) : null;
  }

  consume<Payload = unknown>(id: string, options: Omit<ConsumeOptions, "pin"> = {}): Consumed<Payload> {
    return orThrow(this.#consume(id, options), shown.consumed<Payload>);
  }

  tryConsume<Payload = unknown>(id: string, options: Omit<ConsumeOptions, "pin"> = {}): Tried<Consumed<Payload>> {
    return asTried(this.#consume(id, options), shown.consumed<Payload>);
  }

  #consume(id: string, options: ConsumeOptions): ActionResult<Taken> {
    refusePin(options);
    return consumeAction(this.#tx, this.#taker(id, options, CONSUME_OPTIONS), this.#core.deps);
  }

  claim(id: string, options: Omit<ClaimOptions, "pin"> = {}): ActionClaim {
    return orThrow(this.#claim(id, options), shown.claimed);
  }

  tryClaim(id: string, options: Omit<ClaimOptions, "pin"> = {}): Tried<ActionClaim> {
    return asTried(this.#claim(id, options), shown.claimed);
  }

  #claim(id: string, options: ClaimOptions): ActionResult<Claimed> {
    refusePin(options);
    return claimAction(this.#tx, this.#taker(id, options, CLAIM_OPTIONS), leaseOf(options));
  }

  complete<Payload = unknown>(id: string, options: CompleteOptions): Consumed<Payload> {
    return orThrow(this.#complete(id, options), shown.consumed<Payload>);
  }

  tryComplete<Payload = unknown>(id: string, options: CompleteOptions): Tried<Consumed<Payload>> {
    return asTried(this.#complete(id, options), shown.consumed<Payload>);
  }

  #complete(id: string, options: CompleteOptions): ActionResult<Taken> {
    return completeAction(this.#tx, this.#holder(id, options, COMPLETE_OPTIONS), this.#core.deps);
  }

  abandon(id: string, options: HeldOptions): Abandoned {
    return orThrow(this.#abandon(id, options), shown.abandoned);
  }

  tryAbandon(id: string, options: HeldOptions): Tried<Abandoned> {
    return asTried(this.#abandon(id, options), shown.abandoned);
  }

  #abandon(id: string, options: HeldOptions): ActionResult<Abandoned> {
    return abandonAction(this.#tx, this.#holder(id, options, HELD_OPTIONS), this.#core.deps);
  }

  #taker(id: string, options: ConsumeOptions, known: OptionNames): Taker {
    const taker = this.#core.taker(id, options, known);
    if (taker.consumers.length > 0) this.#core.peppers.checkIn(this.#tx);
    return taker;
  }

  #holder(id: string, options: CompleteOptions, known: OptionNames): ClaimHolder {
    const holder = this.#core.holder(id, options, known);
    if (holder.consumers.length > 0) this.#core.peppers.checkIn(this.#tx);
    return holder;
  }

  cancel(target: ActionTarget, options: Asking = {}): Canceled {
    return orThrow(this.#cancel(target, options), shown.canceled);
  }

  tryCancel(target: ActionTarget, options: Asking = {}): Tried<Canceled> {
    return asTried(this.#cancel(target, options), shown.canceled);
  }

  #cancel(target: ActionTarget, options: Asking): ReturnType<typeof cancelAction> {
    const canceler = { ref: refOfTarget(target), ...checkAsking(options, ASKING) };
    return cancelAction(this.#tx, canceler, this.#core.deps);
  }
}

function refusePin({ pin }: ConsumeOptions): void {
  if (pin !== undefined)
    throw new InvalidArgumentError("a PIN", "cannot be checked inside a decision: use pawl.actions.consume");
}
