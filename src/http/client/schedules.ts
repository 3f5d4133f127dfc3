/**
 * Schedules over HTTP: `pawl.schedules`.
 */

import type { ScheduleEntry, ScheduleInfo } from "../../schedule/info.ts";
import type { ScheduleOptions } from "../../schedule/options.ts";
import type {
  Backfilled,
  BackfillOptions,
  CreatedInput,
  PreviewOptions,
  ScheduleHistoryOptions,
  ScheduleHistoryPage,
  ScheduleListOptions,
  SchedulePage,
  ScheduleRef,
  TriggerOptions,
  UpdateScheduleOptions,
} from "../../schedule/schedules.ts";
import type { CheckedInput, Workflow } from "../../workflow/definitions/definition.ts";
import { isPawlError } from "./errors.ts";
import { moment, moments, own, PAGE, plain, type Sendings, sent, value } from "./options.ts";
import { type Paged, paged } from "./pages.ts";
import { type Named, nameOf, valueIn } from "./runs.ts";
import { shown } from "./shapes.ts";
import type { WirePage } from "./slots.ts";
import { path, type Transport } from "./transport.ts";

const PLAN: Sendings<ScheduleOptions> = {
  cron: plain,
  every: plain,
  at: moments,
  timezone: plain,
  overlap: plain,
  catchUp: plain,
  jitter: plain,
  starts: moment,
  ends: moment,
  max: plain,
};
const UPDATE: Sendings<UpdateScheduleOptions> = { ...PLAN, input: value };
const LIST: Sendings<ScheduleListOptions> = { ...PAGE, prefix: plain };
const PAUSE = { reason: plain };
const TRIGGER: Sendings<TriggerOptions> = { id: plain };
const BACKFILL: Sendings<BackfillOptions> = { from: moment, to: moment, limit: plain };
const PREVIEW: Sendings<PreviewOptions> = { count: plain, from: moment };
const HISTORY: Sendings<ScheduleHistoryOptions> = { before: own, limit: plain };

export class ClientSchedules {
  readonly #transport: Transport;

  /** @internal */
  constructor(transport: Transport) {
    this.#transport = transport;
  }

  /** Creates a schedule, which every worker fires. Throws `schedule_exists`. */
  create<Input, Checked = never>(
    name: string,
    options: ScheduleOptions,
    workflow: Workflow<Input, unknown, Checked>,
    ...rest: CreatedInput<CheckedInput<Input, Checked>>
  ): Promise<ScheduleInfo>;
  create(name: string, options: ScheduleOptions, workflow: string, input?: unknown): Promise<ScheduleInfo>;
  async create(name: string, options: ScheduleOptions, workflow: Named, input?: unknown): Promise<ScheduleInfo> {
    const body = {
      name,
      ...sent(options, PLAN),
      workflow: nameOf(workflow, "the workflow"),
      ...valueIn("input", input),
    };
    return shown(await this.#transport.post(path("schedules"), body));
  }

  /** Changes a schedule that was created at run time. Throws `schedule_declared` and `schedule_not_found`. */
  async update(name: string, options: UpdateScheduleOptions): Promise<ScheduleInfo> {
    const body = sent(options, UPDATE);
    return shown(
      await this.#transport.call({ method: "PATCH", path: path("schedules", name), body, isRepeatable: true }),
    );
  }

  /** Deletes a schedule; its runs stay. Resolves with whether it was there. */
  async delete(name: string): Promise<{ readonly deleted: boolean }> {
    const json = await this.#transport.call({ method: "DELETE", path: path("schedules", name) });
    return json as { readonly deleted: boolean };
  }

  /** Returns a schedule as it is now; null if there is none. */
  async get(schedule: ScheduleRef): Promise<ScheduleInfo | null> {
    try {
      return shown(await this.#transport.get(this.#path(schedule)));
    } catch (error) {
      if (isPawlError(error, "schedule_not_found")) return null;
      throw error;
    }
  }

  /** Lists schedules by name: awaited, a page; iterated, all of them. */
  list(options: ScheduleListOptions = {}): Paged<SchedulePage, ScheduleInfo> {
    return paged<SchedulePage, ScheduleInfo>(
      async (after = options.after) => {
        const query = { ...sent(options, LIST), after };
        const json = await this.#transport.get(path("schedules"), query);
        const { items, unreadable = [], next } = shown<WirePage<ScheduleInfo>>(json);
        return { schedules: items, unreadable, next };
      },
      ({ schedules }) => schedules,
    );
  }

  /** Pauses a schedule: its ticks start nothing until `resume`. */
  async pause(schedule: ScheduleRef, options?: { readonly reason?: string | undefined }): Promise<ScheduleInfo> {
    return shown(await this.#change(schedule, "pause", sent(options, PAUSE)));
  }

  /** Resumes a schedule that is paused: it fires from its next tick on. */
  async resume(schedule: ScheduleRef): Promise<ScheduleInfo> {
    return shown(await this.#change(schedule, "resume", undefined));
  }

  /** Starts a run now, beyond the ticks. The same `id` again is the same run, as long as that is kept. */
  async trigger(schedule: ScheduleRef, options: TriggerOptions = {}): Promise<{ readonly run: string }> {
    const request = { method: "POST", path: this.#path(schedule, "trigger"), body: sent(options, TRIGGER) } as const;
    const json = await this.#transport.call({ ...request, isRepeatable: options.id !== undefined });
    return json as { readonly run: string };
  }

  /** Starts the runs of ticks between two times that did not start one. Continue with `next` as `from`. */
  async backfill(schedule: ScheduleRef, options: BackfillOptions): Promise<Backfilled> {
    const json = await this.#change(schedule, "backfill", sent(options, BACKFILL));
    const { runs, next } = json as { readonly runs: readonly string[]; readonly next: string | null };
    return { runs, next: next === null ? null : new Date(next) };
  }

  /** Returns the next times of a schedule, without the jitter. */
  async preview(schedule: ScheduleRef, options: PreviewOptions = {}): Promise<readonly Date[]> {
    const query = sent(options, PREVIEW);
    const json = await this.#transport.get(this.#path(schedule, "preview"), query);
    return (json as { readonly items: readonly string[] }).items.map((time) => new Date(time));
  }

  /** The outcomes of the last ticks, the newest first: awaited, a page; iterated, all of them. */
  history(schedule: ScheduleRef, options: ScheduleHistoryOptions = {}): Paged<ScheduleHistoryPage, ScheduleEntry> {
    return paged<ScheduleHistoryPage, ScheduleEntry>(
      async (after = options.before) => {
        const query = { ...sent(options, HISTORY), after };
        const json = await this.#transport.get(this.#path(schedule, "history"), query);
        const { items, next } = shown<WirePage<ScheduleEntry>>(json);
        return { entries: items, next: next === null ? null : Number(next) };
      },
      ({ entries }) => entries,
    );
  }

  #change(schedule: ScheduleRef, verb: string, body: unknown): Promise<unknown> {
    return this.#transport.post(this.#path(schedule, verb), body, true);
  }

  #path(schedule: ScheduleRef, ...rest: readonly string[]): string {
    return path("schedules", nameOf(schedule, "the schedule"), ...rest);
  }
}
