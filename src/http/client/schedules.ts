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
import type { Workflow } from "../../workflow/definitions/definition.ts";
import { isPawlError } from "./errors.ts";
import { type Paged, paged } from "./pages.ts";
import { type Named, nameOf, valueIn } from "./runs.ts";
import { momentOf, sent, shown } from "./shapes.ts";
import type { WirePage } from "./slots.ts";
import { path, type Transport } from "./transport.ts";

export class ClientSchedules {
  readonly #transport: Transport;

  /** @internal */
  constructor(transport: Transport) {
    this.#transport = transport;
  }

  /** Creates a schedule, which every worker fires. Throws `schedule_exists`. */
  create<Input>(
    name: string,
    options: ScheduleOptions,
    workflow: Workflow<Input, unknown>,
    ...rest: CreatedInput<Input>
  ): Promise<ScheduleInfo>;
  create(name: string, options: ScheduleOptions, workflow: string, input?: unknown): Promise<ScheduleInfo>;
  async create(name: string, options: ScheduleOptions, workflow: Named, input?: unknown): Promise<ScheduleInfo> {
    const body = { name, ...planOf(options), workflow: nameOf(workflow, "the workflow"), ...valueIn("input", input) };
    return shown(await this.#transport.call({ method: "POST", path: path("schedules"), body }));
  }

  /** Changes a schedule that was created at run time. Throws `schedule_declared` and `schedule_not_found`. */
  async update(name: string, options: UpdateScheduleOptions): Promise<ScheduleInfo> {
    const { input, ...plan } = options;
    const body = { ...planOf(plan), ...valueIn("input", input) };
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
      return shown(await this.#transport.call({ method: "GET", path: this.#path(schedule) }));
    } catch (error) {
      if (isPawlError(error, "schedule_not_found")) return null;
      throw error;
    }
  }

  /** Lists schedules by name: awaited, a page; iterated, all of them. */
  list(options: ScheduleListOptions = {}): Paged<SchedulePage, ScheduleInfo> {
    return paged<SchedulePage, ScheduleInfo>(
      async (after = options.after) => {
        const query = { ...sent(options), after };
        const json = await this.#transport.call({ method: "GET", path: path("schedules"), query });
        const { items, unreadable = [], next } = shown<WirePage<ScheduleInfo>>(json);
        return { schedules: items, unreadable, next };
      },
      ({ schedules }) => schedules,
    );
  }

  /** Pauses a schedule: its ticks start nothing until `resume`. */
  async pause(schedule: ScheduleRef, options?: { readonly reason?: string | undefined }): Promise<ScheduleInfo> {
    return shown(await this.#change(schedule, "pause", sent(options)));
  }

  /** Resumes a schedule that is paused: it fires from its next tick on. */
  async resume(schedule: ScheduleRef): Promise<ScheduleInfo> {
    return shown(await this.#change(schedule, "resume", undefined));
  }

  /** Starts a run now, beyond the ticks. The same `id` again is the same run, as long as that is kept. */
  async trigger(schedule: ScheduleRef, options: TriggerOptions = {}): Promise<{ readonly run: string }> {
    const request = { method: "POST", path: this.#path(schedule, "trigger"), body: sent(options) } as const;
    const json = await this.#transport.call({ ...request, isRepeatable: options.id !== undefined });
    return json as { readonly run: string };
  }

  /** Starts the runs of ticks between two times that did not start one. Continue with `next` as `from`. */
  async backfill(schedule: ScheduleRef, options: BackfillOptions): Promise<Backfilled> {
    const { from, to, limit } = options;
    const body = { ...sent({ limit }), from: momentOf(from), to: momentOf(to) };
    const json = await this.#change(schedule, "backfill", body);
    const { runs, next } = json as { readonly runs: readonly string[]; readonly next: string | null };
    return { runs, next: next === null ? null : new Date(next) };
  }

  /** Returns the next times of a schedule, without the jitter. */
  async preview(schedule: ScheduleRef, options: PreviewOptions = {}): Promise<readonly Date[]> {
    const { count, from } = options;
    const query = { count, ...(from === undefined ? {} : { from: momentOf(from) }) };
    const json = await this.#transport.call({ method: "GET", path: this.#path(schedule, "preview"), query });
    return (json as { readonly items: readonly string[] }).items.map((time) => new Date(time));
  }

  /** The outcomes of the last ticks, the newest first: awaited, a page; iterated, all of them. */
  history(schedule: ScheduleRef, options: ScheduleHistoryOptions = {}): Paged<ScheduleHistoryPage, ScheduleEntry> {
    return paged<ScheduleHistoryPage, ScheduleEntry>(
      async (after = options.before) => {
        const query = { limit: options.limit, after };
        const json = await this.#transport.call({ method: "GET", path: this.#path(schedule, "history"), query });
        const { items, next } = shown<WirePage<ScheduleEntry>>(json);
        return { entries: items, next: next === null ? null : Number(next) };
      },
      ({ entries }) => entries,
    );
  }

  #change(schedule: ScheduleRef, verb: string, body: unknown): Promise<unknown> {
    return this.#transport.call({ method: "POST", path: this.#path(schedule, verb), body, isRepeatable: true });
  }

  #path(schedule: ScheduleRef, ...rest: readonly string[]): string {
    return path("schedules", nameOf(schedule, "the schedule"), ...rest);
  }
}

function planOf(options: ScheduleOptions | UpdateScheduleOptions): Record<string, unknown> {
  const { at, starts, ends, ...rest } = options;
  return {
    ...sent(rest),
    ...(at === undefined ? {} : { at: Array.isArray(at) ? at.map(momentOf) : momentOf(at as Date | number) }),
    ...(starts === undefined ? {} : { starts: starts === null ? null : momentOf(starts) }),
    ...(ends === undefined ? {} : { ends: ends === null ? null : momentOf(ends) }),
  };
}
