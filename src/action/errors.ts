/**
 * Errors of actions. `consume`, `claim`, `complete`, `abandon` and `cancel` throw them; the `try…` verbs return the same as values.
 *
 * An error names an action by the user's own id, or by its ref. The id that was passed is not repeated: it may be a secret, and errors
 * are logged.
 */

import { FencedError, PawlError } from "../kernel/errors.ts";
import type { ActionRefusal } from "./decide.ts";

/** The action: the user's own id, if it has one, and its ref. */
export interface ActionName {
  readonly id: string | null;
  readonly ref: string;
}

type Data<Code> = ActionName & Omit<Extract<ActionRefusal, { code: Code }>, "code">;

const shown = ({ id, ref }: ActionName): string => (id === null ? `action ${ref}` : `action "${id}"`);
const byText = (by: string | null): string => (by === null ? "" : ` by "${by}"`);

/** The action does not exist, or was removed after its retention. Check the id. */
export class ActionNotFoundError extends PawlError<"action_not_found", ActionName> {
  constructor(data: ActionName) {
    super(
      "action_not_found",
      "there is no action with this id, or it was removed after its retention: check the id",
      data,
    );
  }
}

/** It cannot be used yet. Try again at `data.activeAt`. */
export class ActionNotActiveError extends PawlError<"not_active", Data<"not_active">> {
  constructor(data: Data<"not_active">) {
    super("not_active", `${shown(data)} cannot be used before ${data.activeAt.toISOString()}`, data);
  }
}

/** It was used before, or has no uses left. The consumer that used it gets its result again with the same consumer key. */
export class AlreadyUsedError extends PawlError<"already_used", Data<"already_used">> {
  constructor(data: Data<"already_used">) {
    super("already_used", `${shown(data)} was used${byText(data.by)} at ${data.usedAt.toISOString()}`, data);
  }
}

/** It has expired. Create another one. */
export class ActionExpiredError extends PawlError<"expired", Data<"expired">> {
  constructor(data: Data<"expired">) {
    super("expired", `${shown(data)} expired at ${data.expiredAt.toISOString()}`, data);
  }
}

/** It was canceled, and cannot be used any more. */
export class ActionCanceledError extends PawlError<"canceled", Data<"canceled">> {
  constructor(data: Data<"canceled">) {
    const why = data.reason === null ? "" : `: ${data.reason}`;
    super("canceled", `${shown(data)} was canceled${byText(data.by)} at ${data.canceledAt.toISOString()}${why}`, data);
  }
}

/** The PIN was wrong too often. The action cannot be used any more, not even with the right PIN: cancel it and create another. */
export class ActionLockedError extends PawlError<"locked", Data<"locked">> {
  constructor(data: Data<"locked">) {
    super(
      "locked",
      `${shown(data)} is locked, because too many wrong PINs were given: cancel it and create another`,
      data,
    );
  }
}

/** Another caller has claimed it. Try again at `data.until`, when that lease ends. */
export class ActionClaimedError extends PawlError<"claimed", Data<"claimed">> {
  constructor(data: Data<"claimed">) {
    super("claimed", `${shown(data)} is claimed${byText(data.by)} until ${data.until.toISOString()}`, data);
  }
}

/** The PIN is wrong or was not given. `data.triesLeft` says how many more may be tried. */
export class InvalidPinError extends PawlError<"invalid_pin", Data<"invalid_pin">> {
  constructor(data: Data<"invalid_pin">) {
    super("invalid_pin", `${shown(data)} needs its PIN; tries left: ${data.triesLeft}`, data);
  }
}

/** This process is checking as many PINs as it may concurrently. No try was counted: try again soon. */
export class PinBusyError extends PawlError<"busy", Record<string, never>> {
  constructor() {
    super("busy", "too many PINs are being checked at this moment: try again soon", {});
  }
}

/** The id belongs to an action that was created with another request. Use another id, or the same request. */
export class ActionConflictError extends PawlError<"action_conflict", ActionName> {
  constructor(data: ActionName) {
    super(
      "action_conflict",
      `${shown(data)} was created with another request: use another id, or the same request`,
      data,
    );
  }
}

/** A value that is stored only as a hash needs a pepper, a secret that is not in the database. */
export class PepperMissingError extends PawlError<"pepper_missing", { what: string }> {
  constructor(what: string) {
    super(
      "pepper_missing",
      `${what} needs a pepper: open with { actions: { pepper } } (for pawl serve: PAWL_PEPPER), a secret of 16 bytes or more that is not in the database`,
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

/** The error for a refusal. */
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
