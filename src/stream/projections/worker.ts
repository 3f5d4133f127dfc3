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
import { archivedPage, checkNoneRemoved, isSameProgress, readRemovedUpTo } from "../closing/entries.ts";
import { EventGoneError, EventsArchivedError } from "../errors.ts";
import type { StreamEvent } from "../event.ts";
import { follow, type Place, restWhateverCame } from "../following.ts";
import { lostIn } from "../lost.ts";
import { toEvents } from "../reading.ts";
import { GenerationWriter, Unapplied } from "./applying.ts";
import type { ProjectionRules } from "./definition.ts";
import { ensureGeneration } from "./generations.ts";
import { type GenerationValue, generationQueueOf, projectionAt } from "./stored.ts";

/** The lease is short, because readers wait for a whole projection when the process of its worker dies. */
const LEASE_MS = 5_000;
/** After an event that could not be applied. */
const FAILED = { firstMs: 1_000, longestMs: 60_000 };
const RETRY = { firstMs: 100, longestMs: 10_000 };

export class ProjectionWorker implements WorkPart {
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
    for (const one of projections) {
      if (rules.has(one.name))
        throw new InvalidArgumentError("what to work on", `must not have two projections named "${one.name}"`);
      rules.set(one.name, one);
    }
    this.#worker = startWorker(kernel, {
      by,
      failed: this.#failed,
      leaseMs: Math.min(leaseMs, LEASE_MS),
      kinds: Array.from(rules.values(), ({ name, by: code }) => generationQueueOf(name, code)),
      // Each is held all the time: the generation that readers see, and one that is built beside it.
      concurrency: 2 * rules.size,
      work: async (held, lease) => {
        const { projection } = await held.look((record) => record.value as GenerationValue);
        const found = rules.get(projection);
        if (found !== undefined) await new Following(kernel, found, held, lease, this.#stopping.signal, log).work();
      },
    });
    for (const one of rules.values()) void this.#ensure(one);
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
  /** The highest position of removed events, when it was last found that none is lacking. */
  #checkedUpTo = 0;

  constructor(
    kernel: Kernel,
    rules: ProjectionRules,
    held: Held,
    lease: Lease,
    stopping: AbortSignal,
    log: Log | undefined,
  ) {
    this.#kernel = kernel;
    this.#rules = rules;
    this.#held = held;
    this.#lease = lease;
    this.#stopping = stopping;
    this.#writer = new GenerationWriter(kernel, rules, held, log);
  }

  async work(): Promise<void> {
    const { types } = this.#rules;
    const { cursor, failure } = await this.#writer.look();
    try {
      await this.#writer.setUp();
      await this.#applyArchived();
      await this.#checkNoneRemoved(cursor);
      await follow(this.#kernel, this.#held, this.#lease, this.#stopping, {
        names: [...types.keys()],
        // One at a time after a failure, so that it is known which event failed.
        limit: failure === undefined ? undefined : 1,
        look: () => this.#place(),
        commit: (from, page) => this.#commit(from, page),
        caughtUp: (cursor) => this.#writer.swap(cursor),
      });
    } catch (error) {
      if (!(error instanceof Unapplied)) throw error;
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
  async #commit(from: number, page: FollowPage): Promise<boolean> {
    await this.#checkNoneRemoved(from);
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
        isAt: ({ cursor }) => cursor === from,
        after: (value, done) => ({
          ...value,
          cursor: done === undefined ? upTo : (page.entries[done - 1]?.position ?? from),
        }),
      }));
    if (applied && unread !== undefined) throw await this.#writer.failed(unread.error, unread.entry);
    return applied;
  }

  /** Events that are not in it yet, and were removed, would be missing without a word: it does not get ahead then. */
  async #checkNoneRemoved(after: number): Promise<void> {
    const names = [...this.#rules.types.keys()];
    const { archivedUpTo = 0 } = await this.#writer.lastSeen();
    try {
      const place = { after: Math.max(after, archivedUpTo), names };
      this.#checkedUpTo = await checkNoneRemoved(this.#kernel, place, this.#checkedUpTo);
    } catch (error) {
      if (error instanceof EventsArchivedError) throw await this.#writer.failed(error);
      throw error;
    }
  }

  /** A generation that begins reads events that were removed from the archive, stream by stream, before it follows the others. */
  async #applyArchived(): Promise<void> {
    const names = new Set(this.#rules.types.keys());
    const upTo = await readRemovedUpTo(this.#kernel);
    for (;;) {
      const value = await this.#writer.look();
      const { cursor, archivedUpTo = 0, archived: from = { after: null } } = value;
      if (cursor > 0 || archivedUpTo >= upTo || !canReadArchive(this.#kernel) || this.#lease.isOver) return;
      const page = await this.#writer.orUnapplied(() => archivedPage(this.#kernel, from, names));
      if (page === undefined) {
        await this.#held.commit((record) => {
          const { archived: _, ...rest } = record.value as GenerationValue;
          record.write({ value: { ...rest, archivedUpTo: upTo } satisfies GenerationValue, tries: 1 });
        });
        continue;
      }
      const { entries, next } = page;
      const opened = await this.#writer.orUnapplied(() => toEvents(this.#kernel, entries, this.#rules.types));
      const events = await this.#writer.orUnapplied(async () => opened.flatMap((open) => open() ?? []));
      const known = entries.filter(({ name }) => names.has(name));
      await this.#writer.apply(events, {
        entries: known,
        isAt: (now) => now.cursor === 0 && isSameProgress(now.archived ?? { after: null }, from),
        after: (now, done) => {
          const failed = done === undefined ? undefined : known[done];
          const archived =
            failed === undefined ? next : { after: from.after, stream: failed.key, version: failed.version - 1 };
          return { ...now, archived };
        },
      });
    }
  }
}
