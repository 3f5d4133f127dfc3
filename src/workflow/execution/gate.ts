/**
 * The gate at a claim: a worker that knows the workflow lets a run pass that could not pass it when it was started.
 */

import type { Held } from "../../kernel/claim/claim.ts";
import type { Row } from "../../kernel/contract.ts";
import type { Definition } from "../definitions/definition.ts";
import { gateRequest } from "../definitions/flow.ts";
import { passClaimed } from "../flow/gate.ts";
import { ITEM, limitAt } from "../flow/stored.ts";
import { endRun, withoutStack } from "../runs/end.ts";
import { hasBegun, type RunValue, runAt } from "../stored.ts";
import type { Engine } from "./engine.ts";

/** Whether the run has to pass: it has not begun, or it was retried and needs its places again. One that was admitted may have expired since. */
export function needsGate({ flow }: Definition, row: Row, value: RunValue): boolean {
  const { gate, collecting } = value;
  if (collecting !== undefined) return true;
  const isNew = !hasBegun(row, value);
  if (isNew && (gate?.expiresAtMs !== undefined || gate?.timeoutMs !== undefined)) return true;
  return gate?.isOpen !== true && flow !== undefined && (isNew || gate !== undefined);
}

/** Returns "open" if the code of the run may begin; otherwise it was released or has ended, in the same commit. */
export async function passAtClaim(
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
  try {
    request = gateRequest(flow ?? empty, keyed, value.gate?.priority, (limit, figures) => engine.limit(limit, figures));
  } catch (error) {
    // The functions of the user that compute its keys throw: they would do so each time.
    kernel.encode(held.at, { error });
    await held.commit((record, tx) => {
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
