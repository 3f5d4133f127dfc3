/**
 * Ticks: the decision that a schedule's record gets when it is due, and the start of a run for one tick.
 *
 * A tick, what an overlap does, its entry in the history and the start of its run are one commit. The record's `dueMs` is only the time to look: which
 * ticks there are is computed anew from the cursor, so a tick is decided once, by whichever process looks, and a time that is no tick any more, because
 * the rules of its time zone have changed, does not fire.
 */

import type { Address } from "../kernel/contract.ts";
import type { Tx } from "../kernel/decision.ts";
import type { Draft } from "../kernel/draft.ts";
import { PawlError } from "../kernel/errors.ts";
import { readableValue, runOf } from "../workflow/history/read-run.ts";
import { cancelRun } from "../workflow/runs/end.ts";
import { startRun } from "../workflow/runs/start.ts";
import { hasEnded, runAt } from "../workflow/stored.ts";
import {
  DECLARED_MS,
  type DueTicks,
  decideDue,
  decideOverlap,
  decideTogether,
  firstTicks,
  hasTicksLeft,
  jitterOf,
  nextTick,
  RENEWED_MS,
} from "./decide.ts";
import { inputOf, type ScheduleRules } from "./definition.ts";
import { type ScheduleValue, type StoredState, type TickEntry, type TickWord, tickRunId } from "./stored.ts";
import { type NextTime, nextTime } from "./times.ts";

/** One commit starts at most this many runs of a schedule. */
const MOST_STARTED = 20;
/** How many runs are looked at for an overlap. */
const MOST_ACTIVE = 20;
const MAX_REASON = 500;

/** A schedule's record in a decision, with changes to its value that `store` writes. */
export class ScheduleDraft {
  readonly #tx: Tx;
  readonly record: Draft;
  readonly #rules: ScheduleRules | undefined;
  readonly #next: NextTime;
  value: ScheduleValue;
  /** Ticks that could not start their run, with the reason. */
  readonly failures: string[] = [];

  constructor(tx: Tx, record: Draft, rules: ScheduleRules | undefined, next: NextTime = nextTime) {
    this.#tx = tx;
    this.record = record;
    this.#rules = rules;
    this.#next = next;
    this.value = record.value as ScheduleValue;
  }

  get name(): string {
    return this.record.at.key;
  }

  readonly dueMs = (tickMs: number): number => tickMs + jitterOf(this.name, this.value.plan.jitterMs, tickMs);

  change(changes: Partial<ScheduleValue>): void {
    this.value = { ...this.value, ...changes };
  }

  /** Adds an entry to the history, and counts it. */
  note(is: TickWord, entry: TickEntry): void {
    const { toMs, atMs, count = 1, reason } = entry;
    const cut = reason === undefined ? entry : { ...entry, reason: reason.slice(0, MAX_REASON) };
    this.record.append(is, cut);
    // What was started by hand is beyond the ticks.
    if (entry.by !== undefined) return;
    if (is !== "queued") this.change({ [is]: this.value[is] + count });
    this.change({ last: { atMs: toMs ?? atMs, is } });
  }

  /** Ticks of one kind as one entry. */
  noteAll(is: "missed" | "skipped", ticks: readonly number[], reason: string): void {
    const [first, last] = [ticks[0], ticks.at(-1)];
    if (first === undefined || last === undefined) return;
    this.note(is, { atMs: first, ...(ticks.length === 1 ? {} : { toMs: last, count: ticks.length }), reason });
  }

  /** Decides all that is due. */
  fire(): void {
    const { plan, cursorMs } = this.value;
    this.#drain();
    if (hasTicksLeft(this.value)) {
      const due = this.#due();
      if (due.jumpedMs !== undefined) {
        this.record.append("missed", { atMs: cursorMs, toMs: due.jumpedMs, reason: LATE } satisfies TickEntry);
        this.change({ cursorMs: due.jumpedMs });
      }
      this.noteAll("missed", due.missed, LATE);
      const lastMissed = due.missed.at(-1);
      if (lastMissed !== undefined) this.change({ cursorMs: lastMissed });
      const { passedOver, kept } = decideTogether(plan.overlap, due.kept);
      this.noteAll("skipped", passedOver, "a later tick was due as well");
      const now = kept.slice(0, MOST_STARTED);
      this.#loadRuns(now);
      for (const tickMs of now) {
        if (!hasTicksLeft(this.value)) break;
        this.#decide(tickMs);
        this.change({ cursorMs: tickMs });
      }
      this.#keep(kept.at(-1));
    }
    this.store();
  }

  /** What is due. Of many ticks that are made up for, only those that this commit starts are computed again. */
  #due(): DueTicks {
    const { plan, cursorMs, keptUpToMs } = this.value;
    const source = { plan, next: this.#next, dueMs: this.dueMs };
    if (keptUpToMs === undefined || cursorMs >= keptUpToMs) return decideDue(source, cursorMs, this.#tx.nowMs);
    return { missed: [], kept: firstTicks(source, cursorMs, keptUpToMs, MOST_STARTED) };
  }

  /** The next commit continues with the ticks up to this one. */
  #keep(lastMs: number | undefined): void {
    const { keptUpToMs, ...value } = this.value;
    const upToMs = Math.max(keptUpToMs ?? 0, lastMs ?? 0);
    this.value = upToMs > value.cursorMs ? { ...value, keptUpToMs: upToMs } : value;
  }

  /** Together, because the decision runs again for whatever it asks for one by one. */
  #loadRuns(ticks: readonly number[]): void {
    const { plan, active = [] } = this.value;
    // Of ticks that do not run beside each other, one starts.
    const starting = plan.overlap === "allow" ? ticks : ticks.slice(0, 1);
    const runs = [
      ...starting.map((tickMs) => tickRunId(this.name, tickMs)),
      ...(plan.overlap === "allow" ? [] : active),
    ];
    if (runs.length > 1) this.#tx.load(runs.map(runAt));
  }

  #decide(tickMs: number): void {
    const { plan, queued = [] } = this.value;
    const active = this.#active();
    const decision = decideOverlap(plan, active.length, queued.length);
    const [oldest] = active;
    switch (decision) {
      case "queue":
        for (const run of active) this.#wakeAtEndOf(run);
        this.change({ queued: [...queued, tickMs] });
        this.note("queued", { atMs: tickMs });
        return;
      case "skip": {
        const reason = queued.length > 0 ? "as many ticks as may wait were waiting" : "a run had not ended";
        this.note("skipped", { atMs: tickMs, reason, ...(oldest === undefined ? {} : { run: oldest }) });
        return;
      }
      case "cancel":
        for (const run of active) this.#cancel(run, tickMs);
        this.start(tickMs);
        return;
      case "start":
        this.start(tickMs);
    }
  }

  /** The runs of earlier ticks that have not ended. */
  #active(): readonly string[] {
    const { plan, active = [] } = this.value;
    if (plan.overlap === "allow") return [];
    if (active.length > 1) this.#tx.load(active.map(runAt));
    return active.filter((run) => {
      const record = this.#tx.record(runAt(run));
      return record.exists && !hasEnded(record);
    });
  }

  /** A run that was started while ticks did not wait, or by a backfill, wakes the schedule when it ends, too. */
  #wakeAtEndOf(run: string): void {
    const record = this.#tx.record(runAt(run));
    const value = readableValue(record);
    if (value === undefined || value.wakesAtEnd !== undefined) return;
    record.write({ value: { ...value, wakesAtEnd: [this.record.at.space, this.record.at.key] } });
  }

  #cancel(run: string, tickMs: number): void {
    const reason = `schedule "${this.name}" started the run of ${new Date(tickMs).toISOString()}`;
    const record = this.#tx.record(runAt(run));
    if (record.status !== "parked") cancelRun(this.#tx, run, { reason });
    // It has no code that would react: a worker ends it, with its children.
    else if (record.dueMs === null)
      record.write({ value: { ...runOf(record), cancel: { reason } }, dueMs: this.#tx.nowMs, tries: 0 });
  }

  /** Ticks that waited start when no run is left. */
  #drain(): void {
    const { queued = [] } = this.value;
    const [first, ...rest] = queued;
    if (first === undefined || this.#active().length > 0) return;
    this.change({ queued: rest });
    this.start(first);
  }

  /** Starts the run of a tick. A refusal, as of an input that cannot be stored, is an entry of the history. */
  start(
    tickMs: number,
    given: { readonly id?: string; readonly by?: "trigger" | "backfill" } = {},
  ): string | undefined {
    const { plan, target, lastFired, active = [] } = this.value;
    const { id = tickRunId(this.name, tickMs), by } = given;
    const origin = by === undefined ? {} : { by };
    const lastMs = by === "backfill" ? undefined : lastFired?.atMs;
    let isNew: boolean;
    try {
      const input = inputOf(target, this.#rules, {
        scheduledAt: new Date(tickMs),
        lastScheduledAt: lastMs === undefined ? undefined : new Date(lastMs),
      });
      ({ isNew } = startRun(this.#tx, {
        id,
        workflow: target.workflow,
        input,
        fingerprint: null,
        timeoutMs: target.timeoutMs ?? null,
        ifExists: "join",
        // Those that are started together begin in the order of their ticks.
        dueMs: tickMs,
        tick: { schedule: this.name, atMs: tickMs, ...(lastMs === undefined ? {} : { lastMs }) },
        ...(by === undefined && plan.overlap === "queue"
          ? { wakesAtEnd: [this.record.at.space, this.record.at.key] as const }
          : {}),
      }));
    } catch (error) {
      if (by !== undefined) throw error;
      // What the function of the user throws has no code; a refusal of the start has one.
      const reason = error instanceof PawlError ? `${error.code}: ${error.message}` : `the input: ${String(error)}`;
      this.note("failed", { atMs: tickMs, reason });
      this.failures.push(
        `schedule "${this.name}" could not start the run of ${new Date(tickMs).toISOString()}: ${reason}`,
      );
      return undefined;
    }
    // A backfill was faster.
    if (!isNew) this.note("skipped", { atMs: tickMs, run: id, reason: "its run had been started before" });
    else this.note("fired", { atMs: tickMs, run: id, ...origin });
    if (by !== undefined || !isNew) return id;
    const left = plan.overlap === "allow" ? {} : { active: [...this.#alive(active), id].slice(-MOST_ACTIVE) };
    this.change({ lastFired: { atMs: tickMs, run: id }, ...left });
    return id;
  }

  #alive(active: readonly string[]): readonly string[] {
    const alive = new Set(this.#active());
    return active.filter((run) => alive.has(run));
  }

  /** Writes the value, and when it is due next. */
  store(): void {
    const { nowMs } = this.#tx;
    const { plan, declared, queued = [], cursorMs, paused } = this.value;
    if (declared !== undefined && this.#rules !== undefined && declared.untilMs - nowMs < RENEWED_MS)
      this.change({ declared: { ...declared, untilMs: nowMs + DECLARED_MS } });
    const tickMs = hasTicksLeft(this.value) ? nextTick(plan, cursorMs, this.#next) : undefined;
    const isOver = tickMs === undefined && queued.length === 0;
    const status: StoredState = isOver ? "ended" : paused === undefined ? "active" : "paused";
    const isReady = queued.length > 0 && this.#active().length === 0;
    const dueMs = status !== "active" ? null : isReady ? nowMs : tickMs === undefined ? null : this.dueMs(tickMs);
    this.record.write({ value: this.value, status, dueMs });
  }
}

const LATE = "no worker was there in time";

/**
 * Decides what is due of a schedule. `rules` are those of the worker, where the schedule is declared in code. Returns which ticks could not start their run,
 * and why.
 */
export function fireSchedule(
  tx: Tx,
  at: Address,
  rules: ScheduleRules | undefined,
  next?: NextTime,
): readonly string[] {
  const record = tx.record(at);
  if (!record.exists || record.dueMs === null || tx.nowMs < record.dueMs) return [];
  const schedule = new ScheduleDraft(tx, record, rules, next);
  if (schedule.value.declared?.by !== rules?.by) return [];
  if (record.status === ("active" satisfies StoredState)) schedule.fire();
  else record.write({ dueMs: null });
  return schedule.failures;
}
