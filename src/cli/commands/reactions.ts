/** `pawl reactions …`: what reactions are doing, and operating their targets. */

import type { DeadLetterInfo, ReactionInfo, TargetInfo } from "../../stream/reactions/reactions.ts";
import type { Backend, Page, PageOptions, TargetChange } from "../backend.ts";
import { type Column, counted } from "../output.ts";
import { declare, group, LIST_OPTIONS, type Listed, option, type Place, parseNumber, UsageError } from "../program.ts";
import type { Plain } from "../values.ts";

const COLUMNS: readonly Column<Plain<ReactionInfo>>[] = [
  { title: "REACTION", of: ({ name }) => name, isWhole: true },
  { title: "STATE", of: stateOf, isStatus: true },
  { title: "ON", of: ({ on }) => on },
  { title: "UNROUTED", of: ({ unrouted }) => unrouted, isRight: true },
  { title: "SINCE", of: ({ unroutedSince }) => unroutedSince },
  { title: "PROBLEM", of: ({ failure }) => failure?.message },
];

function stateOf({ pausedAt, failure, worker }: Plain<ReactionInfo>): string {
  if (pausedAt !== null) return "paused";
  if (failure !== null) return "failed";
  return worker === null ? "no worker" : "active";
}

const TARGETS: readonly Column<Plain<TargetInfo>>[] = [
  { title: "TARGET", of: ({ target }) => target, isWhole: true },
  { title: "STATUS", of: ({ status }) => status, isStatus: true },
  { title: "HANDLED", of: ({ handled }) => handled, isRight: true },
  { title: "PENDING", of: ({ pending }) => pending, isRight: true },
  { title: "FAILURES", of: ({ failures }) => failures, isRight: true },
  { title: "WORKER", of: ({ worker }) => worker },
  { title: "NEXT ATTEMPT", of: ({ nextAttemptAt }) => nextAttemptAt },
  { title: "ERROR", of: ({ lastError }) => lastError?.message },
];

const LETTERS: readonly Column<Plain<DeadLetterInfo>>[] = [
  { title: "STREAM", of: ({ stream }) => stream, isWhole: true },
  { title: "VERSION", of: ({ version }) => version, isRight: true },
  { title: "TARGET", of: ({ target }) => target, isWhole: true },
  { title: "AT", of: ({ at }) => at },
  { title: "ACTOR", of: ({ actor }) => actor },
  { title: "REASON", of: ({ reason }) => reason },
  { title: "ERROR", of: ({ message }) => message },
];

const STATUSES: readonly TargetInfo["status"][] = ["idle", "due", "running", "retrying", "blocked", "paused"];

/** Targets are listed by two of the statuses; for the others, as many are read as it takes. */
async function targetsOf(
  { reactions }: Backend,
  reaction: string,
  { after, limit, prefix }: PageOptions & { readonly prefix: string | undefined },
  status: TargetInfo["status"] | undefined,
): Promise<Page<Plain<TargetInfo>>> {
  if (status === undefined || status === "blocked" || status === "paused")
    return reactions.targets(reaction, { after, limit, prefix, status });
  const items: Plain<TargetInfo>[] = [];
  for (let from = after; ; ) {
    const page = await reactions.targets(reaction, { after: from, limit: limit - items.length, prefix });
    items.push(...page.items.filter((one) => one.status === status));
    if (page.next === null || items.length >= limit) return { items, next: page.next };
    from = page.next;
  }
}

interface FilterOptions {
  readonly status?: "blocked" | "paused";
  readonly prefix?: string;
  readonly all?: boolean;
  readonly dryRun?: boolean;
}

const statusOption = () =>
  option("--status <status>", "only targets that are blocked or paused").choices(["blocked", "paused"]);
const prefixOption = () => option("--prefix <text>", "only targets whose names begin with this");

/** One target, or those that match; all of them only if that is said. */
function filterOf(target: string | undefined, { status, prefix, all, dryRun }: FilterOptions): TargetChange {
  if (target === undefined && status === undefined && prefix === undefined && all !== true)
    throw new UsageError("name a target, or give --status, --prefix or --all");
  return { target, status, prefix, dryRun };
}

export function reactionsCommand(place: Place): void {
  const reactions = group(place, "reactions", "show what reactions are doing, and act on their targets");

  declare(reactions, {
    usage: "list",
    summary: "list reactions",
    isDefault: true,
    run: async (session) => {
      const backend = await session.backend("read");
      await session.list(
        {
          columns: COLUMNS,
          page: async () => ({ items: await backend.reactions.list(), next: null }),
          keyOf: ({ name }) => name,
          none: "no reactions",
        },
        {},
      );
    },
  });

  declare<Listed<{ status?: TargetInfo["status"]; prefix?: string }>>(reactions, {
    usage: "targets <reaction>",
    summary: "list the targets of a reaction",
    options: [
      option("--status <status>", "only targets of this status").choices([...STATUSES]),
      prefixOption(),
      ...LIST_OPTIONS(),
    ],
    run: async (session, [reaction = ""], { status, prefix, ...options }) => {
      const backend = await session.backend("read");
      await session.list(
        {
          columns: TARGETS,
          page: (page) => targetsOf(backend, reaction, { ...page, prefix }, status),
          keyOf: ({ target }) => target,
          none: "no targets",
        },
        options,
      );
    },
  });

  const changes = [
    {
      verb: "unblock",
      done: "unblocked",
      summary: "let blocked targets continue with the event that failed",
      isDestructive: false,
    },
    {
      verb: "prioritize",
      done: "prioritized",
      summary: "claim targets before all others that are due",
      isDestructive: false,
    },
    {
      verb: "reset",
      done: "reset",
      summary: "handle all events of targets again, from the first; needs --yes",
      isDestructive: true,
    },
  ] as const;
  for (const { verb, done, summary, isDestructive } of changes)
    declare<FilterOptions>(reactions, {
      usage: `${verb} <reaction> [target]`,
      summary,
      options: [
        statusOption(),
        prefixOption(),
        option("--all", "all targets"),
        option("--dry-run", "count them, and change nothing"),
      ],
      run: async (session, [reaction = "", target], options) => {
        const filter = filterOf(target, options);
        if (isDestructive && options.dryRun !== true) await session.confirm(`this handles events of ${reaction} again`);
        const backend = await session.backend(options.dryRun === true ? "read" : "write");
        const targets = await backend.reactions.change(verb, reaction, filter);
        const is = options.dryRun === true ? "would be" : targets === 1 ? "is" : "are";
        session.done(`${counted(targets, "target")} of ${reaction} ${is} ${done}`, { targets });
      },
    });

  declare<{ by?: string; reason: string }>(reactions, {
    usage: "skip <reaction> <target>",
    summary: "put the next event of a blocked or paused target aside; needs --yes",
    options: [
      option("--by <who>", "who does it; on a server it is the API key"),
      option("--reason <text>", "why").makeOptionMandatory(),
    ],
    run: async (session, [reaction = "", target = ""], { by, reason }) => {
      const actor = session.actor(by, { isNeeded: true });
      await session.confirm(`this puts the next event of target ${target} aside, unhandled`);
      const backend = await session.backend("write");
      const letter = await backend.reactions.skip(reaction, target, { actor, reason });
      session.done(`event ${letter.version} of stream ${letter.stream} is a dead letter of ${reaction} now`, letter);
    },
  });

  for (const verb of ["pause", "resume"] as const)
    declare(reactions, {
      usage: `${verb} <reaction>`,
      summary: verb === "pause" ? "route no more events, until it is resumed" : "route events again",
      run: async (session, [reaction = ""]) => {
        await (await session.backend("write")).reactions[verb](reaction);
        session.done(`reaction ${reaction} is ${verb === "pause" ? "paused" : "active"}`, { reaction });
      },
    });

  declare<Listed>(reactions, {
    usage: "dead-letters <reaction>",
    summary: "list events that were put aside",
    options: LIST_OPTIONS(),
    run: async (session, [reaction = ""], options) => {
      const backend = await session.backend("read");
      await session.list(
        {
          columns: LETTERS,
          page: (page) => backend.reactions.deadLetters(reaction, page),
          keyOf: ({ stream, version }) => `${stream} ${version}`,
          none: "no dead letters",
        },
        options,
      );
    },
  });

  declare<{ target?: string }>(reactions, {
    usage: "redrive <reaction> <stream> <version>",
    summary: "send a dead letter again",
    options: [option("--target <target>", "to this target, where none could be computed")],
    run: async (session, [reaction = "", stream = "", number = ""], { target }) => {
      const version = parseNumber(number, "the version");
      await (await session.backend("write")).reactions.redrive(reaction, { stream, version, target });
      session.done(`event ${version} of stream ${stream} is sent again`, { reaction, stream, version });
    },
  });
}
