/**
 * What is wrong, and what to do about it: the findings of `pawl doctor`.
 *
 * Each rule is a pure function of what was read and of the time. A problem is something that will not go away by itself; a warning may, or is meant so by an
 * operator.
 */

import type { ProjectionInfo } from "../stream/projections/status.ts";
import type { DeadLetterInfo, ReactionInfo, TargetInfo } from "../stream/reactions/reactions.ts";
import type { PausedWorkflow } from "../workflow/flow/paused.ts";
import { inCommands, shellWord } from "./advice.ts";
import type { LockLine, RunItem, ScheduleItem } from "./backend.ts";
import { bytesShown, counted } from "./output.ts";
import type { Survey } from "./store.ts";
import type { Plain } from "./values.ts";

export interface Finding {
  readonly check: string;
  readonly status: "ok" | "warning" | "problem";
  readonly says: string;
}

/** What has been due for this long is not taken by any worker. */
const OVERDUE_MS = 60_000;
/** Clocks that differ by more make times on different machines hard to compare. */
const CLOCK_MS = 1000;
/** How many names a finding has. */
const NAMED = 3;
/** A log file of this size is not copied back, because some process keeps an old snapshot open. */
const LARGE_WAL = 256 * 1024 * 1024;

const named = (names: readonly string[]): string =>
  `${names.slice(0, NAMED).join(", ")}${names.length > NAMED ? ` and ${names.length - NAMED} more` : ""}`;

const ok = (check: string, says: string): Finding => ({ check, status: "ok", says });
const warning = (check: string, says: string): Finding => ({ check, status: "warning", says });
const problem = (check: string, says: string): Finding => ({ check, status: "problem", says });

/** The database itself: what it is, whether it can lose work, its clock and sizes. */
export function judgeSurvey(survey: Survey, machineMs: number, versions: string): readonly Finding[] {
  const { schema, known } = survey;
  const records = survey.namespaces.map(({ namespace, records }) => `${records} in ${namespace}`);
  const walBytes = survey.is === "sqlite" ? survey.walBytes : 0;
  const inLog = walBytes === 0 ? "" : `, of which ${bytesShown(walBytes)} are in its log (-wal)`;
  const sizes = `${bytesShown(survey.bytes + walBytes)}${inLog}; records: ${records.join(", ") || "none"}; log entries: ${survey.logEntries}`;
  const findings: Finding[] = [ok("versions", versions)];
  if (schema === known) findings.push(ok("schema", `number ${schema}, which is that of this release`));
  else if (schema < known)
    findings.push(warning("schema", `number ${schema}, and this release has ${known}: run pawl migrate --plan`));
  else findings.push(warning("schema", `number ${schema}, of a later release than this one, which knows ${known}`));
  if (survey.is === "sqlite") {
    findings.push(
      survey.journalMode === "wal"
        ? ok("durable", "journal mode wal; every commit of Pawl is synced to the disk (synchronous = full)")
        : problem("durable", `the journal mode is ${survey.journalMode}, not wal: open it with Pawl once`),
    );
    findings.push(
      survey.damage.length === 0
        ? ok("intact", "SQLite found nothing wrong in the file")
        : problem("intact", `the file is damaged, restore a backup: ${survey.damage[0]}`),
    );
    if (survey.walBytes > LARGE_WAL)
      findings.push(
        warning(
          "log file",
          `${bytesShown(survey.walBytes)}: a process keeps an old snapshot open, as a backup or a read transaction does`,
        ),
      );
  } else {
    const refused = survey.findings.filter(({ isRefused }) => isRefused);
    for (const { sentence } of refused) findings.push(problem("durable", sentence));
    for (const { isRefused, sentence } of survey.findings) if (!isRefused) findings.push(warning("durable", sentence));
    if (refused.length === 0)
      findings.push(ok("durable", "fsync, full_page_writes and synchronous_commit keep what was acknowledged"));
  }
  findings.push(judgeClock(survey, machineMs));
  findings.push(ok("size", sizes));
  return findings;
}

function judgeClock(survey: Survey, machineMs: number): Finding {
  const { lastAtMs } = survey;
  if (lastAtMs !== null && lastAtMs - (survey.is === "postgres" ? survey.nowMs : machineMs) > CLOCK_MS)
    return problem(
      "clock",
      `the last commit was at ${new Date(lastAtMs).toISOString()}, later than now: the clock was set back, so leases and timers end late`,
    );
  if (survey.is === "sqlite") return ok("clock", "that of this machine, and no commit is later than now");
  const aheadMs = Math.round(survey.nowMs - machineMs);
  const says = `the server's clock is ${Math.abs(aheadMs)} ms ${aheadMs < 0 ? "behind" : "ahead of"} that of this machine`;
  return Math.abs(aheadMs) > CLOCK_MS ? warning("clock", `${says}; Pawl uses the server's`) : ok("clock", says);
}

export interface Stuck {
  readonly nowMs: number;
  readonly parked: readonly RunItem[];
  /** Runs that have not ended. */
  readonly alive: readonly RunItem[];
  readonly pausedWorkflows: readonly Plain<PausedWorkflow>[];
  readonly schedules: readonly ScheduleItem[];
  readonly reactions: readonly Plain<ReactionInfo>[];
  /** By reaction. */
  readonly blocked: readonly { readonly reaction: string; readonly targets: readonly Plain<TargetInfo>[] }[];
  /** By reaction; `next` where there are more. */
  readonly letters: readonly {
    readonly reaction: string;
    readonly items: readonly Plain<DeadLetterInfo>[];
    readonly next: string | null;
  }[];
  readonly projections: readonly Plain<ProjectionInfo>[];
  readonly locks: readonly LockLine[];
}

/** Why a run is parked, and the command that lets it continue. */
function parkedInWords({ id, parkedReason }: RunItem): string {
  const reason = parkedReason ?? "no reason is known";
  const says = inCommands(reason, id);
  return says === reason ? `${reason}; then pawl run retry ${shellWord(id)}` : says;
}

/** What does not continue, and why. */
export function judgeStuck(stuck: Stuck): readonly Finding[] {
  const { nowMs, parked, alive, pausedWorkflows, schedules, reactions, blocked, letters, projections, locks } = stuck;
  const findings: Finding[] = [];
  const isPast = (time: string | null): boolean => time !== null && Date.parse(time) < nowMs - OVERDUE_MS;
  for (const run of parked.slice(0, NAMED))
    findings.push(problem("runs", `run ${run.id} of ${run.workflow} is parked: ${parkedInWords(run)}`));
  if (parked.length > NAMED)
    findings.push(problem("runs", `${parked.length - NAMED} more runs are parked: pawl runs --status parked`));
  const contradicted = alive.filter((run) => run.contradicted !== null);
  if (contradicted.length > 0)
    findings.push(
      problem(
        "runs",
        `the code of the workers contradicts the histories of ${named(contradicted.map(({ id }) => id))}: ${contradicted[0]?.contradicted?.reason ?? ""}`,
      ),
    );
  const isPaused = new Set(pausedWorkflows.map(({ workflow }) => workflow));
  const overdue = alive.filter(
    (run) => !isPaused.has(run.workflow) && (isPast(run.worker === null ? run.dueAt : null) || isPast(run.leaseUntil)),
  );
  for (const [workflow, ids] of Map.groupBy(overdue, (run) => run.workflow))
    findings.push(
      problem(
        "workers",
        `no worker takes runs of ${workflow} that have been due for more than a minute: ${named(ids.map(({ id }) => id))}`,
      ),
    );
  const troubled = alive.filter((run) => run.trouble !== null && run.contradicted === null);
  if (troubled.length > 0)
    findings.push(
      warning(
        "runs",
        `the last attempt to work on ${named(troubled.map(({ id }) => id))} failed: ${troubled[0]?.trouble?.reason ?? ""}`,
      ),
    );
  for (const { workflow, since, reason } of pausedWorkflows)
    findings.push(
      warning(
        "workflows",
        `${workflow} has been paused since ${since}${reason === null ? "" : ` (${reason})`}, until pawl workflows resume ${shellWord(workflow)}`,
      ),
    );
  for (const one of schedules) {
    if (one.state === "undeclared")
      findings.push(warning("schedules", `${one.name} is declared in code that no worker runs, so it does not fire`));
    if (one.lastTick?.outcome === "failed")
      findings.push(problem("schedules", `the last tick of ${one.name} failed: pawl schedules history ${one.name}`));
  }
  for (const one of reactions) {
    if (one.failure !== null)
      findings.push(
        problem(
          "reactions",
          `${one.name} cannot route event ${one.failure.version} of ${one.failure.stream}: ${one.failure.message}`,
        ),
      );
    else if (one.pausedAt !== null)
      findings.push(warning("reactions", `${one.name} has been paused since ${one.pausedAt}`));
    else if (one.worker === null && isPast(one.unroutedSince))
      findings.push(problem("reactions", `no worker routes the events of ${one.name}: ${one.unrouted} wait`));
  }
  for (const { reaction, targets } of blocked)
    if (targets.length > 0)
      findings.push(
        problem(
          "reactions",
          `${counted(targets.length, "target")} of ${reaction} ${targets.length === 1 ? "is" : "are"} blocked, the first is ${targets[0]?.target}: ${targets[0]?.lastError?.message ?? ""}; then pawl reactions unblock ${shellWord(reaction)} --status blocked`,
        ),
      );
  for (const { reaction, items, next } of letters) {
    const [last] = items;
    if (last === undefined) continue;
    const count = next === null ? counted(items.length, "event") : `more than ${items.length} events`;
    const list = `pawl reactions dead-letters ${shellWord(reaction)}`;
    const lost = items.find(({ target }) => target === null);
    // What an operator put aside was meant so.
    if (lost === undefined) findings.push(warning("reactions", `${count} of ${reaction} are put aside: ${list}`));
    else
      findings.push(
        problem(
          "reactions",
          `${count} of ${reaction} were put aside, and for event ${lost.version} of ${lost.stream} no target could be computed: ${lost.message}; ${list}`,
        ),
      );
  }
  for (const { name, live, building } of projections)
    findings.push(...judgeProjection(name, { live, building }, isPast));
  for (const lock of locks)
    if (lock.waiting > 0 && isPast(lock.until))
      findings.push(
        problem(
          "locks",
          `${lock.kind} ${lock.name} is not passed on to ${lock.waiting} waiters though the lease of its holder has ended: no worker or waiter is running`,
        ),
      );
  if (findings.length === 0) findings.push(ok("stuck", "nothing waits for an operator or for a worker"));
  return findings;
}

function judgeProjection(
  name: string,
  { live, building }: Omit<Plain<ProjectionInfo>, "name">,
  isPast: (time: string | null) => boolean,
): readonly Finding[] {
  const findings: Finding[] = [];
  const show = `pawl projections show ${shellWord(name)}`;
  for (const one of [live, building]) {
    if (one === null) continue;
    const { failure, worker, behind, behindSince, generation } = one;
    const isSeen = one === live;
    // Readers may see a person who was forgotten, until the generation without them takes its place.
    const which = isSeen
      ? name
      : `generation ${generation} of ${name}${live === null ? "" : `, while readers still see generation ${live.generation}`},`;
    if (failure !== null) {
      const at = failure.version === 0 ? "" : ` at event ${failure.version} of ${failure.stream}`;
      findings.push(problem("projections", `${which} does not get ahead${at}: ${failure.message}; ${show}`));
    } else if (worker === null && isPast(behindSince))
      findings.push(
        problem("projections", `no worker builds ${which.replace(/,$/, "")}: ${behind} events wait; ${show}`),
      );
  }
  return findings;
}
