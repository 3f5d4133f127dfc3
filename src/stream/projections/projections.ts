/**
 * Reading and operating projections: `pawl.projection`. A reader sees one generation as a whole: rows are read together with the record that says
 * which generation is to be seen.
 */

import {
  checkCount,
  checkDuration,
  checkId,
  checkOptions,
  checkPrefix,
  checkVersion,
  type Duration,
  optionNames,
} from "../../kernel/check.ts";
import type { Row as StoredRow } from "../../kernel/contract.ts";
import { InvalidArgumentError } from "../../kernel/errors.ts";
import type { Kernel } from "../../kernel/kernel.ts";
import { pause } from "../../kernel/ports.ts";
import { RecordWatch } from "../../kernel/record-watch.ts";
import { ProjectionBuildingError, ProjectionNotFoundError, ProjectionTimeoutError } from "../errors.ts";
import { keptUpTo } from "../reading.ts";
import { streamAt } from "../stored.ts";
import { type Projection, type ProjectionRules, projectionRules, type SqlProjection } from "./definition.ts";
import { isGeneration, rebuild, removeProjection } from "./generations.ts";
import { type ProjectionStatus, statusOf } from "./status.ts";
import {
  type GenerationValue,
  generationAt,
  type ProjectionValue,
  projectionAt,
  RETIRED,
  rowAt,
  rowSpaceOf,
} from "./stored.ts";

/** A row of a projection. */
export interface ProjectionRow<Row> {
  readonly key: string;
  readonly row: Row;
}

export interface ProjectionListOptions {
  readonly prefix?: string | undefined;
  /** `next` of the page before. */
  readonly after?: string | undefined;
  /** Default: 100. */
  readonly limit?: number | undefined;
}

export interface ProjectionPage<Row> {
  readonly rows: readonly ProjectionRow<Row>[];
  readonly next: string | null;
}

export interface ProjectionRebuildOptions {
  /**
   * "kept": events that were removed are left out, and so is all that only they said. For events that were discarded, or whose archive is gone.
   * Default: all events, those that were removed from the archive.
   */
  readonly from?: "kept" | undefined;
}

/** An append, as `append` or a command returned it. */
export interface AppendedAt {
  readonly stream: string;
  readonly version: number;
}

const LIST_OPTIONS = optionNames<ProjectionListOptions>({ prefix: true, after: true, limit: true });
const REBUILD_OPTIONS = optionNames<ProjectionRebuildOptions>({ from: true });
const WAIT_OPTIONS = optionNames<{ timeout?: unknown }>({ timeout: true });
const PAGE = 500;
const BURST_MS = 5;
const DONE = "done";

/** What handles share. */
export interface ProjectionSetup {
  readonly kernel: Kernel;
  readonly watch: RecordWatch;
}

export const projectionSetup = (kernel: Kernel): ProjectionSetup => ({
  kernel,
  watch: new RecordWatch(kernel, { isOfInterest: isGeneration, burstMs: BURST_MS }),
});

/** One projection, whether its rows are in Pawl's records or in tables of the user's own. */
export class ProjectionOperations {
  readonly name: string;
  protected readonly kernel: Kernel;
  readonly #watch: RecordWatch;
  readonly #rules: ProjectionRules | undefined;

  /** @internal */
  constructor({ kernel, watch }: ProjectionSetup, projection: Projection | SqlProjection | string) {
    this.kernel = kernel;
    this.#watch = watch;
    this.#rules = projectionRules(projection);
    if (typeof projection !== "string" && this.#rules === undefined)
      throw new InvalidArgumentError("the projection", "must be one that projection(…) returned, or its name");
    this.name = projectionAt(typeof projection === "string" ? projection : projection.name).key;
  }

  /** What it is doing. Throws `projection_not_found`. */
  async status(): Promise<ProjectionStatus> {
    return statusOf(this.kernel, this.name, await this.#value());
  }

  /**
   * Builds it again beside what readers see, with the code of this handle's projection; when that has caught up, readers see it. Where one is
   * being built already, that continues; if it does not get ahead (`status().building.failure`), it is given up for a new one. With `from: "kept"` it begins
   * with the events that were not removed, and so do later builds after a person was forgotten. Returns the number of the generation. Throws
   * `projection_not_found`.
   */
  async rebuild(options: ProjectionRebuildOptions = {}): Promise<number> {
    checkOptions(options, REBUILD_OPTIONS);
    const { from } = options;
    if (from !== undefined && from !== "kept") throw new InvalidArgumentError("from", 'must be "kept"');
    const generation = await this.kernel.transact(
      (tx) => rebuild(tx, this.name, this.#rules, from === "kept"),
      [projectionAt(this.name)],
    );
    if (generation === undefined) throw new ProjectionNotFoundError(this.name);
    return generation;
  }

  /** Removes it, with its rows where they are in Pawl's records. A worker that has its code builds it again when it is started. */
  async delete(): Promise<void> {
    const isRemoved = await this.kernel.transact((tx) => removeProjection(tx, this.name), [projectionAt(this.name)]);
    if (!isRemoved) throw new ProjectionNotFoundError(this.name);
  }

  /**
   * Waits until readers see what an append made of it: give it what `append` or `execute` returned. A projection that no worker knows yet is waited
   * for, too. Default: 30 s. Throws `projection_timeout`.
   */
  async waitFor(appended: AppendedAt, options: { readonly timeout?: Duration | undefined } = {}): Promise<void> {
    const { key: stream } = streamAt(appended?.stream);
    const version = checkVersion(appended.version, "the version");
    checkOptions(options, WAIT_OPTIONS);
    const timeoutMs = checkDuration(options.timeout ?? "30s", "the timeout");
    const { clock } = this.kernel.ports;
    const ended = new AbortController();
    const expired = pause(clock, timeoutMs, ended.signal).then(async () => {
      if (ended.signal.aborted) return;
      const reason = await this.#whyLate().catch(() => null);
      throw new ProjectionTimeoutError(this.name, stream, version, timeoutMs, reason);
    });
    try {
      await Promise.race([this.#reached(stream, version, ended.signal), expired]);
    } finally {
      ended.abort(DONE);
      expired.catch(() => {});
    }
  }

  /** What keeps it from getting ahead, as far as its records say that. */
  async #whyLate(): Promise<string | null> {
    const found = await this.#found();
    const shown = found?.live ?? found?.building;
    const [row] = shown === undefined ? [] : await this.kernel.read([generationAt(this.name, shown)]);
    if (row == null || row.value === null)
      return "no worker has begun it; one that is started with it (pawl.work) builds it";
    const { failure } = this.kernel.decode(row, row.value) as GenerationValue;
    if (failure !== undefined) {
      const where = failure.version === 0 ? "" : ` at event ${failure.version} of stream "${failure.stream}"`;
      return `it does not get ahead${where}: ${failure.message}`;
    }
    return row.holder === null ? "no worker has it now; start one with it (pawl.work)" : null;
  }

  async #reached(stream: string, version: number, ended: AbortSignal): Promise<void> {
    for (let position: number | null | undefined; !ended.aborted; ) {
      const { live, building } = (await this.#found()) ?? {};
      const shown = live ?? building ?? 0;
      const [row] = await this.kernel.read([generationAt(this.name, shown)]);
      // There is none yet, or it is retired by now, and another one is shown.
      if (row == null || row.value === null || row.kind === RETIRED) {
        await pause(this.kernel.ports.clock, BURST_MS, ended);
        continue;
      }
      const { on } = this.kernel.decode(row, row.value) as GenerationValue;
      position ??= await this.#positionOf(stream, version, new Set(on));
      // Nothing of the append is about this projection.
      if (position === null) return;
      const isThere = await this.#isPast(shown, position, ended);
      if (isThere && live !== undefined) return;
      // It was the first generation, which readers may not see yet.
      if (isThere) await pause(this.kernel.ports.clock, BURST_MS, ended);
    }
  }

  /** The position of the last event up to this version that the projection is about; null if there is none. */
  async #positionOf(stream: string, version: number, on: ReadonlySet<string>): Promise<number | null> {
    const at = streamAt(stream);
    const [row] = await this.kernel.read([at]);
    if (version > (row?.head ?? 0))
      throw new InvalidArgumentError(
        "the version",
        `must be one that stream "${stream}" has: it is at ${row?.head ?? 0}`,
      );
    for (let last = version; last > 0; ) {
      const page = await keptUpTo(this.kernel, at, Math.max(1, last - PAGE + 1), last);
      const found = page.findLast(({ name }) => on.has(name));
      if (found !== undefined) return found.position;
      // What is gone from the stream was projected before.
      last = (page[0]?.version ?? 1) - 1;
    }
    return null;
  }

  /** Waits until this generation is past the position: true; or until it is retired: false. */
  #isPast(generation: number, position: number, ended: AbortSignal): Promise<boolean> {
    const at = generationAt(this.name, generation);
    return new Promise((resolve, reject) => {
      const seen = (row: StoredRow | null): boolean => {
        const isGone = row === null || row.value === null || row.kind === RETIRED;
        if (!isGone && (this.kernel.decode(row, row.value ?? "") as GenerationValue).cursor < position) return false;
        resolve(!isGone);
        return true;
      };
      const stop = this.#watch.watch(at, { seen, failed: reject });
      ended.addEventListener("abort", () => {
        stop();
        resolve(false);
      });
      // It may be there already.
      this.#watch.look(at).catch(reject);
    });
  }

  async #value(): Promise<ProjectionValue> {
    const found = await this.#found();
    if (found === undefined) throw new ProjectionNotFoundError(this.name);
    return found;
  }

  async #found(): Promise<ProjectionValue | undefined> {
    const [row] = await this.kernel.read([projectionAt(this.name)]);
    return row == null || row.value === null ? undefined : (this.kernel.decode(row, row.value) as ProjectionValue);
  }
}

/** A projection whose rows are in Pawl's records. */
export class ProjectionHandle<Row> extends ProjectionOperations {
  /** The generation that was seen last: usually it still is. */
  #seen = 1;

  /** The row of a key; undefined if there is none. Throws `projection_building` before the first build has caught up, and `projection_not_found`. */
  async get(key: string): Promise<Row | undefined> {
    checkId(key, "the key");
    for (;;) {
      const guess = this.#seen;
      // In one read, so that the rows of a generation are not removed in between.
      const [pointer, row] = await this.kernel.read([projectionAt(this.name), rowAt(this.name, guess, key)]);
      if (this.#liveOf(pointer) !== guess) continue;
      return row == null || row.value === null ? undefined : (this.kernel.decode(row, row.value) as Row);
    }
  }

  /** Its rows, in the order of their keys. Throws `projection_building` before the first build has caught up, and `projection_not_found`. */
  async list(options: ProjectionListOptions = {}): Promise<ProjectionPage<Row>> {
    checkOptions(options, LIST_OPTIONS);
    const limit = checkCount(options.limit ?? 100, "the limit");
    const prefix = options.prefix === undefined ? "" : checkPrefix(options.prefix, "the prefix");
    const after = options.after === undefined ? null : checkId(options.after, "after");
    for (;;) {
      const [before] = await this.kernel.read([projectionAt(this.name)]);
      const generation = this.#liveOf(before);
      const space = rowSpaceOf(this.name, generation);
      const rows = await this.kernel.list({ space, prefix, after, limit: limit + 1 });
      const [since] = await this.kernel.read([projectionAt(this.name)]);
      // Its rows may have been removed while they were read.
      if (this.#liveOf(since) !== generation) continue;
      const page = rows.slice(0, limit);
      return {
        rows: page.map((row) => ({ key: row.key, row: this.kernel.decode(row, row.value ?? "") as Row })),
        next: rows.length > limit ? (page.at(-1)?.key ?? null) : null,
      };
    }
  }

  #liveOf(pointer: StoredRow | null | undefined): number {
    if (pointer == null || pointer.value === null) throw new ProjectionNotFoundError(this.name);
    const { live } = this.kernel.decode(pointer, pointer.value) as ProjectionValue;
    if (live === undefined) throw new ProjectionBuildingError(this.name);
    this.#seen = live;
    return live;
  }
}

/** A projection into tables of the user's own: they are read with SQL. */
export class SqlProjectionHandle extends ProjectionOperations {}
