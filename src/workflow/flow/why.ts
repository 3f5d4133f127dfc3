/**
 * Why a run has not begun, in sentences for people: what it collects, its time, its turn under a rate, its line and who is before it, whether its workflow is
 * paused, and whether there are workers for it.
 *
 * It reads without locks: the result may be out of date a moment later.
 */

import type { Row } from "../../kernel/contract.ts";
import type { Kernel } from "../../kernel/kernel.ts";
import { ownLimit } from "../definitions/flow.ts";
import { readRun } from "../history/read-run.ts";
import {
  hasBegun,
  isNewQueue,
  newQueueOf,
  poolOfQueue,
  queueOf,
  RUNS,
  type RunStatus,
  type RunValue,
  runAt,
} from "../stored.ts";
import { waitingIn } from "./decide.ts";
import { readPaused } from "./paused.ts";
import { poolsOf } from "./pools.ts";
import { isSamePlace, type LimitValue, type LineValue, limitAt, lineAt, type PlaceRef } from "./stored.ts";

const shown = (ms: number): string => new Date(ms).toISOString();

/** Whether this run is pending because it has not begun: one that was retried is pending, too. */
export const isNew = ({ kind, status }: Row): boolean => status === "pending" && kind !== null && isNewQueue(kind);

/** What a run that has not begun waits for, after 'run "…" '. */
export async function whyNotBegun(kernel: Kernel, row: Row, value: RunValue): Promise<string> {
  const { workflow, gate } = value;
  const dueMs = row.dueMs ?? 0;
  const [{ nowMs }, paused] = await Promise.all([
    kernel.due({ kinds: [row.kind ?? newQueueOf(workflow)], limit: 1 }),
    pausedInWords(kernel, workflow),
  ]);
  const time = dueMs <= nowMs ? `is pending, has been due since ${shown(dueMs)}` : `is pending: ${later(value, dueMs)}`;
  const then = dueMs <= nowMs ? "needs" : "it then needs";
  const next = paused === "" ? `, and ${then} ${await workerInWords(kernel, row, value, nowMs)}` : paused;
  const expires =
    gate?.expiresAtMs === undefined ? "" : `, and expires if it has not begun by ${shown(gate.expiresAtMs)}`;
  return `${time}${next}${expires}`;
}

/** This many runs are looked at to find those that a worker holds, or that a limit has admitted. */
const MOST_LOOKED_AT = 200;
/** How many workers, and runs, are named. */
const NAMED = 3;

const named = (names: readonly string[]): string =>
  `${names
    .slice(0, NAMED)
    .map((name) => `"${name}"`)
    .join(", ")}${names.length > NAMED ? ` and ${names.length - NAMED} more` : ""}`;

/** The worker that it needs. Those that hold other runs of its queue are there, so that it waits for a place of theirs. */
async function workerInWords(kernel: Kernel, row: Row, { workflow }: RunValue, nowMs: number): Promise<string> {
  const pool = poolOfQueue(row.kind ?? "");
  const needed = `a worker that works on ${pool === undefined ? `"${workflow}"` : `pool "${pool}" of "${workflow}"`}`;
  if ((row.dueMs ?? 0) > nowMs) return needed;
  const statuses: readonly RunStatus[] = ["running", "waiting"];
  const kinds = [queueOf(workflow, pool)];
  const rows = await kernel.list({
    space: RUNS,
    prefix: "",
    order: "newest",
    after: null,
    kinds,
    statuses,
    limit: MOST_LOOKED_AT,
  });
  const holders = rows.flatMap(({ holder, dueMs }) => (holder !== null && (dueMs ?? 0) > nowMs ? [holder] : []));
  if (holders.length === 0) return needed;
  const runs = `${holders.length === 1 ? "a run" : `${holders.length} runs`} of it`;
  return `${needed} and has a free place: worker ${named([...new Set(holders)])} has ${runs} under way (concurrency and perWorkflow of pawl.work say how many it takes)`;
}

/** Why its time is later. */
function later({ collecting, gate, scheduledAtMs }: RunValue, dueMs: number): string {
  const at = shown(dueMs);
  if (collecting !== undefined) {
    const soFar = `${collecting.count} start${collecting.count === 1 ? "" : "s"} so far`;
    return collecting.by === "debounce"
      ? `debounce collects its starts (${soFar}), and it is due at ${at} if no other start comes before`
      : `batch collects its starts (${soFar}), and it is due when the batch is full, or else at ${at}`;
  }
  if (gate?.isRated === true && gate.isOpen !== true) return `its turn under the rate of its workflow is at ${at}`;
  if (scheduledAtMs === dueMs) return `its start has a delay or a time (at), and it is due at ${at}`;
  return `it is due at ${at} unless something wakes it before`;
}

/** What a pause means for a run that has not begun; empty if its workflow is not paused. */
async function pausedInWords(kernel: Kernel, workflow: string): Promise<string> {
  const paused = await readPaused(kernel, workflow);
  if (paused === null) return "";
  const because = paused.reason === null ? "" : ` (${paused.reason})`;
  return `, and workflow "${workflow}" is paused since ${paused.since.toISOString()}${because}: no runs of it begin until pawl.workflows.resume`;
}

/** What a run in line waits for: the run after 'run "…" ', and the limit that has no room, if one is known. */
export async function whyQueued(
  kernel: Kernel,
  row: Row,
  value: RunValue,
): Promise<{
  readonly run: string;
  readonly limit?: { readonly name: string; readonly says: string };
  /** The runs that it has admitted, as far as they were found: the oldest first. */
  readonly admitted?: readonly string[];
}> {
  const { gate, workflow } = value;
  const [lineRow = null] = gate?.line === undefined ? [] : await kernel.read([lineAt(gate.line)]);
  const line = lineRow?.value == null ? undefined : (kernel.decode(lineRow, lineRow.value) as LineValue);
  const waiting = line === undefined ? 0 : waitingIn(line.lanes);
  const ahead = line === undefined ? 0 : await countAhead(kernel, row.key, gate?.priority ?? 0, line);
  const paused = hasBegun(row, value) ? "" : await pausedInWords(kernel, workflow);
  const before =
    ahead === null ? `at least ${MOST_COUNTED} of them are` : `${ahead} of them ${ahead === 1 ? "is" : "are"}`;
  const run = `is queued: ${waiting} run${waiting === 1 ? "" : "s"} of its workflow with its keys wait${waiting === 1 ? "s" : ""} in this line, and ${before} before it in its priority${paused}`;
  const place = line?.places[line.in];
  if (place === undefined) return { run };
  const [limitRow] = await kernel.read([limitAt(place)]);
  const limit = limitRow?.value == null ? undefined : (kernel.decode(limitRow, limitRow.value) as LimitValue);
  const admitted = await admittedTo(kernel, place, workflow);
  return { run, limit: limitInWords(place, workflow, limit ?? {}, admitted), admitted };
}

/** Runs that hold a place of this limit. The limit only counts them, so they are looked for among the oldest runs that have not ended. */
async function admittedTo(kernel: Kernel, place: PlaceRef, workflow: string): Promise<readonly string[]> {
  const isOwn = isOwnLimit(place, workflow);
  const pools = isOwn ? [undefined, ...(await poolsOf(kernel, workflow))] : [];
  const statuses: readonly RunStatus[] = ["pending", "running", "waiting", "parked"];
  const rows = await kernel.list({
    space: RUNS,
    prefix: "",
    order: "oldest",
    after: null,
    kinds: isOwn ? pools.flatMap((pool) => [queueOf(workflow, pool), newQueueOf(workflow, pool)]) : undefined,
    statuses,
    limit: MOST_LOOKED_AT,
  });
  return rows.flatMap((row) => {
    const gate = readRun(kernel, row).value?.gate;
    return gate?.isOpen === true && gate.places?.some((one) => isSamePlace(one, place)) === true ? [row.key] : [];
  });
}

const isOwnLimit = ([stored, key]: PlaceRef, workflow: string): boolean =>
  stored === ownLimit(workflow, key !== undefined);

function limitInWords(
  place: PlaceRef,
  workflow: string,
  { held, max, first, last }: Partial<LimitValue>,
  runs: readonly string[],
): { readonly name: string; readonly says: string } {
  const [stored, key] = place;
  const isOwn = isOwnLimit(place, workflow);
  const name = isOwn ? workflow : stored.replace(/^shared:/, "");
  const which = isOwn ? `of workflow "${name}"` : `"${name}"`;
  const of = key === undefined ? "" : ` for the key "${key}"`;
  const count = held ?? 0;
  const admitted = `has admitted ${count} run${count === 1 ? "" : "s"} that ${count === 1 ? "has" : "have"} not ended${runs.length === 0 ? "" : `: ${named(runs)}`}`;
  // Two releases, or two workflows that share it, may declare different numbers.
  const most = count <= (max ?? 0) ? `its max is ${max ?? 0}` : `its max is ${max ?? 0} as it was declared last`;
  const turns = first === last ? "" : ", and lines with other keys or of other workflows take turns with this one";
  const where = isOwn ? `pawl.runs.list({ workflow: "${name}" })` : "pawl.runs.list, for the workflows that share it,";
  return {
    name,
    says: `the concurrency limit ${which}${of} ${admitted}, and ${most}${turns} (${where} shows runs with their status)`,
  };
}

/** How many runs of a line are counted one by one. */
const MOST_COUNTED = 1000;

/** How many runs of its own priority are before this one; null if there are more than are counted. */
async function countAhead(kernel: Kernel, id: string, priority: number, { lanes }: LineValue): Promise<number | null> {
  let at: string | null = lanes.find(([of]) => of === priority)?.[1] ?? null;
  for (let count = 0; count < MOST_COUNTED; count++) {
    if (at === null || at === id) return count;
    const [row]: readonly (Row | null)[] = await kernel.read([runAt(at)]);
    at = row?.value == null ? null : (readRun(kernel, row).value?.gate?.queued?.next ?? null);
  }
  return null;
}
