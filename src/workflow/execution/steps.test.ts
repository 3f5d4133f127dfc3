/**
 * Goal: a process that stood still while a step waited for its next attempt, or for its turn, does not begin it once another may hold the run.
 * Method: one step on a host whose clock and lease are moved by hand.
 */

import { expect, test } from "vitest";
import { checkRetry } from "../../kernel/retry.ts";
import type { StepPlan } from "../definitions/plans.ts";
import { Coroutine } from "./coroutine.ts";
import { Operation } from "./operation.ts";
import { PendingOperation } from "./pending.ts";
import { RunningStep, type StepHost } from "./steps.ts";

function bench(turn?: StepPlan["turn"]) {
  const calls: string[] = [];
  const timers: (() => void)[] = [];
  const lease = { isUncertain: false };
  const host: StepHost = {
    clock: {
      nowMs: () => 0,
      after: (_, callback) => {
        timers.push(callback);
        return () => {};
      },
    },
    fence: 1,
    notHere: () => calls.push("not here"),
    nowMs: () => 0,
    random: () => 0,
    keyOf: () => "key",
    attempted: (_, attempt) => calls.push(`attempt ${attempt}`),
    call: (_, run, step) => run(step),
    retried: () => calls.push("retried"),
    succeeded: () => calls.push("succeeded"),
    failed: () => calls.push("failed"),
    postponed: () => calls.push("postponed"),
    progressed: () => {},
    reserveTurn: async () => 1,
    deferred: () => calls.push("deferred"),
    hasTurn: () => calls.push("has its turn"),
    get isLeaseUncertain() {
      return lease.isUncertain;
    },
    putOff: () => calls.push("put off"),
    policyThrew: () => {},
    usedLate: () => {},
  };
  const run = (): never => {
    throw new Error("no");
  };
  const plan: StepPlan = {
    kind: "step",
    mode: { is: "plain", run },
    retry: checkRetry({ attempts: 3, delay: 200 }),
    timeoutMs: null,
    totalTimeoutMs: null,
    heartbeatMs: null,
    turn,
  };
  const coroutine = new Coroutine("run", 0);
  const counted = { count: 1, isUnderWay: true };
  const operation = Operation.pending<unknown>();
  const pending = new PendingOperation(
    coroutine,
    coroutine.root,
    plan,
    "a",
    undefined,
    counted,
    operation,
    coroutine.watched,
  );
  return { step: new RunningStep(host, pending, plan), run, calls, timers, lease };
}

test("the next attempt", () => {
  const { step, run, calls, timers, lease } = bench();
  step.start(run);
  timers.shift()?.();
  expect(calls).toEqual(["attempt 1", "retried", "attempt 2", "retried"]);
  lease.isUncertain = true;
  timers.shift()?.();
  expect(calls.slice(4)).toEqual(["put off"]);
});

test("an attempt whose turn has come", async () => {
  const { step, run, calls, timers, lease } = bench(() => ({ isGranted: true, waitMs: 1 }));
  step.start(run);
  await expect.poll(() => timers.length).toBe(1);
  lease.isUncertain = true;
  timers.shift()?.();
  expect(calls).toEqual(["put off"]);
});
