/**
 * Results of the verbs: `try…` returns a refusal as a value, the others throw it.
 */

import type { ActionRefusal } from "./decide.ts";
import { errorOf } from "./errors.ts";
import type { ActionResult, Claimed, Taken } from "./records.ts";

/** An action that was created now or before. */
export interface Created {
  /** Pass this to the person who may use it. A generated id is a secret, and is returned only here. */
  readonly id: string;
  readonly ref: string;
  readonly isNew: boolean;
}

export interface Consumed<Payload = unknown> {
  /** Undefined if the action has none. */
  readonly payload: Payload;
  readonly consumedAt: Date;
  /** Whether this consumer had used it already, and gets the same result again. */
  readonly replayed: boolean;
  readonly usesLeft: number;
}

export interface ActionClaim {
  /** Increases with each claim. `complete` and `abandon` need it. */
  readonly fence: number;
  readonly leaseEndsAt: Date;
  /** Whether this consumer had claimed it already. Its lease was renewed. */
  readonly replayed: boolean;
}

export interface Canceled {
  readonly canceledAt: Date;
  /** False if it was canceled already. */
  readonly isNew: boolean;
}

export interface Abandoned {
  /** False if it was released already. */
  readonly isNew: boolean;
}

/** The result of a `try…` verb. */
export type Tried<T> = ({ readonly ok: true } & T) | ({ readonly ok: false } & ActionRefusal);

/** Results as users see them. */
export const shown = {
  consumed: <Payload>({ use, payload, replayed, usesLeft }: Taken): Consumed<Payload> => ({
    payload: payload as Payload,
    consumedAt: new Date(use.atMs),
    replayed,
    usesLeft,
  }),
  claimed: ({ fence, leaseEndsAtMs, replayed }: Claimed): ActionClaim => ({
    fence,
    leaseEndsAt: new Date(leaseEndsAtMs),
    replayed,
  }),
  canceled: ({ atMs, isNew }: { readonly atMs: number; readonly isNew: boolean }): Canceled => ({
    canceledAt: new Date(atMs),
    isNew,
  }),
  abandoned: ({ isNew }: Abandoned): Abandoned => ({ isNew }),
};

export function asTried<T, Shown extends object>(result: ActionResult<T>, show: (result: T) => Shown): Tried<Shown> {
  return result.ok ? { ok: true, ...show(result) } : { ok: false, ...result.refusal };
}

export function orThrow<T, Shown>(result: ActionResult<T>, show: (result: T) => Shown): Shown {
  if (!result.ok) throw errorOf(result.name, result.refusal);
  return show(result);
}
