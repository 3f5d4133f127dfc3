/**
 * Every public name of `pawl`, by hand.
 */

export { Actions } from "./action/actions.ts";
export type { ActionsOptions } from "./action/core.ts";
export {
  ActionCanceledError,
  ActionClaimedError,
  ActionConflictError,
  ActionExpiredError,
  ActionLockedError,
  ActionNotActiveError,
  ActionNotFoundError,
  AlreadyUsedError,
  InvalidPinError,
  PepperChangedError,
  PepperMissingError,
  PinBusyError,
} from "./action/errors.ts";
export type { ActionEntry, ActionInfo } from "./action/info.ts";
export type { ActionListOptions, ActionPage } from "./action/list.ts";
export type {
  ActionOptions,
  ActionTarget,
  Asking,
  ClaimOptions,
  CompleteOptions,
  ConsumeOptions,
  HeldOptions,
} from "./action/options.ts";
export type { PreparedAction } from "./action/prepare.ts";
export type { Abandoned, ActionClaim, Canceled, Consumed, Created, Tried } from "./action/results.ts";
export type { Swept } from "./action/sweep.ts";
export { TxActions } from "./action/tx-actions.ts";
export type { WorkDefinition, WorkOptions } from "./capabilities.ts";
export { type AnyPawlError, isPawlError, type PawlErrorCode, type PawlErrorOf } from "./errors.ts";
export type { Answered, Attempt } from "./idempotency/attempt.ts";
export type { Dedupe, DedupeOptions, Deduplicated } from "./idempotency/dedupe.ts";
export {
  IdempotencyAnsweredError,
  IdempotencyInProgressError,
  IdempotencyMismatchError,
  isReplayed,
} from "./idempotency/errors.ts";
export type { IdempotentOptions, KeyOptions } from "./idempotency/idempotency.ts";
export type { Duration } from "./kernel/check.ts";
export type { Codec, Place } from "./kernel/codec/codec.ts";
export { FORGOTTEN, type Forgotten, isForgotten } from "./kernel/codec/forgotten.ts";
export { jsonCodec } from "./kernel/codec/json.ts";
export { type Transform, transformed } from "./kernel/codec/transform.ts";
export type { Sql, SyncDatabase, SyncStatement, SyncValue } from "./kernel/contract.ts";
export type { Sync } from "./kernel/decision.ts";
export type { Unreadable } from "./kernel/encoding.ts";
export {
  CallbackAsyncError,
  CallbackTimeoutError,
  ClosedError,
  DecisionAsyncError,
  DecisionImpureError,
  DecisionOverError,
  FencedError,
  InvalidArgumentError,
  InvalidDurationError,
  InvalidIdError,
  InvalidValueError,
  LeaseUncertainError,
  NonRetryableError,
  PawlError,
  type Remedy,
  SchemaError,
  type SchemaIssue,
  type StoreCode,
  StoreError,
  TooManyKeysError,
  UnsupportedEncodingError,
  UsedInBodyError,
  UserFunctionError,
  ValueTooLargeError,
  VersionConflictError,
} from "./kernel/errors.ts";
export type { Logger } from "./kernel/log.ts";
export type { Origin } from "./kernel/origin.ts";
export type { RetryOptions } from "./kernel/retry.ts";
export type { StandardSchema } from "./kernel/schema.ts";
export { DecryptFailedError, KeysMissingError, KeyUnavailableError } from "./kernel/seal/errors.ts";
export type { RingKeys as ActionKeys } from "./kernel/seal/ring.ts";
export { SqlAfterTxError, type SqlExecutor, SqlOverError } from "./kernel/sql/executors.ts";
export { checkFence, checkFenceSync, FENCES_TABLE, type SyncSql } from "./kernel/sql/fence.ts";
export { StaleFenceError } from "./kernel/sql/fence-errors.ts";
export type { WaitOptions } from "./lock/await-turn.ts";
export {
  DeadlockError,
  type DeadlockLink,
  LockBusyError,
  LockLostError,
  LockNestedError,
  LockRemovedError,
  LockTimeoutError,
  PermitsUndeclaredError,
  PlaceLostError,
} from "./lock/errors.ts";
export { Hold } from "./lock/hold.ts";
export type { LockInfo, LockParty } from "./lock/inspect.ts";
export { type Enqueued, Lock, type LockEvent, type TryAcquired } from "./lock/lock.ts";
export type {
  AcquireOptions,
  Intervention,
  LockOptions,
  SemaphoreOptions,
  TryAcquireOptions,
} from "./lock/options.ts";
export { LockPlace } from "./lock/place.ts";
export type { LockKind, Mode } from "./lock/stored.ts";
export { TxLock } from "./lock/tx-lock.ts";
export type { Move } from "./machine/decide.ts";
export {
  type Guard,
  type Machine,
  type MachineDefinition,
  type MachineOf,
  machine,
  type Transitions,
} from "./machine/definition.ts";
export {
  EventConflictError,
  GuardRefusedError,
  IllegalTransitionError,
  MachineExistsError,
  MachineNotFoundError,
  ParkingFullError,
} from "./machine/errors.ts";
export { MachineHandle, TxMachine } from "./machine/machine.ts";
export type {
  Attribution,
  CreateOptions,
  MachineEvent,
  MachineInstance,
  MachineListOptions,
  MachinePage,
  ParkedEvent,
  Transitioned,
  TransitionOptions,
  TransitionRefusal,
  TryCreate,
  TryTransition,
  WithData,
} from "./machine/results.ts";
export { type OpenOptions, open } from "./open.ts";
export { Pawl, type ScopedPawl, type Transact, type TransactOptions, type TxInSql, type Within } from "./pawl.ts";
export { RateLimitedError } from "./rate/errors.ts";
export {
  type AcquireTokensOptions,
  RateLimit,
  type RateLimitInfo,
  type RateLimitOptions,
  type TakeOptions,
  type TryTake,
  TxRateLimit,
} from "./rate/rate.ts";
export { type ReactionContext, type ReactionHandler, reaction } from "./reaction.ts";
export {
  type Schedule,
  type ScheduleInput,
  schedule,
  type Tick,
} from "./schedule/definition.ts";
export {
  InvalidCronError,
  InvalidTimezoneError,
  ScheduleCodeMissingError,
  ScheduleDeclaredError,
  ScheduleExistsError,
  ScheduleNotFoundError,
} from "./schedule/errors.ts";
export type { ScheduleEntry, ScheduleInfo } from "./schedule/info.ts";
export type { DeclaredScheduleOptions, Overlap, ScheduleOptions } from "./schedule/options.ts";
export {
  type Backfilled,
  type BackfillOptions,
  type CreatedInput,
  type PreviewOptions,
  type ScheduleHistoryOptions,
  type ScheduleHistoryPage,
  type ScheduleListOptions,
  type SchedulePage,
  type ScheduleRef,
  Schedules,
  type TriggerOptions,
  type UpdateScheduleOptions,
} from "./schedule/schedules.ts";
export type { SlotOptions } from "./slot/capability.ts";
export {
  type AnySlot,
  type Expecting,
  Slot,
  type SlotListOptions,
  type SlotPage,
  type TryWrite,
  TxSlot,
  type Versioned,
} from "./slot/slot.ts";
export type { PgClient, PgPool } from "./stores/postgres/connections.ts";
export {
  type Aggregate,
  type AggregateDefinition,
  aggregate,
  type Command,
  type CommandContext,
  type FoldedEvent,
  type KnownCommands,
  type Reducer,
} from "./stream/aggregate.ts";
export type {
  AggregateHandle,
  CommandArguments,
  CommandResult,
  InputOf,
  OutputOf,
  StateOptions,
  TryExecute,
  TxAggregate,
} from "./stream/aggregates.ts";
export type { Events } from "./stream/capability.ts";
export type { Archive, ArchivedEvent, ArchivedRange } from "./stream/closing/archive.ts";
export type { ClosedStream } from "./stream/closing/close.ts";
export { jsonLines as jsonLinesArchive } from "./stream/closing/json-lines.ts";
export type { PrunedStream } from "./stream/closing/prune.ts";
export type { CloseOptions, ExportOptions, ImportOptions, PruneOptions, Streams } from "./stream/closing/streams.ts";
export type { Exported, ExportTarget, Imported, PartialExport } from "./stream/closing/transfer.ts";
export {
  ArchiveDamagedError,
  ArchiveIncompleteError,
  CommandRefusedError,
  ConcurrencyError,
  CursorAheadError,
  DeadLetterNotFoundError,
  EventGoneError,
  EventShapeError,
  EventsArchivedError,
  type EventsLacking,
  type EventsLeft,
  FoldBehindError,
  ProjectionBuildingError,
  ProjectionNotFoundError,
  ProjectionTimeoutError,
  ReactionNotFoundError,
  ReactionOverError,
  ReactionTimeoutError,
  StreamClosedError,
  StreamExistsError,
  StreamInUseError,
  StreamNotFoundError,
  TargetNotFoundError,
} from "./stream/errors.ts";
export {
  type AnyEventType,
  type EventOptions,
  type EventType,
  event,
  type ForgottenFields,
  NewEvent,
  type PersonalEventOptions,
  type ReadableEvent,
  type RecognizedEvent,
  type SchemaInput,
  type ShapeOptions,
  type StreamEvent,
} from "./stream/event.ts";
export type { PersonalOptions } from "./stream/personal/decide.ts";
export { SubjectForgottenError, SubjectKeyNotLoadedError } from "./stream/personal/errors.ts";
export type {
  ForgetOptions,
  ForgetResult,
  ForgottenListOptions,
  ForgottenPage,
  ForgottenSubject,
  ForgottenSubjects,
} from "./stream/personal/forgotten.ts";
export type { SubjectKeys } from "./stream/personal/keys.ts";
export {
  type ClosePolicy,
  type PrunePolicy,
  type StreamPolicy,
  type StreamPolicyOptions,
  streamPolicy,
} from "./stream/policies/definition.ts";
export type { StreamPolicyInfo, StreamPolicyNote } from "./stream/policies/status.ts";
export {
  type Apply,
  type ApplySql,
  type GenerationInfo,
  type Projection,
  type ProjectionOptions,
  projection,
  type SqlProjection,
  type SqlProjectionOptions,
} from "./stream/projections/definition.ts";
export type {
  AppendedAt,
  ProjectionHandle,
  ProjectionListOptions,
  ProjectionPage,
  ProjectionRebuildOptions,
  ProjectionRow,
  SqlProjectionHandle,
} from "./stream/projections/projections.ts";
export type {
  ProjectionGeneration,
  ProjectionInfo,
  ProjectionStatus,
  Projections,
} from "./stream/projections/status.ts";
export type { Reaction, ReactionOptions } from "./stream/reactions/definition.ts";
export type {
  DeadLetterInfo,
  ReactionInfo,
  Reactions,
  SkipOptions,
  TargetFilter,
  TargetInfo,
  TargetListOptions,
  TargetPage,
  TargetStatus,
} from "./stream/reactions/reactions.ts";
export type { DataOf, EventReading, FollowedEvent, ReadEventsOptions, ReadStreamOptions } from "./stream/reading.ts";
export type { Appended } from "./stream/records.ts";
export type { AppendOptions, Stream, TryAppend, TxStream } from "./stream/stream.ts";
export {
  type HttpTaskResult,
  type HttpTasks,
  type HttpTasksOptions,
  httpTask,
  httpTasks,
} from "./task/definition.ts";
export {
  InvalidTargetError,
  TargetForbiddenError,
  TaskFailedError,
  TaskNotDeadError,
  TaskNotFoundError,
  TaskSettledError,
  TaskTimedOutError,
  TokenNotFoundError,
  TokenUnreadError,
} from "./task/errors.ts";
export type { TaskAttempt, TaskDelivery, TaskInfo } from "./task/info.ts";
export type { TaskConcurrency, TaskOptions, TaskRateLimit, TaskRequest, TaskRetry } from "./task/options.ts";
export type { TaskError, TaskOutcome, TaskResponse } from "./task/outcome.ts";
export type { WebhookSecret } from "./task/signing.ts";
export {
  type CanceledTask,
  type CreatedTask,
  type DeadTaskStatus,
  type GetTaskOptions,
  type RedriveFilter,
  type RedrivenTasks,
  type SignaledTask,
  type TaskFilter,
  type TaskListOptions,
  type TaskPage,
  type TaskSignal,
  Tasks,
  type TrySignal,
} from "./task/tasks.ts";
export { TxTasks } from "./task/tx-tasks.ts";
export { Tx } from "./tx.ts";
export type { Worker } from "./worker.ts";
export type {
  AtMostOnceOptions,
  ChildOptions,
  Received,
  ReceivedFrom,
  ReceivedOrNot,
  RunAggregate,
  RunRateLimit,
  RunSlot,
  RunStream,
  SentWith,
  SlotScope,
  StepFunction,
  StepOptions,
  StepRateLimit,
  StepSemaphore,
  WithInput,
} from "./workflow/definitions/context-types.ts";
export {
  type AnyWorkflow,
  type BatchWorkflowOptions,
  type Body,
  type Signal,
  signal,
  type Workflow,
  type WorkflowOptions,
  workflow,
} from "./workflow/definitions/definition.ts";
export type {
  Batch,
  ConcurrencyLimit,
  Debounce,
  Excess,
  Fairness,
  FlowOptions,
  Pools,
  StartRate,
  Throttle,
} from "./workflow/definitions/flow.ts";
export type { Reconciled, StepHandle } from "./workflow/definitions/plans.ts";
export type { Retention, RetentionPeriod } from "./workflow/definitions/retention.ts";
export {
  AttemptOverError,
  ConcurrencyLimitError,
  ForeignContextError,
  HistoryContradictionError,
  type InterruptedOutcome,
  NestedOperationError,
  RaceLostError,
  ResultTimeoutError,
  RunAliveError,
  RunCanceledError,
  RunConflictError,
  RunEndedError,
  RunExistsError,
  RunExpiredError,
  RunFailedError,
  RunNotFoundError,
  RunParkedError,
  RunStuckError,
  RunTimedOutError,
  RunUnreadableError,
  StepInFlightError,
  StepTimeoutError,
  UsedAfterEndError,
} from "./workflow/errors.ts";
export type { RunEvent, RunListener } from "./workflow/events.ts";
export type { Context } from "./workflow/execution/context.ts";
export { Operation } from "./workflow/execution/operation.ts";
export type { PausedWorkflow } from "./workflow/flow/paused.ts";
export type { RunActivity } from "./workflow/history/doing.ts";
export type {
  LockBody,
  RunAcquireOptions,
  RunEnqueued,
  RunLock,
  RunLockHold,
  RunPlace,
  RunTryAcquired,
} from "./workflow/locks/held-locks.ts";
export type { WaitLink, WaitReason, WaitSubject } from "./workflow/locks/why.ts";
export {
  type CanceledRun,
  type CancelOptions,
  type HistoryEntry,
  type RetryRunOptions,
  Run,
  type RunInfo,
  type RunListOptions,
  type RunPage,
  type SignalOptions,
  type StartOptions,
} from "./workflow/runs/run.ts";
export type { EndedStatus, RunStatus } from "./workflow/stored.ts";
