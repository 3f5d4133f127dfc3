/**
 * Options of actions, and their checks, which run before anything is written.
 */

import {
  checkCount,
  checkDate,
  checkDuration,
  checkId,
  checkLease,
  checkOptions,
  type Duration,
  type OptionNames,
  optionNames,
} from "../kernel/check.ts";
import { InvalidArgumentError, InvalidIdError } from "../kernel/errors.ts";
import type { ActionClaim } from "./results.ts";
import { type ActionRequest, compact, isRef, type PinMark, refOf } from "./stored.ts";

export interface ActionOptions {
  /** The action's id. The same id with the same request is the same action. Default: a new id that cannot be guessed. */
  readonly id?: string | undefined;
  /** The owner, by whom it can be listed. */
  readonly owner?: string | undefined;
  /** Why it was created. */
  readonly reason?: string | undefined;
  readonly tags?: readonly string[] | undefined;
  /** It cannot be used before this time. Default: it can be used immediately. */
  readonly activeAt?: Date | number | undefined;
  /** It cannot be used from this time on. Default: it never expires. */
  readonly expiresAt?: Date | number | undefined;
  /** The same as a duration, from its creation, or from `activeAt` if that is later. */
  readonly expiresIn?: Duration | undefined;
  /** How often it can be used. Default: once. */
  readonly uses?: number | undefined;
  /** A PIN that the caller who uses it must know: 4 to 128 characters. Needs a pepper. */
  readonly pin?: string | undefined;
  /** How many wrong PINs lock it. Default: 5. */
  readonly maxPinTries?: number | undefined;
  /** Returned to the caller who uses it, and only then. Stored encrypted: needs a key. */
  readonly payload?: unknown;
}

export const ACTION_OPTIONS = optionNames<ActionOptions>({
  id: true,
  owner: true,
  reason: true,
  tags: true,
  activeAt: true,
  expiresAt: true,
  expiresIn: true,
  uses: true,
  pin: true,
  maxPinTries: true,
  payload: true,
});

/** Who makes the call and why, for the audit trail. All of it is optional. */
export interface Asking {
  /** The name of the caller. Later callers see it in their error. */
  readonly by?: string | undefined;
  readonly reason?: string | undefined;
}

export interface ConsumeOptions extends Asking {
  /** A secret of the consumer. A repeated call with the same one gets the same result. Stored as a hash: needs a pepper. */
  readonly consumerKey?: string | undefined;
  readonly pin?: string | undefined;
}

export interface ClaimOptions extends ConsumeOptions {
  /** How long it is reserved for the claimer. Default: 30 seconds. */
  readonly lease?: Duration | undefined;
}

export interface HeldOptions extends Asking {
  /** The fence that `claim` returned. */
  readonly fence: number;
}

export interface CompleteOptions extends HeldOptions {
  /** The consumer key of the claim. If an action has several uses, a repeated call is recognized by it. */
  readonly consumerKey?: string | undefined;
}

export const ASKING = optionNames<Asking>({ by: true, reason: true });
export const CONSUME_OPTIONS = optionNames<ConsumeOptions>({ by: true, reason: true, consumerKey: true, pin: true });
export const CLAIM_OPTIONS = optionNames<ClaimOptions>({
  by: true,
  reason: true,
  consumerKey: true,
  pin: true,
  lease: true,
});
/** The result of `claim` may be passed as it is. */
export const HELD_OPTIONS = optionNames<HeldOptions & ActionClaim>({
  by: true,
  reason: true,
  fence: true,
  leaseEndsAt: true,
  replayed: true,
});
export const COMPLETE_OPTIONS = optionNames<CompleteOptions & ActionClaim>({
  by: true,
  reason: true,
  fence: true,
  consumerKey: true,
  leaseEndsAt: true,
  replayed: true,
});

/** An action by its id, or by the ref that lists return. With a ref it can be read and canceled, but not used. */
export type ActionTarget = string | { readonly ref: string };

const MAX_USES = 1_000_000;
const MAX_TRIES = 100;
const TRIES = 5;
const MAX_TAGS = 64;
const LONGEST_REASON = 1000;

export const refOfId = (id: unknown): string => refOf(checkId(id, "the action's id"));

export function refOfTarget(target: ActionTarget): string {
  if (typeof target !== "object" || target === null) return refOfId(target);
  if (!isRef(target.ref)) throw new InvalidIdError("the action's ref", "must be a ref that a list returned");
  return target.ref;
}

/** Checks the options and returns the request, without its secrets. */
export function checkRequest(options: ActionOptions): ActionRequest {
  const { owner, reason, tags, activeAt, expiresAt, expiresIn, uses = 1 } = options;
  if (expiresAt !== undefined && expiresIn !== undefined)
    throw new InvalidArgumentError("expiresIn", "must not be given together with expiresAt");
  const activeAtMs = checkMoment(activeAt, "activeAt");
  const expiresAtMs = checkMoment(expiresAt, "expiresAt");
  if (expiresAtMs !== undefined && expiresAtMs <= (activeAtMs ?? -1))
    throw new InvalidArgumentError("expiresAt", "must be later than activeAt");
  checkCount(uses, "uses", MAX_USES);
  return compact({
    owner: owner === undefined ? undefined : checkId(owner, "the owner"),
    reason: checkReason(reason),
    tags: checkTags(tags),
    activeAtMs,
    expiresAtMs,
    expiresInMs: expiresIn === undefined ? undefined : checkDuration(expiresIn, "expiresIn"),
    uses: uses === 1 ? undefined : uses,
  });
}

export function checkTries({ pin, maxPinTries }: ActionOptions): PinMark["maxTries"] {
  if (pin === undefined && maxPinTries !== undefined)
    throw new InvalidArgumentError("maxPinTries", "must not be given without a PIN");
  return checkCount(maxPinTries ?? TRIES, "maxPinTries", MAX_TRIES);
}

export function checkMoment(moment: Date | number | undefined, what: string): number | undefined {
  if (moment === undefined) return undefined;
  return checkDate(moment, what);
}

function checkTags(tags: readonly string[] | undefined): readonly string[] | undefined {
  if (tags === undefined) return undefined;
  if (!Array.isArray(tags) || tags.length > MAX_TAGS)
    throw new InvalidArgumentError("the tags", `must be a list of at most ${MAX_TAGS}`);
  return tags.length === 0 ? undefined : tags.map((tag) => checkId(tag, "the tag"));
}

function checkReason(reason: string | undefined): string | undefined {
  if (reason === undefined) return undefined;
  if (typeof reason !== "string" || reason.length > LONGEST_REASON || !reason.isWellFormed())
    throw new InvalidArgumentError(
      "the reason",
      `must be a text of at most ${LONGEST_REASON} characters without lone surrogates`,
    );
  return reason;
}

export function checkAsking(asking: Asking, known: OptionNames): Asking {
  checkOptions(asking, known);
  const { by, reason } = asking;
  return { by: by === undefined ? undefined : checkId(by, "by"), reason: checkReason(reason) };
}

export function checkFence(fence: unknown): number {
  if (typeof fence !== "number" || !Number.isSafeInteger(fence) || fence < 1)
    throw new InvalidArgumentError("the fence", "must be the number that the claim returned");
  return fence;
}

const LEASE_MS = 30_000;

export function leaseOf(options: ClaimOptions): number {
  checkOptions(options, CLAIM_OPTIONS);
  const { lease } = options;
  return lease === undefined ? LEASE_MS : checkLease(lease, "the lease");
}
