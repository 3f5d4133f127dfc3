/**
 * Errors of schedules. When one is thrown, nothing was changed.
 */

import { PawlError } from "../kernel/errors.ts";

/** The cron expression is not valid. `data.field` names the part that is wrong, and `data.position` is where it begins, counted from 0. */
export class InvalidCronError extends PawlError<
  "invalid_cron",
  { readonly cron: string; readonly field: string | null; readonly position: number; readonly reason: string }
> {
  constructor(cron: string, reason: string, field: string | null = null, position = 0) {
    const place = field === null ? "" : ` in the field for ${field}, at position ${position}`;
    super("invalid_cron", `the cron expression "${cron}" is not valid${place}: ${reason}`, {
      cron,
      field,
      position,
      reason,
    });
  }
}

/** There is no such time zone. Use an IANA name that this version of Node knows, as "Europe/Berlin". */
export class InvalidTimezoneError extends PawlError<"invalid_timezone", { readonly timezone: string }> {
  constructor(timezone: string) {
    super("invalid_timezone", `"${timezone}" is not a time zone: use an IANA name such as "Europe/Berlin"`, {
      timezone,
    });
  }
}

/** There is no schedule with this name. */
export class ScheduleNotFoundError extends PawlError<"schedule_not_found", { readonly schedule: string }> {
  constructor(schedule: string) {
    super("schedule_not_found", `schedule "${schedule}" does not exist`, { schedule });
  }
}

/** The name is taken. Change that schedule with `update`, or delete it first. */
export class ScheduleExistsError extends PawlError<
  "schedule_exists",
  { readonly schedule: string; readonly isDeclared: boolean }
> {
  constructor(schedule: string, isDeclared: boolean) {
    super(
      "schedule_exists",
      isDeclared
        ? `schedule "${schedule}" exists: it is declared in code`
        : `schedule "${schedule}" exists: it was created at run time; update it, or delete it first`,
      { schedule, isDeclared },
    );
  }
}

/** The schedule is declared in code: change or remove it there. It can be deleted when no worker declares it any more. */
export class ScheduleDeclaredError extends PawlError<
  "schedule_declared",
  { readonly schedule: string; readonly until: Date | null }
> {
  constructor(schedule: string, untilMs: number | undefined) {
    super(
      "schedule_declared",
      untilMs === undefined
        ? `schedule "${schedule}" is declared in code: change it there`
        : `schedule "${schedule}" is declared by a worker: remove it from the code first, then delete it after ${new Date(untilMs).toISOString()}`,
      { schedule, until: untilMs === undefined ? null : new Date(untilMs) },
    );
  }
}

/** The input of the schedule is a function, which this process does not have. Pass the schedule itself instead of its name, or call it in a worker. */
export class ScheduleCodeMissingError extends PawlError<"schedule_code_missing", { readonly schedule: string }> {
  constructor(schedule: string) {
    super(
      "schedule_code_missing",
      `the input of schedule "${schedule}" is a function that this process does not have: pass the schedule itself, or call it in a process that works on it`,
      { schedule },
    );
  }
}
