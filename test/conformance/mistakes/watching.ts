/** Mistakes of stores: watching. */

import type { Broken } from "../broken.ts";

export const watching: readonly Broken[] = [
  {
    bug: "never calls back",
    patienceMs: 200,
    by: () => ({ watch: () => () => {} }),
    breaks: ["a watch is", "a watch that", "each watch of", "closing a store"],
  },
  {
    bug: "calls back once",
    patienceMs: 200,
    by: (store) => ({
      watch(changed) {
        const stop = store.watch(() => {
          stop();
          changed();
        });
        return stop;
      },
    }),
    breaks: ["a watch is", "each watch of"],
  },
  {
    bug: "keeps calling back when stopped",
    by: (store) => ({
      watch(changed) {
        store.watch(changed);
        return () => {};
      },
    }),
    breaks: ["a watch that", "each watch of"],
  },
  {
    bug: "cannot stop a watch twice",
    by: (store) => ({
      watch(changed) {
        const stop = store.watch(changed);
        let stopped = false;
        return () => {
          if (stopped) throw new Error("it is not watching");
          stopped = true;
          stop();
        };
      },
    }),
    breaks: ["a watch that"],
  },
  {
    bug: "has one watch at a time",
    patienceMs: 200,
    by: (store) => {
      let stop = () => {};
      return {
        watch(changed) {
          stop();
          stop = store.watch(changed);
          return () => stop();
        },
      };
    },
    breaks: ["each watch of"],
  },
  {
    bug: "keeps calling back when closed",
    by: (_, world, namespace) => ({ watch: (changed) => world.database.connect(namespace).watch(changed) }),
    breaks: ["closing a store"],
  },
];
