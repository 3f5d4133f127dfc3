/**
 * Inspecting a lock: its holders and waiters.
 */

import type { Kernel } from "../kernel/kernel.ts";
import {
  type Holder,
  type LockKind,
  type LockRef,
  lockAt,
  lockOf,
  type Mode,
  type Ticket,
  ticketAt,
} from "./stored.ts";

/** A holder or a waiter. */
export interface LockParty {
  readonly ticket: string;
  readonly by: string | null;
  /** The id of the run, if it is a run. */
  readonly run: string | null;
  readonly mode: Mode;
  readonly since: Date;
  /** When its lease ends if it is not renewed; null for a run, which has none. */
  readonly until: Date | null;
}

export interface LockInfo {
  readonly name: string;
  readonly kind: LockKind;
  readonly permits: number | null;
  readonly holders: readonly (LockParty & { readonly fence: number })[];
  /** How many wait; `waiters` has the first of them, in order. */
  readonly waiting: number;
  readonly waiters: readonly LockParty[];
}

/** Reads the holders and the first `limit` waiters. */
export async function inspectLock(kernel: Kernel, ref: LockRef, limit: number): Promise<LockInfo> {
  const [row] = await kernel.read([lockAt(ref)]);
  const value = row?.value == null ? undefined : lockOf(kernel.decode(row, row.value));
  const tickets =
    value === undefined || value.waiting === 0
      ? []
      : await kernel.list({ space: ticketAt(ref, "").space, prefix: "", order: "oldest", after: null, limit });
  return {
    name: ref.name,
    kind: ref.kind,
    permits: value?.permits ?? null,
    holders: (value?.holders ?? []).map((holder) => ({ ...party(holder.ticket, holder), fence: holder.fence })),
    waiting: value?.waiting ?? 0,
    waiters: tickets.map((one) => party(one.key, kernel.decode(one, one.value ?? "null") as Ticket)),
  };
}

function party(ticket: string, { by, owner, mode, sinceMs, untilMs }: Holder | Ticket): LockParty {
  return {
    ticket,
    by: by ?? null,
    run: owner?.run ?? null,
    mode,
    since: new Date(sinceMs),
    until: untilMs === null ? null : new Date(untilMs),
  };
}
