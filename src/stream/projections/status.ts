/**
 * What projections are doing: `pawl.projections`, and the status of one. What is shown comes from the records alone, so it can be asked for by a process without
 * the code of the projections.
 */

import type { Row } from "../../kernel/contract.ts";
import type { Kernel } from "../../kernel/kernel.ts";
import { STREAMS } from "../stored.ts";
import { GENERATIONS, type GenerationValue, generationAt, PROJECTIONS, type ProjectionValue } from "./stored.ts";

/** One generation of a projection. */
export interface ProjectionGeneration {
  readonly generation: number;
  /** How many events it lacks; at most 1,000 are counted. */
  readonly behind: number;
  /** When the oldest of them was committed. */
  readonly behindSince: Date | null;
  /** Why it does not get ahead. */
  readonly failure: {
    readonly count: number;
    readonly message: string;
    /** Where it was thrown: the frames, at most 2,000 characters. A server does not send it. */
    readonly stack?: string | undefined;
    /** That of an error of Pawl's, as "events_archived"; null for what the code of the projection threw. */
    readonly code: string | null;
    readonly at: Date;
    readonly stream: string;
    readonly version: number;
  } | null;
  /** The worker that makes it; null if none has its code now. */
  readonly worker: string | null;
}

export interface ProjectionStatus {
  /** What readers see; null while it is built for the first time. */
  readonly live: ProjectionGeneration | null;
  /** What is being built beside it. */
  readonly building: ProjectionGeneration | null;
}

/** One of the projections of `pawl.projections.list`. */
export interface ProjectionInfo extends ProjectionStatus {
  readonly name: string;
}

const MOST_COUNTED = 1000;
const PAGE = 200;

export class Projections {
  readonly #kernel: Kernel;

  constructor(kernel: Kernel) {
    this.#kernel = kernel;
  }

  /** All projections that a worker has begun to build and that were not deleted, in the order of their names. */
  async list(): Promise<readonly ProjectionInfo[]> {
    const infos: ProjectionInfo[] = [];
    for (let after: string | null = null; ; ) {
      const rows: readonly Row[] = await this.#kernel.list({ space: PROJECTIONS, prefix: "", after, limit: PAGE });
      for (const row of rows) {
        const value = this.#kernel.decode(row, row.value ?? "") as ProjectionValue;
        infos.push({ name: row.key, ...(await statusOf(this.#kernel, row.key, value)) });
      }
      if (rows.length < PAGE) return infos;
      after = rows.at(-1)?.key ?? null;
    }
  }
}

export async function statusOf(
  kernel: Kernel,
  name: string,
  { live, building }: ProjectionValue,
): Promise<ProjectionStatus> {
  // The store's clock: a holder whose lease has ended is no worker any more, though no other has taken over.
  const { nowMs } = await kernel.due({ kinds: [GENERATIONS], limit: 1 });
  const [one, other] = await Promise.all([
    generationOf(kernel, name, live, nowMs),
    generationOf(kernel, name, building, nowMs),
  ]);
  return { live: one, building: other };
}

async function generationOf(
  kernel: Kernel,
  name: string,
  generation: number | undefined,
  nowMs: number,
): Promise<ProjectionGeneration | null> {
  if (generation === undefined) return null;
  const [row] = await kernel.read([generationAt(name, generation)]);
  if (row == null || row.value === null) return null;
  const { on, cursor, failure } = kernel.decode(row, row.value) as GenerationValue;
  let behind = 0;
  let sinceMs: number | undefined;
  for (let after = cursor, hasMore = true; hasMore && behind < MOST_COUNTED; ) {
    const page = await kernel.follow({ space: STREAMS, names: on, after, limit: MOST_COUNTED });
    sinceMs ??= page.entries[0]?.atMs;
    behind += page.entries.length;
    hasMore = page.hasMore && page.upTo > after;
    after = page.upTo;
  }
  return {
    generation,
    behind: Math.min(behind, MOST_COUNTED),
    behindSince: sinceMs === undefined ? null : new Date(sinceMs),
    failure: failure === undefined ? null : showFailure(failure),
    worker: row.dueMs !== null && row.dueMs > nowMs ? row.holder : null,
  };
}

const showFailure = ({ atMs, code, ...rest }: NonNullable<GenerationValue["failure"]>) => ({
  ...rest,
  code: code ?? null,
  at: new Date(atMs),
});
