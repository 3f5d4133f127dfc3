/**
 * Decisions on the records of instances: reads the record, applies the rules of `decide.ts`, and writes the result.
 */

import type { Tx } from "../kernel/decision.ts";
import type { Draft } from "../kernel/draft.ts";
import type { Kernel } from "../kernel/kernel.ts";
import { originOf } from "../kernel/origin.ts";
import { type Decided, decideCreate, decideTransition, type Instance } from "./decide.ts";
import type { MachineRules } from "./definition.ts";
import { type CreateRequest, eventAddress, type TransitionRequest } from "./request.ts";
import { fieldsOf, type TryCreate, type TryTransition, toPublic } from "./results.ts";
import type { By, EventValue, InstanceValue } from "./stored.ts";

export function create<State extends string, Data>(
  tx: Tx,
  rules: MachineRules,
  { id, at, by, data }: CreateRequest,
): TryCreate<State, Data> {
  const record = tx.record(at);
  const now = instanceOf(record);
  if (now !== undefined) return { ok: false, code: "machine_exists", state: now.state as State, version: now.version };
  write(record, undefined, decideCreate(rules, id, data, record.head, attributed(tx, by)));
  return { ok: true, ...toPublic<State, Data>(rules, existing(record)) };
}

/** Who does it: as the call names it, or as the handle or the decision has it (`pawl.with`). */
function attributed(tx: Tx, by: By): By {
  const actor = originOf(tx)?.actor;
  return actor === undefined ? by : { actor, ...by };
}

/** Attempts a transition and writes its outcome; a refusal is written only if `isRecorded`. */
export function transition<State extends string, Data>(
  kernel: Kernel,
  tx: Tx,
  rules: MachineRules,
  request: TransitionRequest,
  isRecorded: boolean,
): TryTransition<State, Data> {
  const { id, at, eventAt } = request;
  const by = attributed(tx, request.by);
  const record = tx.record(at);
  const event = eventAt === undefined ? undefined : tx.record(eventAt);
  const before = instanceOf(record);
  if (before === undefined && !rules.isCreatedByEvents) return { ok: false, code: "machine_not_found" };
  // Encoded and decoded, so that guards see the data as it will be read later.
  const initialData = () => kernel.decode(at, kernel.encode(at, rules.initialData));
  const { event: _event, ...creator } = by;
  const first = before === undefined ? decideCreate(rules, id, initialData(), record.head, creator) : undefined;
  const decided = decideTransition(rules, first?.instance ?? (before as Instance), {
    ...request,
    by,
    isFirst: first !== undefined,
    remembered: event?.exists === true ? (event.value as EventValue) : undefined,
    nowMs: () => tx.nowMs,
  });
  const { result, entries, dropped } = decided;
  if (result.ok || isRecorded) write(record, before, { ...decided, entries: [...(first?.entries ?? []), ...entries] });
  if (!result.ok) return result as TryTransition<State, Data>;
  if (!result.deduplicated) event?.write({ value: { to: request.to } satisfies EventValue });
  for (const one of dropped) if (one.event !== undefined) tx.record(eventAddress(rules, id, one.event)).remove();
  return { ...toPublic<State, Data>(rules, existing(record)), ...result, applied: result.applied as readonly State[] };
}

function write(record: Draft, before: Instance | undefined, { instance, entries }: Decided): void {
  const { version, data, parked, state } = instance;
  if (instance !== before) {
    const deletedUpTo = before === undefined ? record.head : ((record.value as InstanceValue).deletedUpTo ?? 0);
    const value: InstanceValue = {
      version,
      ...(deletedUpTo === 0 ? {} : { deletedUpTo }),
      ...(data === undefined ? {} : { data }),
      ...(parked.length === 0 ? {} : { parked }),
    };
    record.write({ value, status: state });
  }
  for (const entry of entries) record.append(entry.name, entry.data);
}

export function instanceOf(record: Draft): Instance | undefined {
  if (!record.exists) return undefined;
  const value = record.value as InstanceValue;
  return { id: record.at.key, state: record.status ?? "", ...fieldsOf(value), head: record.head };
}

function existing(record: Draft): Instance {
  const instance = instanceOf(record);
  if (instance === undefined)
    throw new Error(`${record.at.space} ${record.at.key} does not exist, although it was just written`);
  return instance;
}
