/**
 * Goal: the auditor finds what is wrong with a log, and finds nothing where nothing is.
 * Method: one good log, and one change to it for each law.
 */

import { expect, test } from "vitest";
import type { MachineEvent, MachineInstance } from "../../src/machine/results.ts";
import { audit } from "./audit.ts";

const plan = {
  initial: "a",
  transitions: { a: ["b", "x"], b: ["c"], c: ["d"], d: [], x: [] },
  maxParked: 2,
};

const entry = (version: number, outcome: MachineEvent["outcome"], from: string | null, to: string, more = {}) => ({
  version,
  at: new Date(0),
  outcome,
  from,
  to,
  ...more,
});

const good: MachineEvent[] = [
  entry(1, "created", null, "a", { data: 0 }),
  entry(2, "refused", "a", "c", { code: "illegal_transition" }),
  entry(3, "parked", "a", "d", { eventId: "d" }),
  entry(4, "parked", "a", "c", { eventId: "c" }),
  entry(5, "moved", "a", "b", { data: 1, eventId: "b" }),
  entry(6, "applied", "b", "c", { parkedAs: 4, eventId: "c" }),
  entry(7, "applied", "c", "d", { parkedAs: 3, eventId: "d" }),
];
const instance: MachineInstance = { id: "i", state: "d", version: 7, data: 1, allowed: [], parked: [] };
const lost: MachineEvent[] = [
  ...good.slice(0, 4),
  entry(5, "moved", "a", "x"),
  entry(6, "refused", "x", "d", { code: "illegal_transition", parkedAs: 3, eventId: "d" }),
  entry(7, "refused", "x", "c", { code: "illegal_transition", parkedAs: 4, eventId: "c" }),
];
const ended: MachineInstance = { ...instance, state: "x", version: 5, data: 0 };

test("a good log is good", () => {
  expect(audit(plan, good, instance)).toEqual([]);
  expect(audit(plan, lost, ended)).toEqual([]);
  expect(audit(plan, [], null)).toEqual([]);
});

const with_ = (index: number, change: object) => good.map((one, i) => (i === index ? { ...one, ...change } : one));
const without = (...indexes: number[]) =>
  good.filter((_, i) => !indexes.includes(i)).map((one, i) => ({ ...one, version: i + 1 }));

test.each<[string, readonly MachineEvent[], MachineInstance | null]>([
  ["a log without an instance", good, null],
  ["a gap", with_(4, { version: 6 }), instance],
  ["another first state", with_(0, { to: "b" }), instance],
  ["a second making", with_(1, { outcome: "created", from: null, to: "a" }), instance],
  ["a way that is none", with_(4, { to: "d" }), instance],
  ["a wrong origin", with_(4, { from: "b" }), instance],
  ["a refusal of what was allowed", with_(1, { to: "b" }), instance],
  ["a guard's refusal of what was not allowed", with_(1, { code: "guard_refused" }), instance],
  ["a full parking with room", with_(1, { code: "parking_full" }), instance],
  ["a parking of what was allowed", with_(3, { to: "b" }), instance],
  ["an event twice", with_(4, { eventId: "d" }), instance],
  [
    "a turn that was passed over",
    [...good.slice(0, 5), entry(6, "refused", "b", "x", { code: "illegal_transition" })],
    instance,
  ],
  ["a turn that never came", good.slice(0, 5), { ...instance, state: "b", version: 5, parked: [] }],
  [
    "turns in another order",
    [...good.slice(0, 5), entry(6, "applied", "b", "d", { parkedAs: 3, eventId: "d" })],
    instance,
  ],
  ["a turn that was refused as illegal", with_(5, { outcome: "refused", code: "illegal_transition" }), instance],
  ["an applied event that was never parked", without(3), instance],
  ["a move that is missing", without(4), instance],
  ["an applied event without its parking", with_(5, { parkedAs: undefined }), instance],
  ["events that can never come, and stay", lost.slice(0, 6), { ...ended }],
  ["another state in the end", good, { ...instance, state: "c" }],
  ["another version in the end", good, { ...instance, version: 6 }],
  ["other data in the end", good, { ...instance, data: 2 }],
  ["something parked in the end", good, { ...instance, parked: [{ to: "d", at: new Date(0) }] }],
])("%s is found", (_, log, is) => {
  expect(audit(plan, log, is)).not.toEqual([]);
});
