/**
 * Applying a policy to one stream that is due: closing it, pruning it, or saying when to look again.
 *
 * A worker first takes the stream, in a commit that says what it begins, then calls `close` or `prune`, and then commits the outcome together with the
 * numbers of the policy. If it dies in between, the stream is due again after a while, and what was begun is ended: `close` and `prune` continue where they
 * stopped. So nothing is lost or counted twice, and two workers that take a stream one after the other do no harm.
 *
 * Guarantees: where `close` and `prune` refuse, because a reaction or a projection needs the events or no state has them, the stream is left as it is, and
 * the policy says so. A stream to which an event was appended since it was looked at is not closed.
 */

import { backoffMs } from "../../kernel/backoff.ts";
import type { Address, Row } from "../../kernel/contract.ts";
import type { Tx } from "../../kernel/decision.ts";
import type { Draft } from "../../kernel/draft.ts";
import { ClosedError, StoreError } from "../../kernel/errors.ts";
import type { Kernel } from "../../kernel/kernel.ts";
import { messageOf } from "../../kernel/log.ts";
import { decidePrune } from "../closing/decide.ts";
import { readStreamValue, versionAt } from "../closing/entries.ts";
import type { Streams } from "../closing/streams.ts";
import { ConcurrencyError, StreamClosedError, StreamInUseError, StreamNotFoundError } from "../errors.ts";
import { CLOSED, firstVersionOf, type StoredEvent, streamAt } from "../stored.ts";
import { decideStep, type PolicyDeed, type PolicyStep, restMs, SKIPPED, type StreamFacts } from "./decide.ts";
import type { PolicyRules } from "./definition.ts";
import {
  type Note,
  type PolicyStreamValue,
  type PolicyValue,
  policyAt,
  policyStreamAt,
  policyStreamQueueOf,
} from "./stored.ts";

/** How long a worker has for a stream before others may take it as well. */
const TAKEN_MS = 5 * 60_000;
const MAX_MESSAGE = 500;

/** What came of a stream that was taken. */
type Outcome =
  | { readonly is: "closed" | "pruned"; readonly removed: number }
  /** It has changed meanwhile: it is looked at again. */
  | { readonly is: "changed" }
  | { readonly is: "inUse" | "noState" | "failed"; readonly message: string };

export class Application {
  readonly #kernel: Kernel;
  readonly #streams: Streams;
  readonly #rules: PolicyRules;
  readonly #failed: (error: unknown) => void;

  constructor(kernel: Kernel, streams: Streams, rules: PolicyRules, failed: (error: unknown) => void) {
    this.#kernel = kernel;
    this.#streams = streams;
    this.#rules = rules;
    this.#failed = failed;
  }

  /** Does what is due about a stream, if these rules count. */
  async apply(at: Address): Promise<void> {
    const { name, by } = this.#rules;
    const [row, policy] = await this.#kernel.read([at, policyAt(name)]);
    if (row == null || row.value === null || policy == null || policy.value === null) return;
    if ((this.#kernel.decode(policy, policy.value) as PolicyValue).by !== by) return;
    const value = this.#kernel.decode(at, row.value) as PolicyStreamValue;
    const facts = await this.#factsOf(at.key);
    // Events were removed while they were read: the next look is about the rest.
    if (facts === "moved") return;
    const { nowMs } = await this.#kernel.due({ kinds: [policyStreamQueueOf(name)], limit: 1 });
    const step = decideStep(this.#rules, value, facts, nowMs);
    if (step.is === "close" || step.is === "prune") await this.#act(row, value, step);
    else await this.#putOff(row, step, facts?.head ?? 0);
  }

  async #factsOf(id: string): Promise<StreamFacts | undefined | "moved"> {
    const at = streamAt(id);
    const found = await readStreamValue(this.#kernel, at);
    if (found === undefined || found.head === 0) return undefined;
    const { head, value } = found;
    const firstVersion = firstVersionOf(value);
    const facts = { id, head, firstVersion, closedAt: value.closed?.version, lastAtMs: 0, firstAtMs: 0 };
    if (value.closed !== undefined) return facts;
    const [[last], [first]] = await Promise.all([
      this.#kernel.entries(at, head - 1, 1),
      this.#kernel.entries(at, firstVersion - 1, 1),
    ]);
    if (last?.version !== head || first?.version !== firstVersion) return "moved";
    const { atMs = first.atMs } = this.#kernel.decode(at, first.data) as StoredEvent;
    // An event that was imported is as old as it says, but was appended when it was imported.
    return { ...facts, lastAtMs: last.atMs, firstAtMs: atMs };
  }

  /** There is nothing to do about it now. */
  async #putOff(seen: Row, step: Exclude<PolicyStep, PolicyDeed>, head: number): Promise<void> {
    await this.#commit(seen.key, seen.version, (record, _, tx) => {
      if (step.is === "leave") return this.#leave(tx, record);
      const { dueMs, prunesAt } = step;
      const stream = tx.record(streamAt(seen.key));
      // Events that were appended since it was looked at may have been followed before this commit.
      const isLate = prunesAt === undefined ? dueMs === null && stream.head !== head : stream.head >= prunesAt;
      const value: PolicyStreamValue = isLate || prunesAt === undefined ? {} : { prunesAt };
      record.write({ value, dueMs: isLate ? tx.nowMs : dueMs });
      return undefined;
    });
  }

  /** It is forgotten, unless it was opened again: then the event that did so may have been followed before this commit. */
  #leave(tx: Tx, record: Draft): undefined {
    const stream = tx.record(streamAt(record.at.key));
    const isOver = !stream.exists || stream.status === CLOSED || !record.at.key.startsWith(this.#rules.prefix);
    if (isOver) record.remove();
    else record.write({ value: {} satisfies PolicyStreamValue, dueMs: tx.nowMs });
  }

  async #act(seen: Row, { failures = 0 }: PolicyStreamValue, step: PolicyDeed): Promise<void> {
    const { taken } = step;
    const version = await this.#commit(seen.key, seen.version, (record, _, tx) => {
      const next: PolicyStreamValue = { taken, ...(failures === 0 ? {} : { failures }) };
      record.write({ value: next, dueMs: tx.nowMs + TAKEN_MS });
      return undefined;
    });
    if (version === undefined) return;
    const outcome = await this.#outcomeOf(seen.key, step);
    await this.#commit(seen.key, version, (record, policy, tx) => {
      const { nowMs } = tx;
      switch (outcome.is) {
        case "closed":
          this.#leave(tx, record);
          return { ...policy, closed: policy.closed + 1, removed: policy.removed + outcome.removed };
        case "pruned":
          record.write({ value: {} satisfies PolicyStreamValue, dueMs: nowMs + restMs(this.#rules) });
          if (outcome.removed === 0) return undefined;
          return { ...policy, pruned: policy.pruned + 1, removed: policy.removed + outcome.removed };
        case "changed":
          record.write({ value: {} satisfies PolicyStreamValue, dueMs: nowMs });
          return undefined;
        default: {
          // Where a tombstone was written, or events may have been removed, the next look ends that. Nothing of a refused pruning is left.
          const isOver = step.is === "prune" && outcome.is !== "failed";
          const next: PolicyStreamValue = { ...(isOver ? {} : { taken }), failures: failures + 1 };
          record.write({ value: next, dueMs: nowMs + backoffMs(SKIPPED, failures + 1) });
          const note: Note = { stream: seen.key, message: outcome.message.slice(0, MAX_MESSAGE), atMs: nowMs };
          const counted = { ...policy, [outcome.is]: policy[outcome.is] + 1 };
          return outcome.is === "failed" ? { ...counted, lastError: note } : { ...counted, lastSkip: note };
        }
      }
    });
  }

  async #outcomeOf(stream: string, step: PolicyDeed): Promise<Outcome> {
    const { from, head } = step.taken;
    const { name, archive, discard } = this.#rules;
    const where = archive === undefined ? { discard } : { archive };
    try {
      if (step.is === "close") {
        const reason = `closed by policy "${name}"`;
        const { version } = await this.#streams.close(stream, { ...where, expectedVersion: head, reason });
        // A call that was faster has closed it, and this one only ended that.
        if (!(await this.#isClosedFor(streamAt(stream), version, reason))) return { is: "changed" };
        return { is: "closed", removed: head - from + 1 };
      }
      const at = streamAt(stream);
      const before = typeof step.before === "number" ? step.before : await versionAt(this.#kernel, at, step.before.ms);
      const state = await readStreamValue(this.#kernel, at);
      if (decidePrune(state, { before, isDiscarded: discard }).is === "unfolded")
        return { is: "noState", message: `no aggregate has a stored state of stream "${stream}" up to ${before - 1}` };
      const { firstVersion } = await this.#streams.prune(stream, { ...where, before });
      return { is: "pruned", removed: firstVersion - from };
    } catch (error) {
      if (error instanceof ClosedError || error instanceof StoreError) throw error;
      if (error instanceof StreamInUseError) return { is: "inUse", message: error.message };
      const isChanged =
        error instanceof ConcurrencyError || error instanceof StreamClosedError || error instanceof StreamNotFoundError;
      if (isChanged) return { is: "changed" };
      this.#failed(error);
      return { is: "failed", message: messageOf(error) };
    }
  }

  /** Whether the tombstone of this version gives this reason. It stays when the events before it are removed. */
  async #isClosedFor(at: Address, version: number, reason: string): Promise<boolean> {
    const [tombstone] = await this.#kernel.entries(at, version - 1, 1);
    if (tombstone?.version !== version) return false;
    const { data } = this.#kernel.decode(at, tombstone.data) as StoredEvent;
    return (data as { readonly reason?: string }).reason === reason;
  }

  /**
   * Changes what is stored of a stream, and of the policy where `change` returns that, if these rules count and no other worker has changed it. Returns the
   * version of the record after that; undefined if nothing was written.
   */
  #commit(
    stream: string,
    version: number,
    change: (record: Draft, policy: PolicyValue, tx: Tx) => PolicyValue | undefined,
  ): Promise<number | undefined> {
    const { name, by } = this.#rules;
    const at = policyStreamAt(name, stream);
    return this.#kernel.transact(
      (tx) => {
        const policy = tx.record(policyAt(name));
        const value = policy.value as PolicyValue | undefined;
        const record = tx.record(at);
        if (value?.by !== by || !record.exists || record.version !== version) return undefined;
        const next = change(record, value, tx);
        if (next !== undefined) policy.write({ value: next });
        return record.version;
      },
      [policyAt(name), at, streamAt(stream)],
    );
  }
}
