/**
 * Runs as status and lists show them, and the pages of a list.
 */

import {
  checkCount,
  checkDate,
  checkId,
  checkList,
  checkOptions,
  checkPrefix,
  optionNames,
} from "../../kernel/check.ts";
import type { Row } from "../../kernel/contract.ts";
import { InvalidArgumentError } from "../../kernel/errors.ts";
import type { Kernel } from "../../kernel/kernel.ts";
import type { Origin } from "../../kernel/origin.ts";
import { definitionOf } from "../definitions/definition.ts";
import { poolsOf } from "../flow/pools.ts";
import { showDoing } from "../history/doing.ts";
import { readRun } from "../history/read-run.ts";
import {
  type Doing,
  hasEnded,
  isRunStatus,
  queuesOf,
  RUNS,
  type RunStatus,
  type RunValue,
  runAt,
  STATUSES,
  workflowOfQueue,
} from "../stored.ts";
import type { RunInfo, RunListOptions, RunPage } from "./run.ts";

/** What a run is doing that a worker of this handle works on. */
type Live = (row: Row) => Doing | undefined;

export async function showRun(kernel: Kernel, row: Row, live: Live): Promise<RunInfo> {
  const { value, unreadable } = readRun(kernel, row);
  if (value === undefined) return showUnreadable(kernel, row, unreadable);
  if (!isRunStatus(row.status))
    return showUnreadable(kernel, row, `this version does not know its status "${row.status}"`);
  const { contradicted, trouble } = value;
  const { status } = row;
  return {
    id: row.key,
    workflow: value.workflow,
    status,
    incarnation: value.incarnation,
    tags: value.tags ?? [],
    startedAt: new Date(value.startedAtMs),
    scheduledAt: value.scheduledAtMs === undefined ? null : validDate(value.scheduledAtMs),
    ...showDoing(row, value, live(row)),
    endedAt: value.endedAtMs === undefined ? null : new Date(value.endedAtMs),
    ...leaseOf(row),
    dueAt: dueAtOf(row),
    parent: value.parent?.run ?? null,
    origin: showOrigin(value),
    isCancelRequested: value.cancel !== undefined,
    parkedReason: status === "parked" ? (value.parked?.reason ?? "a worker could not read its record") : null,
    contradicted:
      contradicted === undefined ? null : { since: new Date(contradicted.sinceMs), reason: contradicted.reason },
    trouble: trouble === undefined ? null : { at: new Date(trouble.atMs), reason: trouble.reason },
    unreadable,
    error: value.outcome !== undefined && "error" in value.outcome ? value.outcome.error : undefined,
  };
}

function showOrigin({ origin: { actor, correlation, causation } = {} }: RunValue): Origin {
  return {
    ...(actor === undefined ? {} : { actor }),
    ...(correlation === undefined ? {} : { correlationId: correlation }),
    ...(causation === undefined ? {} : { causationId: causation }),
  };
}

/** What the columns and the log of a run tell whose record cannot be read. */
async function showUnreadable(kernel: Kernel, row: Row, unreadable: string): Promise<RunInfo> {
  // A status of a later version is shown as it is.
  const status = row.status as RunStatus;
  const [first] = await kernel.entries(runAt(row.key), 0, 1);
  const [last] = hasEnded(row) ? await kernel.entries(runAt(row.key), row.head - 1, 1) : [];
  return {
    id: row.key,
    workflow: workflowOfQueue(row.kind),
    status,
    incarnation: 0,
    tags: [],
    startedAt: new Date(first?.atMs ?? 0),
    scheduledAt: null,
    doing: [],
    doingCount: 0,
    doingAsOf: null,
    endedAt: last === undefined ? null : new Date(last.atMs),
    ...leaseOf(row),
    dueAt: dueAtOf(row),
    parent: null,
    origin: {},
    isCancelRequested: false,
    parkedReason: status === "parked" ? unreadable : null,
    contradicted: null,
    trouble: null,
    unreadable,
    error: undefined,
  };
}

const leaseOf = ({ holder, dueMs }: Row): Pick<RunInfo, "worker" | "leaseUntil"> => ({
  worker: holder,
  leaseUntil: holder === null || dueMs === null ? null : validDate(dueMs),
});

const dueAtOf = (row: Row): Date | null =>
  row.holder === null && row.dueMs !== null && !hasEnded(row) ? validDate(row.dueMs) : null;

const validDate = (ms: number): Date | null => (Number.isNaN(new Date(ms).getTime()) ? null : new Date(ms));

const LIST_OPTIONS = optionNames<RunListOptions>({
  workflow: true,
  status: true,
  tag: true,
  prefix: true,
  startedAfter: true,
  startedBefore: true,
  endedAfter: true,
  endedBefore: true,
  order: true,
  after: true,
  limit: true,
});

/** Runs that have to be looked at one by one are read in pages of this size. */
const MOST_READ = 500;

export async function listRuns(kernel: Kernel, options: RunListOptions, live: Live): Promise<RunPage> {
  const { rows, next } = await findRuns(kernel, options);
  return { runs: await Promise.all(rows.map((row) => showRun(kernel, row, live))), next };
}

/** The records of a page of runs. */
export async function findRuns(
  kernel: Kernel,
  options: RunListOptions,
): Promise<{ readonly rows: readonly Row[]; readonly next: string | null }> {
  checkOptions(options, LIST_OPTIONS);
  const { workflow, status, tag, order = "newest", after = null } = options;
  if (tag !== undefined) checkId(tag, "the tag");
  const limit = checkCount(options.limit ?? 100, "the limit", 1000);
  const prefix = checkPrefix(options.prefix ?? "", "the prefix");
  const statuses = checkStatuses(status);
  if (order !== "newest" && order !== "oldest" && order !== "id")
    throw new InvalidArgumentError("the order", 'must be "newest", "oldest" or "id"');
  if (after !== null && order === "id") checkId(after, "after");
  else if (after !== null && !(typeof after === "string" && /^\d{1,15}$/.test(after)))
    throw new InvalidArgumentError("after", "must be the `next` of a page");
  const name =
    workflow === undefined
      ? undefined
      : checkId(typeof workflow === "string" ? workflow : workflow?.name, "the workflow");
  const inTime = checkTimes(options);
  const isWanted = (row: Row): boolean => {
    if (tag === undefined && inTime === undefined) return true;
    const { value } = readRun(kernel, row);
    if (value === undefined || (tag !== undefined && value.tags?.includes(tag) !== true)) return false;
    return inTime === undefined || inTime(value);
  };
  const pools = name === undefined ? [] : await knownPools(kernel, workflow, name);
  const found: Row[] = [];
  let from = after;
  // Tags and times are in the value, so pages are read until enough runs have them.
  const pageSize = tag === undefined && inTime === undefined ? limit + 1 : Math.max(limit + 1, MOST_READ);
  for (;;) {
    const rows = await kernel.list({
      space: RUNS,
      prefix,
      after: from,
      limit: pageSize,
      order: order === "id" ? "key" : order,
      kinds: name === undefined ? undefined : queuesOf(name, pools),
      statuses,
    });
    for (const row of rows) {
      from = order === "id" ? row.key : String(row.id);
      if (isWanted(row)) found.push(row);
      if (found.length > limit) break;
    }
    if (rows.length < pageSize || found.length > limit) break;
  }
  const page = found.slice(0, limit);
  const last = page.at(-1);
  const next = found.length > limit && last !== undefined ? (order === "id" ? last.key : String(last.id)) : null;
  return { rows: page, next };
}

/** Those that the definition has, if it was given, and those that were ever declared. */
async function knownPools(kernel: Kernel, workflow: unknown, name: string): Promise<ReadonlySet<string>> {
  return new Set([...(definitionOf(workflow)?.flow?.pools?.names ?? []), ...(await poolsOf(kernel, name))]);
}

function checkStatuses(status: RunListOptions["status"]): readonly RunStatus[] | undefined {
  const statuses = status === undefined ? undefined : typeof status === "string" ? [status] : status;
  if (statuses !== undefined) checkList(statuses, "the status");
  for (const one of statuses ?? [])
    if (!STATUSES.includes(one)) throw new InvalidArgumentError("the status", `must be one of ${STATUSES.join(", ")}`);
  return statuses;
}

/** Whether a run is within the times that a list is limited to; undefined if it is not limited. */
function checkTimes(options: RunListOptions): ((value: RunValue) => boolean) | undefined {
  const { startedAfter, startedBefore, endedAfter, endedBefore } = options;
  const ms = (moment: Date | number | undefined, what: string): number | undefined =>
    moment === undefined ? undefined : checkDate(moment, what);
  const started = rangeOf(ms(startedAfter, "startedAfter"), ms(startedBefore, "startedBefore"));
  const ended = rangeOf(ms(endedAfter, "endedAfter"), ms(endedBefore, "endedBefore"));
  if (started === undefined && ended === undefined) return undefined;
  return ({ startedAtMs, endedAtMs }) => started?.(startedAtMs) !== false && ended?.(endedAtMs) !== false;
}

function rangeOf(after: number | undefined, before: number | undefined): ((ms?: number) => boolean) | undefined {
  if (after === undefined && before === undefined) return undefined;
  return (ms) => ms !== undefined && (after === undefined || ms > after) && (before === undefined || ms < before);
}
