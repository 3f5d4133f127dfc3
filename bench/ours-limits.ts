/**
 * Starts, and runs of one step, with a concurrency limit that is never reached, and without one.
 *
 * The workflows differ in nothing but their limit. Each caller is a customer: the key of the limit, where it has one. A start is one commit, and nothing
 * works on its run; a run is two commits, and its caller waits for its result.
 */

import { workflow } from "../src/index.ts";
import type { Contender, Timing } from "./contender.ts";
import { type Ours, openOurs } from "./ours.ts";
import type { Plan } from "./plan.ts";

interface Charge {
  readonly customer: string;
  readonly value: unknown;
}

/** Above the number of runs of any round. */
const NEVER = 1_000_000;
const WORKFLOW = "charge";

const LIMITS = {
  none: { name: "without a limit", concurrency: undefined },
  all: { name: "with a limit", concurrency: { max: NEVER } },
  key: { name: "with a limit and a key", concurrency: { max: NEVER, key: ({ customer }: Charge) => customer } },
} as const;

export type LimitKind = keyof typeof LIMITS;

/** A plan with one commit to each record is one of starts; with two, of runs. */
const isOfStarts = ({ commitsPerRecord }: Plan): boolean => commitsPerRecord === 1;

export function limited(kind: LimitKind): Contender {
  const { name, concurrency } = LIMITS[kind];
  const charging = workflow({ name: WORKFLOW, concurrency }, async (ctx, { customer, value }: Charge) => {
    await ctx.step("charge", () => value);
    return customer;
  });
  const play = async ({ pawl, transactions }: Ours, plan: Plan): Promise<Timing> => {
    const isStart = isOfStarts(plan);
    if (!isStart) pawl.work([charging], { concurrency: 1000 });
    const turns = plan.turns / plan.commitsPerRecord;
    const call = async (_: unknown, caller: number): Promise<void> => {
      const charge: Charge = { customer: `customer-${caller}`, value: plan.values[0] };
      for (let turn = 0; turn < turns; turn++) {
        const run = await pawl.start(charging, charge);
        if (!isStart && (await run.result()) !== charge.customer) throw new Error("a run has a wrong result");
      }
    };
    const before = transactions();
    const startedMs = performance.now();
    await Promise.all(Array.from({ length: plan.callers }, call));
    const ms = performance.now() - startedMs;
    return { ms, transactions: transactions() - before, latenciesMs: [] };
  };
  return {
    name,
    open: async (place) => {
      const ours = await openOurs(place);
      return { run: (plan) => play(ours, plan), close: () => ours.pawl.close() };
    },
  };
}
