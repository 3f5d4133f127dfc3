/**
 * Policies: what users define. A policy says which streams are pruned or closed by themselves, and where their events go.
 */

import {
  checkBoolean,
  checkCount,
  checkDuration,
  checkId,
  checkObject,
  checkOptions,
  checkPrefix,
  type Duration,
  optionNames,
} from "../../kernel/check.ts";
import { InvalidArgumentError, InvalidDurationError } from "../../kernel/errors.ts";
import { hash } from "../../kernel/fingerprint.ts";
import { type Archive, checkArchive } from "../closing/archive.ts";

export interface StreamPolicyOptions {
  /** The streams that it is about: those whose ids begin with this. The empty string is all streams. */
  readonly prefix: string;
  /** Removes events of streams that stay open. Default: none. */
  readonly prune?: PrunePolicy | undefined;
  /** Closes streams to which nothing was appended for this long. Default: none. */
  readonly close?: ClosePolicy | undefined;
  /** Where the events go. Default: the archive of the handle (`open({ archive })`). */
  readonly archive?: Archive | undefined;
  /** The events are not archived: they are lost. Default: false. */
  readonly discard?: boolean | undefined;
}

/** One of the two. */
export interface PrunePolicy {
  /** At least this many events of a stream stay, the last ones. It is pruned when it has a tenth more, or one more where that is less. */
  readonly keep?: number | undefined;
  /** Events that are older than this go; the last one of a stream stays. A stream is pruned at most once a day, or ten times in this time. */
  readonly olderThan?: Duration | undefined;
}

export interface ClosePolicy {
  readonly idleFor: Duration;
}

/** A policy that is defined, for `pawl.work`. */
export interface StreamPolicy {
  readonly name: string;
}

/** What is known of a policy. */
export interface PolicyRules {
  readonly name: string;
  /** Names these rules, so that of two versions of a policy one counts. */
  readonly by: string;
  readonly prefix: string;
  readonly keep: number | undefined;
  readonly olderMs: number | undefined;
  readonly idleMs: number | undefined;
  readonly archive: Archive | undefined;
  readonly discard: boolean;
}

const OPTIONS = optionNames<StreamPolicyOptions>({
  prefix: true,
  prune: true,
  close: true,
  archive: true,
  discard: true,
});
const PRUNE = optionNames<PrunePolicy>({ keep: true, olderThan: true });
const CLOSE = optionNames<ClosePolicy>({ idleFor: true });

const MOST_KEPT = 1_000_000_000;
/** Workers look once a minute. */
const LEAST_MS = 1000;

const definitions = new WeakMap<object, PolicyRules>();

/** Defines a policy: streams whose ids begin with `prefix` are pruned by count or by age, and closed when they are idle. Give it to `pawl.work`. */
export function streamPolicy(name: string, options: StreamPolicyOptions): StreamPolicy {
  checkId(name, "the policy's name");
  checkObject(options, "the options");
  checkOptions(options, OPTIONS);
  const { prune, close, archive, discard = false } = options;
  const prefix = checkPrefix(options.prefix, "the prefix");
  const { keep, olderMs } = prune === undefined ? { keep: undefined, olderMs: undefined } : checkPrune(prune);
  const idleMs = close === undefined ? undefined : checkClose(close);
  if (prune === undefined && close === undefined)
    throw new InvalidArgumentError("the options", "must have prune, close, or both");
  if (archive !== undefined) checkArchive(archive);
  if (checkBoolean(discard, "discard") && archive !== undefined)
    throw new InvalidArgumentError("discard", "must not be true where an archive is given");
  const defined: StreamPolicy = Object.freeze({ name });
  const by = hash(prefix, String(keep), String(olderMs), String(idleMs));
  definitions.set(defined, { name, by, prefix, keep, olderMs, idleMs, archive, discard });
  return defined;
}

function checkPrune(prune: PrunePolicy): Pick<PolicyRules, "keep" | "olderMs"> {
  checkObject(prune, "prune");
  checkOptions(prune, PRUNE, "prune");
  const { keep, olderThan } = prune;
  if ((keep === undefined) === (olderThan === undefined))
    throw new InvalidArgumentError("prune", "must have either keep or olderThan");
  return {
    keep: keep === undefined ? undefined : checkCount(keep, "keep", MOST_KEPT),
    olderMs: olderThan === undefined ? undefined : checkPeriod(olderThan, "olderThan"),
  };
}

function checkClose(close: ClosePolicy): number {
  checkObject(close, "close");
  checkOptions(close, CLOSE, "close");
  return checkPeriod(close.idleFor, "idleFor");
}

/** A duration that is 0 by mistake would remove everything. */
function checkPeriod(duration: unknown, what: string): number {
  const ms = checkDuration(duration, what);
  if (ms < LEAST_MS) throw new InvalidDurationError(what, "must be at least a second");
  return ms;
}

/** What is known of a policy; undefined if it is none. @internal */
export function policyRules(policy: unknown): PolicyRules | undefined {
  return typeof policy === "object" && policy !== null ? definitions.get(policy) : undefined;
}
