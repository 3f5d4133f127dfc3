/**
 * Every public name of `pawl/client`, by hand.
 */

export { ClientActions } from "./actions.ts";
export { type CallOptions, Client, type ClientOptions, createClient } from "./client.ts";
export {
  type AnyPawlHttpError,
  type HttpCode,
  isPawlError,
  PawlHttpError,
  type PawlHttpErrorOf,
} from "./errors.ts";
export { ClientKeys } from "./keys.ts";
export {
  ClientHold,
  ClientLock,
  type ClientLockInfo,
  type ClientLockParty,
  type ClientTryAcquired,
} from "./locks.ts";
export { ClientMachine, type ClientTransitionOptions } from "./machines.ts";
export type { Paged } from "./pages.ts";
export { ClientProjection, ClientProjections } from "./projections.ts";
export { ClientRateLimit, type ClientTryTake } from "./rates.ts";
export { ClientReactions, type DeadLetterPage, type DeadLetterRef } from "./reactions.ts";
export { type ChangedRuns, ClientRun, ClientRuns, ClientWorkflows, named, type RunChange } from "./runs.ts";
export { ClientSchedules } from "./schedules.ts";
export { ClientSlot, ClientSlots } from "./slots.ts";
export {
  type ClientEvent,
  ClientEvents,
  type ClientFollowOptions,
  type ClientReadEventsOptions,
  type ClientReadOptions,
  ClientStream,
} from "./streams.ts";
export { ClientTasks } from "./tasks.ts";
export { FORGOTTEN, isForgotten } from "./values.ts";
