/** Mistakes of stores: lanes. */

import type { Batch } from "../../../src/kernel/contract.ts";
import { StoreError } from "../../../src/kernel/errors.ts";
import { type Broken, settling, tick, without } from "../broken.ts";

export const lanes: readonly Broken[] = [
  { bug: "has no lane", by: () => ({ lanes: 0 }), breaks: ["a store has"] },
  { bug: "lacks the property isRemote", by: without("isRemote"), breaks: ["a store says"] },
  { bug: "lacks the property hasOneWriter", by: without("hasOneWriter"), breaks: ["a store says"] },
  {
    bug: "continues in the same epoch after a settle",
    by: (store) => {
      const first = new Map<number, number>();
      const now = new Map<number, number>();
      return {
        async settle(lane) {
          const { epoch, sequence } = await store.settle(lane);
          now.set(lane, epoch);
          first.set(lane, first.get(lane) ?? epoch);
          return { epoch: first.get(lane) ?? epoch, sequence };
        },
        commit: (batch) => store.commit({ ...batch, epoch: now.get(batch.lane) ?? 0 }),
      };
    },
    breaks: ["each settle starts", "a batch of"],
  },
  {
    bug: "ignores the epoch",
    by: (store) => {
      const now = new Map<number, number>();
      return {
        async settle(lane) {
          const mark = await store.settle(lane);
          now.set(lane, mark.epoch);
          return mark;
        },
        commit: (batch) => store.commit({ ...batch, epoch: now.get(batch.lane) ?? 0 }),
      };
    },
    breaks: ["a batch of"],
  },
  {
    bug: "calls a batch of an older epoch busy, to be tried again",
    by: (store) => ({
      commit: (batch) =>
        store.commit(batch).catch((error: unknown) => {
          throw error instanceof StoreError ? new StoreError("store_busy", "retry", "it is busy") : error;
        }),
    }),
    breaks: ["a batch of"],
  },
  {
    bug: "checks the epoch when a batch arrives, and writes it later",
    by: (store) => {
      const now = new Map<number, number>();
      return {
        async settle(lane) {
          const mark = await store.settle(lane);
          now.set(lane, mark.epoch);
          return mark;
        },
        async commit(batch) {
          if (batch.epoch === now.get(batch.lane)) {
            await tick();
            return store.commit({ ...batch, epoch: now.get(batch.lane) ?? 0 });
          }
          return store.commit(batch);
        },
      };
    },
    breaks: ["after settle,"],
  },
  {
    bug: "forgets the sequence",
    by: settling(({ epoch }) => ({ epoch, sequence: 0 })),
    breaks: ["settle returns", "after a batch", "writers settle", "lanes settle", "after settle,"],
  },
  {
    bug: "counts batches instead of keeping their sequence",
    by: (store) => {
      const counts = new Map<number, number>();
      return {
        settle: async (lane) => ({ ...(await store.settle(lane)), sequence: counts.get(lane) ?? 0 }),
        async commit(batch) {
          const receipt = await store.commit(batch);
          if (receipt.committed) counts.set(batch.lane, (counts.get(batch.lane) ?? 0) + 1);
          return receipt;
        },
      };
    },
    breaks: ["settle returns"],
  },
  {
    bug: "notes the sequence before it knows the outcome",
    by: (store) => {
      const last = new Map<number, number>();
      return {
        async settle(lane) {
          const { epoch, sequence } = await store.settle(lane);
          return { epoch, sequence: Math.max(sequence, last.get(lane) ?? 0) };
        },
        commit(batch) {
          const sequence = batch.sequence;
          return store.commit({
            ...batch,
            decide(found) {
              last.set(batch.lane, sequence);
              return batch.decide(found);
            },
          });
        },
      };
    },
    breaks: ["settle does"],
  },
  {
    bug: "forgets the sequence with a batch that wrote nothing",
    by: (store) => {
      let wrote = false;
      return {
        settle: async (lane) => {
          const { epoch, sequence } = await store.settle(lane);
          return { epoch, sequence: wrote ? sequence : 0 };
        },
        async commit(batch) {
          const receipt = await store.commit(batch);
          if (receipt.committed) wrote = receipt.ids.length > 0;
          return receipt;
        },
      };
    },
    breaks: ["after a batch"],
  },
  {
    bug: "keeps one sequence for all writers",
    by: (store, world) => ({
      settle: async (lane) => ({ ...(await store.settle(lane)), sequence: world.notes.get(`lane ${lane}`) ?? 0 }),
      async commit(batch) {
        const receipt = await store.commit(batch);
        if (receipt.committed && receipt.ids.length > 0) world.notes.set(`lane ${batch.lane}`, batch.sequence);
        return receipt;
      },
    }),
    breaks: ["writers settle"],
  },
  {
    bug: "keeps one mark for all lanes",
    by: (store) => ({ settle: () => store.settle(0), commit: (batch) => store.commit({ ...batch, lane: 0 }) }),
    breaks: ["lanes settle"],
  },
  {
    bug: "mixes up concurrent batches",
    by: (store) => {
      let latest: Batch | undefined;
      return {
        async commit(batch) {
          latest = batch;
          await tick();
          return store.commit({ ...batch, decide: (found) => (latest ?? batch).decide(found) });
        },
      };
    },
    breaks: ["batches of different"],
  },
];
