/**
 * Actions as decisions on their records: create, count a PIN try, consume, claim, complete, abandon, cancel, sweep.
 *
 * One record holds what is true of an action, and all that happens to it is decided under its lock, so there is one winner for each use.
 * A consumer is recognized by its consumer key: in the record itself if the action has one use, in a record of its own
 * if it has more. A payload is decrypted in the decision that returns it: if that fails, the action is not used up.
 *
 * Guarantees: one winner for each use, ever, who gets the same result when it repeats the call (G4); a try is counted in a commit of its own
 * before the PIN is checked (G5); a caller that lost the lease completes nothing (G6).
 */

import { isDeepStrictEqual } from "node:util";
import { decideRenew, isHeldUnder, nextFence } from "../kernel/claim/decide.ts";
import type { Tx } from "../kernel/decision.ts";
import type { Draft } from "../kernel/draft.ts";
import { KeyUnavailableError } from "../kernel/seal/errors.ts";
import type { Sealed } from "../kernel/seal/ring.ts";
import {
  type ActionRefusal,
  alreadyUsed,
  expiryOf,
  keptUntil,
  refundTry,
  refuseCanceling,
  refuseSettled,
  refuseTaking,
  statusOf,
  tried,
  triesLeftOf,
  used,
  usesLeftOf,
  usesOf,
} from "./decide.ts";
import { ActionConflictError, type ActionName } from "./errors.ts";
import { isRightPin } from "./pepper.ts";
import {
  type ActionEvent,
  type ActionRequest,
  type ActionValue,
  actionAt,
  compact,
  KIND,
  ownedAt,
  type PinMark,
  payloadAt,
  type Use,
  useAt,
} from "./stored.ts";

/** What decisions on actions need besides the records. */
export interface ActionDeps {
  /** How long the outcome of an action is kept after it has expired. */
  readonly retentionMs: number;
  /** Decrypts a sealed value; throws if it cannot be opened. */
  readonly open: (ref: string, sealed: Sealed) => unknown;
}

export type ActionResult<T> = ({ readonly ok: true } & T) | Refused;

/** Refused, with the name of the action and why. */
export interface Refused {
  readonly ok: false;
  readonly name: ActionName;
  readonly refusal: ActionRefusal;
}

/** An action to be created, with all its secrets hashed or sealed. */
export interface ActionPlan {
  readonly ref: string;
  /** The user's own id; a generated one is known to the caller only. */
  readonly id: string | null;
  readonly request: ActionRequest;
  /** The same PIN under older peppers, by which an action that was created before is recognized. */
  readonly olderPins?: readonly PinMark[] | undefined;
  /** The payload as it will be returned, and as it is stored. */
  readonly payload?: { readonly value: unknown; readonly sealed: Sealed } | undefined;
  /** A recent time of the store's clock, if the name in the owner's list must be known before the commit. */
  readonly createdAtMs?: number | undefined;
}

/** Creates an action, or finds that it exists with the same request. */
export function createAction(tx: Tx, plan: ActionPlan, deps: ActionDeps): { readonly isNew: boolean } {
  const { ref, id, request, payload } = plan;
  const record = tx.record(actionAt(ref));
  if (record.exists) {
    if (!isSameRequest(tx, actionOf(record), plan, deps)) throw new ActionConflictError({ id, ref });
    return { isNew: false };
  }
  const isShared = (request.uses ?? 1) > 1;
  const { createdAtMs = tx.nowMs } = plan;
  const value: ActionValue = compact({
    id: id ?? undefined,
    request,
    createdAtMs,
    from: record.head + 1,
    expiresAtMs: expiryOf(request, tx.nowMs),
    used: 0,
    sealed: isShared ? undefined : payload?.sealed,
  });
  // The payload may be too large, so it is written first: a caller that catches the error has created nothing.
  if (isShared && payload !== undefined) tx.record(payloadAt(ref)).write({ value: payload.sealed });
  record.write({ value, status: statusOf(value), kind: KIND, dueMs: keptUntil(value, deps.retentionMs) });
  note(record, "created", {});
  if (request.owner !== undefined) tx.record(ownedAt(request.owner, createdAtMs, ref)).write({ value: true });
  return { isNew: true };
}

function isSameRequest(tx: Tx, value: ActionValue, plan: ActionPlan, deps: ActionDeps): boolean {
  const { ref, request, olderPins = [], payload } = plan;
  const pins = request.pin === undefined ? [] : [request.pin, ...olderPins];
  // A PIN under an unknown pepper cannot be compared.
  if (request.pin !== undefined) checkPepper(value, (id) => pins.some(({ pepper }) => pepper === id));
  const pin = pins.find(({ pepper }) => pepper === value.request.pin?.pepper) ?? request.pin;
  if (!isDeepStrictEqual(value.request, pin === undefined ? request : { ...request, pin })) return false;
  const sealed = sealedOf(tx, ref, value);
  if (sealed === undefined || payload === undefined) return sealed === payload;
  return isDeepStrictEqual(deps.open(ref, sealed), payload.value);
}

function checkPepper({ request }: ActionValue, isKnown: (pepper: string) => boolean): void {
  if (request.pin !== undefined && !isKnown(request.pin.pepper))
    throw new KeyUnavailableError("pepper", "the PIN was hashed with another pepper");
}

const actionOf = (record: Draft): ActionValue => record.value as ActionValue;

const sealedOf = (tx: Tx, ref: string, value: ActionValue): Sealed | undefined =>
  usesOf(value) === 1 ? value.sealed : (tx.record(payloadAt(ref)).value as Sealed | undefined);

const note = (record: Draft, event: ActionEvent, data: object): void => void record.append(event, compact(data));

/** The caller that consumes or claims an action. */
export interface Taker {
  readonly ref: string;
  /** The hashes of its key, by which a repeated call is recognized: under the newest pepper, then under older ones. */
  readonly consumers: readonly string[];
  readonly by?: string | undefined;
  readonly reason?: string | undefined;
  readonly proof?: Proof | undefined;
}

/** The hash of a PIN, and whether a try was counted for it. */
export interface Proof {
  readonly hash: string;
  readonly isCounted: boolean;
}

/** The result of a consumption. */
export interface Taken {
  readonly use: Use;
  readonly usesLeft: number;
  readonly replayed: boolean;
  /** Undefined if there is none. */
  readonly payload: unknown;
}

export interface Claimed {
  readonly fence: number;
  readonly leaseEndsAtMs: number;
  readonly replayed: boolean;
}

type FoundAction = { readonly record: Draft; readonly value: ActionValue; readonly name: ActionName };

/** The action's record, if there is one. */
function find(tx: Tx, ref: string): FoundAction | Refused {
  const record = tx.record(actionAt(ref));
  if (!record.exists) return { ok: false, name: { id: null, ref }, refusal: { code: "action_not_found" } };
  const value = actionOf(record);
  return { record, value, name: { id: value.id ?? null, ref } };
}

/** The earlier use of the action by this consumer, if there is one. */
function useOf(tx: Tx, value: ActionValue, ref: string, consumers: readonly string[]): Use | undefined {
  if (usesOf(value) === 1)
    return value.last?.consumer !== undefined && consumers.includes(value.last.consumer) ? value.last : undefined;
  const uses = consumers.map((consumer) => tx.record(useAt(ref, consumer)).value as Use | undefined);
  return uses.find((use) => use !== undefined);
}

const leaseEnd = (record: Draft): number | null => (record.holder === null ? null : record.dueMs);

/** What to do with a PIN. */
export type Try =
  /** A try was counted: hash the PIN with this pepper. */
  | { readonly is: "count"; readonly pepper: string }
  /** There is nothing to count, but the PIN must still be hashed, so that it takes the same time. */
  | { readonly is: "hash" }
  /** The PIN does not matter: the action cannot be taken, or this consumer has taken it already. */
  | { readonly is: "settled" };

/** Counts a try at the PIN, if this process has the pepper that the PIN was hashed with. */
export function countTry(tx: Tx, taker: Taker, isKnown: (pepper: string) => boolean): Try {
  const found = find(tx, taker.ref);
  if ("ok" in found) return { is: "hash" };
  const { record, value } = found;
  if (useOf(tx, value, taker.ref, taker.consumers) !== undefined) return { is: "settled" };
  if (isHeldBy(record, taker, tx.nowMs)) return { is: "settled" };
  const taking = { nowMs: tx.nowMs, leaseEndsAtMs: leaseEnd(record), isProven: true };
  if (refuseTaking(value, taking) !== undefined) return { is: "settled" };
  const { pin } = value.request;
  if (pin === undefined) return { is: "hash" };
  checkPepper(value, isKnown);
  const now = tried(value);
  record.write({ value: now, status: statusOf(now) });
  note(record, "tried", { by: taker.by, triesLeft: triesLeftOf(now) });
  return { is: "count", pepper: pin.pepper };
}

/** Whether the action has no PIN, or the PIN was right. If it was right, the counted try is refunded. */
function prove({ record, value }: FoundAction, proof: Proof | undefined): { value: ActionValue; isProven: boolean } {
  const { pin } = value.request;
  if (pin === undefined) return { value, isProven: true };
  if (proof === undefined || !isRightPin(pin, proof.hash)) return { value, isProven: false };
  if (!proof.isCounted) return { value, isProven: true };
  const now = refundTry(value);
  record.write({ value: now, status: statusOf(now) });
  return { value: now, isProven: true };
}

/** Why it cannot be taken. A caller whose counted try was wrong gets `invalid_pin`, also for the last try. */
function refuse(
  nowMs: number,
  record: Draft,
  value: ActionValue,
  { proof }: Taker,
  isProven: boolean,
): ActionRefusal | undefined {
  if (proof?.isCounted === true && !isProven) return { code: "invalid_pin", triesLeft: triesLeftOf(value) };
  return refuseTaking(value, { nowMs, leaseEndsAtMs: leaseEnd(record), isProven });
}

/** Whether the exact time does not matter: it is certainly active, and not claimed. */
function isTimeless(tx: Tx, record: Draft, { request: { activeAtMs }, expiresAtMs }: ActionValue): boolean {
  return (
    activeAtMs === undefined &&
    record.holder === null &&
    (expiresAtMs === undefined || tx.nowUpperBoundMs < expiresAtMs)
  );
}

/** Uses the action once, or returns why not. */
export function consumeAction(tx: Tx, taker: Taker, deps: ActionDeps): ActionResult<Taken> {
  const found = find(tx, taker.ref);
  if ("ok" in found) return found;
  const { record, name } = found;
  const { value, isProven } = prove(found, taker.proof);
  const before = useOf(tx, value, taker.ref, taker.consumers);
  if (before !== undefined) return replayed(tx, taker.ref, value, before, deps);
  const nowMs = isTimeless(tx, record, value) ? tx.approxNowMs : tx.nowMs;
  const refusal = refuse(nowMs, record, value, taker, isProven);
  if (refusal !== undefined) return { ok: false, name, refusal };
  const { by, reason, consumers } = taker;
  const [consumer] = consumers;
  return use(tx, record, taker.ref, value, { atMs: nowMs, by, reason, consumer }, deps);
}

/** Counts the use, stores who used it, and ends the lease. */
function use(tx: Tx, record: Draft, ref: string, value: ActionValue, by: Use, deps: ActionDeps): ActionResult<Taken> {
  // If the payload cannot be opened, nothing is written.
  const payload = payloadOf(tx, ref, value, deps);
  const { consumer, ...rest } = compact(by);
  const isShared = usesOf(value) > 1;
  if (isShared && consumer !== undefined) tx.record(useAt(ref, consumer)).write({ value: rest });
  const last = isShared || consumer === undefined ? rest : { ...rest, consumer };
  const now = used(value, last);
  settle(record, now, deps);
  note(record, "consumed", { by: by.by, reason: by.reason, fence: by.fence, usesLeft: usesLeftOf(now) });
  return { ok: true, use: last, usesLeft: usesLeftOf(now), replayed: false, payload };
}

/** Writes the new value, without a claim. */
function settle(record: Draft, value: ActionValue, deps: ActionDeps): void {
  record.write({ value, status: statusOf(value), holder: null, dueMs: keptUntil(value, deps.retentionMs) });
}

/** The result for a consumer that repeats its call. */
function replayed(tx: Tx, ref: string, value: ActionValue, use: Use, deps: ActionDeps): ActionResult<Taken> {
  const payload = payloadOf(tx, ref, value, deps);
  return { ok: true, use, usesLeft: usesLeftOf(value), replayed: true, payload };
}

function payloadOf(tx: Tx, ref: string, value: ActionValue, deps: ActionDeps): unknown {
  const sealed = sealedOf(tx, ref, value);
  return sealed === undefined ? undefined : deps.open(ref, sealed);
}

const isHeldBy = (record: Draft, { consumers }: Taker, nowMs: number): boolean =>
  record.holder !== null && consumers.includes(record.holder) && nowMs < (record.dueMs ?? 0);

/** Reserves the action for a caller that has something to do first. Repeated with the same key, it renews the lease. */
export function claimAction(tx: Tx, taker: Taker, leaseMs: number): ActionResult<Claimed> {
  const found = find(tx, taker.ref);
  if ("ok" in found) return found;
  const { record, name } = found;
  const { nowMs } = tx;
  const { value, isProven } = prove(found, taker.proof);
  const { ref, consumers, by, reason } = taker;
  const [consumer] = consumers;
  const before = useOf(tx, value, ref, consumers);
  if (before !== undefined) return { ok: false, name, refusal: alreadyUsed(before) };
  if (isHeldBy(record, taker, nowMs)) {
    const renewal = decideRenew(record, { fence: record.fence, holder: record.holder ?? "", leaseMs, nowMs });
    if (renewal.renewed) record.write({ dueMs: renewal.dueMs });
    return { ok: true, fence: record.fence, leaseEndsAtMs: record.dueMs ?? nowMs, replayed: true };
  }
  const refusal = refuse(nowMs, record, value, taker, isProven);
  if (refusal !== undefined) return { ok: false, name, refusal };
  const fence = nextFence(record.fence, tx.fenceFloor);
  const leaseEndsAtMs = nowMs + leaseMs;
  const claim = compact({ atMs: nowMs, by, reason, consumer });
  record.write({ value: { ...value, claim }, holder: consumer ?? tx.uuid(), fence, dueMs: leaseEndsAtMs });
  note(record, "claimed", { by, reason, fence });
  return { ok: true, fence, leaseEndsAtMs, replayed: false };
}

/** The caller that claimed an action, with the fence of the claim. */
export interface ClaimHolder extends Omit<Taker, "proof"> {
  readonly fence: number;
}

/** Uses a claimed action. The same fence again gets the same result. */
export function completeAction(tx: Tx, holder: ClaimHolder, deps: ActionDeps): ActionResult<Taken> {
  const { ref, fence } = holder;
  const found = find(tx, ref);
  if ("ok" in found) return found;
  const { record, value, name } = found;
  const mine = [value.last, useOf(tx, value, ref, holder.consumers)].find((use) => use?.fence === fence);
  if (mine !== undefined) return replayed(tx, ref, value, mine, deps);
  if (!isHeldUnder(record, fence)) return { ok: false, name, refusal: lost(record, value, fence) };
  const { by, reason, consumer } = { ...value.claim, ...compact({ by: holder.by, reason: holder.reason }) };
  return use(tx, record, ref, value, { atMs: tx.nowMs, by, reason, consumer, fence }, deps);
}

/** Releases a claimed action. Does nothing if it was released already. */
export function abandonAction(
  tx: Tx,
  holder: ClaimHolder,
  deps: ActionDeps,
): ActionResult<{ readonly isNew: boolean }> {
  const { ref, fence, by, reason } = holder;
  const found = find(tx, ref);
  if ("ok" in found) return found;
  const { record, value, name } = found;
  if (value.abandoned === fence) return { ok: true, isNew: false };
  if (!isHeldUnder(record, fence)) return { ok: false, name, refusal: lost(record, value, fence) };
  const { claim: _claim, ...rest } = value;
  settle(record, { ...rest, abandoned: fence }, deps);
  note(record, "abandoned", { by, reason, fence });
  return { ok: true, isNew: true };
}

/** Why the claim is lost: if the action is settled, its outcome; otherwise `fenced`. */
function lost(record: Draft, value: ActionValue, fence: number): ActionRefusal {
  const settled = record.fence === fence ? refuseSettled(value) : undefined;
  return settled ?? { code: "fenced", fence, current: record.fence };
}

/** Cancels an action that is not used up. Does nothing if it was canceled already. */
export function cancelAction(
  tx: Tx,
  { ref, by, reason }: Omit<Taker, "consumers" | "proof">,
  deps: ActionDeps,
): ActionResult<{ readonly atMs: number; readonly isNew: boolean }> {
  const found = find(tx, ref);
  if ("ok" in found) return found;
  const { record, value, name } = found;
  const refusal = refuseCanceling(value, { nowMs: tx.nowMs, leaseEndsAtMs: leaseEnd(record) });
  if (refusal !== undefined) return { ok: false, name, refusal };
  if (value.canceled !== undefined) return { ok: true, atMs: value.canceled.atMs, isNew: false };
  const { claim: _claim, ...rest } = value;
  const now: ActionValue = { ...rest, canceled: compact({ atMs: tx.nowMs, by, reason }) };
  settle(record, now, deps);
  note(record, "canceled", { by, reason });
  return { ok: true, atMs: tx.nowMs, isNew: true };
}

/**
 * Removes an action whose retention has ended, with these records of its uses, and returns how many records were removed. If a lease has
 * ended without `complete` or `abandon`, that was due: it is logged, and the record stays. While more uses are left, it stays as well.
 */
export function sweepAction(
  tx: Tx,
  ref: string,
  uses: readonly string[],
  hasMoreUses: boolean,
  deps: ActionDeps,
): { readonly removed: number } {
  const record = tx.record(actionAt(ref));
  if (!record.exists || record.dueMs === null || tx.nowMs < record.dueMs) return { removed: 0 };
  const value = actionOf(record);
  if (record.holder !== null) {
    const { claim: _claim, ...rest } = value;
    settle(record, rest, deps);
    note(record, "lapsed", { by: value.claim?.by, fence: record.fence });
    return { removed: 0 };
  }
  const { owner } = value.request;
  const gone = uses.map((consumer) => tx.record(useAt(ref, consumer)));
  if (!hasMoreUses) {
    gone.push(record);
    if (usesOf(value) > 1) gone.push(tx.record(payloadAt(ref)));
    if (owner !== undefined) gone.push(tx.record(ownedAt(owner, value.createdAtMs, ref)));
  }
  const there = gone.filter(({ exists }) => exists);
  for (const one of there) one.remove();
  return { removed: there.length };
}
