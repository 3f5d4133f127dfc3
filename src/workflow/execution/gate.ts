/**
 * The gate at a claim: a worker that knows the workflow lets a run pass that could not pass it when it was started.
 *
 * The functions of the user that compute keys from the input run here, before the code of the run. They are poison as its code may be: a run that ends
 * its process here is parked after its tries too (G21).
 */

import type { Held } from "../../kernel/claim/claim.ts";
import type { Row } from "../../kernel/contract.ts";
import type { Draft } from "../../kernel/draft.ts";
import { ClosedError, FencedError, StoreError } from "../../kernel/errors.ts";
import type { Definition } from "../definitions/definition.ts";
import { gateRequest } from "../definitions/flow.ts";
import { passClaimed } from "../flow/gate.ts";
import { ITEM, limitAt } from "../flow/stored.ts";
import { runOf } from "../history/read-run.ts";
import { endRun, withoutStack } from "../runs/end.ts";
import { hasBegun, type RunValue, runAt } from "../stored.ts";
import { reasonOf } from "./ending.ts";
import type { Engine } from "./engine.ts";
import { park } from "./holder.ts";

/** Whether the run has to pass: it has not begun, or it was retried and needs its places again. One that was admitted may have expired since. */
export function needsGate({ flow }: Definition, row: Row, value: RunValue): boolean {
  const { gate, collecting } = value;
  if (collecting !== undefined) return true;
  const isNew = !hasBegun(row, value);
  if (isNew && (gate?.expiresAtMs !== undefined || gate?.timeoutMs !== undefined)) return true;
  return gate?.isOpen !== true && flow !== undefined && (isNew || gate !== undefined);
}

/** How long a run waits that did not pass because the store failed. */
const PUT_BACK_MS = 100;

/** The code of the run may begin; it was released; it has ended, or was parked. All but the first are committed. */
export type Passage = { readonly is: "open" | "waits" | "ended" } | { readonly is: "parked"; readonly message: string };

/** Lets a claimed run pass, as far as that is possible now. A run that was claimed too often for that is parked. */
export async function passAtClaim(
  engine: Engine,
  held: Held,
  row: Row,
  value: RunValue,
  definition: Definition,
): Promise<Passage> {
  const { maxTries } = definition;
  if (held.tries > maxTries) return parkAtGate(held, `it was claimed ${held.tries} times without getting anywhere`);
  try {
    return { is: await tryToPass(engine, held, row, value, definition) };
  } catch (error) {
    if (error instanceof FencedError || error instanceof ClosedError) throw error;
    if (error instanceof StoreError) return putBack(engine, held, definition, error);
    // Otherwise it is claimed again after a while.
    if (held.tries < maxTries) throw error;
    return parkAtGate(held, reasonOf(error));
  }
}

/** A failure of the store counts as no try. */
async function putBack(engine: Engine, held: Held, { name }: Definition, error: StoreError): Promise<Passage> {
  engine.emit({ type: "run.trouble", workflow: name, run: held.at.key, error });
  await held.commit((record, tx) => record.write({ holder: null, dueMs: tx.nowMs + PUT_BACK_MS, tries: 0 }));
  return { is: "waits" };
}

async function parkAtGate(held: Held, message: string): Promise<Passage> {
  await held.commit((record) => {
    keepGate(record);
    park(record, message);
  });
  return { is: "parked", message };
}

/** A run that is retried passes the gate if it has one, although its history has begun then. */
function keepGate(record: Draft): void {
  const value = runOf(record);
  if (value.gate === undefined) record.write({ value: { ...value, gate: {} } });
}

async function tryToPass(
  engine: Engine,
  held: Held,
  row: Row,
  value: RunValue,
  { name, flow, timeoutMs }: Definition,
): Promise<"open" | "waits" | "ended"> {
  const { kernel } = engine;
  const items = value.collecting?.by === "batch" ? await itemsOf(engine, row, value) : undefined;
  const input = items ?? (await inputOf(engine, row, value));
  const empty = {
    workflow: name,
    limits: [],
    fairness: undefined,
    pools: undefined,
    rates: [],
    collect: undefined,
    priority: undefined,
    ttlMs: null,
  };
  // The keys of a batch are those of its first input.
  const keyed = items === undefined ? input : items[0];
  let request: ReturnType<typeof gateRequest>;
  // If one of the functions never returns, the watchdog names this run.
  engine.running(held.at.key);
  try {
    request = gateRequest(flow ?? empty, keyed, value.gate?.priority, (limit, figures) => engine.limit(limit, figures));
  } catch (error) {
    // The functions of the user that compute its keys throw: they would do so each time.
    kernel.encode(held.at, { error });
    await held.commit((record, tx) => {
      keepGate(record);
      record.append("failed", { status: "failed", error: withoutStack(error) });
      endRun(tx, record, held.at.key, "failed", { error: withoutStack(error) });
    });
    return "ended";
  }
  return held.commit(
    (record, tx) =>
      passClaimed(tx, record, {
        request,
        timeoutMs,
        ttlMs: flow?.ttlMs ?? null,
        items,
        takes: (pool) => engine.takes(name, pool),
      }),
    [
      ...(value.gate?.isRated === true ? [] : request.rates.map(({ at }) => at)),
      ...request.places.map(({ ref }) => limitAt(ref)),
    ],
  );
}

async function itemsOf({ kernel }: Engine, row: Row, { from }: RunValue): Promise<readonly unknown[]> {
  const items: unknown[] = [];
  for await (const { name, data } of kernel.entriesAfter(runAt(row.key), from - 1))
    if (name === ITEM) items.push((kernel.decodeFresh(row, data) as { input: unknown }).input);
  return items;
}

async function inputOf({ kernel }: Engine, row: Row, value: RunValue): Promise<unknown> {
  if (value.collecting !== undefined) return value.collecting.input;
  if ("input" in value) return value.input;
  const [started] = await kernel.entries(runAt(row.key), value.from - 1, 1);
  return started === undefined ? undefined : (kernel.decodeFresh(row, started.data) as { input: unknown }).input;
}
