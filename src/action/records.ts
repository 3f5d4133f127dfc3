/**
 * Actions as decisions on their records: made, tried, taken, held, canceled and swept.
 *
 * One record holds what is true of an action, and all that happens to it is decided under its lock, so there is one winner for each use.
 * Whoever used it with a consumer key is found again by it: in the record itself if the action has one use, in a record of its own
 * if it has more. A payload is opened in the decision that gives it out: if it cannot be, the action is not used up.
 *
 * Promises: one winner for each use, ever, who can ask again and hear the same (G4); a try is counted in a commit of its own before a
 * PIN is looked at (G5); whoever lost the lease completes nothing (G6).
 */

import { isDeepStrictEqual } from "node:util";
import { decideRenew, isHeldUnder, nextFence } from "../kernel/claim/decide.ts";
import type { Tx } from "../kernel/decision.ts";
import type { Draft } from "../kernel/draft.ts";
import {
  type ActionRefusal,
  alreadyUsed,
  expiryOf,
  givenBack,
  keptUntil,
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
import { ActionConflictError, type ActionName, KeyUnavailableError } from "./errors.ts";
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
  type Sealed,
  type Use,
  useAt,
} from "./words.ts";

/** What decisions on actions need besides the records. */
export interface Means {
  /** How long what became of an action is kept after it has expired. */
  readonly retentionMs: number;
  /** What was sealed, as a value of the caller's own; throws if it cannot be opened. */
  readonly open: (ref: string, sealed: Sealed) => unknown;
}

export type Answer<T> = ({ readonly ok: true } & T) | Refused;

/** Refused, with the name of the action and why. */
export interface Refused {
  readonly ok: false;
  readonly name: ActionName;
  readonly refusal: ActionRefusal;
}

/** An action to be made, with all its secrets hashed or sealed. */
export interface Plan {
  readonly ref: string;
  /** The user's own id; a generated one is known to the caller only. */
  readonly id: string | null;
  readonly request: ActionRequest;
  /** The same PIN under older peppers, by which an action that was made before is recognized. */
  readonly olderPins?: readonly PinMark[] | undefined;
  /** As it will come back, and as it is stored. */
  readonly payload?: { readonly value: unknown; readonly sealed: Sealed } | undefined;
  /** The store's clock of just before, where the name in the owner's list must be known beforehand. */
  readonly createdAtMs?: number | undefined;
}

/** Makes an action, or finds that it is made. */
export function createAction(tx: Tx, plan: Plan, means: Means): { readonly isNew: boolean } {
  const { ref, id, request, payload } = plan;
  const record = tx.record(actionAt(ref));
  if (record.exists) {
    if (!isSameRequest(tx, actionOf(record), plan, means)) throw new ActionConflictError({ id, ref });
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
  // What may be too large goes first: a caller who catches that has made nothing.
  if (isShared && payload !== undefined) tx.record(payloadAt(ref)).write({ value: payload.sealed });
  record.write({ value, status: statusOf(value), kind: KIND, dueMs: keptUntil(value, means.retentionMs) });
  note(record, "created", {});
  if (request.owner !== undefined) tx.record(ownedAt(request.owner, createdAtMs, ref)).write({ value: true });
  return { isNew: true };
}

function isSameRequest(tx: Tx, value: ActionValue, plan: Plan, means: Means): boolean {
  const { ref, request, olderPins = [], payload } = plan;
  const pins = request.pin === undefined ? [] : [request.pin, ...olderPins];
  // A PIN under an unknown pepper can be neither the same nor another one.
  if (request.pin !== undefined) checkPepper(value, (id) => pins.some(({ pepper }) => pepper === id));
  const pin = pins.find(({ pepper }) => pepper === value.request.pin?.pepper) ?? request.pin;
  if (!isDeepStrictEqual(value.request, pin === undefined ? request : { ...request, pin })) return false;
  const sealed = sealedOf(tx, ref, value);
  if (sealed === undefined || payload === undefined) return sealed === payload;
  return isDeepStrictEqual(means.open(ref, sealed), payload.value);
}

function checkPepper({ request }: ActionValue, isKnown: (pepper: string) => boolean): void {
  if (request.pin !== undefined && !isKnown(request.pin.pepper))
    throw new KeyUnavailableError("pepper", "the PIN was hashed with another pepper");
}

const actionOf = (record: Draft): ActionValue => record.value as ActionValue;

const sealedOf = (tx: Tx, ref: string, value: ActionValue): Sealed | undefined =>
  usesOf(value) === 1 ? value.sealed : (tx.record(payloadAt(ref)).value as Sealed | undefined);

const note = (record: Draft, event: ActionEvent, data: object): void => void record.append(event, compact(data));

/** Whoever wants to take an action. */
export interface Taker {
  readonly ref: string;
  /** The hashes of its key, by which it is known when it asks again: under the newest pepper, then under older ones. */
  readonly consumers: readonly string[];
  readonly by?: string | undefined;
  readonly reason?: string | undefined;
  readonly proof?: Proof | undefined;
}

/** What a PIN came to, and whether a try was counted for it. */
export interface Proof {
  readonly hash: string;
  readonly isCounted: boolean;
}

/** What a consumption gives. */
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

type Found = { readonly record: Draft; readonly value: ActionValue; readonly name: ActionName };

/** The action's record, if there is one. */
function find(tx: Tx, ref: string): Found | Refused {
  const record = tx.record(actionAt(ref));
  if (!record.exists) return { ok: false, name: { id: null, ref }, refusal: { code: "action_not_found" } };
  const value = actionOf(record);
  return { record, value, name: { id: value.id ?? null, ref } };
}

/** What this consumer did with the action before, if it did. */
function useOf(tx: Tx, value: ActionValue, ref: string, consumers: readonly string[]): Use | undefined {
  if (usesOf(value) === 1)
    return value.last?.consumer !== undefined && consumers.includes(value.last.consumer) ? value.last : undefined;
  const uses = consumers.map((consumer) => tx.record(useAt(ref, consumer)).value as Use | undefined);
  return uses.find((use) => use !== undefined);
}

const leaseEnd = (record: Draft): number | null => (record.holder === null ? null : record.dueMs);

/** What is to be done about a PIN. */
export type Try =
  /** A try was counted: hash the PIN with this pepper. */
  | { readonly is: "count"; readonly pepper: string }
  /** There is nothing to count, but hashing must take its time all the same. */
  | { readonly is: "hash" }
  /** The PIN plays no part: the action cannot be taken, or this consumer has it already. */
  | { readonly is: "settled" };

/** Counts a try at the PIN, if one of the peppers that are known here went into it. */
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

/** Whether nothing is left to prove. A try that was counted is given back if the PIN was right. */
function prove({ record, value }: Found, proof: Proof | undefined): { value: ActionValue; isProven: boolean } {
  const { pin } = value.request;
  if (pin === undefined) return { value, isProven: true };
  if (proof === undefined || !isRightPin(pin, proof.hash)) return { value, isProven: false };
  if (!proof.isCounted) return { value, isProven: true };
  const now = givenBack(value);
  record.write({ value: now, status: statusOf(now) });
  return { value: now, isProven: true };
}

/** Why it cannot be taken. Whoever was counted and was wrong hears that, also if it was the last try. */
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

/** Whether the exact time makes no difference: it is surely active, and nobody holds it. */
function isTimeless(tx: Tx, record: Draft, { request: { activeAtMs }, expiresAtMs }: ActionValue): boolean {
  return activeAtMs === undefined && record.holder === null && (expiresAtMs === undefined || tx.lateMs < expiresAtMs);
}

/** Uses the action once, or says why not. */
export function consumeAction(tx: Tx, taker: Taker, means: Means): Answer<Taken> {
  const found = find(tx, taker.ref);
  if ("ok" in found) return found;
  const { record, name } = found;
  const { value, isProven } = prove(found, taker.proof);
  const before = useOf(tx, value, taker.ref, taker.consumers);
  if (before !== undefined) return replayed(tx, taker.ref, value, before, means);
  const nowMs = isTimeless(tx, record, value) ? tx.aboutMs : tx.nowMs;
  const refusal = refuse(nowMs, record, value, taker, isProven);
  if (refusal !== undefined) return { ok: false, name, refusal };
  const { by, reason, consumers } = taker;
  const [consumer] = consumers;
  return use(tx, record, taker.ref, value, { atMs: nowMs, by, reason, consumer }, means);
}

/** Counts the use, remembers whose it was, and ends whatever lease there was. */
function use(tx: Tx, record: Draft, ref: string, value: ActionValue, by: Use, means: Means): Answer<Taken> {
  // What cannot be opened is refused before anything is written.
  const payload = payloadOf(tx, ref, value, means);
  const { consumer, ...rest } = compact(by);
  const isShared = usesOf(value) > 1;
  if (isShared && consumer !== undefined) tx.record(useAt(ref, consumer)).write({ value: rest });
  const last = isShared || consumer === undefined ? rest : { ...rest, consumer };
  const now = used(value, last);
  settle(record, now, means);
  note(record, "consumed", { by: by.by, reason: by.reason, fence: by.fence, usesLeft: usesLeftOf(now) });
  return { ok: true, use: last, usesLeft: usesLeftOf(now), replayed: false, payload };
}

/** Writes what has become of it; nobody holds it any more. */
function settle(record: Draft, value: ActionValue, means: Means): void {
  record.write({ value, status: statusOf(value), holder: null, dueMs: keptUntil(value, means.retentionMs) });
}

/** What a consumer hears when it asks again. */
function replayed(tx: Tx, ref: string, value: ActionValue, use: Use, means: Means): Answer<Taken> {
  const payload = payloadOf(tx, ref, value, means);
  return { ok: true, use, usesLeft: usesLeftOf(value), replayed: true, payload };
}

function payloadOf(tx: Tx, ref: string, value: ActionValue, means: Means): unknown {
  const sealed = sealedOf(tx, ref, value);
  return sealed === undefined ? undefined : means.open(ref, sealed);
}

const isHeldBy = (record: Draft, { consumers }: Taker, nowMs: number): boolean =>
  record.holder !== null && consumers.includes(record.holder) && nowMs < (record.dueMs ?? 0);

/** Keeps the action for one who has an effect to bring about first. Asked again with the same key, the lease goes on. */
export function claimAction(tx: Tx, taker: Taker, leaseMs: number): Answer<Claimed> {
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

/** Whoever claimed an action, with the fence it was given. */
export interface Holder extends Omit<Taker, "proof"> {
  readonly fence: number;
}

/** Uses what was claimed. The same fence again hears the same. */
export function completeAction(tx: Tx, holder: Holder, means: Means): Answer<Taken> {
  const { ref, fence } = holder;
  const found = find(tx, ref);
  if ("ok" in found) return found;
  const { record, value, name } = found;
  const mine = [value.last, useOf(tx, value, ref, holder.consumers)].find((use) => use?.fence === fence);
  if (mine !== undefined) return replayed(tx, ref, value, mine, means);
  if (!isHeldUnder(record, fence)) return { ok: false, name, refusal: lost(record, value, fence) };
  const { by, reason, consumer } = { ...value.claim, ...compact({ by: holder.by, reason: holder.reason }) };
  return use(tx, record, ref, value, { atMs: tx.nowMs, by, reason, consumer, fence }, means);
}

/** Gives back what was claimed. Given back already, it stays so. */
export function abandonAction(tx: Tx, holder: Holder, means: Means): Answer<{ readonly isNew: boolean }> {
  const { ref, fence, by, reason } = holder;
  const found = find(tx, ref);
  if ("ok" in found) return found;
  const { record, value, name } = found;
  if (value.abandoned === fence) return { ok: true, isNew: false };
  if (!isHeldUnder(record, fence)) return { ok: false, name, refusal: lost(record, value, fence) };
  const { claim: _claim, ...rest } = value;
  settle(record, { ...rest, abandoned: fence }, means);
  note(record, "abandoned", { by, reason, fence });
  return { ok: true, isNew: true };
}

/** Another holds it now, or nobody does; if it is settled, what became of it says more than a fence. */
function lost(record: Draft, value: ActionValue, fence: number): ActionRefusal {
  const settled = record.fence === fence ? refuseSettled(value) : undefined;
  return settled ?? { code: "fenced", fence, current: record.fence };
}

/** Cancels what is not used up, so that nobody can use it any more. Canceled already, it stays so. */
export function cancelAction(
  tx: Tx,
  { ref, by, reason }: Omit<Taker, "consumers" | "proof">,
  means: Means,
): Answer<{ readonly atMs: number; readonly isNew: boolean }> {
  const found = find(tx, ref);
  if ("ok" in found) return found;
  const { record, value, name } = found;
  const refusal = refuseCanceling(value, { nowMs: tx.nowMs, leaseEndsAtMs: leaseEnd(record) });
  if (refusal !== undefined) return { ok: false, name, refusal };
  if (value.canceled !== undefined) return { ok: true, atMs: value.canceled.atMs, isNew: false };
  const { claim: _claim, ...rest } = value;
  const now: ActionValue = { ...rest, canceled: compact({ atMs: tx.nowMs, by, reason }) };
  settle(record, now, means);
  note(record, "canceled", { by, reason });
  return { ok: true, atMs: tx.nowMs, isNew: true };
}

/**
 * Removes what nobody can ask for any more, with these records of its uses. Answers how many records went. Where a lease has ended
 * without an answer, that is what was due: it is noted, and the record stays. While more uses are left, it stays as well.
 */
export function sweepAction(
  tx: Tx,
  ref: string,
  uses: readonly string[],
  hasMoreUses: boolean,
  means: Means,
): { readonly removed: number } {
  const record = tx.record(actionAt(ref));
  if (!record.exists || record.dueMs === null || tx.nowMs < record.dueMs) return { removed: 0 };
  const value = actionOf(record);
  if (record.holder !== null) {
    const { claim: _claim, ...rest } = value;
    settle(record, rest, means);
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
