/**
 * All errors of Pawl in one list, so that a `catch` can distinguish them by code, and TypeScript knows the data of each.
 *
 * An error that was stored in a run's history is read as a plain `Error` with the same name, code and data (inside a workflow this is the rule: a
 * step's failure is recorded before the code gets it). `isPawlError` recognizes those too; `instanceof` cannot.
 */

import {
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
import {
  IdempotencyAnsweredError,
  IdempotencyInProgressError,
  IdempotencyMismatchError,
} from "./idempotency/errors.ts";
import {
  CallbackAsyncError,
  CallbackTimeoutError,
  ClosedError,
  CommitsLostError,
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
  SchemaError,
  StoreError,
  TooManyKeysError,
  UnsupportedEncodingError,
  UsedInBodyError,
  UserFunctionError,
  ValueTooLargeError,
  VersionConflictError,
} from "./kernel/errors.ts";
import { DecryptFailedError, KeysMissingError, KeyUnavailableError } from "./kernel/seal/errors.ts";
import { SqlAfterTxError, SqlOverError } from "./kernel/sql/executors.ts";
import { StaleFenceError } from "./kernel/sql/fence-errors.ts";
import {
  DeadlockError,
  LockBusyError,
  LockLostError,
  LockNestedError,
  LockRemovedError,
  LockTimeoutError,
  PermitsUndeclaredError,
  PlaceLostError,
} from "./lock/errors.ts";
import {
  EventConflictError,
  GuardRefusedError,
  IllegalTransitionError,
  MachineExistsError,
  MachineNotFoundError,
  ParkingFullError,
} from "./machine/errors.ts";
import { RateLimitedError } from "./rate/errors.ts";
import {
  InvalidCronError,
  InvalidTimezoneError,
  ScheduleCodeMissingError,
  ScheduleDeclaredError,
  ScheduleExistsError,
  ScheduleNotFoundError,
} from "./schedule/errors.ts";
import {
  ArchiveDamagedError,
  ArchiveIncompleteError,
  CommandRefusedError,
  ConcurrencyError,
  CursorAheadError,
  DeadLetterNotFoundError,
  EventGoneError,
  EventShapeError,
  EventsArchivedError,
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
import { SubjectForgottenError, SubjectKeyNotLoadedError } from "./stream/personal/errors.ts";
import {
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
import {
  AttemptOverError,
  ConcurrencyLimitError,
  ForeignContextError,
  HistoryContradictionError,
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

/** Every error class. A test compares it with what `pawl` exports. `AnyPawlError` is derived from it, so it is in the declarations. */
export const ERROR_CLASSES = [
  ArchiveDamagedError,
  ArchiveIncompleteError,
  EventsArchivedError,
  StreamClosedError,
  StreamExistsError,
  StreamInUseError,
  StreamNotFoundError,
  PermitsUndeclaredError,
  PlaceLostError,
  ActionCanceledError,
  ActionClaimedError,
  ActionConflictError,
  ActionExpiredError,
  ActionLockedError,
  ActionNotActiveError,
  ActionNotFoundError,
  AlreadyUsedError,
  CallbackAsyncError,
  CallbackTimeoutError,
  ClosedError,
  CommitsLostError,
  DeadlockError,
  DecisionAsyncError,
  DecisionImpureError,
  DecisionOverError,
  DecryptFailedError,
  EventConflictError,
  FencedError,
  GuardRefusedError,
  HistoryContradictionError,
  IdempotencyAnsweredError,
  IdempotencyInProgressError,
  IdempotencyMismatchError,
  IllegalTransitionError,
  InvalidArgumentError,
  InvalidDurationError,
  InvalidIdError,
  InvalidPinError,
  InvalidValueError,
  KeysMissingError,
  KeyUnavailableError,
  LeaseUncertainError,
  LockBusyError,
  LockLostError,
  LockNestedError,
  LockRemovedError,
  LockTimeoutError,
  MachineExistsError,
  MachineNotFoundError,
  ParkingFullError,
  PepperChangedError,
  PepperMissingError,
  PinBusyError,
  RateLimitedError,
  CommandRefusedError,
  ConcurrencyError,
  CursorAheadError,
  DeadLetterNotFoundError,
  EventShapeError,
  FoldBehindError,
  ProjectionBuildingError,
  ProjectionNotFoundError,
  ProjectionTimeoutError,
  ReactionNotFoundError,
  ReactionOverError,
  ReactionTimeoutError,
  EventGoneError,
  SubjectForgottenError,
  SubjectKeyNotLoadedError,
  TargetNotFoundError,
  ResultTimeoutError,
  RunCanceledError,
  RunConflictError,
  RunEndedError,
  RunExistsError,
  RunExpiredError,
  RunFailedError,
  RunNotFoundError,
  RunParkedError,
  RunStuckError,
  RunUnreadableError,
  RunAliveError,
  UsedAfterEndError,
  RaceLostError,
  ForeignContextError,
  NestedOperationError,
  AttemptOverError,
  ConcurrencyLimitError,
  RunTimedOutError,
  InvalidCronError,
  InvalidTimezoneError,
  ScheduleCodeMissingError,
  ScheduleDeclaredError,
  ScheduleExistsError,
  ScheduleNotFoundError,
  SchemaError,
  SqlAfterTxError,
  SqlOverError,
  StaleFenceError,
  StepInFlightError,
  StepTimeoutError,
  StoreError,
  InvalidTargetError,
  TargetForbiddenError,
  TaskFailedError,
  TaskNotDeadError,
  TaskNotFoundError,
  TaskSettledError,
  TaskTimedOutError,
  TokenNotFoundError,
  TokenUnreadError,
  TooManyKeysError,
  UnsupportedEncodingError,
  UsedInBodyError,
  UserFunctionError,
  ValueTooLargeError,
  VersionConflictError,
] as const;

/** Any error of Pawl: `switch (error.code)` knows the `data` of each. */
export type AnyPawlError = InstanceType<(typeof ERROR_CLASSES)[number]>;

export type PawlErrorCode = AnyPawlError["code"];

/** The error with this code. */
export type PawlErrorOf<Code extends PawlErrorCode> = AnyPawlError extends infer E
  ? E extends { readonly code: infer Codes }
    ? Code extends Codes
      ? E & { readonly code: Code }
      : never
    : never
  : never;

const names: ReadonlySet<string> = new Set(ERROR_CLASSES.map(({ name }) => name));

/**
 * Returns whether this is an error of Pawl, and has this code if one is given: `isPawlError(error, "lock_busy")`. Also true for an error that
 * was stored and read again, as the errors of steps are.
 */
export function isPawlError(error: unknown): error is AnyPawlError;
export function isPawlError<Code extends PawlErrorCode>(error: unknown, code: Code): error is PawlErrorOf<Code>;
export function isPawlError(error: unknown, code?: string): boolean {
  if (!(error instanceof PawlError) && !isStored(error)) return false;
  return code === undefined || error.code === code;
}

/** Whether it is a Pawl error that was stored and read again. */
function isStored(error: unknown): error is Error & { readonly code: string } {
  return (
    error instanceof Error &&
    names.has(error.name) &&
    "code" in error &&
    typeof error.code === "string" &&
    "data" in error &&
    typeof error.data === "object"
  );
}
