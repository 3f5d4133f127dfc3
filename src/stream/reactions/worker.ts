/**
 * This process at work on reactions: one claim loop for the records that route events, and one for the targets of each group, so that slow
 * reactions do not take the places of fast ones.
 */

import { backoffMs } from "../../kernel/backoff.ts";
import type { WorkPart, WorkSettings } from "../../kernel/capability.ts";
import { startWorker, type Worker } from "../../kernel/claim/worker.ts";
import { ClosedError, InvalidArgumentError } from "../../kernel/errors.ts";
import type { Kernel } from "../../kernel/kernel.ts";
import type { Log } from "../../kernel/log.ts";
import { pause } from "../../kernel/ports.ts";
import type { Prepare } from "../../kernel/sql/in-sql.ts";
import type { ReactionRules } from "./definition.ts";
import { ensureReaction, Router, type TargetPlaces } from "./routing.ts";
import { reactionOfQueue, routerQueueOf, targetQueueOf } from "./stored.ts";
import { isTrouble, MOST_TRIES, TargetWork } from "./targets.ts";

/** The lease of the worker that routes is short, because a whole reaction waits for it when its process dies. */
const ROUTER_LEASE_MS = 5_000;
/** A reaction that other code must route is not claimed here for this long. */
const LEFT_TO_OTHERS_MS = 2000;
const RETRY = { firstMs: 100, longestMs: 10_000 };

export class ReactionWorker<Face, Touch> implements WorkPart {
  readonly ready: Promise<void>;
  readonly #stopping = new AbortController();
  readonly #workers: readonly Worker[];
  readonly #kernel: Kernel;
  /** Reactions with events that only other code knows, and until when they are left to it. */
  readonly #leftToOthers = new Map<string, number>();
  readonly #failed: (error: unknown) => void;

  constructor(
    kernel: Kernel,
    prepare: Prepare<Face, Touch>,
    reactions: readonly ReactionRules[],
    { by, leaseMs, concurrency, failed }: WorkSettings,
    log: Log | undefined,
  ) {
    this.#kernel = kernel;
    this.#failed = (error) => {
      if (isTrouble(error)) failed(error);
    };
    const rules = new Map<string, ReactionRules>();
    for (const one of reactions) {
      if (rules.has(one.name))
        throw new InvalidArgumentError("what to work on", `must not have two reactions named "${one.name}"`);
      rules.set(one.name, one);
    }
    const { signal } = this.#stopping;
    const targets = new TargetWork(kernel, prepare, signal, log);
    const shared = { by, failed: this.#failed };
    const groups = Map.groupBy(rules.values(), ({ group }) => group);
    const places = new Map<string, TargetPlaces>();
    const working = Array.from(groups.values(), (group) => {
      const ofGroup = Math.min(...group.map((one) => one.leaseMs ?? leaseMs));
      const worker = startWorker(kernel, {
        ...shared,
        leaseMs: ofGroup,
        kinds: group.map(({ name }) => targetQueueOf(name)),
        concurrency: Math.max(...group.map((one) => one.concurrency ?? concurrency)),
        maxTries: () => MOST_TRIES,
        work: async (held, lease) => {
          const kind = kernel.held(held.at)?.kind;
          const found = rules.get(reactionOfQueue(kind ?? ""));
          if (found !== undefined) await targets.work(found, held, lease);
        },
      });
      for (const { name } of group)
        places.set(name, {
          by,
          leaseMs: ofGroup,
          reserve: (count) => worker.reserve(count),
          release: (count) => worker.release(count),
          begin: (held, safeUntilMs, events) => {
            if (events !== undefined) targets.beginsWith(held, events);
            worker.adopt(held, safeUntilMs);
          },
        });
      return worker;
    });
    const routing = startWorker(kernel, {
      ...shared,
      leaseMs: Math.min(leaseMs, ROUTER_LEASE_MS),
      kinds: Array.from(rules.keys(), routerQueueOf),
      // Each of them is held all the time.
      isStanding: true,
      concurrency: rules.size,
      isSkipped: ({ key }) => this.#isLeftToOthers(key),
      work: async (held, lease) => {
        const found = rules.get(held.at.key);
        const here = places.get(held.at.key);
        if (found === undefined || here === undefined) return;
        const unknown = await new Router(kernel, found, signal, here, log).route(held, lease);
        if (unknown.length === 0) return;
        const isNews = !this.#leftToOthers.has(found.name);
        this.#leftToOthers.set(found.name, kernel.ports.clock.nowMs() + LEFT_TO_OTHERS_MS);
        if (!isNews) return;
        log?.warn(
          `reaction "${found.name}" is also about "${unknown[0]}", which the code here does not have: it is left to workers that do. If it was removed for good, call pawl.reactions.removeEvent`,
        );
      },
    });
    this.#workers = [routing, ...working];
    this.ready = Promise.all(Array.from(rules.values(), (one) => this.#ensure(one))).then(() => {});
  }

  /** Takes no more events, lets running handlers finish, and releases the rest. After `timeoutMs`, handlers are aborted. */
  async stop(timeoutMs: number | undefined): Promise<void> {
    this.#stopping.abort();
    await Promise.all(this.#workers.map((worker) => worker.stop(timeoutMs)));
  }

  #isLeftToOthers(reaction: string): boolean {
    const untilMs = this.#leftToOthers.get(reaction);
    if (untilMs === undefined) return false;
    const leftMs = untilMs - this.#kernel.ports.clock.nowMs();
    // Longer than it was set to: the clock of this process was set back.
    return leftMs > 0 && leftMs <= LEFT_TO_OTHERS_MS;
  }

  /** Makes the record of a reaction, as soon as the store serves. */
  async #ensure(rules: ReactionRules): Promise<void> {
    for (let failures = 1; !this.#stopping.signal.aborted; failures++)
      try {
        return await ensureReaction(this.#kernel, rules);
      } catch (error) {
        if (error instanceof ClosedError) return;
        this.#failed(error);
        await pause(this.#kernel.ports.clock, backoffMs(RETRY, failures), this.#stopping.signal);
      }
  }
}
