/**
 * Aggregates of a handle: commands on the folded state of a stream.
 *
 * The state after the last event is stored with the stream, so a command costs the same whatever the stream's length: it reads the record,
 * decides, appends and stores the next state in one commit. Where the stored state lacks events, because they were appended without the
 * aggregate or the reducers have changed, they are read in pages and folded before the decision. Processes with other reducers have a
 * stored state of their own, so that they do not undo each other's work.
 */

import { checkDate, checkId, checkObject, checkOptions, checkVersion, optionNames } from "../kernel/check.ts";
import type { Address } from "../kernel/contract.ts";
import type { Tx } from "../kernel/decision.ts";
import { InvalidArgumentError } from "../kernel/errors.ts";
import type { Kernel } from "../kernel/kernel.ts";
import { checkOrigin, NO_ORIGIN, ORIGIN_OPTIONS, type Origin } from "../kernel/origin.ts";
import { type Aggregate, type AggregateRules, aggregateRules, type CommandContext } from "./aggregate.ts";
import { canReadArchive } from "./closing/archive.ts";
import { readStreamValue } from "./closing/entries.ts";
import { foldEvent, initialFold } from "./decide.ts";
import { CommandRefusedError, FoldBehindError, StreamClosedError } from "./errors.ts";
import { type FoldOutside, foldInRow } from "./folds.ts";
import { pagesAfter, toEvents } from "./reading.ts";
import { type CommandRequest, currentFold, type Executed, execute, storeFold } from "./records.ts";
import { type Fold, firstVersionOf, streamAt } from "./stored.ts";

type AnyCommand = (state: never, input: never, context: CommandContext) => unknown;

/** What a command takes. */
export type InputOf<Commands, Name extends keyof Commands> = Commands[Name] extends (
  state: never,
  ...rest: infer Rest
) => unknown
  ? Rest extends readonly [infer Input, ...unknown[]]
    ? unknown extends Input
      ? undefined
      : Input
    : // A parameter with a default is an input that may be left out.
      Rest extends readonly [(infer Input)?, ...unknown[]]
      ? unknown extends Input
        ? undefined
        : Input | undefined
      : undefined
  : never;

/** What a command returns. */
export type OutputOf<Commands, Name extends keyof Commands> = Commands[Name] extends AnyCommand
  ? ReturnType<Commands[Name]>
  : never;

/** The input of a command, and options; a command without input takes `undefined`. */
export type CommandArguments<Commands, Name extends keyof Commands> =
  undefined extends InputOf<Commands, Name>
    ? [input?: InputOf<Commands, Name>, options?: Origin]
    : [input: InputOf<Commands, Name>, options?: Origin];

/** What a command that was not refused did. */
export interface CommandResult<Output> {
  readonly stream: string;
  /** What the command returned. */
  readonly output: Output;
  /** The stream's version after it. */
  readonly version: number;
  /** The ids of the events that it emitted, in order. */
  readonly ids: readonly string[];
}

export type TryExecute<Output> =
  | ({ readonly ok: true } & CommandResult<Output>)
  | { readonly ok: false; readonly code: "command_refused"; readonly reason: string; readonly details: unknown }
  /** The stream is closed; `version` is that of its tombstone. */
  | { readonly ok: false; readonly code: "stream_closed"; readonly version: number };

export interface StateOptions {
  /** After the event of this version, or after all events that were committed up to this time. Default: after the last event. */
  readonly asOf?: number | Date | undefined;
}

const STATE_OPTIONS = optionNames<StateOptions>({ asOf: true });

/** How often a command reads events that were appended meanwhile, before it gives up. */
const MOST_ROUNDS = 20;
/** A state that took as many events to fold is stored, so that it is not folded again. */
const WORTH_STORING = 100;

/** The reducers of an error that says which state is behind. */
const behind = new WeakMap<FoldBehindError, AggregateRules>();

/** Folds the events that a decision found missing. Returns false if the error says something else. */
export async function mendFold(kernel: Kernel, error: unknown): Promise<boolean> {
  const rules = error instanceof FoldBehindError ? behind.get(error) : undefined;
  if (!(error instanceof FoldBehindError) || rules === undefined) return false;
  const { stream } = error.data;
  const fold = await catchUp(kernel, rules, stream);
  await kernel.transact((tx) => storeFold(tx, rules, stream, fold), [streamAt(stream)]);
  return true;
}

/** One stream, as an aggregate sees it. */
export class AggregateHandle<State, Commands> {
  readonly #kernel: Kernel;
  readonly #rules: AggregateRules;
  readonly #stream: string;
  readonly #origin: Origin;

  /** @internal */
  constructor(kernel: Kernel, aggregate: Aggregate<State, Commands>, stream: string, origin: Origin = NO_ORIGIN) {
    this.#kernel = kernel;
    this.#origin = origin;
    this.#rules = aggregateRules(aggregate);
    this.#stream = streamAt(stream).key;
  }

  /** Runs a command: appends what it emits, and returns what it returned. Throws `command_refused` and `stream_closed`. */
  async execute<Name extends keyof Commands & string>(
    command: Name,
    ...rest: CommandArguments<Commands, Name>
  ): Promise<CommandResult<OutputOf<Commands, Name>>> {
    const executed = await this.#execute(commandRequest(this.#stream, command, rest));
    return decidedOrThrow(this.#rules, this.#stream, command, executed);
  }

  /** Runs a command, or returns why it refused, or that the stream is closed. */
  async tryExecute<Name extends keyof Commands & string>(
    command: Name,
    ...rest: CommandArguments<Commands, Name>
  ): Promise<TryExecute<OutputOf<Commands, Name>>> {
    const request = commandRequest(this.#stream, command, rest);
    try {
      return toTry(this.#stream, await this.#execute(request));
    } catch (error) {
      return closedOrThrow(error);
    }
  }

  /** The state, and the version of the stream that it is of. */
  async state(options: StateOptions = {}): Promise<{ readonly state: State; readonly version: number }> {
    checkOptions(options, STATE_OPTIONS);
    const { asOf } = options;
    const { state, version } = asOf === undefined ? await this.#current() : await this.#asOf(asOf);
    return { state: state as State, version };
  }

  #execute(request: CommandRequest): Promise<Executed> {
    return this.#kernel.mending(() => this.#executeCaughtUp(request));
  }

  async #executeCaughtUp(request: CommandRequest): Promise<Executed> {
    const at = [streamAt(this.#stream)];
    let caughtUp: FoldOutside | undefined;
    for (let round = 1; ; round++)
      try {
        const command: CommandRequest = { ...this.#origin, ...request, caughtUp };
        return await this.#kernel.transact((tx) => execute(tx, this.#rules, command), at);
      } catch (error) {
        if (!(error instanceof FoldBehindError) || round === MOST_ROUNDS) throw error;
        // Not stored first, as `mendFold` does: the command stores the state itself.
        caughtUp = await catchUp(this.#kernel, this.#rules, this.#stream, caughtUp);
      }
  }

  async #current(): Promise<Fold> {
    const before = await storedFold(this.#kernel, this.#rules, this.#stream);
    const fold = await foldFrom(this.#kernel, this.#rules, this.#stream, before);
    if (fold.version - before.version >= WORTH_STORING)
      await this.#kernel.transact((tx) => storeFold(tx, this.#rules, this.#stream, fold), [streamAt(this.#stream)]);
    return fold;
  }

  /** Folded from the beginning, because stored states are of later events; or from a stored state, where the beginning was removed. */
  async #asOf(asOf: number | Date): Promise<Fold> {
    const at = streamAt(this.#stream);
    if (typeof asOf !== "number" && !((asOf as unknown) instanceof Date))
      throw new InvalidArgumentError("asOf", "must be the version of an event, a whole number, or a time, a Date");
    const untilMs = typeof asOf === "number" ? Number.POSITIVE_INFINITY : checkDate(asOf, "asOf");
    const last = typeof asOf === "number" ? asOf : Number.POSITIVE_INFINITY;
    if (typeof asOf === "number") checkVersion(asOf, "asOf");
    let fold = initialFold(this.#rules);
    if (last === 0) return fold;
    fold = (await this.#startAsOf(at, last, untilMs)) ?? fold;
    if (fold.version === last) return fold;
    for await (const page of pagesAfter(this.#kernel, at, fold.version)) {
      const events = await toEvents(this.#kernel, page, undefined, at);
      for (const open of events) {
        const event = open();
        if (event === undefined) continue;
        if (event.at.getTime() > untilMs) return fold;
        fold = foldEvent(this.#rules, fold, event);
        if (fold.version === last) return fold;
      }
    }
    if (Number.isFinite(last))
      throw new InvalidArgumentError(
        "asOf",
        `must be at most ${fold.version}, the version of stream "${this.#stream}": a number is a version; give a time as a Date`,
      );
    return fold;
  }

  /** A stored state that is not later than what is asked for, where events before it were removed and cannot be read. */
  async #startAsOf(at: Address, last: number, untilMs: number): Promise<Fold | undefined> {
    const found = await readStreamValue(this.#kernel, at);
    if (found === undefined || firstVersionOf(found.value) === 1 || canReadArchive(this.#kernel)) return undefined;
    const start = await storedFold(this.#kernel, this.#rules, at.key);
    if (start.version === 0 || start.version > last) return undefined;
    // The time of an event that was removed is not known.
    const [entry] = await this.#kernel.entries(at, start.version - 1, 1);
    if (entry?.version !== start.version) return last === Number.POSITIVE_INFINITY ? undefined : start;
    const [open] = await toEvents(this.#kernel, [entry], undefined, at);
    const event = open?.();
    return event !== undefined && event.at.getTime() <= untilMs ? start : undefined;
  }
}

/** One stream, as an aggregate sees it, inside `transact`. */
export class TxAggregate<State, Commands> {
  readonly #tx: Tx;
  readonly #rules: AggregateRules;
  readonly #stream: string;

  /** @internal */
  constructor(tx: Tx, aggregate: Aggregate<State, Commands>, stream: string) {
    this.#tx = tx;
    this.#rules = aggregateRules(aggregate);
    this.#stream = streamAt(stream).key;
  }

  /** Runs a command, if this commit happens. Throws `command_refused` and `stream_closed`. */
  execute<Name extends keyof Commands & string>(
    command: Name,
    ...rest: CommandArguments<Commands, Name>
  ): CommandResult<OutputOf<Commands, Name>> {
    return executeIn(this.#tx, this.#rules, this.#stream, command, rest);
  }

  /** Runs a command, if this commit happens, or returns why it refused, or that the stream is closed. */
  tryExecute<Name extends keyof Commands & string>(
    command: Name,
    ...rest: CommandArguments<Commands, Name>
  ): TryExecute<OutputOf<Commands, Name>> {
    return tryExecuteIn(this.#tx, this.#rules, this.#stream, command, rest);
  }

  /** The state, frozen. */
  get state(): State {
    return stateIn(this.#tx, this.#rules, this.#stream).state as State;
  }

  /** The version of the last event; 0 if there is none. */
  get version(): number {
    return this.#tx.record(streamAt(this.#stream)).head;
  }
}

/** Runs a command in a decision. Throws `command_refused` and `stream_closed`. */
export function executeIn<Output>(
  tx: Tx,
  rules: AggregateRules,
  stream: string,
  command: string,
  rest: readonly unknown[],
): CommandResult<Output> {
  const executed = noted(rules, () => execute(tx, rules, commandRequest(stream, command, rest)));
  return decidedOrThrow(rules, stream, command, executed);
}

/** Runs a command in a decision, or returns why it refused, or that the stream is closed. */
export function tryExecuteIn<Output>(
  tx: Tx,
  rules: AggregateRules,
  stream: string,
  command: string,
  rest: readonly unknown[],
): TryExecute<Output> {
  const request = commandRequest(stream, command, rest);
  try {
    return toTry(
      stream,
      noted(rules, () => execute(tx, rules, request)),
    );
  } catch (error) {
    return closedOrThrow(error);
  }
}

/** The state after the last event, and its version. */
export function stateIn(
  tx: Tx,
  rules: AggregateRules,
  stream: string,
): { readonly state: unknown; readonly version: number } {
  const record = tx.record(streamAt(stream));
  const { state, version } = noted(rules, () => currentFold(tx, record, rules)).fold;
  return { state, version };
}

/** A state that is behind is brought up to date outside the decision (`mendFold`), which is then made again. */
export function noted<T>(rules: AggregateRules, decide: () => T): T {
  try {
    return decide();
  } catch (error) {
    if (error instanceof FoldBehindError) behind.set(error, rules);
    throw error;
  }
}

function commandRequest(stream: string, command: string, rest: readonly unknown[]): CommandRequest {
  const [input, options = {}] = rest as [unknown, Origin | undefined];
  checkId(command, "the command");
  checkObject(options, "the options");
  checkOptions(options, ORIGIN_OPTIONS);
  return { stream, command, input, ...checkOrigin(options) };
}

function decidedOrThrow<Output>(
  rules: AggregateRules,
  stream: string,
  command: string,
  executed: Executed,
): CommandResult<Output> {
  if (executed.is === "refused")
    throw new CommandRefusedError(rules.name, stream, command, executed.reason, executed.details);
  const { output, version, ids } = executed;
  return { stream, output: output as Output, version, ids };
}

function toTry<Output>(stream: string, executed: Executed): TryExecute<Output> {
  if (executed.is === "refused")
    return { ok: false, code: "command_refused", reason: executed.reason, details: executed.details };
  const { output, version, ids } = executed;
  return { ok: true, stream, output: output as Output, version, ids };
}

function closedOrThrow(error: unknown): TryExecute<never> {
  if (!(error instanceof StreamClosedError)) throw error;
  return { ok: false, code: error.code, version: error.data.version };
}

/** The state to fold from: the one that is stored for these reducers, or the one before the first event. */
async function storedFold(kernel: Kernel, rules: AggregateRules, stream: string): Promise<FoldOutside> {
  const [row] = await kernel.read([streamAt(stream)]);
  return foldInRow(kernel, rules, row, canReadArchive(kernel));
}

/** The state after the last event, folded from the stored one, or from one that was folded before. */
async function catchUp(
  kernel: Kernel,
  rules: AggregateRules,
  stream: string,
  before?: FoldOutside,
): Promise<FoldOutside> {
  const stored = await storedFold(kernel, rules, stream);
  const isOfUse = before !== undefined && before.erased === stored.erased && before.version > stored.version;
  return foldFrom(kernel, rules, stream, isOfUse ? before : stored);
}

/** The state after the last event, folded from a state that lacks some, in pages. */
async function foldFrom(
  kernel: Kernel,
  rules: AggregateRules,
  stream: string,
  from: FoldOutside,
): Promise<FoldOutside> {
  const at = streamAt(stream);
  let fold: Fold = from;
  for await (const page of pagesAfter(kernel, at, fold.version))
    for (const open of await toEvents(kernel, page, undefined, at)) {
      const event = open();
      if (event !== undefined) fold = foldEvent(rules, fold, event);
    }
  return { ...fold, erased: from.erased };
}
