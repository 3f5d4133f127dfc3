/** What the tests of policies share: an archive in memory, and the loop of a worker without its waits. */

import type { Archive, ArchivedEvent, Pawl, StreamPolicy } from "../../src/index.ts";
import { SweepLoop } from "../../src/kernel/sweep-loop.ts";
import { type PolicyRules, policyRules } from "../../src/stream/policies/definition.ts";
import { ensurePolicy } from "../../src/stream/policies/finding.ts";
import { policyQueueOf, policyStreamAt, policyStreamQueueOf } from "../../src/stream/policies/stored.ts";
import { policyQueues } from "../../src/stream/policies/worker.ts";
import { all } from "./kit.ts";

export class Shelf implements Archive {
  readonly events = new Map<string, Map<number, ArchivedEvent>>();
  /** Called before the events are taken. */
  onWrite: () => Promise<void> = async () => {};

  async write(stream: string, events: AsyncIterable<ArchivedEvent>): Promise<void> {
    await this.onWrite();
    const taken: ArchivedEvent[] = [];
    for await (const one of events) taken.push(one);
    const shelf = this.events.get(stream) ?? new Map<number, ArchivedEvent>();
    for (const one of taken) shelf.set(one.version, one);
    this.events.set(stream, shelf);
  }

  async *read(stream: string, { from, to }: { readonly from: number; readonly to: number }) {
    for (const version of this.versions(stream)) {
      const one = this.events.get(stream)?.get(version);
      if (one !== undefined && version >= from && version <= to) yield one;
    }
  }

  versions(stream: string): readonly number[] {
    return [...(this.events.get(stream)?.keys() ?? [])].toSorted((a, b) => a - b);
  }
}

/** The versions that the store keeps. */
export const keptIn = async (pawl: Pawl, stream: string): Promise<readonly number[]> =>
  (await all(pawl.stream(stream).read({ from: "kept" }))).map(({ version }) => version);

/** A worker on one policy, whose looks are called by the test, because real ones come once a minute. `changes` are times below a second. */
export function workerOn(pawl: Pawl, policy: StreamPolicy, changes: Partial<PolicyRules> = {}) {
  const known = policyRules(policy);
  if (known === undefined) throw new Error("it is no policy");
  const rules: PolicyRules = { ...known, ...changes };
  const errors: unknown[] = [];
  const failed = (error: unknown): void => void errors.push(error);
  const { signal: stopping } = new AbortController();
  const queues = policyQueues(pawl.kernel, rules, { streams: pawl.streams, failed, stopping });
  const loop = new SweepLoop(pawl.kernel, queues, failed);
  const chore = (kind: string) => queues.find((one) => one.kind === kind)?.chore ?? (async () => {});
  return {
    errors,
    begin: () => ensurePolicy(pawl.kernel, rules),
    /** Finds streams, and does what is due; several times, because one thing leads to another. */
    async look(times = 4): Promise<void> {
      for (let i = 0; i < times; i++) await loop.look();
    },
    find: () => chore(policyQueueOf(policy.name))(policyStreamAt(policy.name, "")),
    apply: (stream: string) => chore(policyStreamQueueOf(policy.name))(policyStreamAt(policy.name, stream)),
    stop: () => loop.stop(),
  };
}

/** A stream is looked at now, as if its time had come. */
export async function makeDue(pawl: Pawl, policy: StreamPolicy, stream: string): Promise<void> {
  const at = policyStreamAt(policy.name, stream);
  await pawl.kernel.transact(
    (tx) => {
      if (tx.record(at).exists) tx.record(at).write({ dueMs: tx.nowMs });
    },
    [at],
  );
}
