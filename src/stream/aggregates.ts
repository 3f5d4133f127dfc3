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
import { type Aggregate, type AggregateRules, aggregateRules, type CommandContext } from "./aggregate.ts";
import { canReadArchive } from "./closing/archive.ts";
import { decideStart } from "./closing/decide.ts";
import { readStreamValue, streamEntries } from "./closing/entries.ts";
import { foldEvent, initialFold } from "./decide.ts";
import { CommandRefusedError, FoldBehindError } from "./errors.ts";
import { toEvent } from "./reading.ts";
import { type CommandRequest, currentFold, type EventOrigin, type Executed, execute, storeFold } from "./records.ts";
import { type Fold, firstVersionOf, streamAt } from "./stored.ts";
import { checkOrigin } from "./stream.ts";

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
    : undefined
  : never;

/** What a command returns. */
export type OutputOf<Commands, Name extends keyof Commands> = Commands[Name] extends AnyCommand
  ? ReturnType<Commands[Name]>
  : never;

/** The input of a command, and options; a command without input takes `undefined`. */
export type CommandArguments<Commands, Name extends keyof Commands> =
  undefined extends InputOf<Commands, Name>
    ? [input?: InputOf<Commands, Name>, options?: EventOrigin]
    : [input: InputOf<Commands, Name>, options?: EventOrigin];

/** What a command that was not refused did. */
export interface CommandResult<Output> {
  /** What the command returned. */
  readonly output: Output;
  /** The stream's version after it. */
  readonly version: number;
  /** The ids of the events that it emitted, in order. */
  readonly ids: readonly string[];
}

export type TryExecute<Output> =
  | ({ readonly ok: true } & CommandResult<Output>)
  | { readonly ok: false; readonly code: "command_refused"; readonly reason: string; readonly details: unknown };

export interface StateOptions {
  /** After the event of this version, or after all events that were committed up to this time. Default: after the last event. */
  readonly asOf?: number | Date | undefined;
}

const ORIGIN = optionNames<EventOrigin>({ actor: true, correlationId: true, causationId: true });
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

  /** @internal */
  constructor(kernel: Kernel, aggregate: Aggregate<State, Commands>, stream: string) {
    this.#kernel = kernel;
    this.#rules = aggregateRules(aggregate);
    this.#stream = streamAt(stream).key;
  }

  /** Runs a command: appends what it emits, and returns what it returned. Throws `command_refused`. */
  async execute<Name extends keyof Commands & string>(
    command: Name,
    ...rest: CommandArguments<Commands, Name>
  ): Promise<CommandResult<OutputOf<Commands, Name>>> {
    const executed = await this.#execute(commandRequest(this.#stream, command, rest));
    return decidedOrThrow(this.#rules, this.#stream, command, executed);
  }

  /** Runs a command, or returns why it refused. */
  async tryExecute<Name extends keyof Commands & string>(
    command: Name,
    ...rest: CommandArguments<Commands, Name>
  ): Promise<TryExecute<OutputOf<Commands, Name>>> {
    return toTry(await this.#execute(commandRequest(this.#stream, command, rest)));
  }

  /** The state, and the version of the stream that it is of. */
  async state(options: StateOptions = {}): Promise<{ readonly state: State; readonly version: number }> {
    checkOptions(options, STATE_OPTIONS);
    const { asOf } = options;
    const { state, version } = asOf === undefined ? await this.#current() : await this.#asOf(asOf);
    return { state: state as State, version };
  }

  async #execute(request: CommandRequest): Promise<Executed> {
    const at = [streamAt(this.#stream)];
    let caughtUp: Fold | undefined;
    for (let round = 1; ; round++)
      try {
        return await this.#kernel.transact((tx) => execute(tx, this.#rules, { ...request, caughtUp }), at);
      } catch (error) {
        if (!(error instanceof FoldBehindError) || round === MOST_ROUNDS) throw error;
        caughtUp = await catchUp(this.#kernel, this.#rules, this.#stream, caughtUp);
      }
  }

  async #current(): Promise<Fold> {
    const before = await storedFold(this.#kernel, this.#rules, this.#stream);
    const fold = await catchUp(this.#kernel, this.#rules, this.#stream, before);
    if (fold.version - before.version >= WORTH_STORING)
      await this.#kernel.transact((tx) => storeFold(tx, this.#rules, this.#stream, fold), [streamAt(this.#stream)]);
    return fold;
  }

  /** Folded from the beginning, because stored states are of later events; or from a stored state, where the beginning was removed. */
  async #asOf(asOf: number | Date): Promise<Fold> {
    const at = streamAt(this.#stream);
    const untilMs = typeof asOf === "number" ? Number.POSITIVE_INFINITY : checkDate(asOf, "asOf");
    const last = typeof asOf === "number" ? asOf : Number.POSITIVE_INFINITY;
    if (typeof asOf === "number") checkVersion(asOf, "asOf");
    let fold = initialFold(this.#rules);
    if (last === 0) return fold;
    fold = (await this.#startAsOf(at, last, untilMs)) ?? fold;
    if (fold.version === last) return fold;
    for await (const entry of streamEntries(this.#kernel, at, fold.version + 1)) {
      const event = toEvent(this.#kernel, at, entry, undefined);
      if (event === undefined) continue;
      if (event.at.getTime() > untilMs) return fold;
      fold = foldEvent(this.#rules, fold, event);
      if (fold.version === last) return fold;
    }
    if (Number.isFinite(last))
      throw new InvalidArgumentError(
        "asOf",
        `must be at most ${fold.version}, the version of stream "${this.#stream}"`,
      );
    return fold;
  }

  /** A stored state that is not later than what is asked for, where events before it were removed and cannot be read. */
  async #startAsOf(at: Address, last: number, untilMs: number): Promise<Fold | undefined> {
    const found = await readStreamValue(this.#kernel, at);
    if (found === undefined || firstVersionOf(found.value) === 1 || canReadArchive(this.#kernel)) return undefined;
    const start = decideStart(found.value, this.#rules, false);
    if (start === undefined || start.version > last) return undefined;
    // The time of an event that was removed is not known.
    const [entry] = await this.#kernel.entries(at, start.version - 1, 1);
    if (entry?.version !== start.version) return last === Number.POSITIVE_INFINITY ? undefined : start;
    const event = toEvent(this.#kernel, at, entry, undefined);
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

  /** Runs a command, if this commit happens. Throws `command_refused`. */
  execute<Name extends keyof Commands & string>(
    command: Name,
    ...rest: CommandArguments<Commands, Name>
  ): CommandResult<OutputOf<Commands, Name>> {
    const executed = this.#noted(() => execute(this.#tx, this.#rules, commandRequest(this.#stream, command, rest)));
    return decidedOrThrow(this.#rules, this.#stream, command, executed);
  }

  /** Runs a command, if this commit happens, or returns why it refused. */
  tryExecute<Name extends keyof Commands & string>(
    command: Name,
    ...rest: CommandArguments<Commands, Name>
  ): TryExecute<OutputOf<Commands, Name>> {
    return toTry(this.#noted(() => execute(this.#tx, this.#rules, commandRequest(this.#stream, command, rest))));
  }

  /** The state, frozen. */
  get state(): State {
    const record = this.#tx.record(streamAt(this.#stream));
    return this.#noted(() => currentFold(record, this.#rules, undefined)).fold.state as State;
  }

  /** The version of the last event; 0 if there is none. */
  get version(): number {
    return this.#tx.record(streamAt(this.#stream)).head;
  }

  /** A state that is behind is brought up to date by `pawl.transact`, which then decides again. */
  #noted<T>(decide: () => T): T {
    try {
      return decide();
    } catch (error) {
      if (error instanceof FoldBehindError) behind.set(error, this.#rules);
      throw error;
    }
  }
}

function commandRequest(stream: string, command: string, rest: readonly unknown[]): CommandRequest {
  const [input, options = {}] = rest as [unknown, EventOrigin | undefined];
  checkId(command, "the command");
  checkObject(options, "the options");
  checkOptions(options, ORIGIN);
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
  return { output: output as Output, version, ids };
}

function toTry<Output>(executed: Executed): TryExecute<Output> {
  if (executed.is === "refused")
    return { ok: false, code: "command_refused", reason: executed.reason, details: executed.details };
  const { output, version, ids } = executed;
  return { ok: true, output: output as Output, version, ids };
}

/** The state to fold from: the one that is stored for these reducers, or the one before the first event (`decideStart`). */
async function storedFold(kernel: Kernel, rules: AggregateRules, stream: string): Promise<Fold> {
  const found = await readStreamValue(kernel, streamAt(stream));
  return decideStart(found?.value ?? {}, rules, canReadArchive(kernel)) ?? initialFold(rules);
}

/** The state after the last event, folded from a state that lacks some, in pages. */
async function catchUp(kernel: Kernel, rules: AggregateRules, stream: string, from?: Fold): Promise<Fold> {
  const at = streamAt(stream);
  let fold = from ?? (await storedFold(kernel, rules, stream));
  for await (const entry of streamEntries(kernel, at, fold.version + 1)) {
    const event = toEvent(kernel, at, entry, undefined);
    if (event !== undefined) fold = foldEvent(rules, fold, event);
  }
  return fold;
}
