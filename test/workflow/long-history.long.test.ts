/**
 * Goal: a long history is replayed in bounded memory (G22).
 * Method: one process makes a history, another replays it with a heap that the facts would not fit in. `npm run bench -- --only s4` does
 * the same with a million facts, and measures.
 */

import { join } from "node:path";
import { expect, test } from "vitest";
import { Child, spawnNode } from "../node/child.ts";
import { goOn, long } from "./children/long.ts";
import { onStores, SQL } from "./kit.ts";

const program = join(import.meta.dirname, "children", "long.ts");
const THOUSANDS = 200;
/** A fact takes more than a hundred bytes in memory, so that all of them would take more than this. */
const HEAP_MIB = 24;

onStores(SQL, (place) => {
  test(`${THOUSANDS},000 facts are replayed with a heap of ${HEAP_MIB} MiB`, async () => {
    const pawl = await place.open();
    const worker = (nodeArgs: readonly string[]) =>
      new Child(spawnNode(program, [place.where, place.namespace], { nodeArgs }), "a worker");
    const said = async (child: Child, what: string): Promise<void> => {
      for (let line = ""; line !== what; ) {
        line = await child.line();
        expect(line).not.toMatch(/trouble|lost/);
      }
    };
    const run = await pawl.start(long, THOUSANDS);
    const maker = worker([]);
    await said(maker, "run.rested");
    await maker.kill();
    // Without the second, the room for young objects counts as used.
    const replayer = worker([`--max-old-space-size=${HEAP_MIB}`, "--max-semi-space-size=2"]);
    try {
      await run.signal(goOn);
      await said(replayer, "run.ended");
      expect(await run.result()).toBe(THOUSANDS * 1000);
      // The start, the steps, the signal, and the end.
      expect((await run.history({ after: THOUSANDS * 1000 })).map(({ name }) => name)).toEqual([
        `step step-999#${THOUSANDS}`,
        "received go on",
        "completed",
      ]);
    } finally {
      await replayer.kill();
    }
  });
});
