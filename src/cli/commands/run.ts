/** `pawl run …`: one run, and what can be done to it. */

import type { Backend, HistoryItem, RunItem } from "../backend.ts";
import { CliError } from "../exit-codes.ts";
import { type Column, framesShown } from "../output.ts";
import {
  declare,
  group,
  LIST_OPTIONS,
  type Listed,
  listOption,
  option,
  type Place,
  parseJson,
  UsageError,
} from "../program.ts";
import { isOneOf } from "../values.ts";
import { doingOf } from "./runs.ts";

const ENDED = ["completed", "failed", "canceled", "timed_out", "expired", "parked"];
/** The result of a run that has ended is there already. */
const RESULT_MS = 5000;

type Shown = RunItem & { readonly result?: unknown; readonly failedStep?: string | undefined };

const FIELDS = (run: Shown): readonly (readonly [string, unknown])[] => [
  ["run", run.id],
  ["workflow", run.workflow],
  ["status", run.status],
  ["doing", doingOf(run)],
  ["asked to stop", run.isCancelRequested && !ENDED.includes(run.status) ? true : null],
  ["result", run.result],
  ["error", errorOf(run.error)],
  ["failed step", run.failedStep],
  ["started", run.startedAt],
  ["scheduled", run.scheduledAt],
  ["due", run.dueAt],
  ["ended", run.endedAt],
  ["worker", run.worker],
  ["lease until", run.leaseUntil],
  ["tags", run.tags],
  ["parent", run.parent],
  ["incarnation", run.incarnation > 1 ? run.incarnation : null],
  ["trouble", run.trouble?.reason],
  ["contradicted", run.contradicted?.reason],
  ["unreadable", run.unreadable],
];

function errorOf(error: unknown): unknown {
  const { message = error, data } = thrownIn(error);
  const code = data?.["code"];
  return code === undefined ? message : `${String(message)} (${String(code)})`;
}

/** What was thrown, as far as it is an error: without its tag. */
const thrownIn = (error: unknown): { readonly message?: string; readonly data?: Readonly<Record<string, unknown>> } =>
  Object(Object(error).$error);

const FACTS = 1000;

/** The step whose error ended the run; undefined if none has that error, as where the code threw it itself. */
async function failedStepOf(runs: Backend["runs"], { id, error }: RunItem): Promise<string | undefined> {
  const said = thrownIn(error).message;
  let found: string | undefined;
  for (let after = 0; ; ) {
    const facts = await runs.history(id, { after, limit: FACTS });
    for (const { name, data } of facts)
      if (name.startsWith("step ") && said !== undefined && thrownIn(Object(data).error).message === said)
        found = name.slice("step ".length);
    if (facts.length < FACTS) return found;
    after = facts.at(-1)?.version ?? after;
  }
}

const HISTORY: readonly Column<HistoryItem>[] = [
  { title: "VERSION", of: ({ version }) => version, isRight: true },
  { title: "AT", of: ({ at }) => at },
  { title: "FACT", of: ({ name }) => name, isWhole: true },
  { title: "DATA", of: ({ data }) => data },
];

export function runCommand(place: Place): void {
  const run = group(place, "run", "show one run, and act on it");

  declare<{ id?: string; delay?: string; tag?: readonly string[] }>(run, {
    usage: "start <workflow> [input]",
    summary: "start a run; the input is JSON",
    options: [
      option("--id <id>", "the run's id; the same id again is the same run"),
      option("--delay <duration>", "begin this much later, as 10m"),
      listOption("--tag <tags>", "words to find it by"),
    ],
    run: async (session, [workflow = "", input], { id, delay, tag }) => {
      const value = await parseJson(input, "the input");
      const { runs } = await session.backend("write");
      const started = await runs.start({ workflow, input: value, id, delay, tags: tag });
      session.done(`run ${started.id} of ${workflow} was started`, started);
      // No process says which workflows it works on; a name that is misspelled has no other run.
      const { items } = await runs.list({ workflow, limit: 2 });
      if (items.length === 1 && items[0]?.worker === null && items[0].endedAt === null)
        session.say(`it is the only run of ${workflow}, and begins when a worker works on a workflow of that name`);
    },
  });

  declare(run, {
    usage: "show <id>",
    summary: "show what a run is doing, or how it ended",
    run: async (session, [id = ""]) => {
      const { runs } = await session.backend("read");
      await session.show<Shown>({
        get: async () => {
          const info = await runs.get(id);
          if (info.status === "failed") return { ...info, failedStep: await failedStepOf(runs, info) };
          if (info.status !== "completed") return info;
          return { ...info, result: await runs.result(id, { timeoutMs: RESULT_MS }) };
        },
        fields: FIELDS,
        more: ({ stack }) => framesShown("error", stack),
        isFinal: ({ status }) => ENDED.includes(status),
      });
    },
  });

  declare<Listed>(run, {
    usage: "history <id>",
    summary: "list the facts of a run's history, in their order",
    options: LIST_OPTIONS(),
    run: async (session, [id = ""], options) => {
      const { runs } = await session.backend("read");
      await session.list(
        {
          columns: HISTORY,
          page: async ({ after, limit }) => {
            const from = after === undefined ? 0 : Number(after);
            const items = await runs.history(id, { after: Number.isSafeInteger(from) ? from : -1, limit });
            return { items, next: items.length === limit ? String(items.at(-1)?.version ?? from) : null };
          },
          keyOf: ({ version }) => String(version),
          none: "no facts",
        },
        options,
      );
    },
  });

  declare<{ id?: string }>(run, {
    usage: "signal <id> <signal> [payload]",
    summary: "send a signal to a run; the payload is JSON",
    options: [option("--id <id>", "the signal's id: the same one again is ignored")],
    run: async (session, [id = "", name = "", payload], options) => {
      const value = await parseJson(payload, "the payload");
      const { runs } = await session.backend("write");
      const sent = await runs.signal(id, { name, payload: value, id: options.id });
      session.done(sent.isNew ? `signal ${name} was sent to run ${id}` : `run ${id} has this signal already`, sent);
    },
  });

  declare<{ reason?: string; force?: boolean }>(run, {
    usage: "cancel <id>",
    summary: "ask a run to stop, so that it cleans up",
    options: [
      option("--reason <text>", "why"),
      option("--force", "end it now, whether its code reacts or not; needs --yes"),
    ],
    run: async (session, [id = ""], options) => {
      if (options.force === true)
        await session.confirm(`this ends run ${id} without its cleanup, and what it was doing may still run`);
      const { runs } = await session.backend("write");
      const canceled = await runs.cancel(id, options);
      const { status } = canceled;
      if (status === "canceled") return session.done(`run ${id} is canceled`, canceled);
      if (!isOneOf(status, ENDED) || status === "parked")
        return session.done(`run ${id} is asked to stop; its status is ${status}`, canceled);
      if (session.isJson) session.json(canceled);
      throw new CliError("run_ended", `run ${id} has ended already: it is ${status}`);
    },
  });

  declare<{ step?: readonly string[] }>(run, {
    usage: "retry <id>",
    summary: "let a run that failed or is parked continue, with the steps that failed",
    options: [listOption("--step <names>", "do these again as well, by the names that its history shows")],
    run: async (session, [id = ""], { step }) => {
      const { runs } = await session.backend("write");
      await runs.retry(id, step === undefined ? {} : { steps: step });
      session.done(`run ${id} continues`, { id });
    },
  });

  declare<{ value?: string; notDone?: boolean }>(run, {
    usage: "resolve <id> <step>",
    summary: "say whether a step whose outcome is unknown was done",
    options: [
      option("--value <json>", "it was done, with this result"),
      option("--not-done", "it was not done: it runs again"),
    ],
    help: "Give one of the two options.",
    run: async (session, [id = "", step = ""], { value, notDone }) => {
      if ((value === undefined) === (notDone !== true))
        throw new UsageError("give either --value <json> or --not-done");
      const answer =
        value === undefined
          ? ({ done: false } as const)
          : { done: true as const, value: await parseJson(value, "the value") };
      const { runs } = await session.backend("write");
      await runs.resolve(id, step, answer);
      session.done(`step ${step} of run ${id} is resolved as ${answer.done ? "done" : "not done"}`, {
        id,
        step,
        done: answer.done,
        ...(value === undefined ? {} : { value: JSON.parse(value) }),
      });
    },
  });

  declare(run, {
    usage: "delete <id>",
    summary: "delete a run that has ended, with its history; needs --yes",
    run: async (session, [id = ""]) => {
      await session.confirm(`this deletes run ${id} with its history`);
      const { runs } = await session.backend("write");
      await runs.delete(id);
      session.done(`run ${id} is deleted`, { id });
    },
  });
}
