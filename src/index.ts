/**
 * Every public name of `pawl`, by hand.
 */

export type { Duration } from "./kernel/check.ts";
export type { Codec, Place } from "./kernel/codec/codec.ts";
export { jsonCodec } from "./kernel/codec/json.ts";
export { type Transform, transformed } from "./kernel/codec/transform.ts";
export type { Sql } from "./kernel/contract.ts";
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
export { SqlAfterTxError, type SqlExecutor, SqlOverError } from "./kernel/sql.ts";
export {
  DeadlockError,
  type DeadlockLink,
  LockBusyError,
  LockLostError,
  LockNestedError,
  LockRemovedError,
  LockTimeoutError,
} from "./lock/errors.ts";
export { Hold } from "./lock/hold.ts";
export {
  type AcquireOptions,
  type Intervention,
  Lock,
  type LockEvent,
  type LockInfo,
  type LockOptions,
  type LockParty,
  type SemaphoreOptions,
  type TryAcquired,
  type TryAcquireOptions,
  TxLock,
  Waiter,
} from "./lock/lock.ts";
export type { LockKind, Mode } from "./lock/records.ts";
export {
  type OpenOptions,
  open,
  Pawl,
  type SlotOptions,
  type Transact,
  type TransactOptions,
  Tx,
  type TxInSql,
} from "./open.ts";
export {
  type AnySlot,
  type Expecting,
  Slot,
  type SlotListOptions,
  type SlotPage,
  type Sync,
  type TryWrite,
  TxSlot,
  type Versioned,
} from "./slot/slot.ts";
export type { PgClient, PgPool } from "./stores/postgres/lines.ts";
export type {
  AtMostOnceOptions,
  ChildOptions,
  Context,
  Received,
  ReceivedOrNot,
  RunSlot,
  SlotScope,
  StepFunction,
  StepOptions,
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
export {
  HistoryContradictionError,
  NonRetryableError,
  ResultTimeoutError,
  RunCanceledError,
  RunConflictError,
  RunEndedError,
  RunExistsError,
  RunFailedError,
  RunNotFoundError,
  RunParkedError,
  RunStuckError,
  RunTimedOutError,
  SchemaError,
  type SchemaIssue,
  StepInFlightError,
  StepTimeoutError,
} from "./workflow/errors.ts";
export type { RunEvent, RunListener } from "./workflow/events.ts";
export type {
  LockBody,
  RunAcquireOptions,
  RunLock,
  RunLockHold,
  RunTryAcquired,
  RunWaiter,
} from "./workflow/held-locks.ts";
export { Operation } from "./workflow/operation.ts";
export type { Reconciled, StepHandle } from "./workflow/plans.ts";
export type { RetryOptions } from "./workflow/retry.ts";
export {
  type HistoryEntry,
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
