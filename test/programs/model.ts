/**
 * The model: what a case comes to where nothing fails, found by running the same programs on the simplest workflow engine there is.
 *
 * Where the order of two things decides and they are close together, or where the promises leave it open, the model is unsure and says why.
 */

import type { AnyWorkflow } from "../../src/index.ts";
import type { Features } from "./features.ts";
import { bodyOf, codeOf, type Place, show } from "./interpret.ts";
import { Ledger } from "./ledger.ts";
import { driven, modelCtx } from "./model-ctx.ts";
import { ModelError, ModelOperation, ModelRun } from "./model-run.ts";
import { CLOSE_MS, ModelWorld } from "./model-world.ts";
import type { Case } from "./program.ts";
import type { Told } from "./stage.ts";

export interface Modeled {
  readonly unsure: string | undefined;
  readonly told: ReadonlyMap<string, Told | "waits">;
  readonly runs: ReadonlyMap<string, { readonly workflow: string; readonly status: string }>;
  readonly ledger: Ledger;
}

const UNTIL_MS = 40 * 60_000;

export interface ModelOptions {
  /** Whether what failed until it is mended succeeds. */
  readonly isMended: boolean;
  /** How many transactions of `step.tx` a process may have open. */
  readonly transactions: number;
}

export async function modelCase(plan: Case, features: Features, options: ModelOptions): Promise<Modeled> {
  const { isMended, transactions } = options;
  const world = new ModelWorld(transactions);
  const ledger = new Ledger();
  ledger.isMended = isMended;
  const runs = new Map<string, ModelRun>();
  const place: Place = {
    ledger,
    features,
    sleep: (ms) => world.sleep(ms),
    lockOutside: async () => {},
    workflows: () => plan.workflows as readonly unknown[] as readonly AnyWorkflow[],
    hasEnded: () => false,
    inStep: (id, ask) => {
      const run = runs.get(id);
      if (run === undefined) return ask();
      run.isInStep = true;
      try {
        return ask();
      } finally {
        run.isInStep = false;
      }
    },
    awaitsForeign: (run, foreign) => runs.get(run)?.awaitForeign(foreign),
    raced: (branches, wins) => {
      const times = branches.map(() => Number.POSITIVE_INFINITY);
      for (const [at, branch] of branches.entries()) {
        const settled = (): void => {
          times[at] = world.nowMs;
          const [first = 0, second = 0] = times.toSorted((a, b) => a - b);
          if (second - first < CLOSE_MS) world.doubt("two branches of a race settled close together");
          if (wins === "first")
            for (const other of branches) if (other instanceof ModelOperation) other.isAbandoned = true;
        };
        branch.then(wins === "first" ? settled : () => {}, settled);
      }
    },
    note: {
      begun: (run, name, kind, step) => {
        ledger.begun.push({ run, name, kind, ...step, by: "", atMs: world.nowMs, at: { rewinds: 0, commits: 0 } });
        return () => {};
      },
    },
  };
  const bodies = plan.workflows.map((workflow) => bodyOf(workflow, place));
  const begin = (id: string, workflow: number, input: unknown): ModelRun => {
    const run = new ModelRun(world, id, workflow, input);
    runs.set(id, run);
    const { timeoutMs } = plan.workflows[workflow] ?? {};
    if (timeoutMs !== undefined) world.after(timeoutMs, () => run.cancel("run_timed_out"));
    const ctx = modelCtx(run, { start, cancelsLosers: features.raceCancels });
    const body = bodies[workflow];
    if (body === undefined) throw new Error("no such workflow");
    const given = (): unknown => body(ctx as never, input);
    // Not before whoever started it has gone on.
    void Promise.resolve()
      .then(() => driven(given()))
      .then(
        (ok) => run.returned({ ok }),
        (error: unknown) => run.returned({ error }),
      );
    return run;
  };
  const start = (id: string, name: string, input: unknown): ModelRun => {
    const workflow = plan.workflows.findIndex((one) => one.name === name);
    const known = runs.get(id);
    if (known === undefined) return begin(id, workflow, input);
    if (known.workflow !== workflow || known.input !== input) throw new ModelError("run_conflict");
    return known;
  };
  for (const { id, workflow, startMs, cancelMs } of plan.runs) {
    world.after(startMs, () => void begin(id, workflow, 1));
    if (cancelMs !== undefined) world.after(startMs + cancelMs, () => runs.get(id)?.cancel("run_canceled"));
  }
  for (const { run, name, atMs } of plan.signals) {
    const startMs = plan.runs.find(({ id }) => id === run)?.startMs ?? 0;
    world.after(startMs + atMs, () => runs.get(run)?.signal(name));
  }
  await world.run(UNTIL_MS);
  const told = new Map<string, Told | "waits">();
  for (const { id } of plan.runs) told.set(id, toldOf(runs.get(id)));
  return {
    unsure: world.unsure,
    told,
    runs: new Map(
      [...runs].map(([id, run]) => {
        const status = run.isStuck ? "canceled" : run.status;
        return [id, { workflow: plan.workflows[run.workflow]?.name ?? "", status }];
      }),
    ),
    ledger,
  };
}

function toldOf(run: ModelRun | undefined): Told | "waits" {
  const { outcome, status } = run ?? {};
  if (outcome === undefined || status === undefined || status === "running") return "waits";
  if ("ok" in outcome) return { status: "completed", value: show(outcome.ok) };
  return { status: status === "completed" ? "failed" : status, code: codeOf(outcome.error) };
}
