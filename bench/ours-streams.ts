/**
 * Ours as users of streams meet it: appends, and commands of an aggregate whose invariant is checked on the folded state.
 *
 * Each append and each command is one commit to the stream's record, with one event. The limit is the bare group commit of the very rows that
 * they write, which are seen by letting them write to a store in memory (`run-rows.ts`).
 */

import { aggregate, event, type Pawl } from "../src/index.ts";
import { contender, type Way } from "./ours.ts";
import { type Plan, stepAt } from "./plan.ts";
import { commitsSeen, type See, turnsSeen } from "./run-rows.ts";

/** The values of a plan (`plan.ts`). */
interface Charge {
  readonly step: number;
  readonly charge: string;
  readonly total: number;
  readonly currency: string;
}

export const Charged = event<Charge>("Charged");

const LIMIT = 1e12;

/** An account that may be charged up to a limit. */
export const account = aggregate("account", {
  initial: { count: 0, total: 0 },
  on: [[Charged, ({ count, total }, charge) => ({ count: count + 1, total: total + charge.total })]],
  commands: {
    charge: ({ total }, charge: Charge, { emit, refuse }) => {
      if (total + charge.total > LIMIT) refuse("limit_exceeded", { total });
      emit(Charged(charge));
    },
  },
});

/** One commit to the stream with this key. */
type Doing = (pawl: Pawl, key: string) => (charge: Charge) => Promise<unknown>;

const append: Doing = (pawl, key) => {
  const stream = pawl.stream(key);
  return (charge) => stream.append([Charged(charge)]);
};

const command: Doing = (pawl, key) => {
  const handle = pawl.aggregate(account, key);
  return (charge) => handle.execute("charge", charge);
};

const wayOf =
  (doing: Doing): Way =>
  async ({ pawl }, plan) =>
    plan.keys.map((key) => {
      const act = doing(pawl, key);
      return (step) => act(chargeAt(plan, step));
    });

const seeingOf =
  (doing: Doing): See =>
  async (namespace, plan) => {
    const count = commitsSeen(plan);
    const turns = await turnsSeen(namespace, plan.space, async (pawl) => {
      const act = doing(pawl, plan.keys[0] ?? "");
      for (let commit = 0; commit < count; commit++)
        await act(chargeAt(plan, stepAt(plan, plan.hot ? Math.floor(commit / plan.callers) : commit)));
    });
    if (turns.length !== count) throw new Error(`${count} commits to a stream wrote it ${turns.length} times`);
    return turns;
  };

const chargeAt = ({ values }: Plan, step: number): Charge => values[step] as Charge;

export const oursAppends = contender("Pawl, stream.append", wayOf(append));
export const oursCommands = contender("Pawl, aggregate.execute", wayOf(command));
export const seeAppends = seeingOf(append);
export const seeCommands = seeingOf(command);
