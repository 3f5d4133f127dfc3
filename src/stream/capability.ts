/** Streams, aggregates, reactions, projections and policies as a capability of the handle. */

import { type Capability, startAll, type View } from "../kernel/capability.ts";
import type { Kernel } from "../kernel/kernel.ts";
import type { Log } from "../kernel/log.ts";
import type { Prepare } from "../kernel/sql/in-sql.ts";
import type { Aggregate } from "./aggregate.ts";
import { AggregateHandle, mendFold, TxAggregate } from "./aggregates.ts";
import { withDeadline } from "./archive-deadline.ts";
import { type Archive, setArchive } from "./closing/archive.ts";
import { Streams } from "./closing/streams.ts";
import type { AnyEventType } from "./event.ts";
import { type ForgetOptions, type ForgetResult, ForgottenSubjects } from "./personal/forgotten.ts";
import { mendSubjects, type SubjectSetup, Subjects } from "./personal/subjects.ts";
import { policyRules } from "./policies/definition.ts";
import { PolicyWorker } from "./policies/worker.ts";
import { type Projection, projectionRules, type SqlProjection } from "./projections/definition.ts";
import { removeRetired } from "./projections/generations.ts";
import { ProjectionHandle, projectionSetup, SqlProjectionHandle } from "./projections/projections.ts";
import { Projections } from "./projections/status.ts";
import { RETIRED } from "./projections/stored.ts";
import { ProjectionWorker } from "./projections/worker.ts";
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
  /**
   * Forgets a person: destroys the key of the personal fields, in all events of the subject, for good. From then on they are `FORGOTTEN` for every
   * reader. A subject that is forgotten already stays so.
   */
  forget(subject: string, options?: ForgetOptions): Promise<ForgetResult>;
  /** Those who were forgotten. */
  readonly forgotten: ForgottenSubjects;
  /** Returns a handle on a projection: its rows, and what it is doing. One whose code is not here can be read by its name. */
  projection<Row>(projection: Projection<Row>): ProjectionHandle<Row>;
  projection(projection: SqlProjection): SqlProjectionHandle;
  projection(projection: string): ProjectionHandle<unknown>;
  /** All projections, and what they are doing. */
  readonly projections: Projections;
  /** Closing, pruning, exporting and importing streams, and what policies do. */
  readonly streams: Streams;
}

export interface StreamTxVerbs {
  /** A stream, to append to in this commit. */
  stream(id: string): TxStream;
  /** A stream as an aggregate sees it, to run commands in this commit. */
  aggregate<State, Commands>(aggregate: Aggregate<State, Commands>, stream: string): TxAggregate<State, Commands>;
}

/** What streams are made with. */
export interface StreamSetup extends SubjectSetup {
  readonly log?: Log | undefined;
  readonly archive?: Archive | undefined;
}

export function streamCapability<Face, Touch>(
  kernel: Kernel,
  prepare: Prepare<Face, Touch>,
  { log, archive, ...keys }: StreamSetup,
): Capability {
  if (archive !== undefined) setArchive(kernel, withDeadline(kernel, archive));
  const projections = projectionSetup(kernel);
  const forgotten = new ForgottenSubjects(kernel, new Subjects(kernel, keys));
  const streams = new Streams(kernel);
  const verbs: StreamVerbs = {
    stream: (id) => new Stream(kernel, id),
    events: { read: (options: ReadEventsOptions = {}) => new EventReading(kernel, options) } as Events,
    aggregate: (aggregate, stream) => new AggregateHandle(kernel, aggregate, stream),
    reactions: new Reactions(kernel),
    projection: ((projection: Projection | SqlProjection | string) =>
      projectionRules(projection)?.is === "sql"
        ? new SqlProjectionHandle(projections, projection)
        : new ProjectionHandle(projections, projection)) as StreamVerbs["projection"],
    projections: new Projections(kernel),
    forget: (subject, options) => forgotten.forget(subject, options),
    forgotten,
    streams,
  };
  const view: View<StreamTxVerbs> = {
    stream: (tx, id) => new TxStream(tx, id),
    aggregate: (tx, aggregate, stream) => new TxAggregate(tx, aggregate, stream),
  };
  return {
    verbs,
    view,
    scoped: (origin) => {
      const scoped: Pick<StreamVerbs, "stream" | "aggregate" | "streams" | "forget"> = {
        stream: (id) => new Stream(kernel, id, origin),
        aggregate: (aggregate, stream) => new AggregateHandle(kernel, aggregate, stream, origin),
        streams: new Streams(kernel, origin),
        forget: (subject, options) => forgotten.forget(subject, options, origin.actor),
      };
      return scoped;
    },
    queues: [forgotten.queue, { kind: RETIRED, isUrgent: true, chore: (at) => removeRetired(kernel, at) }],
    mend: async (error) => (await mendFold(kernel, error)) || (await mendSubjects(kernel, error)),
    works: {
      accepts: (definition) =>
        reactionRules(definition) !== undefined ||
        projectionRules(definition) !== undefined ||
        policyRules(definition) !== undefined,
      start: (definitions, settings) => {
        const reactions = definitions.flatMap((one) => reactionRules(one) ?? []);
        const projected = definitions.flatMap((one) => projectionRules(one) ?? []);
        const policies = definitions.flatMap((one) => policyRules(one) ?? []);
        const parts = startAll([
          ...(policies.length === 0 ? [] : [() => new PolicyWorker(kernel, streams, policies, settings)]),
          ...(reactions.length === 0 ? [] : [() => new ReactionWorker(kernel, prepare, reactions, settings, log)]),
          ...(projected.length === 0 ? [] : [() => new ProjectionWorker(kernel, projected, settings, log)]),
        ]);
        return {
          ready: Promise.all(parts.map((part) => part.ready)).then(() => {}),
          stop: async (timeoutMs) => void (await Promise.all(parts.map((part) => part.stop(timeoutMs)))),
        };
      },
    },
  };
}
