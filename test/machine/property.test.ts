/**
 * Goal: whatever the machine and whatever is asked of it, its log is a legal path that leads to where the instance is, every attempt is in it once, and
 * early events have their turn in order.
 * Method: drawn machines, with guards that look at the data, and drawn attempts; the auditor follows the log after each of them.
 */

import fc from "fast-check";
import { expect, test } from "vitest";
import { machine } from "../../src/machine/definition.ts";
import { type MachineHandle, Machines } from "../../src/machine/machine.ts";
import type { TransitionOptions } from "../../src/machine/results.ts";
import { open } from "../../src/open.ts";
import { audit, type Plan } from "./audit.ts";

const STATES = ["a", "b", "c", "d", "e"];

interface Data {
  readonly count: number;
  readonly isBad?: boolean;
}

const state = fc.constantFrom(...STATES);
const drawnPlan = fc.record({
  initial: state,
  transitions: fc.record(Object.fromEntries(STATES.map((one) => [one, fc.uniqueArray(state, { maxLength: 3 })]))),
  maxParked: fc.integer({ min: 1, max: 4 }),
  unknown: fc.constantFrom("create" as const, "refuse" as const),
});
const drawnAttempt = fc.record({
  to: state,
  mayPark: fc.boolean(),
  event: fc.option(fc.constantFrom("e1", "e2", "e3"), { nil: undefined }),
  change: fc.constantFrom("none", "data", "patch", "update", "bad"),
  expects: fc.constantFrom("nothing", "nothing", "now", "before"),
});
type DrawnAttempt = typeof drawnAttempt extends fc.Arbitrary<infer T> ? T : never;

function defined({ unknown, ...plan }: Plan & { readonly unknown: "create" | "refuse" }) {
  const guard = (data: Data, { next }: { readonly next: Data }) => {
    if (next.isBad === true && data.count % 3 === 1) throw new Error("it is bad");
    return next.isBad !== true || "it is bad";
  };
  const guards = Object.fromEntries(
    Object.entries(plan.transitions).map(([from, list]) => [from, Object.fromEntries(list.map((to) => [to, guard]))]),
  );
  const initialData: Data = { count: 0 };
  return machine<Record<string, string[]>, Data>("drawn", {
    ...plan,
    transitions: plan.transitions as Record<string, string[]>,
    initialData,
    guards,
    unknown,
  });
}

function optionsOf(drawn: DrawnAttempt, index: number, version: number): TransitionOptions<Data> {
  const { mayPark, event, change, expects } = drawn;
  const changes: Record<string, TransitionOptions<Data>> = {
    none: {},
    data: { data: { count: index } },
    patch: { patch: { count: index } },
    bad: { patch: { isBad: true } },
    update: mayPark ? {} : { update: ({ count }) => ({ count: count + 1 }) },
  };
  return {
    reason: String(index),
    eventId: event,
    ...(mayPark ? { whenEarly: "park" as const } : {}),
    ...(mayPark || expects === "nothing"
      ? {}
      : { expectedVersion: expects === "now" ? version : Math.max(0, version - 1) }),
    ...changes[change],
  };
}

/** One attempt; returns the outcome that the log must have for it, or null if there must be none. */
async function perform(
  drawn: MachineHandle<string, Data, Data | undefined>,
  one: DrawnAttempt,
  index: number,
): Promise<string | null> {
  const now = await drawn.get("i");
  try {
    const answer = await drawn.tryTransition("i", one.to, optionsOf(one, index, now?.version ?? 0));
    if (!answer.ok) return answer.code === "machine_not_found" ? null : "refused";
    return answer.deduplicated ? null : answer.outcome;
  } catch (error) {
    // The guard's own error: nothing was written.
    if ((error as Error).message !== "it is bad") throw error;
    return null;
  }
}

test("the log of any machine replays to its state, by legal moves only", async () => {
  const seen = new Map<string, number>();
  await fc.assert(
    fc.asyncProperty(drawnPlan, fc.array(drawnAttempt, { maxLength: 20 }), async (plan, attempts) => {
      await using pawl = await open({ store: "memory:", checkPurity: false });
      const drawn = new Machines(pawl.kernel).of(defined(plan));
      if (plan.unknown === "refuse" && attempts.length % 7 > 0) await drawn.create("i");
      for (const [index, one] of attempts.entries()) {
        const expected = await perform(drawn, one, index);
        const log = await drawn.history("i");
        const mine = log.filter(
          ({ reason, outcome, parkedAs }) =>
            reason === String(index) && outcome !== "created" && parkedAs === undefined,
        );
        expect(mine.map(({ outcome }) => outcome)).toEqual(expected === null ? [] : [expected]);
        expect(audit(plan, log, await drawn.get("i"))).toEqual([]);
      }
      for (const { outcome, code, parkedAs } of await drawn.history("i")) {
        const kind = `${outcome}${code === undefined ? "" : ` ${code}`}${parkedAs === undefined ? "" : " late"}`;
        seen.set(kind, (seen.get(kind) ?? 0) + 1);
      }
    }),
    { numRuns: 500, seed: 6 },
  );
  // It would prove nothing of what never happened.
  expect([...seen.keys()].toSorted()).toEqual([
    "applied late",
    "created",
    "moved",
    "parked",
    "refused event_conflict",
    "refused event_failed late",
    "refused guard_refused",
    "refused guard_refused late",
    "refused illegal_transition",
    "refused illegal_transition late",
    "refused parking_full",
    "refused version_conflict",
  ]);
});
