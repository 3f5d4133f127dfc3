/**
 * Goal: code that contradicts a history is reported with both sides, nothing is written, and the run is parked after a while (G23).
 * Method: runs that were begun by one release and are woken on another, whose worker tries twice, some seconds apart.
 */

import { describe, expect, test } from "vitest";
import { signal, workflow } from "../../src/index.ts";
import { EVERY, onStores, reaches, resultOf } from "./kit.ts";

const go = signal<number>("go");

onStores(EVERY, (place) => {
  describe("code that contradicts the history", () => {
    const v1 = (name = "it") =>
      workflow({ name, tries: 2 }, async (ctx) => {
        await ctx.step("charge", () => "charged");
        await ctx.waitForSignal(go);
        return ctx.step("ship", () => "shipped");
      });
    const others: [string, ReturnType<typeof v1>, RegExp][] = [
      [
        "another step in its place",
        workflow({ name: "it", tries: 2 }, async (ctx) => {
          await ctx.step("bill", () => "billed");
          await ctx.waitForSignal(go);
          return ctx.step("ship", () => "shipped");
        }),
        /"step charge".*waits for "step bill"/,
      ],
      ["nothing any more", workflow({ name: "it", tries: 2 }, async () => "at once"), /"step charge".*has ended/],
      [
        "another kind in its place",
        workflow({ name: "it", tries: 2 }, async (ctx) => {
          await ctx.waitForSignal(signal("charge"));
          return "never";
        }),
        /"step charge".*waits for "signal charge"/,
      ],
    ];

    test.each(others)(
      "(%s) is reported with both sides, nothing is written, and the run is parked after a while",
      async (_, v2, both) => {
        const [one, two, three] = await Promise.all([place.open(), place.open(), place.open()]);
        const first = one.work([v1()]);
        const run = await one.start("it", undefined, { id: "one" });
        await reaches(run, "waiting");
        await first.stop();
        const before = await run.history();
        const reports: unknown[] = [];
        let isEffect = false;
        const second = two.work([v2], {
          parkContradictedAfter: 1,
          on: ({ type, error }) => {
            if (type === "run.trouble") reports.push(error);
            if (type.startsWith("step.")) isEffect = true;
          },
        });
        await run.signal(go, 1);
        await reaches(run, "parked");
        expect(isEffect).toBe(false);
        expect(reports.length).toBe(2);
        expect(reports[0]).toMatchObject({
          code: "history_contradiction",
          data: { run: "one" },
          message: expect.stringMatching(both),
        });
        expect((await run.status()).parkedReason).toMatch(both);
        const after = await run.history();
        expect(after.slice(0, before.length)).toEqual(before);
        expect(after.slice(before.length).map(({ name }) => name)).toEqual(["parked"]);
        await second.stop();
        // With the code that wrote it, an operator resumes it.
        three.work([v1()]);
        await run.retry();
        expect(await resultOf(run)).toBe("shipped");
      },
    );
  });
});
