/**
 * Refusals of actions. `consume`, `claim`, `complete`, `abandon` and `cancel` throw them; their `try…` twins answer the same as values.
 *
 * An error names an action by the user's own id, or by its ref. The id that was handed in is not repeated: it may be a secret, and errors
 * are logged.
 */

import { FencedError, PawlError } from "../kernel/errors.ts";
import type { ActionRefusal } from "./decide.ts";

/** Which action it was: the user's own id, if it has one, and what stands for the id in the store. */
export interface ActionName {
  readonly id: string | null;
  readonly ref: string;
}

type Data<Code> = ActionName & Omit<Extract<ActionRefusal, { code: Code }>, "code">;

const shown = ({ id, ref }: ActionName): string => (id === null ? `action ${ref}` : `action "${id}"`);
const byWhom = (by: string | null): string => (by === null ? "" : ` by "${by}"`);

/** There is no such action, or it was removed after its retention. Check the id. */
export class ActionNotFoundError extends PawlError<"action_not_found", ActionName> {
  constructor(data: ActionName) {
    super("action_not_found", "there is no action of this id, or it was removed after its retention", data);
  }
}

/** It cannot be used yet. Try again at `data.activeAt`. */
export class ActionNotActiveError extends PawlError<"not_active", Data<"not_active">> {
  constructor(data: Data<"not_active">) {
    super("not_active", `${shown(data)} cannot be used before ${data.activeAt.toISOString()}`, data);
  }
}

/** Somebody used it before, or all its uses are gone. Whoever it was can ask again with the same consumer key. */
export class AlreadyUsedError extends PawlError<"already_used", Data<"already_used">> {
  constructor(data: Data<"already_used">) {
    super("already_used", `${shown(data)} was used${byWhom(data.by)} at ${data.usedAt.toISOString()}`, data);
  }
}

/** Its time is over. Make another one. */
export class ActionExpiredError extends PawlError<"expired", Data<"expired">> {
  constructor(data: Data<"expired">) {
    super("expired", `${shown(data)} expired at ${data.expiredAt.toISOString()}`, data);
  }
}

/** It was canceled, and nobody can use it any more. */
export class ActionCanceledError extends PawlError<"canceled", Data<"canceled">> {
  constructor(data: Data<"canceled">) {
    const why = data.reason === null ? "" : `: ${data.reason}`;
    super("canceled", `${shown(data)} was canceled${byWhom(data.by)} at ${data.canceledAt.toISOString()}${why}`, data);
  }
}

/** The PIN was wrong too often. Nobody can use the action any more, not even with the right one: cancel it and make another. */
export class ActionLockedError extends PawlError<"locked", Data<"locked">> {
  constructor(data: Data<"locked">) {
    super("locked", `${shown(data)} is locked: too many wrong PINs were given`, data);
  }
}

/** Somebody is at work on it. Try again at `data.until`, when their lease ends. */
export class ActionClaimedError extends PawlError<"claimed", Data<"claimed">> {
  constructor(data: Data<"claimed">) {
    super("claimed", `${shown(data)} is claimed${byWhom(data.by)} until ${data.until.toISOString()}`, data);
  }
}

/** The PIN is wrong or was not given. `data.triesLeft` says how many more may be tried. */
export class InvalidPinError extends PawlError<"invalid_pin", Data<"invalid_pin">> {
  constructor(data: Data<"invalid_pin">) {
    super("invalid_pin", `${shown(data)} needs its PIN; tries left: ${data.triesLeft}`, data);
  }
}

/** This process is checking as many PINs as it may at once. Nothing was counted: try again in a moment. */
export class PinBusyError extends PawlError<"busy", Record<string, never>> {
  constructor() {
    super("busy", "too many PINs are being checked at this moment: try again in a moment", {});
  }
}

/** The id belongs to an action that was made otherwise. Use another id, or the same request. */
export class ActionConflictError extends PawlError<"action_conflict", ActionName> {
  constructor(data: ActionName) {
    super("action_conflict", `${shown(data)} was made with another request: use another id, or the same request`, data);
  }
}

/** What would be stored only as a hash needs a pepper, a secret that is not in the database. */
export class PepperMissingError extends PawlError<"pepper_missing", { what: string }> {
  constructor(what: string) {
    super(
      "pepper_missing",
      `${what} needs a pepper: open with { actions: { pepper } }, a secret of 16 bytes or more that is not in the database`,
      { what },
    );
  }
}

/**
 * None of the peppers of this process was used with this database before. Nothing was changed: open with the one that was used; to
 * change it, give both, the newest first.
 */
export class PepperChangedError extends PawlError<"pepper_changed", Record<string, never>> {
  constructor() {
    super(
      "pepper_changed",
      'this database was used with another pepper: open with that one, or with both, as in { actions: { pepper: [newest, older] } }; if it is lost, { actions: { pepperChange: "accept" } } gives up what was made with it',
      {},
    );
  }
}

/** A payload is stored encrypted, and there is no key for it. */
export class KeysMissingError extends PawlError<"keys_missing", Record<string, never>> {
  constructor() {
    super("keys_missing", "a payload needs a key: open with { actions: { keys: { current, ring } } }", {});
  }
}

/** What was sealed or hashed with this key cannot be read without it. Nothing was changed: put the key back into the ring. */
export class KeyUnavailableError extends PawlError<"key_unavailable", { keyId: string }> {
  constructor(keyId: string, what = `key "${keyId}" is not in the ring`) {
    super("key_unavailable", `${what}: open with the one that was used, and try again`, { keyId });
  }
}

/** A sealed payload was changed, cut, or moved here from another record, or its key is another one. Nothing was changed. */
export class DecryptFailedError extends PawlError<"decrypt_failed", { ref: string; keyId: string }> {
  constructor(ref: string, keyId: string) {
    super(
      "decrypt_failed",
      `the payload of action ${ref} is not what was sealed with key "${keyId}": it was changed or moved, or the key is another`,
      { ref, keyId },
    );
  }
}

/** The error that says what a refusal says. */
export function errorOf(name: ActionName, refusal: ActionRefusal): PawlError {
  const at = { id: name.id, ref: name.ref };
  switch (refusal.code) {
    case "action_not_found":
      return new ActionNotFoundError(at);
    case "not_active":
      return new ActionNotActiveError({ ...at, activeAt: refusal.activeAt });
    case "already_used":
      return new AlreadyUsedError({ ...at, usedAt: refusal.usedAt, by: refusal.by });
    case "expired":
      return new ActionExpiredError({ ...at, expiredAt: refusal.expiredAt });
    case "canceled":
      return new ActionCanceledError({
        ...at,
        canceledAt: refusal.canceledAt,
        by: refusal.by,
        reason: refusal.reason,
      });
    case "locked":
      return new ActionLockedError(at);
    case "claimed":
      return new ActionClaimedError({ ...at, by: refusal.by, until: refusal.until });
    case "invalid_pin":
      return new InvalidPinError({ ...at, triesLeft: refusal.triesLeft });
    case "fenced":
      return new FencedError(shown(at), refusal.fence, refusal.current);
    case "busy":
      return new PinBusyError();
  }
}
