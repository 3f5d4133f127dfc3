/**
 * Declaring a schedule: the decision by which a worker says that its code has it. It creates the record, or says that the worker lives, or makes the worker's
 * definition the one that counts.
 */

import type { Tx } from "../kernel/decision.ts";
import type { Kernel } from "../kernel/kernel.ts";
import { DECLARED_MS, type DeclareDecision, decideDeclare } from "./decide.ts";
import type { ScheduleRules } from "./definition.ts";
import { ScheduleExistsError } from "./errors.ts";
import { declaredQueueOf, type Plan, type ScheduleValue, scheduleAt, type Target } from "./stored.ts";
import { ScheduleDraft } from "./ticks.ts";
import type { NextTime } from "./times.ts";

/** What a new schedule has done. */
export function newValue(plan: Plan, target: Target, nowMs: number, after: number): ScheduleValue {
  const none = { fired: 0, skipped: 0, missed: 0, failed: 0 };
  return { plan, target, createdAtMs: nowMs, after, cursorMs: nowMs, ...none };
}

/** The value with another plan. Where it ticks at other times, these count from now on. */
export function withPlan(value: ScheduleValue, plan: Plan, nowMs: number): ScheduleValue {
  const isSame = timesOf(value.plan) === timesOf(plan);
  const { keptUpToMs: _keptUpToMs, ...rest } = value;
  return { ...rest, plan, cursorMs: isSame ? value.cursorMs : Math.max(value.cursorMs, nowMs) };
}

const timesOf = ({ timing, startsMs }: Plan): string => JSON.stringify([timing, startsMs]);

/** `isFirst` when the worker begins: then it counts before others of the same revision. */
export function declareSchedule(tx: Tx, rules: ScheduleRules, isFirst: boolean, next?: NextTime): DeclareDecision {
  const { name, by, revision, plan, target } = rules;
  const record = tx.record(scheduleAt(name));
  const { nowMs } = tx;
  const stored = record.exists ? (record.value as ScheduleValue) : undefined;
  const decision = decideDeclare(stored, { by, revision, isFirst }, nowMs);
  if (decision === "refuse") throw new ScheduleExistsError(name, false);
  if (decision === "leave") return decision;
  // A worker that begins may know other rules of a time zone than the last one.
  if (decision === "keep" && !isFirst) return decision;
  const declared = { by, revision, untilMs: nowMs + DECLARED_MS };
  if (stored === undefined) {
    record.write({
      value: { ...newValue(plan, target, nowMs, record.head), declared },
      kind: declaredQueueOf(by),
      status: "active",
    });
  }
  const schedule = new ScheduleDraft(tx, record, rules, next);
  if (decision === "replace") schedule.value = { ...withPlan(schedule.value, plan, nowMs), target };
  schedule.change({ declared });
  record.write({ kind: declaredQueueOf(by) });
  schedule.store();
  return decision;
}

export const declare = (kernel: Kernel, rules: ScheduleRules, isFirst: boolean): Promise<DeclareDecision> =>
  kernel.transact((tx) => declareSchedule(tx, rules, isFirst), [scheduleAt(rules.name)]);
