/**
 * `pawl export`: what is stored, as JSON Lines.
 *
 * A line is what the list of the same name shows with `--json`; that of a run also has its history, and that of a task its attempts. Lines of streams are those of `pawl.streams.export`, so that
 * `pawl.streams.import` reads them.
 *
 * Guarantees: a file appears under its name only when it is complete.
 */

import { existsSync } from "node:fs";
import { open, rename, rm } from "node:fs/promises";
import { Argument } from "commander";
import type { PartialExport } from "../../stream/closing/transfer.ts";
import type { Backend, HistoryItem, Page, PageOptions } from "../backend.ts";
import { CliError } from "../exit-codes.ts";
import { jsonLine } from "../output.ts";
import { declare, option, type Place } from "../program.ts";
import type { Session } from "../session.ts";

const WHAT = ["runs", "streams", "slots", "schedules", "actions", "tasks"] as const;
type What = (typeof WHAT)[number];

const PAGE = 200;
/** Lines are written in pieces of about this many characters. */
const PIECE = 64 * 1024;

/** Takes text, and resolves when there is room for more. */
type Write = (text: string) => Promise<void>;

export function exportCommand(place: Place): void {
  const command = declare<{ out?: string; prefix?: string }>(place, {
    usage: "export",
    summary: "write runs, streams, slots, schedules, actions or tasks as JSON Lines",
    options: [
      option("--out <file>", "write to a file that does not exist yet (default: stdout)"),
      option("--prefix <text>", "only those whose ids or names begin with this"),
    ],
    run: async (session, [what], { out, prefix = "" }) => {
      const backend = await session.backend("read");
      const exported = await to(session, out, (write) => exportAll(session, backend, what as What, prefix, write));
      const { count, partial } = exported;
      const says = `${count} ${what === "streams" ? "events of streams" : what}`;
      if (out === undefined) session.note(`exported ${says}`);
      else session.done(`${out}: ${says}`, { file: out, what, count, ...(partial.length === 0 ? {} : { partial }) });
      for (const { stream, firstVersion } of partial)
        session.say(`stream ${stream} begins at event ${firstVersion}: the events before it are in an archive`);
      if (partial.length > 0)
        throw new CliError(
          "events_archived",
          `the export lacks the archived events of ${partial.length === 1 ? "a stream" : `${partial.length} streams`}: for a whole one, use pawl.streams.export with the archive`,
        );
    },
  });
  command.addArgument(new Argument("<what>", "what to export").choices(WHAT));
}

async function exportAll(
  session: Session,
  backend: Backend,
  what: What,
  prefix: string,
  write: Write,
): Promise<{ readonly count: number; readonly partial: readonly PartialExport[] }> {
  const progress = session.progress();
  let count = 0;
  let partial: readonly PartialExport[] = [];
  const counted = (more: number): void => {
    count += more;
    progress.is(`exported ${count} ${what === "streams" ? "events" : what}`);
  };
  try {
    if (what === "streams") partial = await backend.streams.export(prefix, write, counted);
    else
      for await (const item of itemsOf(backend, what, prefix)) {
        await write(`${jsonLine(item)}\n`);
        counted(1);
      }
    return { count, partial };
  } finally {
    progress.end();
  }
}

async function* itemsOf(backend: Backend, what: Exclude<What, "streams">, prefix: string): AsyncGenerator<unknown> {
  switch (what) {
    case "runs":
      for await (const run of all((page) => backend.runs.list({ ...page, prefix, order: "id" })))
        yield { ...run, history: await historyOf(backend, run.id) };
      return;
    case "tasks":
      for await (const task of all((page) => backend.tasks.list({ ...page, prefix, order: "id" })))
        yield { ...task, attempts: await backend.tasks.attempts(task.id) };
      return;
    case "slots":
      yield* all((page) => backend.slots.list({ ...page, prefix }));
      return;
    case "schedules":
      yield* all((page) => backend.schedules.list({ ...page, prefix }));
      return;
    case "actions":
      for await (const action of all((page) => backend.actions.list(page)))
        if ((action.id ?? "").startsWith(prefix)) yield action;
  }
}

async function* all<Item>(list: (options: PageOptions) => Promise<Page<Item>>): AsyncGenerator<Item> {
  for (let after: string | undefined; ; ) {
    const { items, next } = await list({ after, limit: PAGE });
    yield* items;
    if (next === null) return;
    after = next;
  }
}

/** A run that was deleted meanwhile has none. */
async function historyOf(backend: Backend, id: string): Promise<readonly HistoryItem[]> {
  const history: HistoryItem[] = [];
  for (;;) {
    const page = await backend.runs.history(id, { after: history.at(-1)?.version ?? 0, limit: PAGE });
    history.push(...page);
    if (page.length < PAGE) return history;
  }
}

/** Hands out where to write: stdout, or a file that gets its name when all is written. */
async function to<T>(session: Session, file: string | undefined, work: (write: Write) => Promise<T>): Promise<T> {
  if (file === undefined) return work((text) => session.written(text));
  const taken = (): CliError =>
    new CliError("file_exists", `${file} is there already: name a file that does not exist`);
  if (existsSync(file)) throw taken();
  const part = `${file}.${process.pid}.part`;
  const handle = await open(part, "wx");
  try {
    let waiting = "";
    const result = await work(async (text) => {
      waiting += text;
      if (waiting.length < PIECE) return;
      await handle.write(waiting);
      waiting = "";
    });
    await handle.write(waiting);
    await handle.sync();
    await handle.close();
    if (existsSync(file)) throw taken();
    await rename(part, file);
    return result;
  } finally {
    await handle.close().catch(() => {});
    await rm(part, { force: true });
  }
}
