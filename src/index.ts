/**
 * Every public name of `pawl`, by hand.
 */

export { Actions } from "./action/actions.ts";
export type { Abandoned, ActionClaim, Canceled, Consumed, Created, Tried } from "./action/answers.ts";
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
  DecryptFailedError,
  InvalidPinError,
  KeysMissingError,
  KeyUnavailableError,
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
export type { ActionKeys } from "./action/ring.ts";
export type { Swept } from "./action/sweep.ts";
export { TxActions } from "./action/tx-actions.ts";
export { type AnyPawlError, isPawlError, type PawlErrorCode, type PawlErrorOf } from "./errors.ts";
export { StaleFenceError } from "./fence/errors.ts";
export { checkFence, checkFenceSync, FENCES_TABLE, type SyncSql } from "./fence/fence.ts";
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
export { jsonCodec } from "./kernel/codec/json.ts";
export { type Transform, transformed } from "./kernel/codec/transform.ts";
export type { Sql, SyncDatabase, SyncStatement, SyncValue } from "./kernel/contract.ts";
export type { Sync } from "./kernel/decision.ts";
export type { Unreadable } from "./kernel/encoding.ts";
export {
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
  PawlError,
  type Remedy,
  type StoreCode,
  StoreError,
  TooManyKeysError,
  UnsupportedEncodingError,
  UsedInBodyError,
  ValueTooLargeError,
  VersionConflictError,
} from "./kernel/errors.ts";
export type { Logger } from "./kernel/log.ts";
export { SqlAfterTxError, type SqlExecutor, SqlOverError } from "./kernel/sql.ts";
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
export {
  type AcquireOptions,
  type Enqueued,
  type Intervention,
  Lock,
  type LockEvent,
  type LockOptions,
  type SemaphoreOptions,
  type TryAcquired,
  type TryAcquireOptions,
  TxLock,
} from "./lock/lock.ts";
export { LockPlace } from "./lock/place.ts";
export type { LockKind, Mode } from "./lock/records.ts";
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
} from "./machine/answers.ts";
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
export { type OpenOptions, open } from "./open.ts";
export { Pawl, type SlotOptions, type Transact, type TransactOptions, type TxInSql } from "./pawl.ts";
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
export type { PgClient, PgPool } from "./stores/postgres/lines.ts";
export { Tx } from "./tx.ts";
export type {
  AtMostOnceOptions,
  ChildOptions,
  Context,
  Received,
  ReceivedFrom,
  ReceivedOrNot,
  RunRateLimit,
  RunSlot,
  SlotScope,
  StepFunction,
  StepOptions,
  StepRateLimit,
  StepSemaphore,
  WithInput,
} from "./workflow/context.ts";
export {
  type AnyWorkflow,
  type Body,
  type Signal,
  signal,
  type Workflow,
  type WorkflowOptions,
  workflow,
} from "./workflow/definition.ts";
export type { RunActivity } from "./workflow/doing.ts";
export {
  AttemptOverError,
  HistoryContradictionError,
  type InterruptedOutcome,
  NestedOperationError,
  NonRetryableError,
  RaceLostError,
  ResultTimeoutError,
  RunAliveError,
  RunCanceledError,
  RunConflictError,
  RunEndedError,
  RunExistsError,
  RunFailedError,
  RunNotFoundError,
  RunParkedError,
  RunStuckError,
  RunTimedOutError,
  RunUnreadableError,
  SchemaError,
  type SchemaIssue,
  StepInFlightError,
  StepTimeoutError,
  UsedAfterEndError,
} from "./workflow/errors.ts";
export type { RunEvent, RunListener } from "./workflow/events.ts";
export type {
  LockBody,
  RunAcquireOptions,
  RunEnqueued,
  RunLock,
  RunLockHold,
  RunPlace,
  RunTryAcquired,
} from "./workflow/held-locks.ts";
export { Operation } from "./workflow/operation.ts";
export type { Reconciled, StepHandle } from "./workflow/plans.ts";
export type { EndedStatus, Retention, RetentionPeriod } from "./workflow/retention.ts";
export type { RetryOptions } from "./workflow/retry.ts";
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
} from "./workflow/runs.ts";
export type { StandardSchema } from "./workflow/schema.ts";
export type { WaitLink, WaitReason, WaitSubject } from "./workflow/why.ts";
export type { RunStatus } from "./workflow/words.ts";
export type { RunWorker, WorkOptions } from "./workflow/worker.ts";
