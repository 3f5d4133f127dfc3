/**
 * `pawl`: the argument parser, and what all commands share: global options, errors, exit codes.
 *
 * `program` has the whole tree of commands, from which help and completion are made. `main` runs one command line and returns its exit code. It touches the
 * process only through `Io`, so that tests can call it.
 */

import { Command, CommanderError, Option } from "commander";
import { actionsCommand } from "./commands/actions.ts";
import { backupCommand } from "./commands/backup.ts";
import { completionCommand } from "./commands/completion.ts";
import { doctorCommand } from "./commands/doctor.ts";
import { exportCommand } from "./commands/export.ts";
import { initCommand } from "./commands/init.ts";
import { keysCommand } from "./commands/keys.ts";
import { locksCommand } from "./commands/locks.ts";
import { migrateCommand } from "./commands/migrate.ts";
import { projectionsCommand } from "./commands/projections.ts";
import { reactionsCommand } from "./commands/reactions.ts";
import { runCommand } from "./commands/run.ts";
import { runsCommand } from "./commands/runs.ts";
import { schedulesCommand } from "./commands/schedules.ts";
import { serveCommand } from "./commands/serve.ts";
import { streamsCommand } from "./commands/streams.ts";
import { tasksCommand } from "./commands/tasks.ts";
import { whyCommand } from "./commands/why.ts";
import { workflowsCommand } from "./commands/workflows.ts";
import { EXIT, type ExitCode, showError } from "./exit-codes.ts";
import { escaped } from "./output.ts";
import type { Start } from "./program.ts";
import { DEFAULT_NAMESPACE, DEFAULT_STORE, type GlobalOptions, type Io, Session } from "./session.ts";
import { version } from "./version.ts";

const COMMANDS = [
  serveCommand,
  initCommand,
  runsCommand,
  runCommand,
  whyCommand,
  workflowsCommand,
  locksCommand,
  schedulesCommand,
  tasksCommand,
  streamsCommand,
  reactionsCommand,
  projectionsCommand,
  actionsCommand,
  keysCommand,
  doctorCommand,
  migrateCommand,
  backupCommand,
  exportCommand,
  completionCommand,
];

const AFTER_HELP = `
Exit codes: 0 done, 1 failed or refused, 2 wrong usage, 3 not found, 4 conflict or already settled, 5 store or server
unreachable. Environment: PAWL_STORE, PAWL_NAMESPACE, PAWL_URL, PAWL_KEY, NO_COLOR.`;

/** The tree of commands. */
export function program(start: Start): Command {
  const pawl = new Command("pawl")
    .description("Durable workflows, locks, schedules, tasks and event streams: look at them, and act on them.")
    .version(version(), "-V, --version", "print the version")
    .helpOption("-h, --help", "print help")
    .helpCommand("help [command]", "print help of a command")
    .addOption(
      new Option("--store <where>", `the database: a path, or postgres://… (default: ${DEFAULT_STORE})`).env(
        "PAWL_STORE",
      ),
    )
    .addOption(new Option("--namespace <name>", `the namespace (default: ${DEFAULT_NAMESPACE})`).env("PAWL_NAMESPACE"))
    .addOption(new Option("--url <url>", "a server, instead of a database").env("PAWL_URL"))
    .addOption(new Option("--key <key>", "the API key for the server; better in PAWL_KEY").env("PAWL_KEY"))
    .option("--json", "print JSON: one document, or one line for each item of a list")
    .option("--watch", "look again every second, and show what has changed")
    .option("--yes", "confirm what cannot be undone")
    .option("--no-color", "print without colors")
    .configureHelp({ showGlobalOptions: true, sortSubcommands: false })
    .addHelpText("after", AFTER_HELP)
    .showSuggestionAfterError(true);
  for (const add of COMMANDS) add({ under: pawl, start });
  return pawl;
}

/** Runs one command line, without the names of Node and of the program. */
export async function main(argv: readonly string[], io: Io): Promise<ExitCode> {
  const refuse = (message: string, code: string): void =>
    void io.err.write(
      `pawl: ${escaped(
        message
          .replace(/^error: /, "")
          .trim()
          .replaceAll(/\s*\n\s*/g, " "),
      )} (${code})\n`,
    );
  const start: Start = async (command, run) => {
    const session = new Session(io, chosen(command));
    try {
      await run(session);
    } catch (error) {
      throw session.explained(error);
    } finally {
      await session.close();
    }
  };
  const pawl = program(start);
  prepare(pawl, {
    writeOut: (text) => void io.out.write(text),
    writeErr: (text) => void io.err.write(text),
    refused: (command, text) => refuse(hinted(command, text), "usage"),
  });
  try {
    await pawl.parseAsync(argv, { from: "user" });
    return EXIT.ok;
  } catch (error) {
    if (error instanceof CommanderError) {
      if (error.exitCode === 0) return EXIT.ok;
      // Thrown by what parses a value of a command that has begun.
      if (error.code === "commander.invalidArgument" && !wasReported(error)) refuse(error.message, "usage");
      return EXIT.usage;
    }
    const { message, code, exit } = showError(error);
    refuse(message, code ?? "failed");
    return exit;
  }
}

/** Errors that commander has printed begin with "error:". */
const wasReported = (error: CommanderError): boolean => error.message.startsWith("error:");

interface Output {
  readonly writeOut: (text: string) => void;
  readonly writeErr: (text: string) => void;
  readonly refused: (command: Command, text: string) => void;
}

function prepare(command: Command, output: Output): void {
  const { writeOut, writeErr, refused } = output;
  command.configureOutput({ writeOut, writeErr, outputError: (text) => refused(command, text) }).exitOverride();
  for (const one of command.commands) prepare(one, output);
}

/** Commands that show one thing by its name, which is what is meant by a name after a group. */
const SHOWING = ["show", "read", "targets"];

/** A word that is no command of its group gets that said, and not how the parser took it. */
function hinted(command: Command, text: string): string {
  const isExcess = text.includes("too many arguments");
  if (isExcess && command.name() === "runs") {
    const [word = "", id = word] = command.args;
    return `runs lists runs (did you mean pawl run ${command.args.length > 1 ? word : "show"} ${id}?)`;
  }
  const group = isExcess ? command.parent : command;
  const isUnknown = text.includes("unknown command") && !text.includes("Did you mean");
  if (group?.parent == null || !(isUnknown || (isExcess && group.args[0] !== command.name()))) return text;
  const [word = "", name = word] = command.args;
  const names = group.commands.map((one) => one.name());
  const showing = SHOWING.find((one) => names.includes(one) && one !== word);
  const says = `${group.name()} has no command '${word}'`;
  return showing === undefined
    ? `${says}: it has ${names.join(", ")}`
    : `${says} (did you mean pawl ${group.name()} ${showing} ${name}?)`;
}

/** The global options. What is on the command line counts before the environment: `--store` there ends the use of PAWL_URL, and `--url` that of PAWL_STORE. */
function chosen(command: Command): GlobalOptions {
  let root = command;
  while (root.parent !== null) root = root.parent;
  const isGiven = (name: string): boolean => root.getOptionValueSource(name) === "cli";
  // A variable that is set to nothing is not set.
  const given = Object.entries(root.opts<Record<string, unknown>>()).filter(
    ([name, value]) => value !== "" || isGiven(name),
  );
  const fromEnv = given.map(([name]) => name).filter((name) => root.getOptionValueSource(name) === "env");
  const options: GlobalOptions = { ...Object.fromEntries(given), fromEnv };
  if (options.store === undefined || options.url === undefined) return options;
  if (isGiven("store") && isGiven("url"))
    throw new CommanderError(EXIT.usage, "commander.invalidArgument", "--store and --url cannot be given together");
  if (isGiven("store")) return { ...options, url: undefined };
  if (isGiven("url")) return { ...options, store: undefined };
  // A command that needs one of them asks which.
  return options;
}
