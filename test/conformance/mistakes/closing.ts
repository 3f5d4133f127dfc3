/** Mistakes of stores: closing. */

import { MemoryDatabase } from "../../../src/stores/memory/memory.ts";
import type { Broken } from "../broken.ts";

export const closing: readonly Broken[] = [
  {
    bug: "continues when closed",
    by: () => ({ close: async () => {} }),
    breaks: ["closing a store", "a closed store"],
  },
  {
    bug: "reports with another error that it is closed",
    by: (store) => ({
      read: (keys) =>
        store.read(keys).catch(() => {
          throw new Error("the database is not open");
        }),
    }),
    breaks: ["a closed store"],
  },
  {
    bug: "cannot be closed twice",
    by: (store) => {
      let closed = false;
      return {
        async close() {
          if (closed) throw new Error("the database is not open");
          closed = true;
          await store.close();
        },
      };
    },
    breaks: ["a closed store"],
  },
  {
    bug: "closes all writers with the first",
    by: (store, world) => {
      const close = () => store.close();
      return {
        close: async () => {
          world.notes.set("closed", 1);
          await close();
        },
        settle: async (lane) => {
          if (world.notes.has("closed")) await close();
          return store.settle(lane);
        },
        commit: async (batch) => {
          if (world.notes.has("closed")) await close();
          return store.commit(batch);
        },
      };
    },
    breaks: ["closing a store", "closing one writer", "committed data"],
  },
  {
    bug: "forgets everything when the last writer closes",
    by: (store, world) => {
      world.notes.set("open", (world.notes.get("open") ?? 0) + 1);
      return {
        async close() {
          const open = (world.notes.get("open") ?? 0) - 1;
          world.notes.set("open", open);
          if (open === 0) world.database = new MemoryDatabase(() => world.nowMs);
          await store.close();
        },
      };
    },
    breaks: ["committed data"],
  },
];
