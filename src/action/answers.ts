/**
 * What the verbs answer: as a value from `try…`, or thrown where it is a refusal.
 */

import type { ActionRefusal } from "./decide.ts";
import { errorOf } from "./errors.ts";
import type { Answer, Claimed, Taken } from "./records.ts";

/** An action that was made, or was there already. */
export interface Created {
  /** Hand this to whoever may use it. A generated one is a secret, and can be had only here. */
  readonly id: string;
  readonly ref: string;
  readonly isNew: boolean;
}

export interface Consumed<Payload = unknown> {
  /** Undefined if the action has none. */
  readonly payload: Payload;
  readonly consumedAt: Date;
  /** Whether this consumer had it already, and hears the same again. */
  readonly replayed: boolean;
  readonly usesLeft: number;
}

export interface ActionClaim {
  /** Strictly rising for each claim; `complete` and `abandon` want it. */
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
  /** False if it was given back already. */
  readonly isNew: boolean;
}

/** What a `try…` verb answers. */
export type Tried<T> = ({ readonly ok: true } & T) | ({ readonly ok: false } & ActionRefusal);

/** Answers as users see them. */
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

export function told<T, Shown extends object>(answer: Answer<T>, show: (answer: T) => Shown): Tried<Shown> {
  return answer.ok ? { ok: true, ...show(answer) } : { ok: false, ...answer.refusal };
}

export function orThrow<T, Shown>(answer: Answer<T>, show: (answer: T) => Shown): Shown {
  if (!answer.ok) throw errorOf(answer.name, answer.refusal);
  return show(answer);
}
