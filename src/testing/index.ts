/**
 * Every public name of `pawl/testing`, by hand: the test kit for workflows, the simulator, its checkers, and the suite that every
 * store passes.
 */

export type {
  Batch,
  DuePage,
  DueQuery,
  Entry,
  Found,
  Key,
  ListQuery,
  Put,
  Receipt,
  Row,
  Store,
  StoredEntry,
  Verdict,
} from "../kernel/contract.ts";
export { History, isLinearizable, type Model, type Operation } from "./checkers/linearizable.ts";
export {
  type ConformanceOptions,
  type Difference,
  type Harness,
  type HarnessClock,
  type Law,
  storeConformance,
} from "./conformance/conformance.ts";
export { NothingLeftError, TestClock } from "./kit/clock.ts";
export {
  CrashError,
  type CrashedRun,
  type CrashOptions,
  type CrashPoint,
  type CrashReport,
  crashEverywhere,
} from "./kit/crash.ts";
export { type Replayed, replayHistory, saveHistory } from "./kit/history.ts";
export {
  type OpenTestOptions,
  openTest,
  StreamFailureError,
  TestPawl,
  type TestRun,
  WorkflowMistakeError,
} from "./kit/pawl.ts";
export {
  type AnyStepStub,
  type StepStub,
  type Stub,
  type StubCall,
  type StubOptions,
  type StubsOf,
  stub,
  type WithStepsOptions,
  withSteps,
} from "./kit/steps.ts";
export type { Fault, FaultCounts } from "./sim/faults.ts";
export { type Process, type Service, ServiceError } from "./sim/process.ts";
export { BrokenPromiseError, type World } from "./sim/world.ts";
export {
  describe,
  neverStruck,
  type Scenario,
  type SimulateOptions,
  SimulationError,
  type SimulationReport,
  simulate,
} from "./simulate.ts";
