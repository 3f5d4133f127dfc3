/**
 * `pawl.schedules`: schedules that are created at run time, and what can be done with any schedule.
 *
 * Each method checks its arguments and commits a decision, or reads.
 */

import {
  checkCount,
  checkDate,
  checkId,
  checkObject,
  checkOptions,
  checkPrefix,
  checkText,
  checkVersion,
  optionNames,
} from "../kernel/check.ts";
import type { Address, Row } from "../kernel/contract.ts";
import type { Tx } from "../kernel/decision.ts";
import { showReadable, type Unreadable } from "../kernel/encoding.ts";
import { InvalidArgumentError } from "../kernel/errors.ts";
import type { Kernel } from "../kernel/kernel.ts";
import type { Workflow } from "../workflow/definitions/definition.ts";
import { runAt } from "../workflow/stored.ts";
import { nextTick } from "./decide.ts";
import { newValue, withPlan } from "./declare.ts";
import { type Schedule, type ScheduleRules, scheduleRules, targetOf } from "./definition.ts";
import {
  ScheduleCodeMissingError,
  ScheduleDeclaredError,
  ScheduleExistsError,
  ScheduleNotFoundError,
} from "./errors.ts";
import { type ScheduleEntry, type ScheduleInfo, showEntry, showSchedule } from "./info.ts";
import { checkPlan, OPTIONS, type ScheduleOptions } from "./options.ts";
import {
  CREATED_QUEUE,
  type Plan,
  SCHEDULES,
  type ScheduleValue,
  type StoredState,
  scheduleAt,
  tickRunId,
  triggerRunId,
} from "./stored.ts";
import { ScheduleDraft } from "./ticks.ts";
import { nextTime } from "./times.ts";
import { HISTORY_KEPT } from "./worker.ts";
import { checkTimezone } from "./zone.ts";

/** The input of the runs of a schedule that is created at run time: a value. */
export type CreatedInput<Input> = undefined extends Input ? [input?: Input] : [input: Input];

/** The options that a schedule need not have. */
type Optional = Exclude<keyof ScheduleOptions, "cron" | "every" | "at">;

/**
 * What is to be changed; null is the default again, as if it had not been given. Where a time is given (`cron`, `every` or `at`), it replaces the time that
 * was there, with its zone.
 */
export interface UpdateScheduleOptions
  extends Omit<ScheduleOptions, Optional>,
    Readonly<{ [Name in Optional]?: ScheduleOptions[Name] | null }> {
  /** The input of the runs from now on. */
  readonly input?: unknown;
}

export interface ScheduleListOptions {
  /** Only schedules whose names begin with this. */
  readonly prefix?: string | undefined;
  /** The `next` of the page before. */
  readonly after?: string | null | undefined;
  /** Default: 100; at most 1,000. */
  readonly limit?: number | undefined;
}

export interface SchedulePage {
  readonly schedules: readonly ScheduleInfo[];
  /** Those that cannot be read, by name: written with another codec key, or damaged. */
  readonly unreadable: readonly Unreadable[];
  readonly next: string | null;
}

export interface ScheduleHistoryOptions {
  /** Only entries before this version: the `next` of the page before. */
  readonly before?: number | null | undefined;
  /** Default: 100; at most 1,000. */
  readonly limit?: number | undefined;
}

/** Entries of a history, the newest first. */
export interface ScheduleHistoryPage {
  readonly entries: readonly ScheduleEntry[];
  readonly next: number | null;
}

export interface TriggerOptions {
  /** The id of this trigger: a repeated one starts nothing. Default: a random one. */
  readonly id?: string | undefined;
}

export interface BackfillOptions {
  /** The first and the last moment: ticks at both of them count. */
  readonly from: Date | number;
  readonly to: Date | number;
  /** How many runs are started at most. Default: 100; at most 1,000. */
  readonly limit?: number | undefined;
}

export interface Backfilled {
  /** The runs that were started. */
  readonly runs: readonly string[];
  /** Where to continue, as `from`; null when all was looked at. */
  readonly next: Date | null;
}

export interface PreviewOptions {
  /** How many times. Default: 10; at most 1,000. */
  readonly count?: number | undefined;
  /** Only times after this. Default: the store's time. */
  readonly from?: Date | number | undefined;
}

const UPDATE = optionNames<UpdateScheduleOptions>({
  ...(Object.fromEntries([...OPTIONS].map((name) => [name, true])) as Record<keyof ScheduleOptions, true>),
  input: true,
});
const LIST = optionNames<ScheduleListOptions>({ prefix: true, after: true, limit: true });
const HISTORY = optionNames<ScheduleHistoryOptions>({ before: true, limit: true });
const BACKFILL = optionNames<BackfillOptions>({ from: true, to: true, limit: true });
const PREVIEW = optionNames<PreviewOptions>({ count: true, from: true });
const PAUSE = optionNames<{ reason?: unknown }>({ reason: true });
const TRIGGER = optionNames<TriggerOptions>({ id: true });

const MOST_LISTED = 1000;
/** How many ticks a commit of a backfill looks at. */
const PAGE = 50;
/** How many ticks a call of `backfill` looks at. */
const MOST_LOOKED_AT = 10_000;

type Named = string | { readonly name: string };

/** A schedule by its name, or as it is declared in code. */
export type ScheduleRef = string | Schedule;

export class Schedules {
  readonly #kernel: Kernel;
  /** Those that this process declares. */
  readonly #declared = new Map<string, ScheduleRules>();

  /** @internal */
  constructor(kernel: Kernel) {
    this.#kernel = kernel;
  }

  /** This process has the code of these from now on; the function forgets them. @internal */
  know(all: readonly ScheduleRules[]): () => void {
    for (const rules of all) this.#declared.set(rules.name, rules);
    return () => {
      for (const rules of all) if (this.#declared.get(rules.name) === rules) this.#declared.delete(rules.name);
    };
  }

  /** Creates a schedule, which every worker fires. Throws `schedule_exists`, and `invalid_argument` if all its times (`at`) are past. */
  async create<Input>(
    name: string,
    options: ScheduleOptions,
    workflow: Workflow<Input, unknown>,
    ...rest: CreatedInput<Input>
  ): Promise<ScheduleInfo>;
  async create(name: string, options: ScheduleOptions, workflow: string, input?: unknown): Promise<ScheduleInfo>;
  async create(name: string, options: ScheduleOptions, workflow: Named, input?: unknown): Promise<ScheduleInfo> {
    const at = scheduleAt(name);
    const plan = checkPlan(options, name);
    const target = targetOf(workflow, { value: checkStorable(input) });
    return this.#change(at, (tx, record) => {
      if (record.exists) throw new ScheduleExistsError(name, (record.value as ScheduleValue).declared !== undefined);
      if ("atMs" in plan.timing && plan.timing.atMs.every((ms) => ms <= tx.nowMs))
        throw new InvalidArgumentError(
          `schedule "${name}": at`,
          `must have a time that is not past: it is ${new Date(tx.nowMs).toISOString()}, so the schedule would never tick`,
        );
      const value = newValue(plan, target, tx.nowMs, record.head);
      record.write({ value, kind: CREATED_QUEUE, status: "active" satisfies StoredState });
      new ScheduleDraft(tx, record, undefined).store();
    });
  }

  /** Changes a schedule that was created at run time. Throws `schedule_declared` for one that is declared in code, and `schedule_not_found`. */
  async update(name: string, options: UpdateScheduleOptions): Promise<ScheduleInfo> {
    const at = scheduleAt(name);
    const all = `the options of schedule "${name}"`;
    checkObject(options, all);
    if (Array.isArray(options)) throw new InvalidArgumentError(all, "must be an object, not a list");
    checkOptions(options, UPDATE, all);
    const { input, ...given } = options;
    for (const name of ["cron", "every", "at"] as const)
      if (given[name] === null)
        throw new InvalidArgumentError(`${all}: ${name}`, "must not be null: give the times that replace it");
    // What is undefined is not to be changed, and null is the default.
    const changes: ScheduleOptions = Object.fromEntries(
      Object.entries(given).flatMap(([key, one]) => (one === undefined ? [] : [[key, one ?? undefined]])),
    );
    const isTimed = changes.cron !== undefined || changes.every !== undefined || changes.at !== undefined;
    // What is wrong without the stored rest is refused before it is read.
    const { timezone, ...rest } = changes;
    checkPlan(isTimed ? changes : { ...rest, every: "1 hour" }, name);
    if (timezone !== undefined) checkTimezone(timezone);
    if (Object.hasOwn(options, "input")) this.#kernel.encode(at, checkStorable(input));
    return this.#change(at, (tx, record) => {
      const schedule = this.#existing(tx, record.at);
      const { value } = schedule;
      if (value.declared !== undefined) throw new ScheduleDeclaredError(name, undefined);
      const plan = checkPlan({ ...optionsOf(value.plan, isTimed), ...changes }, name);
      schedule.value = withPlan(value, plan, tx.nowMs);
      if (Object.hasOwn(options, "input")) {
        const { input: checked } = targetOf(value.target.workflow, { value: input });
        schedule.change({ target: { ...value.target, ...(checked === undefined ? {} : { input: checked }) } });
      }
      schedule.store();
    });
  }

  /**
   * Deletes a schedule; its runs stay. Resolves with whether it was there. Throws `schedule_declared` for one that a worker declares: remove it from the code
   * first.
   */
  async delete(name: string): Promise<{ readonly deleted: boolean }> {
    const at = scheduleAt(name);
    return this.#kernel.transact(
      (tx) => {
        const record = tx.record(at);
        if (!record.exists) return { deleted: false };
        const { declared } = record.value as ScheduleValue;
        if (declared !== undefined && declared.untilMs > tx.nowMs)
          throw new ScheduleDeclaredError(name, declared.untilMs);
        record.remove();
        return { deleted: true };
      },
      [at],
    );
  }

  /** Returns a schedule as it is now; null if there is none. */
  async get(schedule: ScheduleRef): Promise<ScheduleInfo | null> {
    const at = scheduleAt(nameOf(schedule));
    const row = await this.#row(at);
    return row === undefined ? null : this.#show(row, await this.#nowMs());
  }

  /** Lists schedules by name, in pages. */
  async list(options: ScheduleListOptions = {}): Promise<SchedulePage> {
    checkOptions(options, LIST);
    const prefix = checkPrefix(options.prefix ?? "", "the prefix");
    const limit = checkCount(options.limit ?? 100, "the limit", MOST_LISTED);
    const { after = null } = options;
    if (after !== null) checkId(after, "after");
    const rows = await this.#kernel.list({ space: SCHEDULES, prefix, after, limit: limit + 1 });
    const nowMs = await this.#nowMs();
    const page = rows.slice(0, limit);
    const { shown, unreadable } = showReadable(page, (row) => this.#show(row, nowMs));
    return { schedules: shown, unreadable, next: rows.length > limit ? (page.at(-1)?.key ?? null) : null };
  }

  /** Pauses a schedule: its ticks start nothing until `resume`, and are not made up for. */
  async pause(schedule: ScheduleRef, options: { readonly reason?: string | undefined } = {}): Promise<ScheduleInfo> {
    checkOptions(options, PAUSE);
    const reason = options.reason === undefined ? {} : { reason: checkText(options.reason, "the reason") };
    return this.#change(scheduleAt(nameOf(schedule)), (tx, record) => {
      const draft = this.#existing(tx, record.at);
      if (draft.value.paused !== undefined) return;
      draft.change({ paused: { sinceMs: tx.nowMs, ...reason } });
      draft.store();
    });
  }

  /** Resumes a schedule that is paused: it fires from its next tick on. */
  async resume(schedule: ScheduleRef): Promise<ScheduleInfo> {
    return this.#change(scheduleAt(nameOf(schedule)), (tx, record) => {
      const draft = this.#existing(tx, record.at);
      const { paused, plan, cursorMs, ...rest } = draft.value;
      if (paused === undefined) return;
      const passed: number[] = [];
      for (let ms: number | undefined = cursorMs; passed.length <= MOST_LISTED; ) {
        ms = nextTick(plan, ms, nextTime);
        if (ms === undefined || ms > tx.nowMs) break;
        passed.push(ms);
      }
      const isCounted = passed.length <= MOST_LISTED;
      draft.value = { ...rest, plan, cursorMs: Math.max(cursorMs, tx.nowMs) };
      const [first] = passed;
      if (isCounted) draft.noteAll("skipped", passed, "the schedule was paused");
      else if (first !== undefined)
        record.append("skipped", { atMs: first, toMs: tx.nowMs, reason: "the schedule was paused" });
      draft.store();
    });
  }

  /**
   * Starts a run now, beyond the ticks and whatever has not ended. The same `id` again is the same run, as long as that is kept. Throws `schedule_not_found`, or
   * `schedule_code_missing`.
   */
  async trigger(schedule: ScheduleRef, options: TriggerOptions = {}): Promise<{ readonly run: string }> {
    const name = nameOf(schedule);
    const at = scheduleAt(name);
    checkOptions(options, TRIGGER);
    const known = options.id === undefined ? undefined : triggerRunId(name, checkId(options.id, "the id"));
    return this.#kernel.transact(
      (tx) => {
        if (known !== undefined && tx.record(runAt(known)).exists) return { run: known };
        const draft = this.#startable(tx, at, this.#rulesOf(schedule));
        const run = known ?? triggerRunId(draft.name, tx.uuid());
        draft.start(tx.nowMs, { id: run, by: "trigger" });
        draft.store();
        return { run };
      },
      known === undefined ? [at] : [at, runAt(known)],
    );
  }

  /**
   * Starts the runs of ticks between two times, both included, that did not start one; also of times before the schedule was created. It does not matter
   * which runs have not ended. A call is bounded: continue with `next` as `from`.
   */
  async backfill(schedule: ScheduleRef, options: BackfillOptions): Promise<Backfilled> {
    const at = scheduleAt(nameOf(schedule));
    checkObject(options, "the options");
    checkOptions(options, BACKFILL);
    const fromMs = checkDate(options.from, "from");
    const toMs = checkDate(options.to, "to");
    if (toMs < fromMs) throw new InvalidArgumentError("to", "must not be before from");
    const limit = checkCount(options.limit ?? 100, "the limit", MOST_LISTED);
    const rules = this.#rulesOf(schedule);
    const started = await this.#startedTicks(at);
    const runs: string[] = [];
    let afterMs = fromMs - 1;
    for (let looked = 0; ; ) {
      const most = Math.min(PAGE, limit - runs.length);
      const page = await this.#kernel.transact(
        (tx) => this.#backfillPage(tx, at, rules, { afterMs, toMs, most, started }),
        [at],
      );
      runs.push(...page.runs);
      if (page.lastMs === undefined) return { runs, next: null };
      afterMs = page.lastMs;
      looked += PAGE;
      if (runs.length >= limit || looked >= MOST_LOOKED_AT) return { runs, next: new Date(afterMs + 1) };
    }
  }

  #backfillPage(
    tx: Tx,
    at: Address,
    rules: ScheduleRules | undefined,
    range: {
      readonly afterMs: number;
      readonly toMs: number;
      readonly most: number;
      readonly started: ReadonlySet<number>;
    },
  ): { readonly runs: readonly string[]; readonly lastMs: number | undefined } {
    const draft = this.#startable(tx, at, rules);
    const { afterMs, toMs, most, started } = range;
    const ticks: number[] = [];
    let lastMs: number | undefined;
    for (let ms = nextTick(draft.value.plan, afterMs, nextTime); ms !== undefined; ) {
      // A tick that has not been decided yet starts its run by itself.
      if (ms > toMs || ms > tx.nowMs) break;
      lastMs = ms;
      if (!started.has(ms)) ticks.push(ms);
      if (ticks.length >= most) break;
      ms = nextTick(draft.value.plan, ms, nextTime);
    }
    tx.load(ticks.map((ms) => runAt(tickRunId(draft.name, ms))));
    const runs: string[] = [];
    for (const ms of ticks) {
      if (tx.record(runAt(tickRunId(draft.name, ms))).exists) continue;
      const run = draft.start(ms, { by: "backfill" });
      if (run !== undefined) runs.push(run);
    }
    if (runs.length > 0) draft.store();
    return { runs, lastMs };
  }

  /** The times of ticks that have started a run, as far as the history goes back; those of deleted runs too. */
  async #startedTicks(at: Address): Promise<ReadonlySet<number>> {
    const row = await this.#row(at);
    const started = new Set<number>();
    if (row === undefined) return started;
    const { after } = this.#kernel.decode(row, row.value ?? "") as ScheduleValue;
    for await (const entry of this.#kernel.entriesAfter(at, after)) {
      const { outcome, scheduledAt, by } = showEntry(this.#kernel, row, entry);
      if (outcome === "fired" && by !== "trigger") started.add(scheduledAt.getTime());
    }
    return started;
  }

  /** Returns the next times of a schedule, or of options, without the jitter. */
  async preview(schedule: ScheduleRef | ScheduleOptions, options: PreviewOptions = {}): Promise<readonly Date[]> {
    checkOptions(options, PREVIEW);
    const count = checkCount(options.count ?? 10, "the count", MOST_LISTED);
    const givenMs = options.from === undefined ? undefined : checkDate(options.from, "from");
    const plan = await this.#planOf(schedule);
    const times: Date[] = [];
    for (let ms: number | undefined = givenMs ?? (await this.#nowMs()); times.length < count; ) {
      ms = nextTick(plan, ms, nextTime);
      if (ms === undefined) break;
      times.push(new Date(ms));
    }
    return times;
  }

  async #planOf(schedule: ScheduleRef | ScheduleOptions): Promise<Plan> {
    const rules = scheduleRules(schedule);
    if (rules !== undefined) return rules.plan;
    if (typeof schedule !== "string") return checkPlan(schedule as ScheduleOptions);
    const row = await this.#row(scheduleAt(schedule));
    if (row === undefined) throw new ScheduleNotFoundError(schedule);
    return (this.#kernel.decode(row, row.value ?? "") as ScheduleValue).plan;
  }

  /** Returns the outcomes of the last ticks, the newest first: about the last 1,000 are kept. */
  async history(schedule: ScheduleRef, options: ScheduleHistoryOptions = {}): Promise<ScheduleHistoryPage> {
    const name = nameOf(schedule);
    const at = scheduleAt(name);
    checkOptions(options, HISTORY);
    const limit = checkCount(options.limit ?? 100, "the limit", MOST_LISTED);
    const before = options.before == null ? undefined : checkVersion(options.before, "before");
    const row = await this.#row(at);
    if (row === undefined) throw new ScheduleNotFoundError(name);
    const value = this.#kernel.decode(row, row.value ?? "") as ScheduleValue;
    const last = Math.min(before === undefined ? row.head : before - 1, row.head);
    const first = Math.max(value.after, row.head - HISTORY_KEPT, last - limit);
    if (last <= first) return { entries: [], next: null };
    const found = await this.#kernel.entries(at, first, last - first);
    const entries = found.filter(({ version }) => version <= last).map((one) => showEntry(this.#kernel, row, one));
    const isMore = first > Math.max(value.after, row.head - HISTORY_KEPT);
    return { entries: entries.reverse(), next: isMore ? first + 1 : null };
  }

  async #change(at: Address, decide: (tx: Tx, record: ReturnType<Tx["record"]>) => void): Promise<ScheduleInfo> {
    const { row, nowMs } = await this.#kernel.transact(
      (tx) => {
        const record = tx.record(at);
        decide(tx, record);
        return { row: record.row, nowMs: tx.nowMs };
      },
      [at],
    );
    if (row === null) throw new ScheduleNotFoundError(at.key);
    return this.#show(row, nowMs);
  }

  #existing(tx: Tx, at: Address): ScheduleDraft {
    const record = tx.record(at);
    if (!record.exists) throw new ScheduleNotFoundError(at.key);
    return new ScheduleDraft(tx, record, undefined);
  }

  /** The same, to start runs: with the code of the definition that counts, where the input needs it. */
  #startable(tx: Tx, at: Address, rules: ScheduleRules | undefined): ScheduleDraft {
    const draft = this.#existing(tx, at);
    const { declared, target } = draft.value;
    if (target.input !== undefined) return draft;
    if (rules === undefined || rules.by !== declared?.by) throw new ScheduleCodeMissingError(at.key);
    return new ScheduleDraft(tx, draft.record, rules);
  }

  #rulesOf(schedule: ScheduleRef): ScheduleRules | undefined {
    return scheduleRules(schedule) ?? this.#declared.get(nameOf(schedule));
  }

  #show(row: Row, nowMs: number): ScheduleInfo {
    return showSchedule(row.key, row, this.#kernel.decode(row, row.value ?? "") as ScheduleValue, nowMs);
  }

  async #row(at: Address): Promise<Row | undefined> {
    const [row] = await this.#kernel.read([at]);
    return row == null || row.value === null ? undefined : row;
  }

  /** The store's clock, without a lock. */
  async #nowMs(): Promise<number> {
    return (await this.#kernel.due({ kinds: [CREATED_QUEUE], limit: 1 })).nowMs;
  }
}

const nameOf = (schedule: ScheduleRef): string => (typeof schedule === "string" ? schedule : schedule?.name);

function checkStorable(input: unknown): unknown {
  if (typeof input === "function")
    throw new InvalidArgumentError(
      "the input",
      "must be a value: a function of the tick is possible in code only, with schedule()",
    );
  return input;
}

/** The options that a plan was made of, without its times where they are replaced. */
function optionsOf(plan: Plan, isTimed: boolean): ScheduleOptions {
  const { timing, overlap, mostQueued, catchUp, jitterMs, startsMs, endsMs, max } = plan;
  return {
    ...(isTimed
      ? {}
      : "cron" in timing
        ? timing
        : "everyMs" in timing
          ? { every: timing.everyMs }
          : { at: timing.atMs }),
    overlap: mostQueued === undefined ? overlap : { queue: mostQueued },
    catchUp: catchUp === 0 ? "none" : catchUp,
    jitter: jitterMs,
    starts: startsMs,
    ends: endsMs,
    max,
  } as ScheduleOptions;
}
