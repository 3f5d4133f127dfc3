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
import type { Collect, GateRequest } from "../definitions/flow.ts";
import { RunConflictError, RunExistsError } from "../errors.ts";
import { appendItem, collectStart } from "../flow/collect.ts";
import { accept, type Passed, pass, waitingAt, withTimeout } from "../flow/gate.ts";
import { collectorAt, type Gate, limitAt } from "../flow/stored.ts";
import { runOf } from "../history/read-run.ts";
import { hasEnded, newQueueOf, type Parent, queueOf, type RunStatus, type RunValue, runAt } from "../stored.ts";
import { checkNotDeleting, checkWorkflow } from "./existing.ts";

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
  readonly tick?: RunValue["tick"];
  readonly wakesAtEnd?: RunValue["wakesAtEnd"];
  readonly tokenHash?: string | undefined;
  /** Default: that of the decision, if it has one. */
  readonly origin?: Origin | undefined;
  /** What happens if the id is taken. */
  readonly ifExists: "join" | "reject" | "restart";
  /** What it passes before it begins, where the process that starts it knows the workflow. */
  readonly flow?: StartFlow | undefined;
  /** Its workflow is paused: it takes neither a turn nor a place before a worker may begin it. */
  readonly isPaused?: boolean | undefined;
  /** When it is due, if others that are started in the same commit are to begin after it. Default: now. */
  readonly dueMs?: number | undefined;
  /** The process that starts it also works on it. */
  readonly lease?: { readonly by: string; readonly leaseMs: number } | undefined;
}

export interface StartFlow {
  readonly request: GateRequest;
  /** Of the start alone: a worker computes the others. */
  readonly priority?: number | undefined;
  readonly ttlMs: number | null;
  readonly collect?: { readonly by: Collect; readonly key: string } | undefined;
}

/** An input up to this length is in the record too. */
const MOST_INPUT_CHARS = 1024;

export interface Started {
  /** The run that has the input: another one than requested, if the start was dropped or collected. */
  readonly id: string;
  readonly isNew: boolean;
  readonly isLeased: boolean;
  readonly nowMs: number;
}

/** The records that a start is known to touch. */
export const touchedBy = (request: StartRequest): readonly Address[] => {
  const { flow } = request;
  if (flow === undefined) return [startedAt(request)];
  const { places, rates } = flow.request;
  if (flow.collect !== undefined)
    return [
      collectorAt(request.workflow, flow.collect.key),
      ...rates.filter(({ isRefused }) => isRefused).map(({ at }) => at),
    ];
  return [startedAt(request), ...rates.map(({ at }) => at), ...places.map(({ ref }) => limitAt(ref))];
};

/** Where the run will be. */
export function startedAt({ id, isMade }: Pick<StartRequest, "id" | "isMade">): Address {
  return isMade === true ? newAddress(runAt(id)) : runAt(id);
}

/** Creates a run, or finds the one that has this id. */
export function startRun(tx: Tx, request: StartRequest, encodedInput?: string): Started {
  const { isMade = false, flow } = request;
  if (flow?.collect !== undefined) return startCollected(tx, request, flow, flow.collect);
  const record = tx.record(startedAt(request));
  // Where nothing is timed from it, the exact time is not needed.
  const isTimeless =
    isMade &&
    request.timeoutMs === null &&
    request.delayMs === undefined &&
    request.atMs === undefined &&
    (flow === undefined || flow.ttlMs === null);
  const nowMs = isTimeless ? tx.approxNowMs : tx.nowMs;
  const before = record.exists ? runOf(record) : undefined;
  if (before !== undefined) {
    if (request.ifExists === "reject") throw new RunExistsError(request.id, record.status ?? "");
    if (!(request.ifExists === "restart" && hasEnded(record))) {
      checkSame(request, before);
      return { id: request.id, isNew: false, isLeased: false, nowMs };
    }
    checkNotDeleting(record, request.id);
  }
  const startMs = request.atMs ?? nowMs + (request.delayMs ?? 0);
  const isNow = startMs <= nowMs;
  const passed = atGate(tx, request, startMs, isNow && request.isPaused !== true);
  if (passed?.is === "dropped") return { id: passed.run, isNew: false, isLeased: false, nowMs };
  const waits = passed?.is === "queued" || passed?.is === "later" ? passed : undefined;
  const lease = isNow && waits === undefined ? request.lease : undefined;
  const startedText = encodedInput ?? record.encode({ input: request.input });
  const gate =
    passed === undefined ? undefined : waits === undefined ? passed.gate : withTimeout(waits.gate, request.timeoutMs);
  const value: RunValue = {
    ...newValue(tx, request, record, before, nowMs),
    ...(isNow ? {} : { scheduledAtMs: startMs }),
    ...(request.timeoutMs === null || waits !== undefined ? {} : { deadlineMs: startMs + request.timeoutMs }),
    ...(gate === undefined ? {} : { gate }),
    ...(flow?.request.pool === undefined ? {} : { pool: flow.request.pool }),
    ...(lease === undefined && startedText.length <= MOST_INPUT_CHARS ? { input: request.input } : {}),
  };
  const pool = flow?.request.pool;
  const newQueue = newQueueOf(request.workflow, pool);
  const dueMs = Math.min(startMs, request.dueMs ?? startMs);
  const unleased = { kind: newQueue, status: "pending" satisfies RunStatus, dueMs, ...unclaimed(record) };
  if (lease === undefined)
    record.write({ value, ...unleased, ...(waits === undefined ? {} : waitingAt(waits, request.workflow, newQueue)) });
  else
    record.write({
      value,
      kind: queueOf(request.workflow, pool),
      status: "running" satisfies RunStatus,
      holder: lease.by,
      dueMs: (isTimeless ? tx.nowUpperBoundMs : nowMs) + lease.leaseMs,
      fence: nextFence(record.fence, isMade ? 0 : tx.fenceFloor),
      tries: 1,
    });
  record.appendText("started", startedText);
  return { id: request.id, isNew: true, isLeased: lease !== undefined, nowMs };
}

const unclaimed = (record: Draft) => ({ holder: null, fence: record.fence, tries: 0 });

/** Passes the gate, if it is the time of the run; otherwise a worker does that when it is. Undefined where there is none. */
function atGate(
  tx: Tx,
  { id, flow, isPaused, timeoutMs }: StartRequest,
  startMs: number,
  isNow: boolean,
): Passed | undefined {
  // Its timeout begins with it.
  if (flow === undefined)
    return isPaused === true && timeoutMs !== null ? { is: "later", gate: {}, dueMs: startMs } : undefined;
  const { priority, ttlMs, request } = flow;
  const gate: Gate = {
    ...(priority === undefined ? {} : { priority }),
    ...(ttlMs === null ? {} : { expiresAtMs: startMs + ttlMs }),
  };
  return isNow ? pass(tx, id, gate, request) : { is: "later", gate: accept(tx, gate, request), dueMs: startMs };
}

/** The start becomes part of a run that collects starts. */
function startCollected(
  tx: Tx,
  request: StartRequest,
  flow: StartFlow,
  { by: collect, key }: NonNullable<StartFlow["collect"]>,
): Started {
  const { workflow, input, fingerprint, isMade = false, ifExists } = request;
  const { nowMs } = tx;
  const { run, isNew } = collectStart(tx, {
    workflow,
    collect,
    key,
    input,
    id: isMade ? undefined : request.id,
    fingerprint,
    rejects: ifExists === "reject",
    accept: () => accept(tx, flow.priority === undefined ? {} : { priority: flow.priority }, flow.request),
    create: (gate, collecting, dueMs, atMs) => {
      const id = isMade ? request.id : tx.uuid();
      const record = tx.record(startedAt({ id, isMade: true }));
      const { ttlMs } = flow;
      const value: RunValue = {
        // Its input is not that of one start, and those who started it are not its parents.
        ...newValue(tx, { ...request, fingerprint: null, parent: undefined, root: undefined }, record, undefined, atMs),
        scheduledAtMs: dueMs,
        gate: ttlMs === null ? gate : { ...gate, expiresAtMs: dueMs + ttlMs },
        collecting,
      };
      record.write({
        value,
        kind: newQueueOf(workflow),
        status: "pending" satisfies RunStatus,
        dueMs,
        ...unclaimed(record),
      });
      if (collecting.by === "batch") appendItem(record, input);
      return id;
    },
  });
  return { id: run, isNew, isLeased: false, nowMs };
}

/** What the record of every new run has. */
function newValue(tx: Tx, request: StartRequest, record: Draft, before: RunValue | undefined, nowMs: number): RunValue {
  return {
    workflow: request.workflow,
    // After a deletion, above everything that the deleted run had: neither its inbox nor the keys of its steps are used again.
    incarnation: (before?.incarnation ?? record.head) + 1,
    seed: tx.uuid(),
    startedAtMs: nowMs,
    from: record.head + 1,
    ...deletedUpTo(record.head, before),
    ...(request.fingerprint === null ? {} : { fingerprint: request.fingerprint }),
    ...(request.tags === undefined || request.tags.length === 0 ? {} : { tags: request.tags }),
    ...(request.parent === undefined ? {} : { parent: request.parent }),
    ...(request.root === undefined ? {} : { root: request.root }),
    ...(request.tick === undefined ? {} : { tick: request.tick }),
    ...(request.wakesAtEnd === undefined ? {} : { wakesAtEnd: request.wakesAtEnd }),
    ...(request.tokenHash === undefined ? {} : { tokenHash: request.tokenHash }),
    ...storedOrigin(request.origin ?? originOf(tx)),
  };
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
