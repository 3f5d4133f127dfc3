// Goal: a machine moves only as it is defined, whatever happens to its callers: each instance's log is a legal path to its state, every attempt
// with a known result is in it once, a refused one too, an event takes effect once, and parked events are applied in order, in the commit that
// makes them legal (G2, G29).
// Method: two couriers deliver the same events in different orders, as a provider's webhooks do, and again whenever the outcome is unknown. A
// clerk moves the same instances together with a counter, in one decision. An observer reads at any moment. In the end an auditor that knows
// only the definition checks every log.

import { machine } from "../../../src/machine/definition.ts";
import { IllegalTransitionError } from "../../../src/machine/errors.ts";
import { Machines } from "../../../src/machine/machine.ts";
import type { MachineEvent, TryTransition } from "../../../src/machine/results.ts";
import { checkCommits } from "../../../src/testing/checkers/commits.ts";
import type { Process, World } from "../../../src/testing/index.ts";
import { audit } from "../../machine/audit.ts";
import { until } from "./transfers.ts";

const plan = {
  initial: "pending",
  transitions: {
    pending: ["paid", "canceled"],
    paid: ["shipped", "refunded"],
    shipped: ["delivered"],
    delivered: [],
    refunded: ["pending"],
    canceled: [],
  },
  maxParked: 3,
} as const;

type State = keyof typeof plan.transitions;

/** Which attempt brought it to each state last. */
type Data = { readonly [To in State]?: string } & { readonly weight?: number };

const TOO_HEAVY = 8;
const nothing: Data = {};
const order = machine("order", {
  ...plan,
  initialData: nothing,
  unknown: "create",
  guards: { paid: { shipped: (_data, { next }) => (next.weight ?? 0) < TOO_HEAVY || "it is too heavy" } },
});

const ordersOf = ({ pawl }: Process | { readonly pawl: World["open"] extends () => infer P ? P : never }) =>
  new Machines(pawl.kernel).of(order);

const INSTANCES = ["x", "y"];
const LINE: readonly State[] = ["paid", "shipped", "delivered", "refunded", "pending", "canceled"];

interface Delivery {
  readonly eventId: string;
  readonly id: string;
  readonly to: State;
  readonly weight: number;
  readonly whenEarly: "park" | "refuse";
}

/** The result of an attempt, if its caller got it. */
type AttemptResult = TryTransition<State, Data> | undefined;

export const machines = {
  name: "a machine moves as it is defined",
  async scenario(world: World): Promise<void> {
    let asked = 0;
    const newReason = (name: string): string => {
      asked += 1;
      return `${name}-${asked}`;
    };
    const attempts = new Map<string, { readonly eventId?: string; told: AttemptResult }>();
    const events: Delivery[] = Array.from({ length: 7 }, (_, i) => ({
      eventId: `e${i}`,
      id: INSTANCES[world.random.below(4) === 0 ? 1 : 0] ?? "",
      to: LINE[world.random.chance(0.7) ? world.random.below(3) : world.random.below(LINE.length)] ?? "paid",
      weight: world.random.below(10),
      whenEarly: world.random.chance(0.8) ? "park" : "refuse",
    }));
    for (const name of ["north", "south"])
      world.process(name, async (process) => {
        const orders = ordersOf(process);
        for (const { id, to, weight, ...options } of shuffled(events, process)) {
          await until(async () => {
            const reason = newReason(name);
            const attempt: { readonly eventId: string; told: AttemptResult } = {
              eventId: options.eventId,
              told: undefined,
            };
            attempts.set(reason, attempt);
            const patch = { [to]: reason, weight } as Data;
            attempt.told = await orders.tryTransition(id, to, { ...options, actor: name, reason, patch });
          }, process);
          if (process.random() < 0.3) await process.sleep(process.random() * 2_000);
        }
      });
    world.process("clerk", async (process) => {
      const orders = ordersOf(process);
      const counter = process.pawl.slot<number>("moves", { initial: 0 });
      for (let i = 0; i < 3; i += 1) {
        const id = INSTANCES[Math.floor(process.random() * 2)] ?? "";
        const to = LINE[Math.floor(process.random() * LINE.length)] ?? "paid";
        await process.sleep(process.random() * 3_000);
        await until(async () => {
          const reason = newReason("clerk");
          const attempt: { told: AttemptResult } = { told: undefined };
          attempts.set(reason, attempt);
          try {
            const moved = await process.pawl.kernel.transact((tx) => {
              counter.within(tx).update((n) => n + 1);
              const update = (data: Data) => ({ ...data, [to]: reason });
              return orders.within(tx).transition(id, to, { actor: "clerk", reason, update });
            }, []);
            attempt.told = { ok: true, ...moved };
          } catch (error) {
            // It threw inside the decision, so nothing of it is anywhere.
            if (!(error instanceof IllegalTransitionError || (error as { code?: unknown }).code === "guard_refused"))
              throw error;
            attempts.delete(reason);
          }
        }, process);
      }
    });
    world.process("observer", async (process) => {
      const orders = ordersOf(process);
      for (let i = 0; i < 6; i += 1) {
        await process.sleep(process.random() * 1_500);
        await until(async () => {
          for (const { id, state, allowed, parked } of (await orders.list()).instances)
            for (const { to } of parked)
              world.check(!allowed.includes(to), `${id} is ${state}, and ${to} waits although it may go`);
        }, process);
      }
    });
    await world.finish();
    checkCommits(world);
    const orders = ordersOf({ pawl: world.open() });
    const logs: MachineEvent<State>[] = [];
    for (const id of INSTANCES) {
      const [log, instance] = [await orders.history(id), await orders.get(id)];
      logs.push(...log);
      const findings = audit(plan, log, instance);
      world.check(findings.length === 0, `the log of ${id}: ${findings.join("; ")}`);
      for (const { to, reason } of log.filter(isMove).filter(isLastOfItsKind))
        world.check(instance?.data[to] === reason, `${id} came to ${to} by ${reason}, and its data does not say so`);
    }
    for (const { from, to, data } of logs.filter(isMove))
      if (from === "paid" && to === "shipped")
        world.check(((data as Data).weight ?? 0) < TOO_HEAVY, "what was too heavy was shipped");
    for (const [reason, { told, eventId }] of attempts) checkAttempt(world, logs, reason, eventId, told);
    const moves = logs.filter(({ actor, outcome }) => actor === "clerk" && outcome === "moved").length;
    const { value } = await world.open().slot<number>("moves", { initial: 0 }).get();
    world.check(value === moves, `the clerk made ${moves} moves and counted ${value}`);
  },
};

const isMove = ({ outcome }: MachineEvent): boolean => outcome === "moved" || outcome === "applied";

const isLastOfItsKind = (entry: MachineEvent, index: number, log: readonly MachineEvent[]): boolean =>
  log.findLastIndex(({ to }) => to === entry.to) === index;

function checkAttempt(
  world: World,
  logs: readonly MachineEvent<State>[],
  reason: string,
  eventId: string | undefined,
  told: AttemptResult,
): void {
  // What had waited and then had its turn says the same reason once more.
  const mine = logs.filter((one) => one.reason === reason && one.outcome !== "created" && one.parkedAs === undefined);
  const says = mine.map(({ outcome }) => outcome).join(", ");
  if (told === undefined) {
    world.check(mine.length <= 1, `${reason} was not answered, and the log says ${says}`);
    return;
  }
  const isKnown = told.ok && told.deduplicated;
  const expected = isKnown ? "" : told.ok ? told.outcome : "refused";
  world.check(says === expected, `${reason} was told ${told.ok ? told.outcome : told.code}, and the log says ${says}`);
  if (!isKnown) return;
  const first = logs.filter((one) => one.eventId === eventId);
  world.check(
    told.outcome === "moved" ? first.some(isMove) : first.some(({ outcome }) => outcome === "parked"),
    `${reason} was told that event ${eventId} is ${told.outcome}, and the log does not say so`,
  );
}

function shuffled<T>(list: readonly T[], { random }: Process): T[] {
  return list
    .map((one) => ({ one, at: random() }))
    .toSorted((a, b) => a.at - b.at)
    .map(({ one }) => one);
}
