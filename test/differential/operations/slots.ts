/**
 * Slots, through the public handle.
 */

import type { Slot, TxSlot } from "../../../src/slot/slot.ts";
import type { Draw } from "../draw.ts";
import { Planned, type World } from "../world.ts";
import { type Kind, kind, localKind } from "./operation.ts";

/** The version to expect, said so that each subject can find it out by itself. */
const EXPECTATIONS = ["none", "none", "now", "now", "zero", "behind", "ahead"] as const;
type Expectation = (typeof EXPECTATIONS)[number];

function expected(expectation: Expectation, version: number): number | undefined {
  switch (expectation) {
    case "none":
      return undefined;
    case "now":
      return version;
    case "zero":
      return 0;
    case "behind":
      return Math.max(0, version - 1);
    case "ahead":
      return version + 1;
  }
}

async function expecting(slot: Slot<unknown>, expectation: Expectation): Promise<{ expectedVersion?: number }> {
  if (expectation === "none") return {};
  const { version } = await slot.get();
  const expectedVersion = expected(expectation, version);
  return expectedVersion === undefined ? {} : { expectedVersion };
}

const ofSlot = (draw: Draw): string => draw.slot();

/** What an update makes of a value: a number goes up by one, and anything else becomes one. */
export const plusOne = (value: unknown): number => (typeof value === "number" ? value + 1 : 1);

const CHANGES = ["count", "replace", "keep", "throw", "refuse"] as const;

function change(how: (typeof CHANGES)[number], value: unknown): (now: unknown) => unknown {
  return (now) => {
    switch (how) {
      case "count":
        return plusOne(now);
      case "replace":
        return value;
      case "keep":
        return now;
      case "throw":
        throw new Planned("the update does not want to");
      case "refuse":
        return Symbol("cannot be stored");
    }
  };
}

export const localSlotKinds = [
  localKind(
    "slot.get",
    6,
    ofSlot,
    (draw) => ({ by: draw.writer() }),
    (on, { by, at }) => on.pawl(by).slot(at).get(),
  ),
  localKind(
    "slot.get with an initial value",
    1,
    ofSlot,
    (draw) => ({ by: draw.writer(), initial: draw.value() ?? 0 }),
    (on, { by, at, initial }) => on.pawl(by).slot(at, { initial }).get(),
  ),
  localKind(
    "slot.set",
    12,
    ofSlot,
    (draw) => ({ by: draw.writer(), value: draw.value(), expect: draw.pick(EXPECTATIONS) }),
    async (on, { by, at, value, expect }) => {
      const slot = on.pawl(by).slot<unknown>(at);
      return slot.set(value, await expecting(slot, expect));
    },
  ),
  localKind(
    "slot.trySet",
    5,
    ofSlot,
    (draw) => ({ by: draw.writer(), value: draw.value(), expect: draw.pick(EXPECTATIONS) }),
    async (on, { by, at, value, expect }) => {
      const slot = on.pawl(by).slot<unknown>(at);
      const answer = await slot.trySet(value, { expectedVersion: 0, ...(await expecting(slot, expect)) });
      on.saw(answer.ok ? "trySet: written" : "trySet: refused");
      return answer;
    },
  ),
  localKind(
    "slot.update",
    8,
    ofSlot,
    (draw) => ({ by: draw.writer(), how: draw.pick(CHANGES), value: draw.value() }),
    (on, { by, at, how, value }) => on.pawl(by).slot<unknown>(at).update(change(how, value)),
  ),
  localKind(
    "slot.delete",
    6,
    ofSlot,
    (draw) => ({ by: draw.writer(), expect: draw.pick(EXPECTATIONS) }),
    async (on, { by, at, expect }) => {
      const slot = on.pawl(by).slot<unknown>(at);
      const answer = await slot.delete(await expecting(slot, expect));
      on.saw(answer.deleted ? "delete: deleted" : "delete: nothing there");
      return answer;
    },
  ),
];

const WRONG_NAMES = ["", "a\u0000", "line\n", "\ud800", "\udc00x", "y".repeat(257), "\u20ac".repeat(86)];
const WRONG_VERSIONS = [-1, -0, 1.5, Number.NaN, 2 ** 53];

/** What a transaction does to one of its slots. */
interface Step {
  readonly slot: string;
  readonly does: "get" | "set" | "setExpecting" | "trySet" | "count" | "delete" | "throw";
  readonly value: unknown;
  readonly expect: Expectation;
}

function drawStep(draw: Draw): Step {
  const does = draw.pick(["get", "set", "set", "setExpecting", "trySet", "count", "count", "delete", "throw"] as const);
  // Most transactions come to their end.
  const calm = does === "throw" && draw.chance(0.6) ? "get" : does;
  return { slot: draw.slot(), does: calm, value: draw.value(), expect: draw.pick(EXPECTATIONS) };
}

function takeStep(slot: TxSlot<unknown>, { does, value, expect }: Step): unknown {
  const expectedVersion = expected(expect, slot.get().version);
  switch (does) {
    case "get":
      return slot.get();
    case "set":
      return slot.set(value);
    case "setExpecting":
      return slot.set(value, { expectedVersion });
    case "trySet":
      return slot.trySet(value, { expectedVersion: expectedVersion ?? 0 });
    case "count":
      return slot.update(plusOne);
    case "delete":
      return slot.delete({ expectedVersion });
    case "throw":
      throw new Planned("half-way");
  }
}

/** All pages, one after another. */
async function walk(on: World, prefix: string, limit: number): Promise<unknown> {
  const pages: unknown[] = [];
  let after: string | null = null;
  do {
    const page = await on.pawl(0).slots.list({ prefix, limit, after });
    pages.push(page);
    after = page.next;
  } while (after !== null && pages.length < 100);
  if (pages.length > 1) on.saw("list: several pages");
  return pages;
}

export const slotKinds: readonly Kind[] = [
  ...localSlotKinds,
  kind(
    "slot.transact",
    10,
    (draw) => {
      const steps = Array.from({ length: draw.from(1, 6) }, () => drawStep(draw));
      // Those that are not declared are found out by the decision, which then runs again.
      return { by: draw.writer(), steps, touches: steps.map(({ slot }) => slot).filter(() => draw.chance(0.5)) };
    },
    (on, { by, steps, touches }) => {
      const pawl = on.pawl(by);
      const slots = new Map(steps.map(({ slot }) => [slot, pawl.slot<unknown>(slot)]));
      const named = (name: string) => slots.get(name) ?? pawl.slot<unknown>(name);
      return pawl.transact((tx): unknown => steps.map((step) => takeStep(tx.slot(named(step.slot)), step)), {
        touches: touches.map(named),
      });
    },
  ),
  kind(
    "slot.list",
    3,
    (draw) => ({ by: draw.writer(), prefix: draw.prefix(), after: draw.after(), limit: draw.limit() }),
    (on, { by, ...query }) => on.pawl(by).slots.list(query),
  ),
  kind(
    "slot.list, page by page",
    1,
    (draw) => ({ prefix: draw.chance(0.5) ? "" : draw.prefix(), limit: draw.from(1, 4) }),
    (on, { prefix, limit }) => walk(on, prefix, limit),
  ),
  kind(
    "slot with a wrong name",
    0.5,
    (draw) => draw.pick(WRONG_NAMES),
    async (on, name) => on.pawl(0).slot(name).get(),
  ),
  kind(
    "slot with a wrong version",
    0.5,
    (draw) => ({ at: draw.slot(), expectedVersion: draw.pick(WRONG_VERSIONS) }),
    (on, { at, expectedVersion }) => on.pawl(0).slot<number>(at).set(1, { expectedVersion }),
  ),
  kind(
    "slot with a value too large",
    0.3,
    (draw) => ({ at: draw.slot(), value: draw.long(121_000, 150_000) }),
    (on, { at, value }) => on.pawl(0).slot<string>(at).set(value),
  ),
];
