/**
 * The tree of commands: what each command file declares itself with.
 *
 * A command's file is loaded with the program, because its help is; so it imports nothing heavy, and its action loads what it needs. That keeps `pawl --help` and
 * completion quick.
 */

import { type Command, InvalidArgumentError, Option } from "commander";
import { CliError } from "./exit-codes.ts";
import type { ListOptions, Session } from "./session.ts";

/** Runs one command, with a session of its own, which is closed afterwards. */
export type Start = (command: Command, run: (session: Session) => Promise<void>) => Promise<void>;

/** Where a command is added. */
export interface Place {
  readonly under: Command;
  readonly start: Start;
}

export interface Declared<Options> {
  /** The name, and the arguments: "show <id>". */
  readonly usage: string;
  readonly summary: string;
  /** Lines after the options in the help. */
  readonly help?: string;
  readonly options?: readonly Option[];
  /** It runs if its group is named alone. */
  readonly isDefault?: boolean;
  readonly run: (session: Session, args: readonly string[], options: Options) => Promise<void>;
}

/** Adds a command that does something. */
export function declare<Options = Record<never, never>>({ under, start }: Place, declared: Declared<Options>): Command {
  const { usage, summary, help, options = [], isDefault = false, run } = declared;
  const command = under.command(usage, { isDefault }).description(summary);
  for (const option of options) command.addOption(option);
  if (isDefault) {
    defaults.set(under, command);
    const [short, whole] = [`pawl ${under.name()}`, `pawl ${under.name()} ${command.name()}`];
    under.addHelpText("after", `\n${short} is ${whole}, and takes its options: ${whole} --help`);
  }
  if (help !== undefined) command.addHelpText("after", `\n${help}`);
  return command.action(() =>
    start(command, (session) =>
      run(
        session,
        command.processedArgs.flat().filter((arg) => arg !== undefined) as string[],
        command.opts<Record<string, unknown>>() as Options,
      ),
    ),
  );
}

const defaults = new WeakMap<Command, Command>();

/** The command that runs if a group is named alone. */
export const defaultOf = (group: Command): Command | undefined => defaults.get(group);

/** Adds a group of commands. */
export function group({ under, start }: Place, name: string, summary: string): Place {
  return { under: under.command(name).description(summary), start };
}

// -------------------------------------------------------------------------------------------------- options

export const option = (flags: string, description: string): Option => new Option(flags, description);

const wholeNumber =
  (least: number, most: number) =>
  (text: string): number => {
    const number = Number(text);
    if (!/^\d+$/.test(text) || number < least || number > most)
      throw new InvalidArgumentError(`It must be a whole number from ${least} to ${most}.`);
    return number;
  };

export const numberOption = (flags: string, description: string, least: number, most: number): Option =>
  option(flags, description).argParser(wholeNumber(least, most));

/** An option that may be given several times, or with commas. */
export const listOption = (flags: string, description: string): Option =>
  option(flags, description).argParser((text: string, before: readonly string[] | undefined) => [
    ...(before ?? []),
    ...text.split(",").map((one) => one.trim()),
  ]);

/** The same with whole numbers. */
export const numbersOption = (flags: string, description: string, least: number, most: number): Option =>
  option(flags, description).argParser((text: string, before: readonly number[] | undefined) => [
    ...(before ?? []),
    ...text.split(",").map((one) => wholeNumber(least, most)(one.trim())),
  ]);

/** The options that all lists have. */
export const LIST_OPTIONS = (): readonly Option[] => [
  numberOption("--limit <n>", "how many to show (default: 50)", 1, 1000),
  option("--after <cursor>", "continue a list where it ended"),
  option("--all", "show all of them"),
];

export type Listed<Options = Record<never, never>> = ListOptions & Options;

/** The command line is wrong in a way that the parser cannot know. */
export class UsageError extends CliError {
  constructor(message: string) {
    super("invalid_usage", message);
  }
}

/** A moment to come: a duration from now, or a time. */
export async function parseMoment(text: string, what: string): Promise<number> {
  const [{ checkDuration }, { wallMs }] = await Promise.all([import("../kernel/check.ts"), import("../node/ports.ts")]);
  const atMs = /^\d{4}-/.test(text) ? Date.parse(text) : Number.NaN;
  if (atMs <= wallMs()) throw new UsageError(`${what} must be later than now: ${text}`);
  if (!Number.isNaN(atMs)) return atMs;
  return wallMs() + checkDuration(text, what);
}

/** A whole number from 1 on among the arguments. */
export function parseNumber(text: string, what: string): number {
  const number = Number(text);
  if (!/^\d+$/.test(text) || number < 1 || !Number.isSafeInteger(number))
    throw new UsageError(`${what} must be a whole number from 1: ${text}`);
  return number;
}

/** A value from the command line: JSON, with the tags that values have over HTTP. */
export async function parseJson(text: string | undefined, what: string): Promise<unknown> {
  if (text === undefined) return undefined;
  try {
    JSON.parse(text);
  } catch {
    throw new UsageError(`${what} must be JSON, as {"id": 1} or "text" with its quotes: ${text}`);
  }
  const [{ jsonCodec }, { UnsupportedEncodingError }, { scan }, { Problem }] = await Promise.all([
    import("../kernel/codec/json.ts"),
    import("../kernel/errors.ts"),
    import("../http/server/body.ts"),
    import("../http/server/problem.ts"),
  ]);
  try {
    // A number that JavaScript would change is refused, as over HTTP.
    scan(text, { depth: Number.POSITIVE_INFINITY, members: Number.POSITIVE_INFINITY });
    return jsonCodec.decode(text, { namespace: "", space: "", key: "" });
  } catch (error) {
    if (error instanceof Problem) throw new UsageError(`${what} is refused: ${error.message}`);
    if (!(error instanceof UnsupportedEncodingError)) throw error;
    const { path, reason } = error.data;
    throw new UsageError(`${what} cannot be read at ${path}: ${reason}; for a name that begins with "$", write "$$"`);
  }
}
