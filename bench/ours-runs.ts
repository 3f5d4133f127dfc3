/**
 * Ours as users of workflows meet it: each caller starts a run and waits for its result before it starts the next.
 *
 * A run of N plain steps is N + 1 commits to one record. The limit is the bare group commit of the very rows that such a run writes.
 */

import type { Contender, Session, Timing } from "./contender.ts";
import type { Place } from "./ground.ts";
import { type Ours, openOurs } from "./ours.ts";
import type { Plan } from "./plan.ts";
import { stepsWorkflow as runs, stepsGive } from "./run-rows.ts";

class RunsSession implements Session {
  readonly #ours: Ours;

  constructor(ours: Ours) {
    this.#ours = ours;
    ours.pawl.work([runs], { concurrency: 1000 });
  }

  async run(plan: Plan): Promise<Timing> {
    const steps = plan.commitsPerRecord - 1;
    const turns = Math.floor(plan.turns / plan.commitsPerRecord);
    const { pawl } = this.#ours;
    stepsGive(plan.values);
    const latenciesMs: number[] = [];
    let last = "";
    const call = async (): Promise<void> => {
      for (let turn = 0; turn < turns; turn++) {
        const startedMs = performance.now();
        const run = await pawl.start(runs, steps);
        if ((await run.result()) !== steps) throw new Error("a run has a wrong result");
        last = run.id;
        if (plan.callers === 1) latenciesMs.push(performance.now() - startedMs);
      }
    };
    const before = this.#ours.transactions();
    const startedMs = performance.now();
    await Promise.all(Array.from({ length: plan.callers }, call));
    const ms = performance.now() - startedMs;
    const transactions = this.#ours.transactions() - before;
    const facts = await pawl.run(runs, last).history();
    if (facts.length !== steps + 2) throw new Error(`a run left ${facts.length} facts instead of ${steps + 2}`);
    return { ms, transactions, latenciesMs };
  }

  close(): Promise<void> {
    return this.#ours.pawl.close();
  }
}

export const oursRuns: Contender = {
  name: "Pawl, runs",
  open: async (place: Place) => new RunsSession(await openOurs(place)),
};
