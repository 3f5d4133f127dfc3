/**
 * This process at work on projections: one worker at a time follows the events for each generation whose code it has.
 *
 * A page of events is applied in one commit with the cursor (`applying.ts`). An event that cannot be applied stops its generation and is tried again with
 * a growing delay; other projections continue. A generation that has caught up and is being built is shown to readers.
 */

import { backoffMs } from "../../kernel/backoff.ts";
import type { WorkPart, WorkSettings } from "../../kernel/capability.ts";
import type { Held } from "../../kernel/claim/claim.ts";
import { startWorker, type Worker } from "../../kernel/claim/worker.ts";
import type { FollowedEntry, FollowPage } from "../../kernel/contract.ts";
import { ClosedError, FencedError, InvalidArgumentError } from "../../kernel/errors.ts";
import type { Kernel } from "../../kernel/kernel.ts";
import type { Lease } from "../../kernel/lease.ts";
import type { Log } from "../../kernel/log.ts";
import { pause } from "../../kernel/ports.ts";
import { canReadArchive } from "../closing/archive.ts";
import {
  archivedPage,
  checkNoneRemoved,
  isSameProgress,
  type Removals,
  readRemovals,
  withoutArchived,
} from "../closing/entries.ts";
import { EventGoneError, EventsArchivedError } from "../errors.ts";
import type { StreamEvent } from "../event.ts";
import { follow, PAGE, type Place, restWhateverCame } from "../following.ts";
import { lostIn } from "../lost.ts";
import { toEvents } from "../reading.ts";
import { GenerationWriter, Unapplied } from "./applying.ts";
import type { ProjectionRules } from "./definition.ts";
import { beginAgain, ensureGeneration } from "./generations.ts";
import { PageSize } from "./page-size.ts";
import { type GenerationValue, generationQueueOf, projectionAt } from "./stored.ts";

/** The lease is short, because readers wait for a whole projection when the process of its worker dies. */
const LEASE_MS = 5_000;
/** After an event that could not be applied. */
const FAILED = { firstMs: 1_000, longestMs: 60_000 };
/** How often a generation that is held back looks whether it still is. */
const HELD_BACK_MS = 20;
const RETRY = { firstMs: 100, longestMs: 10_000 };

export class ProjectionWorker implements WorkPart {
  readonly ready: Promise<void>;
  readonly #kernel: Kernel;
  readonly #stopping = new AbortController();
  readonly #worker: Worker;
  readonly #failed: (error: unknown) => void;
  readonly #log: Log | undefined;

  constructor(
    kernel: Kernel,
    projections: readonly ProjectionRules[],
    { by, leaseMs, failed }: WorkSettings,
    log: Log | undefined,
  ) {
    this.#kernel = kernel;
    this.#log = log;
    this.#failed = (error) => {
      if (!(error instanceof FencedError)) failed(error);
    };
    const rules = new Map<string, ProjectionRules>();
    /** By generation, for as long as this process works: a worker that begins again remembers what was too slow. */
    const sizes = new Map<string, PageSize>();
    for (const one of projections) {
      if (rules.has(one.name))
        throw new InvalidArgumentError("what to work on", `must not have two projections named "${one.name}"`);
      if (one.is === "sql") kernel.checkSql();
      rules.set(one.name, one);
    }
    this.#worker = startWorker(kernel, {
      by,
      failed: this.#failed,
      leaseMs: Math.min(leaseMs, LEASE_MS),
      kinds: Array.from(rules.values(), ({ name, by: code }) => generationQueueOf(name, code)),
      // Each is held all the time: the generation that readers see, and one that is built beside it.
      isStanding: true,
      concurrency: 2 * rules.size,
      work: async (held, lease) => {
        const { projection } = await held.look((record) => record.value as GenerationValue);
        const found = rules.get(projection);
        if (found === undefined) return;
        const size = sizes.get(held.at.key) ?? new PageSize(PAGE);
        sizes.set(held.at.key, size);
        await new Following(kernel, found, held, lease, this.#stopping.signal, size, log).work();
      },
    });
    this.ready = Promise.all(Array.from(rules.values(), (one) => this.#ensure(one))).then(() => {});
  }

  async stop(timeoutMs: number | undefined): Promise<void> {
    this.#stopping.abort();
    await this.#worker.stop(timeoutMs);
  }

  /** Begins a generation of this code, where there is none, as soon as the store serves. */
  async #ensure(rules: ProjectionRules): Promise<void> {
    for (let failures = 1; !this.#stopping.signal.aborted; failures++)
      try {
        const isOurs = await this.#kernel.transact((tx) => ensureGeneration(tx, rules), [projectionAt(rules.name)]);
        if (!isOurs)
          this.#log?.warn(
            `projection "${rules.name}" was built by other code since the code here was last at work: it is left to workers that have that code. To go back to the code here, call rebuild`,
          );
        return;
      } catch (error) {
        if (error instanceof ClosedError) return;
        this.#failed(error);
        await pause(this.#kernel.ports.clock, backoffMs(RETRY, failures), this.#stopping.signal);
      }
  }
}

/** Follows the events for one generation. */
class Following {
  readonly #kernel: Kernel;
  readonly #rules: ProjectionRules;
  readonly #held: Held;
  readonly #lease: Lease;
  readonly #stopping: AbortSignal;
  readonly #writer: GenerationWriter;
  readonly #pages: PageSize;
  /** How many events were to be applied last. */
  #tried = 0;
  /** Up to here nothing is lacking: no event was removed before it was read. */
  #wholeUpTo = 0;
  /** What was removed when it was last found that nothing is lacking. */
  #checked: Removals | undefined;

  constructor(
    kernel: Kernel,
    rules: ProjectionRules,
    held: Held,
    lease: Lease,
    stopping: AbortSignal,
    pages: PageSize,
    log: Log | undefined,
  ) {
    this.#kernel = kernel;
    this.#rules = rules;
    this.#held = held;
    this.#lease = lease;
    this.#stopping = stopping;
    this.#pages = pages;
    this.#writer = new GenerationWriter(kernel, rules, held, log);
  }

  async work(): Promise<void> {
    const { types } = this.#rules;
    const { cursor, failure } = await this.#writer.look();
    // Of this process before, or of another one.
    if (failure !== undefined) this.#pages.failed();
    try {
      await this.#writer.setUp();
      await this.#applyArchived();
      await this.#checkNoneRemoved(cursor);
      this.#wholeUpTo = cursor;
      await follow(this.#kernel, this.#held, this.#lease, this.#stopping, {
        names: [...types.keys()],
        limit: () => this.#pages.size,
        look: () => this.#place(),
        commit: (from, page) => this.#commit(from, page),
        reached: (cursor, isAtEnd) => this.#reached(cursor, isAtEnd),
      });
    } catch (error) {
      if (!(error instanceof Unapplied)) throw error;
      this.#pages.failed(this.#tried);
      // Also where the lease has ended because the user's SQL kept the file locked: otherwise it would be tried again at once.
      await this.#restAfterFailure();
      return;
    }
    if (!this.#lease.isOver) await restWhateverCame(this.#held, (tx) => tx.nowMs);
  }

  #place(): Promise<Place> {
    return this.#held.look(({ value, wakes }) => ({
      cursor: (value as GenerationValue).cursor,
      isPaused: false,
      wakes,
    }));
  }

  async #restAfterFailure(): Promise<void> {
    const { failure } = await this.#writer.look();
    const delayMs = Math.round(backoffMs(FAILED, failure?.count ?? 1, this.#kernel.ports.chance));
    await restWhateverCame(this.#held, (tx) => tx.nowMs + delayMs);
  }

  /** Applies a page of events. Throws `Unapplied`, with the events before it applied, where one cannot be. */
  async #commit(from: number, found: FollowPage): Promise<boolean> {
    await this.#checkNoneRemoved(from);
    const entries = await withoutArchived(this.#kernel, found.entries, removalsIn(await this.#writer.lastSeen()));
    const page = { ...found, entries };
    this.#tried = page.entries.length;
    const events: StreamEvent[] = [];
    const [lost] = await lostIn(this.#kernel, page);
    let unread: { readonly entry: Pick<FollowedEntry, "key" | "version">; readonly error: unknown } | undefined =
      lost === undefined ? undefined : { entry: lost, error: new EventGoneError(lost.key, lost.version) };
    // Keys of personal fields may have to be asked for, and not be there.
    const opened = await this.#writer.orUnapplied(() => toEvents(this.#kernel, page.entries, this.#rules.types));
    for (const [index, entry] of page.entries.entries())
      try {
        if (lost !== undefined && entry.position > lost.position) break;
        const event = opened[index]?.();
        if (event !== undefined) events.push(event);
      } catch (error) {
        unread = { entry, error };
        break;
      }
    const upTo = unread === undefined ? page.upTo : (page.entries[events.length - 1]?.position ?? from);
    const isNone = events.length === 0 && unread !== undefined;
    const applied =
      isNone ||
      (await this.#writer.apply(events, {
        entries: page.entries,
        isAt: ({ cursor, heldFor }) => cursor === from && heldFor === undefined,
        after: (value, done) => ({
          ...value,
          cursor: done === undefined ? upTo : (page.entries[done - 1]?.position ?? from),
        }),
      }));
    if (applied && unread !== undefined) throw await this.#writer.failed(unread.error, unread.entry);
    if (applied) this.#wholeUpTo = upTo;
    this.#tried = 0;
    if (applied) this.#pages.applied();
    else await this.#whileHeldBack();
    return applied;
  }

  /** Lets readers see it, if it is being built and has caught up. */
  async #reached(cursor: number, isAtEnd: boolean): Promise<boolean> {
    if (this.#writer.isBuilt) return false;
    // A page without events is not applied, and may be without them because they were removed before it was read.
    if (cursor > this.#wholeUpTo) {
      await this.#checkNoneRemoved(this.#wholeUpTo);
      this.#wholeUpTo = cursor;
    }
    return this.#writer.swap(cursor, isAtEnd);
  }

  /** Another generation is about to take the place of this one, and is less than a page behind it. */
  async #whileHeldBack(): Promise<void> {
    while (!this.#lease.isOver && !this.#stopping.aborted && (await this.#writer.isHeldBack()))
      await pause(this.#kernel.ports.clock, HELD_BACK_MS, this.#stopping);
  }

  /**
   * Events that are not in it yet, and were removed, would be missing without a word: it does not get ahead then. One that is being built is begun again,
   * and reads them from the archive.
   */
  async #checkNoneRemoved(after: number): Promise<void> {
    const names = [...this.#rules.types.keys()];
    const value = await this.#writer.lastSeen();
    try {
      const place = { after, names, archived: removalsIn(value) };
      this.#checked = await checkNoneRemoved(this.#kernel, place, this.#checked);
    } catch (error) {
      if (!(error instanceof EventsArchivedError)) throw error;
      const isBegunAgain =
        (this.#isFromKept(value) || canReadArchive(this.#kernel)) &&
        (await this.#held.commit((record, tx) => beginAgain(tx, record.value as GenerationValue)));
      // Its record is not held any more: this ends the work on it.
      if (isBegunAgain) await this.#writer.look();
      throw await this.#writer.failed(error);
    }
  }

  #isFromKept({ kept }: GenerationValue): boolean {
    return kept === true || this.#rules.from === "kept";
  }

  /**
   * A generation that begins reads events that were removed from the archive, stream by stream, before it follows the others; or it leaves them out, as if
   * they had been read.
   */
  async #applyArchived(): Promise<void> {
    const names = new Set(this.#rules.types.keys());
    const { upTo, at } = await readRemovals(this.#kernel);
    for (;;) {
      const value = await this.#writer.look();
      const { cursor, archivedUpTo, archived: from = { after: null } } = value;
      const isFromKept = this.#isFromKept(value);
      // Once: what is removed after that is in the store when it is read, or the generation is begun again.
      if (cursor > 0 || archivedUpTo !== undefined || upTo === 0) return;
      if (this.#lease.isOver || !(isFromKept || canReadArchive(this.#kernel))) return;
      const page = isFromKept
        ? undefined
        : await this.#writer.orUnapplied(() => archivedPage(this.#kernel, from, names, this.#pages.size));
      if (page === undefined) {
        await this.#held.commit((record) => {
          const { archived: _, removals = { upTo, at }, ...rest } = record.value as GenerationValue;
          const read = { archivedUpTo: removals.upTo, archivedAt: removals.at };
          record.write({ value: { ...rest, ...read } satisfies GenerationValue, tries: 1 });
        });
        continue;
      }
      const { entries, next } = page;
      const opened = await this.#writer.orUnapplied(() => toEvents(this.#kernel, entries, this.#rules.types));
      const events = await this.#writer.orUnapplied(async () => opened.flatMap((open) => open() ?? []));
      const known = entries.filter(({ name }) => names.has(name));
      this.#tried = entries.length;
      const isApplied = await this.#writer.apply(events, {
        entries: known,
        isAt: (now) => now.cursor === 0 && isSameProgress(now.archived ?? { after: null }, from),
        after: (now, done) => {
          const failed = done === undefined ? undefined : known[done];
          const archived =
            failed === undefined ? next : { after: from.after, stream: failed.key, version: failed.version - 1 };
          return { removals: { upTo, at }, ...now, archived };
        },
      });
      this.#tried = 0;
      if (isApplied) this.#pages.applied();
    }
  }
}

/** What a generation has read from the archive; undefined if nothing. */
const removalsIn = ({ archivedUpTo, archivedAt }: GenerationValue): Removals | undefined =>
  archivedUpTo === undefined ? undefined : { upTo: archivedUpTo, at: archivedAt };
