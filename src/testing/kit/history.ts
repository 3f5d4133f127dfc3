/**
 * Histories as text, and their replay with the current code.
 *
 * `saveHistory` writes all that a replay needs, with one line for each fact, so that histories from production can be kept in a repository
 * as files. `replayHistory` replays such a history with a workflow's code, as a worker that takes over the run does, and returns how far the
 * code gets, or which fact it contradicts. No step runs, and nothing is written.
 *
 * Guarantees: what replays here replays in production, because the same code applies the facts (G23).
 */

import { checkId } from "../../kernel/check.ts";
import { jsonCodec } from "../../kernel/codec/json.ts";
import { address } from "../../kernel/contract.ts";
import { InvalidArgumentError } from "../../kernel/errors.ts";
import { Kernel } from "../../kernel/kernel.ts";
import { checkSchema } from "../../kernel/schema.ts";
import { nodePorts } from "../../node/ports.ts";
import { Pawl } from "../../pawl.ts";
import { MemoryDatabase } from "../../stores/memory/memory.ts";
import { type Definition, definitionOf, type Workflow } from "../../workflow/definitions/definition.ts";
import { HistoryContradictionError, RunNotFoundError, RunTimedOutError } from "../../workflow/errors.ts";
import { Context } from "../../workflow/execution/context.ts";
import { Coroutine } from "../../workflow/execution/coroutine.ts";
import type { Turns } from "../../workflow/execution/engine.ts";
import { replay } from "../../workflow/execution/replay.ts";
import { isCancellation } from "../../workflow/execution/rules.ts";
import { givenInput } from "../../workflow/flow/collect.ts";
import { skipsOf } from "../../workflow/history/forgotten.ts";
import { beginsAtMs, type Outcome, queueOf, type RunValue, runAt } from "../../workflow/stored.ts";
import { Random } from "../sim/random.ts";

/** How far the code gets with a history, or what it contradicts. */
export type Replayed<Output = unknown> =
  | { readonly ok: true; readonly status: "completed"; readonly value: Output }
  | { readonly ok: true; readonly status: "failed" | "canceled" | "timed_out"; readonly error: unknown }
  /** The run has not ended: the operations that it waits for, such as "step charge" or "sleep 1". */
  | { readonly ok: true; readonly status: "waiting"; readonly waitsFor: readonly string[] }
  | { readonly ok: false; readonly contradiction: HistoryContradictionError };

interface Saved {
  readonly pawl: typeof FORMAT;
  readonly run: Pick<
    RunValue,
    "workflow" | "incarnation" | "seed" | "startedAtMs" | "scheduledAtMs" | "admittedAtMs" | "skips" | "retriedAt"
  > & {
    readonly id: string;
  };
  readonly facts: readonly { readonly name: string; readonly atMs: number; readonly data: unknown }[];
}

const FORMAT = "history/1";
const NOWHERE = { namespace: "", space: "", key: "" };
const PAGE = 500;
const MAX_VALUE_BYTES = 2 ** 30;

/** Returns the history of a run as text, from any store, without the stacks of errors. Throws `run_not_found`. */
export async function saveHistory(pawl: Pawl, run: string | { readonly id: string }): Promise<string> {
  if (!(pawl instanceof Pawl)) throw new InvalidArgumentError("the handle", "must be a Pawl, as open returns it");
  const { kernel } = pawl;
  const id = checkId(typeof run === "object" && run !== null ? run.id : run, "the run's id");
  const at = runAt(id);
  const [row] = await kernel.read([at]);
  if (row === undefined || row === null || row.value === null) throw new RunNotFoundError(id);
  const value = kernel.decodeFresh(at, row.value) as RunValue;
  const { workflow, incarnation, seed, startedAtMs, scheduledAtMs, admittedAtMs, from, retriedAt } = value;
  const skips = await skipsOf(kernel, at, value);
  const facts: string[] = [];
  for (let after = from - 1; ; ) {
    const page = await kernel.entries(at, after, PAGE);
    for (const { version, name, data, atMs } of page) {
      after = version;
      facts.push(JSON.stringify({ name, atMs, data: portable(kernel.decodeFresh(at, data)) }));
    }
    if (page.length < PAGE) break;
  }
  const shifted = skips.map(([first, last]) => [first - from + 1, last - from + 1]);
  const head = {
    id,
    workflow,
    incarnation,
    seed,
    startedAtMs,
    ...(scheduledAtMs === undefined ? {} : { scheduledAtMs }),
    ...(admittedAtMs === undefined ? {} : { admittedAtMs }),
    ...(shifted.length === 0 ? {} : { skips: shifted }),
    ...(retriedAt === undefined ? {} : { retriedAt: retriedAt - from + 1 }),
  };
  return `{"pawl":"${FORMAT}","run":${JSON.stringify(head)},"facts":[\n${facts.join(",\n")}\n]}\n`;
}

/** Encodes with the JSON codec, whatever the store's codec is; without stacks, which have paths of one machine. */
function portable(value: unknown): unknown {
  return JSON.parse(jsonCodec.encode(value, NOWHERE), (key, part: unknown) => {
    if (key !== "$error" || typeof part !== "object" || part === null) return part;
    return Object.fromEntries(Object.entries(part).filter(([name]) => name !== "stack"));
  });
}

/** Replays a saved history with the code of a workflow, and returns how far it gets. */
export async function replayHistory<Output>(
  workflow: Workflow<never, Output>,
  history: string,
): Promise<Replayed<Output>> {
  const definition = definitionOf(workflow);
  if (definition === undefined) throw new InvalidArgumentError("the workflow", "must be one that workflow() returned");
  const { run, facts } = parse(history);
  if (run.workflow !== definition.name)
    throw new InvalidArgumentError("the history", `must be of "${definition.name}": it is of "${run.workflow}"`);
  const { id, ...rest } = run;
  const value: RunValue = { ...rest, from: 1 };
  const at = runAt(id);
  const coroutine = new Coroutine(id, beginsAtMs(value));
  const kernel = await kernelWith(id, value, facts);
  try {
    await replay({
      kernel,
      at,
      value,
      coroutine,
      begin: (started) => {
        const input = givenInput(definition.flow?.collect, started);
        const ctx = new Context(coroutine, definition, value, NO_TURNS, () => {});
        const begin = (): void => coroutine.begin(definition, ctx, input);
        if (nodePorts.bodies === undefined) begin();
        else nodePorts.bodies.run({ run: id }, begin);
      },
      isOver: () => false,
    });
  } catch (error) {
    if (error instanceof HistoryContradictionError) return { ok: false, contradiction: error };
    throw error;
  } finally {
    await kernel.close();
  }
  return reached(definition, coroutine);
}

/** How long the schema of the output may take. */
const OUTPUT_MS = 60_000;

async function reached<Output>(definition: Definition, coroutine: Coroutine): Promise<Replayed<Output>> {
  const { outcome } = coroutine;
  if (outcome === undefined) return { ok: true, status: "waiting", waitsFor: [...coroutine.waiting.keys()] };
  const ended: Outcome =
    "error" in outcome || definition.output === undefined
      ? outcome
      : await checkSchema(definition.output, outcome.ok, "the run's output", {
          ports: nodePorts,
          patienceMs: OUTPUT_MS,
        }).then(
          (ok) => ({ ok }),
          (error: unknown) => ({ error }),
        );
  if (!("error" in ended)) return { ok: true, status: "completed", value: ended.ok as Output };
  const { error } = ended;
  const isCanceled = isCancellation(error, coroutine.runId);
  const status = !isCanceled ? "failed" : error instanceof RunTimedOutError ? "timed_out" : "canceled";
  return { ok: true, status, error };
}

/** Returns a kernel in memory with the facts, each at its time. */
async function kernelWith(id: string, value: RunValue, facts: Saved["facts"]): Promise<Kernel> {
  let nowMs = value.startedAtMs;
  const random = new Random(1);
  const ports = {
    clock: { nowMs: () => nowMs, after: () => () => {}, soon: nodePorts.clock.soon },
    chance: { random: () => random.unit(), uuid: () => random.uuid(), stamp: random.stamp },
  };
  const store = new MemoryDatabase(() => nowMs).connect("replay");
  const kernel = new Kernel(store, ports, { namespace: "replay", maxValueBytes: MAX_VALUE_BYTES });
  const at = runAt(id);
  await kernel.transact((tx) => tx.record(at).write({ value, kind: queueOf(value.workflow), status: "parked" }), [at]);
  for (const { name, atMs, data } of facts) {
    nowMs = atMs;
    await kernel.transact((tx) => tx.record(at).appendText(name, JSON.stringify(data)), [at]);
  }
  return kernel;
}

function parse(text: string): Saved {
  let saved: unknown;
  try {
    saved = JSON.parse(text);
  } catch {
    throw new InvalidArgumentError("the history", "must be text that saveHistory returned: it is not JSON");
  }
  if (!isSaved(saved)) throw new InvalidArgumentError("the history", "must be text that saveHistory returned");
  return saved;
}

function isSaved(saved: unknown): saved is Saved {
  if (!isObject(saved) || saved["pawl"] !== FORMAT) return false;
  const { run, facts } = saved;
  const isRun =
    isObject(run) &&
    [run["id"], run["workflow"], run["seed"]].every((text) => typeof text === "string") &&
    [run["incarnation"], run["startedAtMs"]].every((number) => typeof number === "number");
  const isFact = (fact: unknown): boolean =>
    isObject(fact) && typeof fact["name"] === "string" && typeof fact["atMs"] === "number" && "data" in fact;
  return isRun && Array.isArray(facts) && facts.every(isFact);
}

const isObject = (value: unknown): value is Record<string, unknown> => typeof value === "object" && value !== null;

/** At replay, the history has the turns of rate limits. */
const NO_TURNS: Turns = {
  declares: () => false,
  limit: (name) => ({ recordOf: () => address("rate", name), reserveIn: () => ({ isGranted: true, waitMs: 0 }) }),
};
