// biome-ignore-all lint/suspicious/noTemplateCurlyInString: the edits quote templates of the source.
/**
 * The guards against the failures: for each, the smallest edit of the source that removes it, and the failure that is then seen.
 *
 * A guard that is missing from the source, or is there twice, is noticed, because each edit must find its text exactly once.
 */

import type { Edit } from "../simulation/plant.ts";
import { failures } from "./failures.ts";

export interface Guard {
  /** What is missing, as the end of "a failure is seen …". */
  readonly name: string;
  readonly failure: string;
  readonly edits: readonly Edit[];
}

const guard = (name: string, part: string, ...edits: readonly Edit[]): Guard => ({
  name,
  failure: failures.find((one) => one.name.includes(part))?.name ?? part,
  edits,
});
const edit = (file: string, from: string, to: string): Edit => ({ file, from, to });

const DECIDE = "stream/decide.ts";
const RECORDS = "stream/records.ts";
const STREAM = "stream/stream.ts";
const AGGREGATES = "stream/aggregates.ts";
const ATTEMPT = "stream/reactions/attempt.ts";
const PROGRESS = "stream/reactions/progress.ts";
const TARGETS = "stream/reactions/targets.ts";
const ROUTING = "stream/reactions/routing.ts";
const WORKER = "stream/reactions/worker.ts";
const REACTIONS = "stream/reactions/reactions.ts";
const FOLLOWED = "stores/postgres/followed.ts";

export const guards: readonly Guard[] = [
  guard(
    "if a stream that exists passes as one that must not",
    "must not exist",
    edit(DECIDE, "  expected === undefined || expected === version;", "  !expected || expected === version;"),
  ),
  guard(
    "if a command decides on a state that was read before its commit",
    "last unit",
    edit(
      AGGREGATES,
      "    let caughtUp: FoldOutside | undefined;\n",
      "    let caughtUp: FoldOutside | undefined = await catchUp(this.#kernel, this.#rules, this.#stream);\n",
    ),
    edit(
      RECORDS,
      "  if (stored?.version === record.head) return",
      "  if (caughtUp !== undefined) return { fold: caughtUp, isStored: false };\n  if (stored?.version === record.head) return",
    ),
  ),
  guard(
    "if what a command emits is not in the state that the next one gets",
    "last unit",
    edit(RECORDS, "foldEvent(rules, state, event), fold);", "({ ...state, version: event.version }), fold);"),
  ),
  guard(
    "if a handler that was taken over commits all the same",
    "overran its lease",
    edit(
      ATTEMPT,
      "this.#held.commit(this.#writes(effect))",
      "this.#kernel.transact((tx) => this.#writes(effect)(tx.record(this.#held.at), tx), [this.#held.at])",
    ),
    edit(ATTEMPT, "    if (this.#isLast)", "    if (this.#isLast && this.#done < 0)"),
    edit(PROGRESS, "    if (value.done >= done) return false;", ""),
  ),
  guard(
    "if each attempt has a key of its own",
    "overran its lease",
    edit(
      ATTEMPT,
      "    const event = this.#event;\n",
      "    const event = { id: `${this.#event.id} ${this.#held.fence}` };\n",
    ),
  ),
  guard(
    "if a failure rests until there is news",
    "tried again by itself",
    edit(TARGETS, "(tx) => (delayMs === null ? null : tx.nowMs + delayMs)", "() => null"),
  ),
  guard(
    "if a cursor is the highest position that was read",
    "visible late",
    edit(FOLLOWED, "least(o.last, (${LOWEST}))::text", "o.last::text"),
  ),
  guard(
    "if a transaction does not announce that it appends",
    "visible late",
    edit(FOLLOWED, "else ${announce}::text || set_config", "else set_config"),
  ),
  guard(
    "if all reactions share the places of a worker",
    "slow handler",
    edit(WORKER, "Map.groupBy(rules.values(), ({ group }) => group)", 'Map.groupBy(rules.values(), () => "all")'),
  ),
  guard(
    "if an append waits for the handlers",
    "slow handler",
    edit(
      STREAM,
      "    return this.#kernel.mending(() => this.#kernel.transact((tx) => append(tx, request), [streamAt(this.id)]));",
      "    const appended = await this.#kernel.transact((tx) => append(tx, request), [streamAt(this.id)]);\n    await globalThis.handling;\n    return appended;",
    ),
    edit(
      ATTEMPT,
      "      await (timeoutMs === undefined ? handling",
      "      globalThis.handling = Promise.all([globalThis.handling, handling]);\n      await (timeoutMs === undefined ? handling",
    ),
  ),
  guard(
    "if a worker that stops keeps the routing",
    "no worker runs",
    edit(ROUTING, "    if (!lease.isOver) await restWhateverCame(held, (tx) => tx.nowMs);\n", ""),
  ),
  guard(
    "if a holder whose lease has ended counts as a worker",
    "no worker runs",
    edit(REACTIONS, "dueMs !== null && dueMs > nowMs ? holder : null", "holder"),
  ),
];
