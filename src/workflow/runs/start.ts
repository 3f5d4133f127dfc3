/**
 * Starting a run: a decision that creates its record, or finds the run that has its id.
 *
 * Guarantees: the same id is the same run, and a different input under it is refused (G3).
 */

import { nextFence } from "../../kernel/claim/decide.ts";
import { type Address, newAddress } from "../../kernel/contract.ts";
import type { Tx } from "../../kernel/decision.ts";
import type { Draft } from "../../kernel/draft.ts";
import { type Origin, originOf } from "../../kernel/origin.ts";
import { RunConflictError, RunExistsError } from "../errors.ts";
import { runOf } from "../history/read-run.ts";
import {
  deletingQueueOf,
  hasEnded,
  type Parent,
  queueOf,
  type RunStatus,
  type RunValue,
  runAt,
  workflowOfQueue,
} from "../stored.ts";

export interface StartRequest {
  readonly id: string;
  readonly workflow: string;
  readonly input: unknown;
  /** Null where there is nothing to compare with. */
  readonly fingerprint: string | null;
  /** The id was generated for this run: it has never been used, and there was never a fence under it. */
  readonly isMade?: boolean | undefined;
  readonly tags?: readonly string[] | undefined;
  readonly delayMs?: number | undefined;
  readonly atMs?: number | undefined;
  readonly timeoutMs: number | null;
  readonly parent?: Parent | undefined;
  readonly root?: string | undefined;
  /** Default: that of the decision, if it has one. */
  readonly origin?: Origin | undefined;
  /** What happens if the id is taken. */
  readonly ifExists: "join" | "reject" | "restart";
  /** The process that starts it also works on it. */
  readonly lease?: { readonly by: string; readonly leaseMs: number } | undefined;
}

/** An input up to this length is in the record too. */
const MOST_INPUT_CHARS = 1024;

export interface Started {
  readonly isNew: boolean;
  readonly isLeased: boolean;
  readonly nowMs: number;
}

/** Where the run will be. */
export function startedAt({ id, isMade }: StartRequest): Address {
  return isMade === true ? newAddress(runAt(id)) : runAt(id);
}

/** Creates a run, or finds the one that has this id. */
export function startRun(tx: Tx, request: StartRequest, encodedInput?: string): Started {
  const { isMade = false } = request;
  const record = tx.record(startedAt(request));
  // Where nothing is timed from it, the exact time is not needed.
  const isTimeless =
    isMade && request.timeoutMs === null && request.delayMs === undefined && request.atMs === undefined;
  const nowMs = isTimeless ? tx.approxNowMs : tx.nowMs;
  const before = record.exists ? runOf(record) : undefined;
  if (before !== undefined) {
    if (request.ifExists === "reject") throw new RunExistsError(request.id, record.status ?? "");
    if (!(request.ifExists === "restart" && hasEnded(record))) {
      checkSame(request, before);
      return { isNew: false, isLeased: false, nowMs };
    }
    checkNotDeleting(record, request.id);
  }
  const startMs = request.atMs ?? nowMs + (request.delayMs ?? 0);
  const isNow = startMs <= nowMs;
  const lease = isNow ? request.lease : undefined;
  const startedText = encodedInput ?? record.encode({ input: request.input });
  const value: RunValue = {
    workflow: request.workflow,
    // After a deletion, above everything that the deleted run had: neither its inbox nor the keys of its steps are used again.
    incarnation: (before?.incarnation ?? record.head) + 1,
    seed: tx.uuid(),
    startedAtMs: nowMs,
    ...(isNow ? {} : { scheduledAtMs: startMs }),
    from: record.head + 1,
    ...deletedUpTo(record.head, before),
    ...(request.fingerprint === null ? {} : { fingerprint: request.fingerprint }),
    ...(request.tags === undefined || request.tags.length === 0 ? {} : { tags: request.tags }),
    ...(request.parent === undefined ? {} : { parent: request.parent }),
    ...(request.root === undefined ? {} : { root: request.root }),
    ...storedOrigin(request.origin ?? originOf(tx)),
    ...(request.timeoutMs === null ? {} : { deadlineMs: startMs + request.timeoutMs }),
    ...(lease === undefined && startedText.length <= MOST_INPUT_CHARS ? { input: request.input } : {}),
  };
  record.write({
    value,
    kind: queueOf(request.workflow),
    status: (lease === undefined ? "pending" : "running") satisfies RunStatus,
    holder: lease?.by ?? null,
    dueMs: lease === undefined ? startMs : (isTimeless ? tx.nowUpperBoundMs : nowMs) + lease.leaseMs,
    fence: lease === undefined ? record.fence : nextFence(record.fence, isMade ? 0 : tx.fenceFloor),
    tries: lease === undefined ? 0 : 1,
  });
  record.appendText("started", startedText);
  return { isNew: true, isLeased: lease !== undefined, nowMs };
}

function storedOrigin(origin: Origin | undefined): Pick<RunValue, "origin"> {
  if (origin === undefined) return {};
  const { actor, correlationId: correlation, causationId: causation } = origin;
  return {
    origin: {
      ...(actor === undefined ? {} : { actor }),
      ...(correlation === undefined ? {} : { correlation }),
      ...(causation === undefined ? {} : { causation }),
    },
  };
}

/** The record's log may begin with facts of a run that was deleted. */
function deletedUpTo(head: number, before: RunValue | undefined): Pick<RunValue, "deletedUpTo"> {
  const upTo = before === undefined ? head : (before.deletedUpTo ?? 0);
  return upTo === 0 ? {} : { deletedUpTo: upTo };
}

/** A start with different input under the same id would get a result that is not its own. */
function checkSame(request: StartRequest, value: RunValue): void {
  checkWorkflow(request.id, value, request.workflow);
  if (value.fingerprint !== undefined && request.fingerprint !== null && value.fingerprint !== request.fingerprint)
    throw new RunConflictError(request.id, "was started with another input");
}

/** Refuses a run of a different workflow than the caller expects. */
export function checkWorkflow(id: string, value: RunValue, workflow: string | undefined): void {
  if (workflow !== undefined && value.workflow !== workflow)
    throw new RunConflictError(id, `is a run of "${value.workflow}", not of "${workflow}"`);
}

/** Whether the deletion of the run has begun (`delete.ts`): it can neither be restarted nor retried. */
export const isDeleting = ({ kind }: Draft): boolean => kind === deletingQueueOf(workflowOfQueue(kind));

export function checkNotDeleting(record: Draft, id: string): void {
  if (isDeleting(record)) throw new RunConflictError(id, "is being deleted");
}
