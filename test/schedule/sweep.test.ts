/**
 * The crash sweep of ticks: a process stops before and after every single call to the store, and its successor finishes.
 *
 * Goal: wherever a process stops, each tick has started one run, and its history says so (G2, G29).
 * Method: a schedule that lets its ticks wait in line has two ticks due. For every call k to the store, a worker dies before it, or after its effect and before
 * its reply; then another works, until both runs have ended.
 */

import { expect, it } from "vitest";
import { schedule, workflow } from "../../src/index.ts";
import { onStores, PATIENCE } from "../workflow/kit.ts";
import { putBack, wordsOf } from "./kit.ts";

const HOUR = 3_600_000;
const brief = workflow("brief", async () => {});
const lined = schedule("lined", { every: "1 hour", catchUp: 2, overlap: "queue" }, brief);

onStores(["memory", "SQLite"], (place) => {
  it.each(["before", "after"] as const)("dies %s each call", async (when) => {
    let isOver = false;
    for (let call = 1; !isOver; call++) {
      place.begin();
      const keeper = await place.open();
      // Declares it first, so that the sweep is about the ticks.
      const declaring = keeper.work([lined]);
      await expect.poll(async () => (await keeper.schedules.get("lined"))?.state, PATIENCE).toBe("active");
      await declaring.stop();
      const fromMs = await putBack(keeper, "lined", 2 * HOUR);
      const handle = await place.openHandle();
      const { died } = handle.dieAt(call, when);
      handle.pawl.work([brief, lined], { lease: 100 });
      const isDone = async (): Promise<boolean> => (await wordsOf(keeper, "lined")).length >= 3 && (await isEnded());
      const isEnded = async (): Promise<boolean> => {
        const { runs } = await keeper.runs.list({ prefix: "lined/" });
        return runs.length === 2 && runs.every(({ status }) => status === "completed");
      };
      const finished = (async () => {
        while (!(await isDone()) && !handle.isDead()) await new Promise((resolve) => setTimeout(resolve, 5));
      })();
      await Promise.race([died, finished]);
      isOver = !handle.isDead();
      const successor = await place.open();
      successor.work([brief, lined], { lease: 100 });
      await expect.poll(isDone, PATIENCE).toBe(true);
      expect(await wordsOf(keeper, "lined")).toEqual(["fired", "queued", "fired"]);
      const { entries } = await keeper.schedules.history("lined");
      expect(new Set(entries.map(({ scheduledAt }) => scheduledAt.getTime())).size).toBe(2);
      expect(entries.every(({ scheduledAt }) => scheduledAt.getTime() > fromMs)).toBe(true);
      await place.end();
    }
  });
});
