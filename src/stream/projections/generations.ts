/**
 * Decisions on the records of projections: beginning a generation, letting readers see it, retiring one.
 */

import type { Address } from "../../kernel/contract.ts";
import type { Tx } from "../../kernel/decision.ts";
import type { Kernel } from "../../kernel/kernel.ts";
import {
  type Change,
  type Codes,
  decideBuild,
  decideCode,
  decideRebuild,
  decideRefresh,
  decideSwap,
} from "./decide.ts";
import type { ProjectionRules } from "./definition.ts";
import {
  GENERATIONS,
  type GenerationValue,
  generationAt,
  generationQueueOf,
  PROJECTIONS,
  type ProjectionValue,
  projectionAt,
  RETIRED,
  rowSpaceOf,
} from "./stored.ts";

/** The generations of a projection, as a decision finds them. */
interface Found {
  readonly value: ProjectionValue | undefined;
  readonly live: GenerationValue | undefined;
  readonly building: GenerationValue | undefined;
  readonly codes: Codes;
}

function find(tx: Tx, name: string): Found {
  const value = tx.record(projectionAt(name)).value as ProjectionValue | undefined;
  const generation = (number: number | undefined): GenerationValue | undefined =>
    number === undefined ? undefined : (tx.record(generationAt(name, number)).value as GenerationValue | undefined);
  const live = generation(value?.live);
  const building = generation(value?.building);
  return { value, live, building, codes: { live: live?.by, building: building?.by } };
}

/** Begins a generation where there is none of this code. Returns false if other code has replaced it. */
export function ensureGeneration(tx: Tx, rules: ProjectionRules): boolean {
  const { name, by } = rules;
  const found = find(tx, name);
  const outcome = decideCode(found.value, found.codes, by);
  if (outcome === "build") build(tx, found, madeBy(rules));
  return outcome !== "leave";
}

/**
 * Begins a generation with the code of the one that readers see. Returns its number, or that of the one that is being built and gets ahead. `isKept`: it
 * leaves out events that were removed.
 */
export function rebuild(tx: Tx, name: string, rules: ProjectionRules | undefined, isKept: boolean): number | undefined {
  const found = find(tx, name);
  const { value, live, building } = found;
  const like = rules === undefined ? (live ?? building) : madeBy(rules);
  if (value === undefined || like === undefined) return undefined;
  const { kept: _, ...rest } = like;
  const made: Made = isKept || rules?.from === "kept" ? { ...rest, kept: true } : rest;
  const outcome = decideRebuild(
    building && { by: building.by, hasFailed: building.failure !== undefined, isKept: building.kept === true },
    { by: made.by, isKept: made.kept === true },
  );
  return outcome === "keep" && building !== undefined ? building.generation : build(tx, found, made);
}

/**
 * Events that a generation lacks were removed while it was built: it is given up for a new one, which reads them from the archive. Returns false if it
 * is not the one that is built.
 */
export function beginAgain(tx: Tx, mine: GenerationValue): boolean {
  const found = find(tx, mine.projection);
  if (found.value?.building !== mine.generation) return false;
  build(tx, found, mine);
  return true;
}

/** A person was forgotten: a projection that may have personal data is built again, so that its rows lose them. */
function refresh(tx: Tx, name: string): void {
  const found = find(tx, name);
  const { value, live, building } = found;
  if (value === undefined) return;
  const outcome = decideRefresh(value, live?.isPersonal === true || building?.isPersonal === true);
  if (outcome === "build" && live !== undefined) build(tx, found, live);
  else if (outcome === "mark") tx.record(projectionAt(name)).write({ value: { ...value, isStale: true } });
}

/** The same for all projections. */
export async function refreshAll(kernel: Kernel): Promise<void> {
  for await (const { key } of kernel.rows(PROJECTIONS))
    await kernel.transact((tx) => refresh(tx, key), [projectionAt(key)]);
}

type Made = Pick<GenerationValue, "projection" | "by" | "on" | "kept" | "isPersonal" | "isSql">;

function madeBy({ name, by, types, is, from }: ProjectionRules): Made {
  const isPersonal = [...types.values()].some((type) => type.isPersonal);
  return {
    projection: name,
    by,
    on: [...types.keys()].toSorted(),
    ...(from === "kept" ? { kept: true as const } : {}),
    ...(isPersonal ? { isPersonal } : {}),
    ...(is === "sql" ? { isSql: true } : {}),
  };
}

function build(tx: Tx, { value, codes }: Found, { projection: name, by, on, kept, isPersonal, isSql }: Made): number {
  // Each generation is a write of this record, and its version rises through a deletion.
  const change = decideBuild(value, codes, by, tx.record(projectionAt(name)).version);
  write(tx, name, change);
  const generation = change.value.last;
  tx.record(generationAt(name, generation)).write({
    value: {
      projection: name,
      by,
      on,
      ...(kept === true ? { kept } : {}),
      ...(isPersonal === true ? { isPersonal } : {}),
      ...(isSql === true ? { isSql } : {}),
      generation,
      cursor: 0,
    } satisfies GenerationValue,
    kind: generationQueueOf(name, by),
    dueMs: tx.nowMs,
  });
  return generation;
}

/** Lets readers see this generation, if it is the one that is built and has caught up. Returns the one before, null if there was none, or undefined. */
export function swap(tx: Tx, mine: GenerationValue, cursor: number): number | null | undefined {
  const { projection: name, generation, by } = mine;
  const { value, live, codes } = find(tx, name);
  const change = decideSwap(value, codes, { generation, by, cursor }, live?.cursor);
  if (change === null) return undefined;
  write(tx, name, change);
  if (value?.isStale === true) build(tx, find(tx, name), mine);
  return live?.generation ?? null;
}

/**
 * The generation that readers see stays where it is from now on, so that this one, which is less than a page behind it, gets there however many events
 * come meanwhile. It ends with the swap, or when this worker, known by its fence, does not hold the generation any more.
 */
export function holdBack(tx: Tx, { projection: name, generation, failure }: GenerationValue, fence: number): void {
  const { value, live } = find(tx, name);
  if (value?.building !== generation || live === undefined || failure !== undefined) return;
  if (live.heldFor?.generation === generation && live.heldFor.fence === fence) return;
  tx.record(generationAt(name, live.generation)).write({
    value: { ...live, heldFor: { generation, fence } } satisfies GenerationValue,
  });
}

/** Removes a projection: its generations are retired. Returns whether there was one. */
export function removeProjection(tx: Tx, name: string): boolean {
  const record = tx.record(projectionAt(name));
  const { value } = find(tx, name);
  if (value === undefined) return false;
  for (const generation of [value.live, value.building]) if (generation !== undefined) retire(tx, name, generation);
  record.remove();
  return true;
}

function write(tx: Tx, name: string, { value, retired }: Change): void {
  tx.record(projectionAt(name)).write({ value });
  for (const generation of retired) retire(tx, name, generation);
}

/** Its worker, if there is one, is refused from now on; its rows are removed by a chore. */
function retire(tx: Tx, name: string, generation: number): void {
  const record = tx.record(generationAt(name, generation));
  if (!record.exists) return;
  record.write({ kind: RETIRED, holder: null, dueMs: tx.nowMs, wakes: record.wakes + 1, tries: 0 });
}

/** One commit removes at most this many rows. */
const MOST_REMOVED = 200;

/** Removes the rows of a retired generation, and then the generation. */
export async function removeRetired(kernel: Kernel, at: Address): Promise<boolean> {
  const [row] = await kernel.read([at]);
  if (row == null || row.value === null || row.kind !== RETIRED) return false;
  const { projection, generation } = kernel.decode(at, row.value) as GenerationValue;
  const space = rowSpaceOf(projection, generation);
  for (;;) {
    const rows = await kernel.list({ space, prefix: "", after: null, limit: MOST_REMOVED });
    if (rows.length === 0) break;
    const all = rows.map(({ key }) => ({ space, key, text: `${space}\n${key}` }));
    await kernel.transact((tx) => {
      for (const one of all) if (tx.record(one).exists) tx.record(one).remove();
    }, all);
  }
  await kernel.transact((tx) => tx.record(at).remove(), [at]);
  return true;
}

export const isGeneration = ({ space }: { readonly space: string }): boolean => space === GENERATIONS;
