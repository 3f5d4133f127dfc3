/** `pawl schedules …`: when runs are started, and operating that. */

import type { ScheduleItem } from "../backend.ts";
import { CliError } from "../exit-codes.ts";
import type { Column } from "../output.ts";
import { declare, group, LIST_OPTIONS, type Listed, numberOption, option, type Place } from "../program.ts";

/** When it ticks, in one text. */
const timingOf = ({ cron, everyMs, at, timezone }: ScheduleItem): string => {
  if (cron !== null) return timezone === "UTC" || timezone === null ? cron : `${cron} ${timezone}`;
  return everyMs === null ? `at ${at?.join(", ") ?? ""}` : `every ${everyMs / 1000} s`;
};

/** Where no worker declares it, the state does not say that an operator paused it as well. */
export const stateShown = ({ state, paused }: Pick<ScheduleItem, "state" | "paused">): string =>
  paused !== null && state === "undeclared" ? "paused, undeclared" : state;

const COLUMNS: readonly Column<ScheduleItem>[] = [
  { title: "SCHEDULE", of: ({ name }) => name, isWhole: true },
  { title: "STATE", of: stateShown, isStatus: true },
  { title: "WHEN", of: timingOf },
  { title: "WORKFLOW", of: ({ workflow }) => workflow },
  { title: "NEXT", of: ({ dueAt }) => dueAt },
  { title: "LAST", of: ({ lastTick }) => lastTick?.outcome },
  { title: "FIRED", of: ({ fired }) => fired, isRight: true },
  { title: "FAILED", of: ({ failed }) => failed, isRight: true },
];

const FIELDS = (one: ScheduleItem): readonly (readonly [string, unknown])[] => [
  ["schedule", one.name],
  ["state", stateShown(one)],
  ["when", timingOf(one)],
  ["workflow", one.workflow],
  ["overlap", one.overlap],
  ["next", one.dueAt],
  ["last tick", one.lastTick === null ? null : `${one.lastTick.scheduledAt} ${one.lastTick.outcome}`],
  ["last run", one.lastFired?.run],
  ["fired", one.fired],
  ["skipped", one.skipped],
  ["missed", one.missed],
  ["failed", one.failed],
  ["queued", one.queued],
  ["paused since", one.paused?.since],
  ["reason", one.paused?.reason],
  ["declared in code", one.isDeclared],
];

const MOST_TIMES = 1000;

export function schedulesCommand(place: Place): void {
  const schedules = group(place, "schedules", "show when runs are started, pause and trigger schedules");

  declare<Listed<{ prefix?: string }>>(schedules, {
    usage: "list",
    summary: "list schedules",
    isDefault: true,
    options: [option("--prefix <text>", "only schedules whose names begin with this"), ...LIST_OPTIONS()],
    run: async (session, _, { prefix, ...options }) => {
      const backend = await session.backend("read");
      await session.list(
        {
          columns: COLUMNS,
          page: (page) => backend.schedules.list({ ...page, prefix }),
          keyOf: ({ name }) => name,
          none: "no schedules",
        },
        options,
      );
    },
  });

  declare(schedules, {
    usage: "show <name>",
    summary: "show one schedule",
    run: async (session, [name = ""]) => {
      const backend = await session.backend("read");
      await session.show({ get: () => backend.schedules.get(name), fields: FIELDS });
    },
  });

  declare<{ limit?: number }>(schedules, {
    usage: "history <name>",
    summary: "list the outcomes of its ticks, the newest first",
    options: [numberOption("--limit <n>", "how many to show (default: 50)", 1, 1000)],
    run: async (session, [name = ""], { limit = 50 }) => {
      const backend = await session.backend("read");
      await session.list(
        {
          columns: [
            { title: "TICK", of: ({ scheduledAt }) => scheduledAt },
            { title: "OUTCOME", of: ({ outcome }) => outcome, isStatus: true },
            { title: "RUN", of: ({ run }) => run, isWhole: true },
            { title: "BY", of: ({ by }) => by },
            { title: "COUNT", of: ({ count }) => count, isRight: true },
            { title: "REASON", of: ({ reason }) => reason },
          ],
          page: async () => ({ items: await backend.schedules.history(name, limit), next: null }),
          keyOf: ({ version }) => String(version),
          none: "no ticks yet",
        },
        { limit },
      );
    },
  });

  declare<{ count?: number }>(schedules, {
    usage: "preview <name>",
    summary: "list its next ticks",
    options: [numberOption("--count <n>", "how many (default: 10)", 1, MOST_TIMES)],
    run: async (session, [name = ""], { count = 10 }) => {
      const backend = await session.backend("read");
      await session.list(
        {
          columns: [{ title: "TICK", of: ({ at }) => at }],
          page: async () => {
            const times = await backend.schedules.preview(name, count);
            return { items: times.map((at) => ({ at })), next: null };
          },
          keyOf: ({ at }) => at,
          none: "it has no more ticks",
        },
        {},
      );
    },
  });

  declare<{ reason?: string }>(schedules, {
    usage: "pause <name>",
    summary: "let it start no runs until it is resumed",
    options: [option("--reason <text>", "why")],
    run: async (session, [name = ""], { reason }) => {
      const info = await (await session.backend("write")).schedules.pause(name, reason);
      session.done(`schedule ${name} is ${stateShown(info)}`, info);
    },
  });

  declare(schedules, {
    usage: "resume <name>",
    summary: "let it start runs again",
    run: async (session, [name = ""]) => {
      const info = await (await session.backend("write")).schedules.resume(name);
      session.done(`schedule ${name} is ${stateShown(info)}`, info);
    },
  });

  declare(schedules, {
    usage: "trigger <name>",
    summary: "start a run of it now",
    run: async (session, [name = ""]) => {
      const started = await (await session.backend("write")).schedules.trigger(name);
      session.done(`schedule ${name} started run ${started.run}`, started);
    },
  });

  declare(schedules, {
    usage: "delete <name>",
    summary: "delete a schedule; needs --yes",
    run: async (session, [name = ""]) => {
      await session.confirm(`this deletes schedule ${name} with its history`);
      const deleted = await (await session.backend("write")).schedules.delete(name);
      if (!deleted.deleted) throw new CliError("schedule_not_found", `there is no schedule ${JSON.stringify(name)}`);
      session.done(`schedule ${name} is deleted`, deleted);
    },
  });
}
