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
  ValueTooLargeError,
  VersionConflictError,
} from "./kernel/errors.ts";
export { type OpenOptions, open, Pawl, type Transact, type TransactOptions, Tx, type TxInSql } from "./open.ts";
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
export { SqlAfterTxError, type SqlExecutor, SqlOverError } from "./sql.ts";
export type { PgClient, PgPool } from "./stores/postgres/lines.ts";
