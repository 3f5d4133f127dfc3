/** `pawl tasks …`: HTTP tasks, their attempts, and signals by token. */

import type { TaskItem } from "../backend.ts";
import { CliError } from "../exit-codes.ts";
import { type Column, counted } from "../output.ts";
import {
  declare,
  group,
  LIST_OPTIONS,
  type Listed,
  listOption,
  numberOption,
  option,
  type Place,
  parseJson,
  UsageError,
} from "../program.ts";

const ENDED = ["completed", "failed", "canceled", "timed_out", "expired"];

const COLUMNS: readonly Column<TaskItem>[] = [
  { title: "TASK", of: ({ id }) => id, isWhole: true },
  { title: "STATUS", of: ({ status }) => status, isStatus: true },
  { title: "METHOD", of: ({ method }) => method },
  { title: "TARGET", of: ({ targetUrl }) => targetUrl },
  { title: "CREATED", of: ({ createdAt }) => createdAt },
  { title: "ENDED", of: ({ endedAt }) => endedAt },
  { title: "BY", of: ({ outcome }) => outcome?.by },
];

const FIELDS = (task: TaskItem): readonly (readonly [string, unknown])[] => [
  ["task", task.id],
  ["status", task.status],
  ["target", `${task.method} ${task.targetUrl}`],
  ["settled by", task.outcome?.by],
  ["value", task.outcome !== null && "value" in task.outcome ? task.outcome.value : null],
  ["error", task.outcome !== null && "error" in task.outcome ? task.outcome.error : null],
  ["waits for a signal", task.waitsForSignal],
  ["notifies", task.onCompleteUrl],
  ["created", task.createdAt],
  ["scheduled", task.scheduledAt],
  ["ended", task.endedAt],
  ["tags", task.tags],
];

interface CreateOptions {
  readonly method?: string;
  readonly header?: readonly string[];
  readonly body?: string;
  readonly id?: string;
  readonly idempotencyKey?: string;
  readonly delay?: string;
  readonly timeout?: string;
  readonly attempts?: number;
  readonly tag?: readonly string[];
  readonly onComplete?: string;
  readonly waitForSignal?: boolean;
  readonly maxWait?: string;
}

/** "name: value" for each. */
function headersOf(headers: readonly string[]): Readonly<Record<string, string>> {
  return Object.fromEntries(
    headers.map((header) => {
      const at = header.indexOf(":");
      if (at < 1) throw new UsageError(`a header must be "name: value": ${header}`);
      return [header.slice(0, at).trim(), header.slice(at + 1).trim()];
    }),
  );
}

const filterOptions = () => [
  option("--tag <tag>", "only tasks with this tag"),
  option("--prefix <text>", "only tasks whose ids begin with this"),
];

export function tasksCommand(place: Place): void {
  const tasks = group(place, "tasks", "create HTTP tasks, look at them, cancel and redrive them");

  declare<Listed<{ status?: readonly string[]; tag?: string; prefix?: string; order?: string }>>(tasks, {
    usage: "list",
    summary: "list tasks, the newest first",
    isDefault: true,
    options: [
      listOption("--status <status>", "only tasks with this status, as waiting or failed"),
      ...filterOptions(),
      option("--order <order>", "newest, oldest or id (default: newest)").choices(["newest", "oldest", "id"]),
      ...LIST_OPTIONS(),
    ],
    run: async (session, _, { limit, after, all, ...filter }) => {
      const backend = await session.backend("read");
      await session.list(
        {
          columns: COLUMNS,
          page: (page) => backend.tasks.list({ ...filter, ...page }),
          keyOf: ({ id }) => id,
          none: "no tasks",
        },
        { limit, after, all },
      );
    },
  });

  declare(tasks, {
    usage: "show <id>",
    summary: "show one task",
    run: async (session, [id = ""]) => {
      const backend = await session.backend("read");
      await session.show({
        get: () => backend.tasks.get(id),
        fields: FIELDS,
        isFinal: ({ status }) => ENDED.includes(status),
      });
    },
  });

  declare<CreateOptions>(tasks, {
    usage: "create <url>",
    summary: "create a task, which calls this URL",
    options: [
      option("--method <method>", "the method (default: POST)"),
      option("--header <header>", 'a header, as "name: value"; may be given several times').argParser(
        (one: string, before: readonly string[] | undefined) => [...(before ?? []), one],
      ),
      option("--body <json>", "the body, as JSON"),
      option("--id <id>", "the task's id; the same id again is the same task"),
      option("--idempotency-key <key>", "the same key again is the same task, with the same signal token"),
      option("--delay <duration>", "begin this much later, as 10m"),
      option("--timeout <duration>", "how long an attempt may take (default: 30s)"),
      numberOption("--attempts <n>", "how often it is tried (default: 5)", 1, 1000),
      listOption("--tag <tags>", "words to find it by"),
      option("--on-complete <url>", "gets a signed POST when the task has its outcome"),
      option("--wait-for-signal", "the task is completed by a signal; its token is printed"),
      option("--max-wait <duration>", "how long it waits for the signal (default: 1d)"),
    ],
    run: async (session, [targetUrl = ""], options) => {
      const { header, body, attempts, tag, onComplete, maxWait, ...rest } = options;
      const request = {
        ...rest,
        targetUrl,
        ...(header === undefined ? {} : { headers: headersOf(header) }),
        ...(body === undefined ? {} : { body: await parseJson(body, "the body") }),
        ...(attempts === undefined ? {} : { retry: { attempts } }),
        ...(tag === undefined ? {} : { tags: tag }),
        ...(onComplete === undefined ? {} : { onCompleteUrl: onComplete }),
        ...(maxWait === undefined ? {} : { maxWaitTime: maxWait }),
      };
      const backend = await session.backend("write");
      const created = await backend.tasks.create(request);
      const { task, signalToken, isNew } = created;
      const token = signalToken === null ? "" : `; its signal token is ${signalToken}`;
      session.done(`task ${task.id} ${isNew ? "was created" : "was there already"}${token}`, created);
    },
  });

  declare<{ failed?: boolean }>(tasks, {
    usage: "signal <token> [value]",
    summary: "complete a task by its signal token; the value is JSON",
    options: [option("--failed", "the task has failed")],
    run: async (session, [token = "", value], { failed }) => {
      const parsed = await parseJson(value, "the value");
      const backend = await session.backend("write");
      const signaled = await backend.tasks.signal(token, {
        status: failed === true ? "failed" : "completed",
        ...(value === undefined ? {} : { value: parsed }),
      });
      session.done(
        `the task is ${signaled.outcome.status}${signaled.isNew ? "" : ", since an earlier signal like this"}`,
        signaled,
      );
    },
  });

  declare<{ reason?: string }>(tasks, {
    usage: "cancel <id>",
    summary: "cancel a task that has no outcome yet",
    options: [option("--reason <text>", "why")],
    run: async (session, [id = ""], { reason }) => {
      const backend = await session.backend("write");
      const canceled = await backend.tasks.cancel(id, reason);
      const { outcome } = canceled;
      if (canceled.canceled || outcome.status === "canceled")
        return session.done(`task ${id} ${canceled.canceled ? "is" : "was"} canceled`, canceled);
      if (session.isJson) session.json(canceled);
      throw new CliError("task_settled", `task ${id} has its outcome already: ${outcome.status}, by ${outcome.by}`);
    },
  });

  declare<{ all?: boolean; status?: readonly string[]; tag?: string; prefix?: string }>(tasks, {
    usage: "redrive [id]",
    summary: "let dead tasks begin again: one, or those that match",
    options: [
      option("--all", "all dead tasks; needs --yes"),
      listOption("--status <status>", "of failed, timed_out and expired"),
      ...filterOptions(),
    ],
    run: async (session, [id], { all, ...filter }) => {
      if (id !== undefined) {
        const task = await (await session.backend("write")).tasks.redrive(id);
        return session.done(`task ${id} begins again`, task);
      }
      if (all !== true && Object.values(filter).every((one) => one === undefined))
        throw new UsageError("name a task, or give --status, --tag, --prefix or --all");
      if (all === true) await session.confirm("this lets all dead tasks begin again");
      const done = await (await session.backend("write")).tasks.redriveAll(filter);
      session.sayUnreadable(done.unreadable);
      session.done(`${counted(done.redriven, "task")} begin${done.redriven === 1 ? "s" : ""} again`, done);
    },
  });

  declare(tasks, {
    usage: "attempts <id>",
    summary: "list the attempts at its call",
    run: async (session, [id = ""]) => {
      const backend = await session.backend("read");
      await session.list(
        {
          columns: [
            { title: "ATTEMPT", of: ({ number }) => number, isRight: true },
            { title: "FENCE", of: ({ fence }) => fence, isRight: true },
            { title: "STARTED", of: ({ startedAt }) => startedAt },
            { title: "MS", of: ({ durationMs }) => Math.round(durationMs), isRight: true },
            { title: "HTTP", of: ({ status }) => status, isRight: true },
            { title: "ERROR", of: ({ error }) => error?.message },
            { title: "BODY", of: ({ body }) => body },
          ],
          page: async () => ({ items: await backend.tasks.attempts(id), next: null }),
          keyOf: ({ number, fence }) => `${number} ${fence}`,
          none: "no attempts yet",
        },
        {},
      );
    },
  });

  declare(tasks, {
    usage: "deliveries <id>",
    summary: "list the notifications of --on-complete",
    run: async (session, [id = ""]) => {
      const backend = await session.backend("read");
      await session.list(
        {
          columns: [
            { title: "WEBHOOK-ID", of: (one) => one.id, isWhole: true },
            { title: "STATUS", of: ({ status }) => status, isStatus: true },
            { title: "ATTEMPTS", of: ({ attempts }) => attempts, isRight: true },
            { title: "HTTP", of: ({ lastStatus }) => lastStatus, isRight: true },
            { title: "DELIVERED", of: ({ deliveredAt }) => deliveredAt },
            { title: "ERROR", of: ({ lastError }) => lastError?.message },
          ],
          page: async () => ({ items: await backend.tasks.deliveries(id), next: null }),
          keyOf: (one) => one.id,
          none: "no notifications yet",
        },
        {},
      );
    },
  });
}
