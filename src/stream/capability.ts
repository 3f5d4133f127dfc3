/** Streams, aggregates and reactions as a capability of the handle. */

import type { Capability, View } from "../kernel/capability.ts";
import type { Kernel } from "../kernel/kernel.ts";
import type { Log } from "../kernel/log.ts";
import type { Prepare } from "../kernel/sql/in-sql.ts";
import type { Aggregate } from "./aggregate.ts";
import { AggregateHandle, mendFold, TxAggregate } from "./aggregates.ts";
import { type Archive, setArchive } from "./closing/archive.ts";
import { Streams } from "./closing/streams.ts";
import type { AnyEventType } from "./event.ts";
import { reactionRules } from "./reactions/definition.ts";
import { Reactions } from "./reactions/reactions.ts";
import { ReactionWorker } from "./reactions/worker.ts";
import { type DataOf, EventReading, type ReadEventsOptions } from "./reading.ts";
import { Stream, TxStream } from "./stream.ts";

/** The events of all streams. */
export interface Events {
  /**
   * Reads the events of all streams in one order: no event ever appears before one that was read, however transactions interleave. Ends at
   * what is there; `cursor` of the reading is where to continue.
   */
  read<const Types extends readonly AnyEventType[]>(
    options: ReadEventsOptions<Types> & { readonly events: Types },
  ): EventReading<DataOf<Types>>;
  read(options?: ReadEventsOptions): EventReading;
}

export interface StreamVerbs {
  /** Returns a handle on a stream, whether it has events or not. */
  stream(id: string): Stream;
  /** The events of all streams. */
  readonly events: Events;
  /** Returns a handle on a stream as an aggregate sees it: its state, and its commands. */
  aggregate<State, Commands>(aggregate: Aggregate<State, Commands>, stream: string): AggregateHandle<State, Commands>;
  /** What reactions are doing, and how to change that. */
  readonly reactions: Reactions;
  /** Closing, pruning, exporting and importing streams. */
  readonly streams: Streams;
}

export interface StreamTxVerbs {
  /** A stream, to append to in this commit. */
  stream(id: string): TxStream;
  /** A stream as an aggregate sees it, to run commands in this commit. */
  aggregate<State, Commands>(aggregate: Aggregate<State, Commands>, stream: string): TxAggregate<State, Commands>;
}

export function streamCapability<Face, Touch>(
  kernel: Kernel,
  prepare: Prepare<Face, Touch>,
  { log, archive }: { readonly log?: Log | undefined; readonly archive?: Archive | undefined },
): Capability {
  if (archive !== undefined) setArchive(kernel, archive);
  const verbs: StreamVerbs = {
    stream: (id) => new Stream(kernel, id),
    events: { read: (options: ReadEventsOptions = {}) => new EventReading(kernel, options) } as Events,
    aggregate: (aggregate, stream) => new AggregateHandle(kernel, aggregate, stream),
    reactions: new Reactions(kernel),
    streams: new Streams(kernel),
  };
  const view: View<StreamTxVerbs> = {
    stream: (tx, id) => new TxStream(tx, id),
    aggregate: (tx, aggregate, stream) => new TxAggregate(tx, aggregate, stream),
  };
  return {
    verbs,
    view,
    mend: (error) => mendFold(kernel, error),
    works: {
      takes: (definition) => reactionRules(definition) !== undefined,
      start: (definitions, settings) =>
        new ReactionWorker(
          kernel,
          prepare,
          definitions.flatMap((one) => reactionRules(one) ?? []),
          settings,
          log,
        ),
    },
  };
}
