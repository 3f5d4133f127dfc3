/**
 * Goal: what a history says that an operation does is read by every later version, and a fact of an earlier one, which does not say it, is given
 * to no operation that cannot have had it.
 * Method: tables of plans with their verbs, and of outcomes with the verbs that can have them.
 */

import { describe, expect, test } from "vitest";
import type { LockPlan, Plan } from "../definitions/plans.ts";
import type { Word } from "../stored.ts";
import type { PendingOperation } from "./pending.ts";
import { isAbout, numberedVerb, rateVerb } from "./verbs.ts";

const act = (): never => {
  throw new Error("is not called");
};
const slot = (verb: string): Plan => ({ kind: "slot", space: "slot", key: "room", initial: undefined, verb, act });
const stream = (verb: string): Plan => ({ kind: "stream", stream: "notes", verb, act });
const child = (waits: boolean, childId?: string): Plan => ({
  kind: "child",
  workflow: "kid",
  childId,
  input: 1,
  fingerprint: null,
  timeoutMs: null,
  waits,
  whenParentEnds: "cancel",
});
const lock = (more: Partial<LockPlan> = {}): Plan => ({
  kind: "lock",
  refs: [{ kind: "rwlock", name: "l" }],
  mode: "exclusive",
  permits: null,
  declares: false,
  queue: true,
  isTry: false,
  timeoutMs: null,
  ...more,
});
const tryAcquire = lock({ isTry: true, queue: false });
const enqueue = lock({ isTry: true });
const timed = lock({ timeoutMs: 5 });

describe("verbs are for ever", () => {
  const rules: readonly (readonly [Plan, string | undefined])[] = [
    [slot("set global"), "set global"],
    [stream("head"), "head"],
    [{ kind: "sleep", ms: 1000, untilMs: null }, "1000"],
    [{ kind: "sleep", ms: null, untilMs: 77 }, "until 77"],
    [child(true), "call"],
    [child(false), "start"],
    [child(true, "a"), "call =a"],
    [lock(), "acquire"],
    [lock({ mode: "shared" }), "acquire shared"],
    [lock({ mode: "shared", refs: [{ kind: "semaphore", name: "s" }] }), "acquire"],
    [timed, "acquire timed"],
    [tryAcquire, "tryAcquire"],
    [enqueue, "enqueue"],
    [lock({ resumes: "l#2" }), "resume l#2"],
    [{ kind: "unlock", of: "l#2" }, "of l#2"],
    [{ kind: "rate", verb: rateVerb({}), reserve: act }, "1"],
    [{ kind: "rate", verb: rateVerb({ count: 3, key: "k", timeout: "1s" }), reserve: act }, "3 timed =k"],
    [{ kind: "signal", names: ["go"], timeoutMs: 5 }, undefined],
  ];
  test.each(rules)("%# $kind", (plan, verb) => {
    expect(numberedVerb(plan, { count: 0, isUnderWay: false })).toBe(verb);
  });

  test("the second of a verb has its number", () => {
    const counted = { count: 0, isUnderWay: false };
    const verbs = [slot("set"), slot("get"), slot("set"), slot("get"), slot("set")].map((one) =>
      numberedVerb(one, counted),
    );
    expect(verbs).toEqual(["set", "get", "#2 set", "#2 get", "#3 set"]);
  });
});

describe("what an earlier release wrote of an operation can be that of", () => {
  const SLOT = ["get", "set", "trySet", "update", "delete"].map((verb) => [verb, slot(verb)] as const);
  const STREAM = ["head", "append", "tryAppend", "execute add sum", "tryExecute add sum", "state sum"].map(
    (verb) => [verb, stream(verb)] as const,
  );
  const LOCK = Object.entries({ acquire: lock(), timed, tryAcquire, enqueue });
  const CHILD = Object.entries({ call: child(true), start: child(false), "call a": child(true, "a") });

  const rules: readonly (readonly [readonly (readonly [string, Plan])[], Word, unknown, readonly string[]])[] = [
    [SLOT, "slot", { ok: { value: undefined, version: 0 } }, ["get", "update"]],
    [SLOT, "slot", { ok: { version: 1 } }, ["set"]],
    [SLOT, "slot", { ok: { ok: true, version: 1 } }, ["trySet"]],
    [SLOT, "slot", { ok: { ok: false, code: "version_conflict", current: 1 } }, ["trySet"]],
    [SLOT, "slot", { ok: { deleted: true } }, ["delete"]],
    [SLOT, "slot", { error: new Error("conflict") }, ["set", "trySet", "update", "delete"]],
    [STREAM, "stream", { ok: 0 }, ["head"]],
    [STREAM, "stream", { ok: { stream: "notes", ids: ["i"], version: 1 } }, ["append"]],
    [STREAM, "stream", { ok: { ok: true, stream: "notes", ids: ["i"], version: 1 } }, ["tryAppend"]],
    [STREAM, "stream", { ok: { ok: false, code: "concurrency_conflict", version: 1 } }, ["tryAppend"]],
    [STREAM, "stream", { ok: { ok: false, code: "stream_closed", version: 1 } }, ["tryAppend", "tryExecute add sum"]],
    [STREAM, "stream", { ok: { stream: "notes", output: undefined, version: 1, ids: [] } }, ["execute add sum"]],
    [STREAM, "stream", { ok: { ok: true, output: 1, version: 1, ids: [] } }, ["tryExecute add sum"]],
    [STREAM, "stream", { ok: { ok: false, code: "command_refused", reason: "no" } }, ["tryExecute add sum"]],
    [STREAM, "stream", { ok: { state: 1, version: 1 } }, ["state sum"]],
    [LOCK, "granted", { fence: 1 }, ["acquire", "timed", "tryAcquire", "enqueue"]],
    [LOCK, "queued", {}, ["acquire", "timed"]],
    [LOCK, "placed", { place: 1 }, ["tryAcquire", "enqueue"]],
    [LOCK, "denied", { reason: "busy", place: 1 }, ["tryAcquire"]],
    [LOCK, "denied", { reason: "timeout" }, ["timed"]],
    [LOCK, "denied", { reason: "removed" }, ["acquire", "timed"]],
    [LOCK, "denied", { reason: "undeclared", name: "l" }, ["acquire", "timed", "tryAcquire", "enqueue"]],
    [CHILD, "child", { run: "it/kid" }, ["call"]],
    [CHILD, "child", { run: "a" }, ["call", "call a"]],
    [CHILD, "child", { run: "it/kid", isLeft: true }, ["start"]],
    [CHILD, "ended", { at: 1, outcome: { ok: 1 } }, ["call", "start", "call a"]],
  ];
  test.each(rules)("%# $1 $2", (plans, word, data, verbs) => {
    const able = plans.filter(([verb, plan]) => isAbout({ plan, verb } as PendingOperation, { word, id: "x", data }));
    expect(able.map(([verb]) => verb)).toEqual(verbs);
  });

  test("with a verb, only that of the same verb", () => {
    const fact = { word: "slot", id: "room", data: { ok: { value: 1, version: 1 }, verb: "#2 get" } } as const;
    const verbs = ["get", "#2 get", "update"].filter((verb) =>
      isAbout({ plan: slot("get"), verb } as PendingOperation, fact),
    );
    expect(verbs).toEqual(["#2 get"]);
  });

  test("a release that is found by number may be of another hold, beside one of an earlier release", () => {
    const plan: Plan = { kind: "unlock", of: "l#2" };
    const fact = { word: "unlock", id: "l", data: { released: true, verb: "of l" } } as const;
    expect(isAbout({ plan, verb: "of l#2" } as PendingOperation, fact)).toBe(true);
  });
});
