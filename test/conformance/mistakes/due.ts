/** Mistakes of stores: due. */

import { keyText } from "../../../src/kernel/contract.ts";
import { type Broken, finding, rewrite, shownDue } from "../broken.ts";

export const due: readonly Broken[] = [
  {
    bug: "folds the case of kinds",
    by: (store, world) => ({
      due({ kinds, limit }) {
        const folded = new Set(kinds.map((kind) => kind.toLowerCase()));
        return store.due({ kinds: [...world.kinds].filter((kind) => folded.has(kind.toLowerCase())), limit });
      },
    }),
    breaks: ["due returns the requested"],
  },
  {
    bug: "finds a record a millisecond late",
    by: finding({ isDue: (row, nowMs) => (row.dueMs ?? 0) < nowMs }),
    breaks: ["a record is", "a record becomes"],
  },
  {
    bug: "finds a record a millisecond early",
    by: finding({ isDue: (row, nowMs) => (row.dueMs ?? 0) <= nowMs + 1 }),
    breaks: ["a record is"],
  },
  {
    bug: "reports the next due time a second too late",
    by: finding({ next: (nextDueMs) => (nextDueMs === null ? null : nextDueMs + 1000) }),
    breaks: [
      "namespaces do not",
      "a record is",
      "nextDueMs is the",
      "a record becomes",
      "a changed time",
      "a lease that",
    ],
  },
  {
    bug: "reports that a due record was never tried",
    by: finding({ shown: (row) => ({ ...shownDue(row), tries: 0 }) }),
    breaks: ["due returns the kind"],
  },
  {
    bug: "returns the latest due first",
    by: finding({ order: (a, b) => (b.dueMs ?? 0) - (a.dueMs ?? 0) }),
    breaks: ["a record is", "the longest due", "a lease that"],
  },
  {
    bug: "takes the first that it finds, and then sorts them",
    by: finding({
      before: (rows, { kinds, limit }) =>
        rows.filter(({ kind, dueMs }) => kind !== null && kinds.includes(kind) && dueMs !== null).slice(-limit),
    }),
    breaks: ["the longest due", "nextDueMs is the"],
  },
  {
    bug: "returns the next due time only when nothing is due",
    by: finding({ next: (ms, { keys }) => (keys.length > 0 ? null : ms) }),
    breaks: ["namespaces do not", "a record is", "nextDueMs is the", "a lease that"],
  },
  {
    bug: "returns the next due time of all kinds",
    by: (store, world) => ({
      async due(query) {
        const { nextDueMs } = await store.due({ kinds: [...world.kinds], limit: 1 });
        return { ...(await store.due(query)), nextDueMs };
      },
    }),
    breaks: ["nextDueMs is the"],
  },
  {
    bug: "reads the thousand longest due, and then filters by kind",
    by: finding({ before: (rows) => rows.sort((a, b) => (a.dueMs ?? 0) - (b.dueMs ?? 0)).slice(0, 1000) }),
    breaks: ["many due records"],
  },
  {
    bug: "takes a record without a time for one that is due",
    by: finding({ timeOf: (row) => row.dueMs ?? 0 }),
    breaks: ["texts come back", "a record without a", "a changed time"],
  },
  {
    bug: "finds what was due when it was first asked",
    by: (store, world) => {
      const openedAtMs = world.nowMs;
      return finding({ isDue: (row) => (row.dueMs ?? 0) <= openedAtMs })(store, world);
    },
    breaks: ["a record becomes"],
  },
  {
    bug: "does not notice a changed time",
    by: (store, world) => ({
      ...finding({ timeOf: (row) => (row.dueMs === null ? null : (world.notes.get(keyText(row)) ?? row.dueMs)) })(
        store,
        world,
      ),
      commit: (batch) =>
        store.commit(
          rewrite(batch, (puts) => {
            for (const { was, row } of puts)
              if (was === null && row.dueMs !== null) world.notes.set(keyText(row), row.dueMs);
            return puts;
          }),
        ),
    }),
    breaks: ["a changed time"],
  },
  {
    bug: "passes over records that have a holder",
    by: finding({ before: (rows) => rows.filter(({ holder }) => holder === null) }),
    breaks: ["a changed time", "a lease that"],
  },
];
