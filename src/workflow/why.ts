/**
 * Why is this waiting? Answered with the chain: who waits for what, who has it, and what that one waits for, down to somebody who could
 * go on, or a person who has to decide.
 *
 * It is a look without locks, for people: what it says may have changed a moment later.
 */

import { checkId } from "../kernel/check.ts";
import { InvalidArgumentError } from "../kernel/errors.ts";
import type { Kernel } from "../kernel/kernel.ts";
import {
  type LockKind,
  type LockRef,
  type LockValue,
  lockAt,
  shownLocks,
  type Ticket,
  ticketAt,
} from "../lock/records.ts";
import { RunNotFoundError } from "./errors.ts";
import { type RunValue, runAt } from "./run.ts";
import { ENDED } from "./words.ts";

/** What is asked about: a run, a lock, or one who waits for a lock. */
export type WaitSubject =
  | { readonly run: string }
  | { readonly lock: string; readonly kind?: LockKind | undefined; readonly waiter?: string | undefined };

export interface WaitLink {
  readonly is: "run" | "lock" | "plain";
  /** The run's id, the lock's name, or who holds it in plain code, as far as that was said. */
  readonly name: string;
  readonly says: string;
}

export interface WaitReason {
  readonly isWaiting: boolean;
  /** In one sentence for each link. */
  readonly says: string;
  readonly chain: readonly WaitLink[];
}

const LONGEST = 20;

export async function whyWaiting(kernel: Kernel, subject: WaitSubject): Promise<WaitReason> {
  const chain: WaitLink[] = [];
  const seen = new Set<string>();
  if (subject !== null && typeof subject === "object" && "run" in subject)
    await aboutRun(kernel, checkId(subject.run, "the run's id"), chain, seen);
  else if (subject !== null && typeof subject === "object" && "lock" in subject) {
    const ref: LockRef = { kind: checkKind(subject.kind), name: checkId(subject.lock, "the lock's name") };
    if (subject.waiter !== undefined) await aboutWaiter(kernel, ref, checkId(subject.waiter, "the waiter"), chain);
    await aboutLock(kernel, ref, chain, seen);
  } else throw new InvalidArgumentError("what to ask about", "must be { run } or { lock }");
  const isWaiting = chain.length > 1;
  return { isWaiting, says: chain.map(({ says }) => says).join("; "), chain };
}

function checkKind(kind: LockKind = "mutex"): LockKind {
  if (kind !== "mutex" && kind !== "semaphore" && kind !== "rwlock")
    throw new InvalidArgumentError("the lock's kind", 'must be "mutex", "semaphore" or "rwlock"');
  return kind;
}

async function aboutRun(kernel: Kernel, id: string, chain: WaitLink[], seen: Set<string>): Promise<void> {
  const [row] = await kernel.read([runAt(id)]);
  if (row?.value == null) {
    if (chain.length === 0) throw new RunNotFoundError(id);
    return;
  }
  const value = kernel.decode(row, row.value) as RunValue;
  const say = (says: string): void => void chain.push({ is: "run", name: id, says: `run "${id}" ${says}` });
  if (seen.has(id) || chain.length >= LONGEST) return say("is in this chain already: they wait for each other");
  seen.add(id);
  const status = row.status ?? "";
  if (ENDED.has(status)) return say(`has ended: it is ${status}`);
  if (status === "parked")
    return say(`is parked and keeps what it holds until a person decides: ${value.parked?.reason ?? ""}`);
  const wish = value.holds?.find(({ fence }) => fence === undefined);
  if (wish !== undefined) {
    say(`waits for ${shownLocks(wish.refs)}`);
    for (const ref of wish.refs) await aboutLock(kernel, ref, chain, seen, wish.ticket);
    return;
  }
  if (row.holder !== null) return say(`is ${status}, and a worker is at it`);
  const child = value.blocked?.children[0];
  if (child !== undefined && row.dueMs === null) {
    say(`waits for its child "${child}"`);
    return aboutRun(kernel, child, chain, seen);
  }
  if (row.dueMs === null) return say("waits for a signal or a child");
  say(
    `is ${status} until ${new Date(row.dueMs).toISOString()}, unless something wakes it before, and then for a worker that knows it`,
  );
}

async function aboutWaiter(kernel: Kernel, ref: LockRef, ticket: string, chain: WaitLink[]): Promise<void> {
  const [row] = await kernel.read([ticketAt(ref, ticket)]);
  const value = row?.value == null ? undefined : (kernel.decode(row, row.value) as Ticket);
  const who = value?.owner === undefined ? `"${value?.by ?? ticket}"` : `run "${value.owner.run}"`;
  const says =
    value === undefined ? `${who} does not wait for ${shownLocks([ref])}` : `${who} waits for ${shownLocks([ref])}`;
  chain.push({
    is: value?.owner === undefined ? "plain" : "run",
    name: value?.owner?.run ?? value?.by ?? ticket,
    says,
  });
}

async function aboutLock(
  kernel: Kernel,
  ref: LockRef,
  chain: WaitLink[],
  seen: Set<string>,
  ticket?: string,
): Promise<void> {
  const [row] = await kernel.read([lockAt(ref)]);
  const value = row?.value == null ? undefined : (kernel.decode(row, row.value) as LockValue);
  const shown = shownLocks([ref]);
  const holders = value?.holders ?? [];
  const waiting = value?.waiting ?? 0;
  const line = waiting === 0 ? "" : `, and ${waiting} wait${waiting === 1 ? "s" : ""}`;
  const isFirst = ticket !== undefined && value?.first === ticket ? ", this one first" : "";
  const held = holders.length === 0 ? "is free" : `is held by ${holders.length}`;
  chain.push({ is: "lock", name: ref.name, says: `${shown} ${held}${line}${isFirst}` });
  for (const { owner, by, untilMs, fence } of holders.slice(0, LONGEST)) {
    if (owner !== undefined) await aboutRun(kernel, owner.run, chain, seen);
    else {
      const until = untilMs === null ? "" : `, until ${new Date(untilMs).toISOString()} unless it renews`;
      chain.push({
        is: "plain",
        name: by ?? "",
        says: `${by === undefined ? "somebody" : `"${by}"`} holds ${shown} under fence ${fence}${until}`,
      });
    }
  }
}
