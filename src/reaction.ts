/**
 * `reaction`, as users define it: its handlers get the `tx` of handles.
 */

import type { TransactOptions } from "./pawl.ts";
import type { AnyEventType } from "./stream/event.ts";
import {
  type ReactionContext as Context,
  defineReaction,
  type ReactionHandler as Handler,
  type Reaction,
  type ReactionOptions,
} from "./stream/reactions/definition.ts";
import type { DataOf } from "./stream/reading.ts";
import type { Tx } from "./tx.ts";

/** What the handler of a reaction works with, besides the event. */
export type ReactionContext = Context<Tx, TransactOptions>;

/** Handles one event. */
export type ReactionHandler<Data = unknown> = Handler<Data, Tx, TransactOptions>;

/**
 * Defines a reaction: what is to be done about each event of some types, in the order of its target. Give it to `pawl.work`.
 */
export function reaction<const Types extends readonly AnyEventType[]>(
  name: string,
  options: ReactionOptions<Types>,
  handler: ReactionHandler<DataOf<Types>>,
): Reaction {
  return defineReaction(name, options, handler);
}
