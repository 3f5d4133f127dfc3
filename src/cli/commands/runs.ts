/** `pawl runs`: lists runs. */

import { DELIVERIES, TASKS } from "../../task/stored.ts";
import { inCommands } from "../advice.ts";
import type { Backend, Page, PageOptions, RunFilter, RunItem } from "../backend.ts";
import type { Column } from "../output.ts";
import { declare, LIST_OPTIONS, type Listed, listOption, option, type Place } from "../program.ts";

interface RunsOptions {
  readonly workflow?: string;
  readonly status?: readonly string[];
  readonly tag?: string;
  readonly prefix?: string;
  readonly order?: string;
  readonly tasks?: boolean;
}

/** What a run is doing or waits for, in a few words. */
export const doingOf = ({ id, doing, parkedReason, isCancelRequested, endedAt }: RunItem): string => {
  if (parkedReason !== null) return inCommands(parkedReason, id);
  if (endedAt !== null) return "";
  const first = doing.map(({ kind, name, attempt }) =>
    [kind, name, attempt !== null && attempt > 1 ? `(attempt ${attempt})` : ""].filter(Boolean).join(" "),
  );
  return [...(isCancelRequested ? ["cancel requested"] : []), ...first].join(", ");
};

const COLUMNS: readonly Column<RunItem>[] = [
  { title: "RUN", of: ({ id }) => id, isWhole: true },
  { title: "WORKFLOW", of: ({ workflow }) => workflow },
  { title: "STATUS", of: ({ status }) => status, isStatus: true },
  { title: "STARTED", of: ({ startedAt }) => startedAt },
  { title: "ENDED", of: ({ endedAt }) => endedAt },
  { title: "DOING", of: doingOf },
];

export function runsCommand(place: Place): void {
  declare<Listed<RunsOptions>>(place, {
    usage: "runs",
    summary: "list runs, the newest first",
    options: [
      option("--workflow <name>", "only runs of this workflow"),
      listOption("--status <status>", "only runs with one of these statuses, as waiting,failed"),
      option("--tag <tag>", "only runs with this tag"),
      option("--prefix <text>", "only runs whose ids begin with this"),
      option("--order <order>", "newest, oldest or id (default: newest)").choices(["newest", "oldest", "id"]),
      option("--no-tasks", "leave out the runs of tasks and of their notifications, which pawl tasks shows"),
      ...LIST_OPTIONS(),
    ],
    run: async (session, _, { limit, after, all, tasks = true, ...filter }) => {
      const { runs } = await session.backend("read");
      await session.list(
        {
          columns: COLUMNS,
          page: (page) => (tasks ? runs.list({ ...filter, ...page }) : ownPage(runs, filter, page)),
          keyOf: ({ id }) => id,
          none: "no runs",
        },
        { limit, after, all },
      );
    },
  });
}

/** A page without the runs of tasks: as full as one of all runs. */
async function ownPage(
  runs: Backend["runs"],
  filter: Omit<RunFilter, keyof PageOptions>,
  { after, limit }: PageOptions,
): Promise<Page<RunItem>> {
  const items: RunItem[] = [];
  const unreadable: { readonly id: string; readonly reason: string }[] = [];
  for (let from = after; ; ) {
    const page = await runs.list({ ...filter, after: from, limit: limit - items.length });
    items.push(...page.items.filter(({ workflow }) => workflow !== TASKS && workflow !== DELIVERIES));
    unreadable.push(...(page.unreadable ?? []));
    if (page.next === null || items.length >= limit) return { items, unreadable, next: page.next };
    from = page.next;
  }
}
