/** Bugs that reactions like these could have, each caught by the simulated reactions. */

import type { Bug } from "./bugs.ts";
import { notices } from "./scenarios/notices.ts";
import { reactions } from "./scenarios/reactions.ts";

const DECIDE = "stream/reactions/decide.ts";
const ROUTING = "stream/reactions/routing.ts";
const ATTEMPT = "stream/reactions/attempt.ts";
const PROGRESS = "stream/reactions/progress.ts";
const TARGETS = "stream/reactions/targets.ts";

const caughtBy = reactions.name;

export const reactionBugs: readonly Bug[] = [
  {
    name: "a handler whose target was taken over commits all the same",
    caughtBy,
    edits: [
      {
        file: ATTEMPT,
        from: "this.#held.commit(this.#writes(effect))",
        to: "this.#kernel.transact((tx) => this.#writes(effect)(tx.record(this.#held.at), tx), [this.#held.at])",
      },
      { file: ATTEMPT, from: "    if (this.#isLast)", to: "    if (this.#isLast && this.#done < 0)" },
      { file: PROGRESS, from: "    if (value.done >= done) return false;", to: "" },
    ],
  },
  {
    name: "a worker that lost the routing routes all the same",
    caughtBy,
    edits: [
      {
        file: ROUTING,
        from: "      return held.commit((record, tx) => {\n        const value = record.value as RouterValue;\n        if (value.cursor !== from || value.pausedAtMs !== undefined) return undefined;",
        to: "      return this.#kernel.transact((tx) => {\n        const record = tx.record(held.at);\n        const value = record.value as RouterValue;",
      },
      {
        file: ROUTING,
        from: "      }, chosen);",
        to: "      }, [held.at, ...chosen]);",
      },
    ],
  },
  {
    name: "the cursor moves before the events are routed",
    caughtBy,
    edits: [
      {
        file: ROUTING,
        from: "    const routes = [...(await this.#routesOf(held, entries))];\n",
        to: "    const routes = [...(await this.#routesOf(held, entries))];\n    await held.commit((record) => record.write({ value: { ...(record.value as RouterValue), cursor: upTo } }));\n",
      },
      { file: ROUTING, from: "value.cursor !== from || value.pausedAtMs", to: "value.pausedAtMs" },
    ],
  },
  {
    name: "what is emitted is committed before the progress",
    caughtBy,
    edits: [
      {
        file: ATTEMPT,
        from: "      return await this.#kernel.mending(commit);",
        to: "      for (const { stream, events } of this.#emitted.splice(0))\n        await this.#kernel.transact((tx) => append(tx, { stream, events, expectedVersion: undefined }), []);\n      return await this.#kernel.mending(commit);",
      },
    ],
  },
  {
    name: "the progress is committed before what is emitted",
    caughtBy,
    edits: [
      {
        file: ATTEMPT,
        from: "      for (const { stream, events } of this.#emitted) append(",
        to: "      for (const { stream, events } of [] as Emitted[]) append(",
      },
      {
        file: ATTEMPT,
        from: "      return await this.#kernel.mending(commit);",
        to: "      const value = await this.#kernel.mending(commit);\n      for (const { stream, events } of this.#emitted.splice(0))\n        await this.#kernel.transact((tx) => append(tx, { stream, events, expectedVersion: undefined }), []);\n      return value;",
      },
    ],
  },
  {
    name: "a target that is worked on does not learn of news",
    caughtBy,
    edits: [
      {
        file: DECIDE,
        from: "  return holder !== null || dueMs === null;",
        to: "  return holder === null && dueMs === null;",
      },
    ],
  },
  {
    name: "a target with nothing to do is not woken",
    caughtBy,
    edits: [{ file: DECIDE, from: "  return holder !== null || dueMs === null;", to: "  return holder !== null;" }],
  },
  {
    name: "a failure is not tried again by itself",
    caughtBy,
    edits: [{ file: TARGETS, from: "(tx) => (delayMs === null ? null : tx.nowMs + delayMs)", to: "() => null" }],
  },
  {
    name: "a deferred event counts as handled",
    caughtBy,
    edits: [
      {
        file: TARGETS,
        from: 'if (outcome.is === "deferred") return',
        to: 'if (outcome.is === "deferred") await progress.handled(done);\n        if (outcome.is === "deferred") return',
      },
    ],
  },
  {
    name: "events of a target are read in the wrong order",
    caughtBy,
    edits: [
      {
        file: TARGETS,
        from: "const events = await this.#events(rules, held, page);",
        to: "const events = (await this.#events(rules, held, page)).toReversed();",
      },
    ],
  },
  {
    name: "neighbours in the log of a target are taken for neighbours in a stream",
    caughtBy,
    edits: [{ file: TARGETS, from: " && last.first + last.count === version", to: "" }],
  },
  {
    name: "an event is left out where its target was not there yet",
    caughtBy,
    edits: [
      {
        file: ROUTING,
        from: "  record.append(ROUTED, routed);",
        to: "  if (record.head > 0 || record.version > 1) record.append(ROUTED, routed);",
      },
    ],
  },
  {
    name: "a clock that is set back makes routing wait for as long",
    caughtBy,
    options: { clockJump: 0.05 },
    edits: [
      {
        file: "stream/following.ts",
        from: "Math.min(LOOK_MS, LOOK_MS - (clock.nowMs() - startedMs))",
        to: "LOOK_MS - (clock.nowMs() - startedMs)",
      },
    ],
  },
  {
    name: "a target begins again with its first event",
    caughtBy,
    edits: [
      {
        file: TARGETS,
        from: "await this.#kernel.entries(held.at, done, PAGE)",
        to: "await this.#kernel.entries(held.at, 0, PAGE)",
      },
    ],
  },
  {
    name: "the position of an event is taken for its version",
    caughtBy,
    edits: [
      {
        file: ROUTING,
        from: "  { key: stream, version }: Pick<FollowedEntry",
        to: "  { key: stream, position: version }: Pick<FollowedEntry",
      },
    ],
  },
  {
    name: "work on a target begins with the last events although earlier ones are left",
    caughtBy,
    edits: [{ file: DECIDE, from: "value.done === routed - added ? ", to: "value.done >= 0 ? " }],
  },
  {
    name: "a target is released while its handler still runs",
    caughtBy,
    options: { firstSeed: 20_000 },
    edits: [
      {
        file: ATTEMPT,
        from: "    const value = await this.#committed(() => this.#held.commit(this.#writes(effect)));\n",
        to: "    let value = undefined as T;\n    const write = (record: Draft, tx: Tx): T => (value = this.#writes(effect)(record, tx));\n    if (!this.#isLast || (await this.#committed(() => this.#held.rest(() => null, write))) !== 'rested')\n      value = await this.#committed(() => this.#held.commit(this.#writes(effect)));\n",
      },
    ],
  },
  {
    name: "a failure counts as handled",
    caughtBy,
    edits: [
      {
        file: ATTEMPT,
        from: "      if (!this.#isCommitted) return this.#failed(error);\n",
        to: "      if (this.#trouble !== undefined || error instanceof Deferred) return this.#failed(error);\n",
      },
    ],
  },
  {
    name: "an event that is being handled counts as handled where those before it are committed",
    caughtBy: notices.name,
    edits: [
      { file: PROGRESS, from: "        const done = this.#handled;", to: "        const done = this.#handled + 1;" },
    ],
  },
];
