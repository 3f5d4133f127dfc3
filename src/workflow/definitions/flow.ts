/**
 * The options of a workflow that say when its runs begin: concurrency, fairness, rates, debounce, batch and ttl.
 *
 * What they say of one start is computed here, by the functions of the user, before any decision: the names and keys of its limits, its line, its
 * priority (`GateRequest`). The decisions are in `flow/`.
 */

import {
  checkCount,
  checkDuration,
  checkFunction,
  checkId,
  checkList,
  checkOptions,
  type Duration,
  optionNames,
} from "../../kernel/check.ts";
import type { Address } from "../../kernel/contract.ts";
import type { Tx } from "../../kernel/decision.ts";
import { InvalidArgumentError } from "../../kernel/errors.ts";
import { hash } from "../../kernel/fingerprint.ts";
import { callUser } from "../../kernel/sync.ts";
import { checkFigures, type RateLimit, type RateLimitOptions } from "../../rate/rate.ts";
import { HIGHEST_PRIORITY } from "../flow/decide.ts";
import { lineOf, type PlaceRef } from "../flow/stored.ts";

export type Excess = "queue" | "reject" | "replace" | "drop";

/** At most `max` runs that have begun and have not ended. */
export interface ConcurrencyLimit<Input = unknown> {
  /** How many. Runs that sleep or wait count, too. */
  readonly max: number;
  /** Counts by this key of the input: `max` for each. Default: all runs together. */
  readonly key?: ((input: Input) => string) | undefined;
  /** Workflows that name a limit share it. Default: a limit of this workflow alone. */
  readonly name?: string | undefined;
  /**
   * What happens to a start beyond it. "queue": it waits in line. "reject": it throws `concurrency_limit`. "replace": it waits, and the oldest run is
   * canceled. "drop": it does not happen, and the newest run is returned. Default: "queue".
   */
  readonly excess?: Excess | undefined;
}

/** Runs that wait in line take turns by this key, so that many of one key do not delay those of another. */
export interface Fairness<Input = unknown> {
  readonly key: (input: Input) => string;
  /** How many runs of a key begin in one turn: a whole number from 1 to 100. Default: 1. */
  readonly weight?: ((input: Input) => number) | undefined;
}

/** How many runs may begin in a time. */
export interface StartRate<Input = unknown> extends RateLimitOptions {
  /** Counts by this key of the input. Default: all runs together. */
  readonly key?: ((input: Input) => string) | undefined;
  /** A start beyond it waits for its time, or throws `rate_limited`. Default: "wait". */
  readonly excess?: "wait" | "reject" | undefined;
}

/** Runs begin evenly spaced: `max` in each `per`, never two together, unless a `rateLimit` with another key delays some of them. */
export interface Throttle<Input = unknown> {
  /** Default: 1. */
  readonly max?: number | undefined;
  readonly per: Duration;
  readonly key?: ((input: Input) => string) | undefined;
}

/** Starts that follow each other quickly are one run, with the last input. */
export interface Debounce<Input = unknown> {
  /** The run begins after this long without another start. */
  readonly period: Duration;
  /** It begins this long after the first start, at the latest. Default: no limit. */
  readonly maxWait?: Duration | undefined;
  readonly key?: ((input: Input) => string) | undefined;
  /** Combines the input so far with that of a later start. Default: the later one alone. It must be pure. */
  readonly merge?: ((earlier: Input, later: Input) => Input) | undefined;
}

/** Starts are collected into one run, which gets the list of their inputs. */
export interface Batch<Input = unknown> {
  /** The run begins with this many inputs: at most 1,000. It also begins when they have 512 KiB. */
  readonly size: number;
  /** It begins this long after the first start, at the latest. */
  readonly maxWait: Duration;
  readonly key?: ((input: Input) => string) | undefined;
}

/** Groups of runs that different workers take. */
export interface Pools<Input = unknown> {
  /** The pool of a run: one of `names`. */
  readonly key: (input: Input) => string;
  /** All of them: at most 100, each up to 50 characters without "/". */
  readonly names: readonly string[];
}

export interface FlowOptions<Input> {
  /** How many runs may be admitted together; several limits apply together. */
  readonly concurrency?: ConcurrencyLimit<Input> | readonly ConcurrencyLimit<Input>[] | undefined;
  readonly fairness?: Fairness<Input> | undefined;
  /** Which workers take a run: `pools` of `pawl.work` says which pools it takes. Default: every worker takes all. */
  readonly pools?: Pools<Input> | undefined;
  /** How many runs may begin in a time. */
  readonly rateLimit?: StartRate<Input> | undefined;
  /** Runs begin evenly spaced. */
  readonly throttle?: Throttle<Input> | undefined;
  /** Starts that follow each other quickly are one run. */
  readonly debounce?: Debounce<Input> | undefined;
  /** The priority of a run, if its start gives none: a whole number from -100 to 100. Default: 0. */
  readonly priority?: ((input: Input) => number) | undefined;
  /** A run that has not begun this long after its time ends as `expired`. Default: no limit. */
  readonly ttl?: Duration | undefined;
}

const LIMIT_OPTIONS = optionNames<ConcurrencyLimit>({ max: true, key: true, name: true, excess: true });
const POOL_OPTIONS = optionNames<Pools>({ key: true, names: true });
const FAIRNESS_OPTIONS = optionNames<Fairness>({ key: true, weight: true });
const THROTTLE_OPTIONS = optionNames<Throttle>({ max: true, per: true, key: true });
const DEBOUNCE_OPTIONS = optionNames<Debounce>({ period: true, maxWait: true, key: true, merge: true });
const BATCH_OPTIONS = optionNames<Batch>({ size: true, maxWait: true, key: true });
const RATE_OPTIONS = optionNames<StartRate>({
  max: true,
  per: true,
  burst: true,
  strict: true,
  key: true,
  excess: true,
});

const MOST_LIMITS = 5;
const MOST_ADMITTED = 1_000_000;
/** Where the limit lists its runs. */
const MOST_LISTED = 1000;
const MOST_WEIGHT = 100;
const MOST_BATCHED = 1000;
const MOST_POOLS = 100;

type KeyOf = (input: unknown) => string;

interface Limit {
  readonly name: string;
  readonly max: number;
  readonly excess: Excess;
  readonly key: KeyOf | undefined;
}

interface Rate {
  readonly name: string;
  readonly figures: RateLimitOptions;
  readonly key: KeyOf | undefined;
  readonly isRefused: boolean;
}

/** What collects the starts of a workflow. */
export type Collect =
  | {
      readonly by: "debounce";
      readonly periodMs: number;
      readonly maxWaitMs: number | null;
      readonly key: KeyOf | undefined;
      readonly merge: ((earlier: unknown, later: unknown) => unknown) | undefined;
    }
  | { readonly by: "batch"; readonly size: number; readonly maxWaitMs: number; readonly key: KeyOf | undefined };

/** When the runs of a workflow begin. */
export interface Flow {
  readonly workflow: string;
  readonly limits: readonly Limit[];
  readonly fairness: { readonly key: KeyOf; readonly weight: ((input: unknown) => number) | undefined } | undefined;
  readonly pools: { readonly key: KeyOf; readonly names: ReadonlySet<string> } | undefined;
  readonly rates: readonly Rate[];
  readonly collect: Collect | undefined;
  readonly priority: ((input: unknown) => number) | undefined;
  readonly ttlMs: number | null;
  /** Limits that each input names itself, with their numbers. */
  readonly ofInput?: ((input: unknown) => OfInput) | undefined;
}

/** The limits of one input. */
export interface OfInput {
  readonly places: readonly Place[];
  /** Starts beyond them wait for their turn. */
  readonly rates: readonly { readonly name: string; readonly figures: RateLimitOptions }[];
}

/** A limit as one start meets it. */
export interface Place {
  readonly ref: PlaceRef;
  readonly max: number;
  readonly excess: Excess;
}

/** What a start has to pass. */
export interface GateRequest {
  readonly workflow: string;
  readonly places: readonly Place[];
  /** The line in which it waits, if it has to. */
  line(): string;
  readonly weight: number;
  readonly priority: number;
  readonly pool?: string;
  readonly rates: readonly StartTurn[];
}

/** A turn in a rate limit, which a start reserves in its decision. */
export interface StartTurn {
  readonly name: string;
  /** If the turn is not now, the start is refused. */
  readonly isRefused: boolean;
  /** The record that it touches. */
  readonly at: Address;
  reserve(tx: Tx): { readonly isGranted: boolean; readonly waitMs: number };
}

/** How a handle opens rate limits. */
export type OpenRate = (
  name: string,
  figures: RateLimitOptions,
) => Pick<RateLimit, "reserveIn"> & { recordOf(key: string | undefined): Address };

type Given = FlowOptions<never> & { readonly batch?: Batch<never> | undefined };

/** The flow of a workflow; undefined if its runs begin as soon as a worker has room. */
export function checkFlow(workflow: string, given: Given): Flow | undefined {
  const { concurrency, fairness, pools: poolsGiven, rateLimit, throttle, debounce, batch, priority, ttl } = given;
  const limits = concurrency === undefined ? [] : checkLimits(workflow, concurrency);
  if (fairness !== undefined) checkFairness(fairness);
  const pools = poolsGiven === undefined ? undefined : checkPools(poolsGiven);
  if (debounce !== undefined && batch !== undefined)
    throw new InvalidArgumentError("the workflow's batch", "cannot be combined with debounce");
  if (priority !== undefined) checkFunction(priority, "the workflow's priority");
  const rates = [
    ...(rateLimit === undefined ? [] : [checkRate(workflow, rateLimit)]),
    ...(throttle === undefined ? [] : [checkThrottle(workflow, throttle)]),
  ];
  const collect =
    debounce !== undefined ? checkDebounce(debounce) : batch !== undefined ? checkBatch(batch) : undefined;
  const ttlMs = ttl === undefined ? null : checkDuration(ttl, "the workflow's ttl");
  if (
    limits.length + rates.length === 0 &&
    collect === undefined &&
    ttlMs === null &&
    fairness === undefined &&
    pools === undefined &&
    priority === undefined
  )
    return undefined;
  return {
    workflow,
    limits,
    fairness: fairness as Flow["fairness"],
    pools,
    rates,
    collect,
    priority: priority as Flow["priority"],
    ttlMs,
  };
}

function checkLimits(
  workflow: string,
  given: ConcurrencyLimit<never> | readonly ConcurrencyLimit<never>[],
): readonly Limit[] {
  const list = Array.isArray(given)
    ? (given as readonly ConcurrencyLimit<never>[])
    : [given as ConcurrencyLimit<never>];
  const what = "the workflow's concurrency";
  if (list.length === 0 || list.length > MOST_LIMITS)
    throw new InvalidArgumentError(what, `must be 1 to ${MOST_LIMITS} limits`);
  const names = new Set<string>();
  return list.map((limit) => {
    checkOptions(limit ?? null, LIMIT_OPTIONS, what);
    const { key, excess = "queue" } = limit;
    if (key !== undefined) checkFunction(key, `${what}: key`);
    if (excess !== "queue" && excess !== "reject" && excess !== "replace" && excess !== "drop")
      throw new InvalidArgumentError(`${what}: excess`, 'must be "queue", "reject", "replace" or "drop"');
    const isListed = excess === "replace" || excess === "drop";
    const max = checkCount(limit.max, `${what}: max`, isListed ? MOST_LISTED : MOST_ADMITTED);
    // A name of the user's cannot be that of a workflow.
    const name =
      limit.name === undefined
        ? ownLimit(workflow, key !== undefined)
        : short(`shared:${checkId(limit.name, `${what}: name`)}`);
    if (names.has(name))
      throw new InvalidArgumentError(
        what,
        limit.name === undefined
          ? "must have a name for each limit, if several have a key or several have none"
          : `must not have two limits with the name "${limit.name}"`,
      );
    names.add(name);
    return { name, max, excess, key: key as KeyOf | undefined };
  });
}

/** The stored name of a limit that has none: only runs of this workflow count. */
export const ownLimit = (workflow: string, isKeyed: boolean): string =>
  short(`workflow:${workflow}${isKeyed ? ":by key" : ""}`);

/** A name that fits into a record's key. */
const short = (name: string): string => (Buffer.byteLength(name) <= 200 ? name : hash(name));

function checkPools(given: Pools<never>): Flow["pools"] {
  const what = "the workflow's pools";
  checkOptions(given ?? null, POOL_OPTIONS, what);
  const { key, names } = given;
  checkFunction(key, `${what}: key`);
  checkList(names, `${what}: names`);
  if (names.length === 0 || names.length > MOST_POOLS)
    throw new InvalidArgumentError(`${what}: names`, `must be 1 to ${MOST_POOLS} names`);
  for (const name of names)
    if (!/^[^/]{1,50}$/.test(checkId(name, `${what}: names`)))
      throw new InvalidArgumentError(`${what}: names`, 'must have up to 50 characters, without "/"');
  return { key: key as KeyOf, names: new Set(names) };
}

/** The pool of a run. Throws for one that the workflow does not have. */
function poolOf({ workflow, pools }: Flow, input: unknown): { readonly pool?: string } {
  if (pools === undefined) return {};
  const what = `the key of the pools of workflow "${workflow}"`;
  const pool = keyOf(pools.key, input, what);
  if (!pools.names.has(pool))
    throw new InvalidArgumentError(what, `must be one of those that "${workflow}" has, not "${pool}"`);
  return { pool };
}

function checkFairness(fairness: Fairness<never>): void {
  checkOptions(fairness ?? null, FAIRNESS_OPTIONS, "the workflow's fairness");
  checkFunction(fairness.key, "the workflow's fairness: key");
  if (fairness.weight !== undefined) checkFunction(fairness.weight, "the workflow's fairness: weight");
}

function checkRate(workflow: string, given: StartRate<never>): Rate {
  checkOptions(given ?? null, RATE_OPTIONS, "the workflow's rateLimit");
  const { key, excess = "wait", ...figures } = given;
  if (key !== undefined) checkFunction(key, "the workflow's rateLimit: key");
  if (excess !== "wait" && excess !== "reject")
    throw new InvalidArgumentError("the workflow's rateLimit: excess", 'must be "wait" or "reject"');
  checkFigures(figures, "the workflow's rateLimit: ");
  return {
    name: short(`workflow:${workflow}`),
    figures,
    key: key as KeyOf | undefined,
    isRefused: excess === "reject",
  };
}

function checkThrottle(workflow: string, given: Throttle<never>): Rate {
  checkOptions(given ?? null, THROTTLE_OPTIONS, "the workflow's throttle");
  const { key, max = 1, per } = given;
  if (key !== undefined) checkFunction(key, "the workflow's throttle: key");
  const figures = { max, per, strict: true };
  checkFigures(figures, "the workflow's throttle: ");
  return { name: short(`throttle:${workflow}`), figures, key: key as KeyOf | undefined, isRefused: false };
}

function checkDebounce(given: Debounce<never>): Collect {
  checkOptions(given ?? null, DEBOUNCE_OPTIONS, "the workflow's debounce");
  const { period, maxWait, key, merge } = given;
  if (key !== undefined) checkFunction(key, "the workflow's debounce: key");
  if (merge !== undefined) checkFunction(merge, "the workflow's debounce: merge");
  const periodMs = checkDuration(period, "the workflow's debounce: period");
  const maxWaitMs = maxWait === undefined ? null : checkDuration(maxWait, "the workflow's debounce: maxWait");
  if (maxWaitMs !== null && maxWaitMs < periodMs)
    throw new InvalidArgumentError("the workflow's debounce: maxWait", "must not be shorter than the period");
  return {
    by: "debounce",
    periodMs,
    maxWaitMs,
    key: key as KeyOf | undefined,
    merge: merge as ((earlier: unknown, later: unknown) => unknown) | undefined,
  };
}

function checkBatch(given: Batch<never>): Collect {
  checkOptions(given ?? null, BATCH_OPTIONS, "the workflow's batch");
  const { size, maxWait, key } = given;
  if (key !== undefined) checkFunction(key, "the workflow's batch: key");
  return {
    by: "batch",
    size: checkCount(size, "the workflow's batch: size", MOST_BATCHED),
    maxWaitMs: checkDuration(maxWait, "the workflow's batch: maxWait"),
    key: key as KeyOf | undefined,
  };
}

/** What the start of a run with this input has to pass. Throws what the functions of the user throw, and refuses what they should not return. */
export function gateRequest(flow: Flow, input: unknown, priority: number | undefined, openRate: OpenRate): GateRequest {
  const { workflow, limits, fairness, rates } = flow;
  const keyed = (key: KeyOf | undefined, what: string): string | undefined =>
    key === undefined ? undefined : keyOf(key, input, what);
  const { places: ownPlaces, rates: ownRates } = flow.ofInput?.(input) ?? NO_LIMITS;
  const places = limits.map(({ name, max, excess, key }): Place => {
    const by = keyed(key, `the concurrency key of workflow "${workflow}"`);
    return { ref: by === undefined ? [name] : [name, by], max, excess };
  });
  places.push(...ownPlaces);
  const turnBy =
    fairness === undefined ? undefined : keyOf(fairness.key, input, `the fairness key of workflow "${workflow}"`);
  return {
    workflow,
    places,
    line: () =>
      lineOf(
        workflow,
        places.map(({ ref }) => ref),
        turnBy,
      ),
    weight: weightOf(flow, input),
    priority: priority ?? priorityOf(flow, input),
    ...poolOf(flow, input),
    rates: [
      ...rates.map(({ name, figures, key, isRefused }): StartTurn => {
        const by = keyed(key, `the rate key of workflow "${workflow}"`);
        const rate = openRate(name, figures);
        const wish = { ...(by === undefined ? {} : { key: by }), ...(isRefused ? { timeout: 0 } : {}) };
        return { name, isRefused, at: rate.recordOf(by), reserve: (tx) => rate.reserveIn(tx, wish) };
      }),
      ...ownRates.map(({ name, figures }): StartTurn => {
        const rate = openRate(name, figures);
        return { name, isRefused: false, at: rate.recordOf(undefined), reserve: (tx) => rate.reserveIn(tx, {}) };
      }),
    ],
  };
}

const NO_LIMITS: OfInput = { places: [], rates: [] };

/** The key of what is collected together. */
export const collectKey = (workflow: string, { by, key }: Collect, input: unknown): string =>
  key === undefined ? "" : keyOf(key, input, `the ${by} key of workflow "${workflow}"`);

const keyOf = (key: KeyOf, input: unknown, what: string): string => checkId(callUser(what, key, input), what);

function weightOf({ workflow, fairness }: Flow, input: unknown): number {
  const what = `the fairness weight of workflow "${workflow}"`;
  const weight = fairness?.weight;
  return weight === undefined ? 1 : checkCount(callUser(what, weight, input), what, MOST_WEIGHT);
}

function priorityOf({ workflow, priority }: Flow, input: unknown): number {
  if (priority === undefined) return 0;
  const what = `the priority of workflow "${workflow}"`;
  return checkPriority(callUser(what, priority, input) ?? 0, what);
}

export function checkPriority(priority: unknown, what = "the priority"): number {
  if (!Number.isSafeInteger(priority) || Math.abs(priority as number) > HIGHEST_PRIORITY)
    throw new InvalidArgumentError(what, `must be a whole number from -${HIGHEST_PRIORITY} to ${HIGHEST_PRIORITY}`);
  return (priority as number) + 0;
}
