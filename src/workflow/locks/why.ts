/**
 * Why something waits, as a chain: who waits for what, who holds it, and what that one waits for, down to something that can continue, or
 * that an operator has to resolve.
 *
 * It reads without locks, for people: the result may be out of date a moment later.
 */

import { checkId, checkOptions, optionNames } from "../../kernel/check.ts";
import type { Row } from "../../kernel/contract.ts";
import { InvalidArgumentError } from "../../kernel/errors.ts";
import type { Kernel } from "../../kernel/kernel.ts";
import { type LockKind, type LockRef, lockAt, lockOf, shownLocks, type Ticket, ticketAt } from "../../lock/stored.ts";
import { RunNotFoundError } from "../errors.ts";
import { isNew, whyNotBegun, whyQueued } from "../flow/why.ts";
import { doingInWords, isWaitingOnly, type RunActivity, showDoing } from "../history/doing.ts";
import { readRun } from "../history/read-run.ts";
import { type Doing, type RunValue, runAt, statusOf } from "../stored.ts";

/** What is asked about: a run, a lock, or one who waits for a lock. */
export type WaitSubject =
  | { readonly run: string }
  | { readonly lock: string; readonly kind?: LockKind | undefined; readonly waiter?: string | undefined };

const SUBJECT = optionNames<WaitSubject>({ run: true, lock: true, kind: true, waiter: true });

export interface WaitLink {
  readonly is: "run" | "lock" | "limit" | "plain";
  /**
   * The run's id; the name of the lock; that of the concurrency limit, or of the workflow whose limit it is; or who holds it in plain code, as far as that
   * was said.
   */
  readonly name: string;
  readonly says: string;
}

export interface WaitReason {
  readonly isWaiting: boolean;
  /** In one sentence for each link. */
  readonly says: string;
  readonly chain: readonly WaitLink[];
}

/** A longer chain is cut off. */
const LONGEST = 20;

/** What a run is doing that this process works on. */
type Live = (row: Row) => Doing | undefined;

export async function whyWaiting(kernel: Kernel, subject: WaitSubject, live: Live): Promise<WaitReason> {
  if (typeof subject !== "object" || subject === null || !("run" in subject || "lock" in subject))
    throw new InvalidArgumentError("what to ask about", "must be { run } or { lock }");
  checkOptions(subject, SUBJECT, "what to ask about");
  const chain: WaitLink[] = [];
  const seen = new Set<string>();
  let isWaiting: boolean;
  if ("run" in subject) isWaiting = await aboutRun(kernel, checkId(subject.run, "the run's id"), chain, seen, live);
  else {
    const ref: LockRef = { kind: checkKind(subject.kind), name: checkId(subject.lock, "the lock's name") };
    const waiter = subject.waiter === undefined ? undefined : checkId(subject.waiter, "the waiter");
    const isInLine = waiter === undefined || (await aboutWaiter(kernel, ref, waiter, waiter, chain));
    isWaiting = (await aboutLock(kernel, ref, chain, seen, live, waiter)) && isInLine;
  }
  return { isWaiting, says: chain.map(({ says }) => says).join("; "), chain };
}

function checkKind(kind: LockKind = "mutex"): LockKind {
  if (kind !== "mutex" && kind !== "semaphore" && kind !== "rwlock")
    throw new InvalidArgumentError("the lock's kind", 'must be "mutex", "semaphore" or "rwlock"');
  return kind;
}

/** Adds the state of the run, and why. Returns whether it waits. */
async function aboutRun(
  kernel: Kernel,
  id: string,
  chain: WaitLink[],
  seen: Set<string>,
  live: Live,
): Promise<boolean> {
  const [row] = await kernel.read([runAt(id)]);
  if (row?.value == null) {
    if (chain.length === 0) throw new RunNotFoundError(id);
    return false;
  }
  const { value, unreadable } = readRun(kernel, row);
  const say = (isWaiting: boolean, says: string): boolean => {
    chain.push({ is: "run", name: id, says: `run "${id}" ${says}` });
    return isWaiting;
  };
  if (seen.has(id)) return say(true, "is in this chain already: they wait for each other");
  if (chain.length >= LONGEST) return say(true, "is where this chain is cut off: ask about it");
  seen.add(id);
  if (value === undefined || unreadable !== null)
    return say(true, `is ${row.status} and cannot be read: ${unreadable}`);
  const status = statusOf(row);
  switch (status) {
    case "completed":
    case "failed":
    case "canceled":
    case "timed_out":
    case "expired":
      return say(false, `has ended: it is ${status}${endOf(value)}`);
    case "parked":
      return say(true, `is parked and keeps its locks until an operator resolves it: ${value.parked?.reason ?? ""}`);
    case "queued":
      return aboutQueued(kernel, row, value, chain, seen, live);
    case "pending":
    case "running":
    case "waiting":
      break;
    default:
      status satisfies never;
  }
  if (value.contradicted !== undefined)
    return say(true, `${contradictedInWords(value.contradicted)}${canceledInWords(value)}`);
  const wait = value.holds?.find(({ fence }) => fence === undefined);
  if (wait !== undefined) {
    say(true, `waits for ${shownLocks(wait.refs)}`);
    for (const ref of wait.refs) await aboutLock(kernel, ref, chain, seen, live, wait.ticket);
    return true;
  }
  const shown = showDoing(row, value, live(row));
  const asOf = shown.doingAsOf === null ? "" : ` (as recorded at ${shown.doingAsOf.toISOString()})`;
  const words = shown.doing.length === 0 ? "" : `${doingInWords(shown)}${asOf}`;
  const problem = `${problemOf(value)}${canceledInWords(value, shown.doing)}`;
  if (row.holder !== null) {
    const lease = row.dueMs === null ? "" : ` until ${new Date(row.dueMs).toISOString()} unless it renews its lease`;
    return say(
      isWaitingOnly(shown),
      `${words === "" ? `is ${status}` : words}, and worker "${row.holder}" holds it${lease}${problem}`,
    );
  }
  if (isNew(row)) return say(true, `${await whyNotBegun(kernel, row, value)}${problem}`);
  const child = value.blocked?.children[0];
  if (child !== undefined && row.dueMs === null) {
    say(true, `${words === "" ? `waits for its child "${child}"` : words}${problem}`);
    await aboutRun(kernel, child, chain, seen, live);
    return true;
  }
  if (row.dueMs === null) return say(true, `${words === "" ? "waits for a signal or a child" : words}${problem}`);
  const until = new Date(row.dueMs).toISOString();
  // What it waits for may end at just that time.
  const due = words.includes(until) ? "" : `, is due at ${until} unless something wakes it before`;
  return say(true, `${words === "" ? `is ${status}` : words}${due}, and then needs a worker that knows it${problem}`);
}

/** Adds what a run in line waits for, how many are before it, and what the first run that the limit has admitted waits for. */
async function aboutQueued(
  kernel: Kernel,
  row: Row,
  value: RunValue,
  chain: WaitLink[],
  seen: Set<string>,
  live: Live,
): Promise<boolean> {
  const { run, limit, admitted: [first] = [] } = await whyQueued(kernel, row, value);
  chain.push({ is: "run", name: row.key, says: `run "${row.key}" ${run}` });
  if (limit !== undefined) chain.push({ is: "limit", ...limit });
  if (first !== undefined) await aboutRun(kernel, first, chain, seen, live);
  return true;
}

/** Why it ended so, if it did not complete. */
function endOf({ outcome }: RunValue): string {
  const error = outcome !== undefined && "error" in outcome ? outcome.error : undefined;
  return error instanceof Error ? `: ${error.message}` : "";
}

/** What is wrong with the run, if something is. */
function problemOf({ trouble }: RunValue): string {
  if (trouble === undefined) return "";
  return `, and had trouble at ${new Date(trouble.atMs).toISOString()}: ${trouble.reason}`;
}

/** What the run waits for does not matter until there is a worker that can continue it. */
const contradictedInWords = ({ sinceMs, reason }: NonNullable<RunValue["contradicted"]>): string =>
  `cannot continue: workers whose code contradicts its history have released it since ${new Date(sinceMs).toISOString()}: ${reason}; work on it with the code that it began with, or call run.cancel({ force: true })`;

/** That it was asked to stop, and what keeps it from that. */
function canceledInWords({ cancel }: RunValue, doing: readonly RunActivity[] = []): string {
  if (cancel === undefined) return "";
  const because = cancel.reason === undefined ? "" : ` (${cancel.reason})`;
  const asked = `, and was asked to stop${because}`;
  const step = doing.find(({ isRunning }) => isRunning);
  return step === undefined
    ? asked
    : `${asked}, but step "${step.name}" is still running: its function has to end when its abortSignal aborts; to end the run without waiting for it, call run.cancel({ force: true })`;
}

/** Adds the waiter; `asked` is what the caller calls it, who must not learn a ticket here: it becomes the grant. Returns whether it does wait. */
async function aboutWaiter(
  kernel: Kernel,
  ref: LockRef,
  ticket: string,
  asked: string | undefined,
  chain: WaitLink[],
): Promise<boolean> {
  const value = await ticketOf(kernel, ref, ticket);
  const called = value?.by ?? asked;
  const plain = called === undefined ? "plain code" : `"${called}"`;
  const who = value?.owner === undefined ? plain : `run "${value.owner.run}"`;
  chain.push({
    is: value?.owner === undefined ? "plain" : "run",
    name: value?.owner?.run ?? called ?? "",
    says: `${who} ${value === undefined ? "does not wait" : "waits"} for ${shownLocks([ref])}`,
  });
  return value !== undefined;
}

async function ticketOf(kernel: Kernel, ref: LockRef, ticket: string): Promise<Ticket | undefined> {
  const [row] = await kernel.read([ticketAt(ref, ticket)]);
  return row?.value == null ? undefined : (kernel.decode(row, row.value) as Ticket);
}

/** Adds the holders of the lock, and what they wait for. Returns whether the lock has waiters. */
async function aboutLock(
  kernel: Kernel,
  ref: LockRef,
  chain: WaitLink[],
  seen: Set<string>,
  live: Live,
  ticket?: string,
): Promise<boolean> {
  const [row] = await kernel.read([lockAt(ref)]);
  const value = row?.value == null ? undefined : lockOf(kernel.decode(row, row.value));
  const shown = shownLocks([ref]);
  const { holders = [], waiting = 0, first = null } = value ?? {};
  const line = waiting === 0 ? "" : `, and ${waiting} wait${waiting === 1 ? "s" : ""}`;
  const isFirst = ticket !== undefined && first === ticket;
  const held = holders.length === 0 ? "is free" : holders.length === 1 ? "is held" : `has ${holders.length} holders`;
  chain.push({ is: "lock", name: ref.name, says: `${shown} ${held}${line}${isFirst ? ", this one first" : ""}` });
  for (const { owner, by, untilMs, fence } of holders.slice(0, LONGEST)) {
    if (owner !== undefined) await aboutRun(kernel, owner.run, chain, seen, live);
    else {
      const until = untilMs === null ? "" : `, until ${new Date(untilMs).toISOString()} unless it renews`;
      const who = by === undefined ? "plain code" : `"${by}"`;
      chain.push({ is: "plain", name: by ?? "", says: `${who} holds ${shown} under fence ${fence}${until}` });
    }
  }
  // A lock that is free and has a queue is kept for the first in it, which waits for other locks as well.
  if (holders.length === 0 && first !== null && !isFirst) {
    const ahead = await ticketOf(kernel, ref, first);
    if (ahead?.owner !== undefined) await aboutRun(kernel, ahead.owner.run, chain, seen, live);
    else await aboutWaiter(kernel, ref, first, undefined, chain);
  }
  return waiting > 0;
}
