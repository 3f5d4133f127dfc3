/**
 * Goal: misuse of reactions and projections has its defined effect or is reported, and ends no process (G33).
 * Method: handlers that go on after they have settled, or catch what `defer` throws; functions that are async where they must not be; names that are
 * too long; handles that are closed.
 */

import { describe, expect, test } from "vitest";
import { event, projection, reaction, workflow } from "../../src/index.ts";
import { codeOf } from "../kernel/kit.ts";
import { EVERY, onStores, PATIENCE } from "../workflow/kit.ts";
import { all, brief, buildingFailure, Deposited, deposits, Opened } from "./kit.ts";

/** What was logged. */
class Lines {
  readonly lines: string[] = [];
  readonly warn = (line: string): void => void this.lines.push(line);
  readonly error = this.warn;
}

onStores(EVERY, (place) => {
  test("what a handler left behind has no effect, and is reported", async () => {
    const logger = new Lines();
    const pawl = await place.open({ logger });
    const { promise: handled, resolve } = Promise.withResolvers<() => Promise<readonly unknown[]>>();
    const mail = reaction("mail", { on: [Deposited] }, (_, { emit, commit, defer }) => {
      const codeOfSync = (run: () => unknown) => codeOf((async () => run())());
      resolve(async () => [
        await codeOfSync(() => emit("late", [Opened()])),
        await codeOf(commit((tx) => tx.stream("late").append([Opened()]))),
        await codeOfSync(() => defer("1s")),
        // Not awaited, as in a forgotten timer: that must not end the process.
        void commit((tx) => tx.stream("late").append([Opened()])),
      ]);
    });
    pawl.work([mail]);
    await pawl.stream("ann").append(deposits(1));
    const late = await handled;
    await expect.poll(async () => (await pawl.reactions.target("mail", "ann")).handled, PATIENCE).toBe(1);
    expect(await late()).toEqual(["reaction_over", "reaction_over", "reaction_over", undefined]);
    expect(await all(pawl.stream("late").read())).toEqual([]);
    const reported = logger.lines.filter((line) => line.includes('in reaction "mail" after its attempt at event 1'));
    expect(reported.map((line) => line.split(" ")[1])).toEqual(["emit", "commit", "defer", "commit"]);
  });

  test("an event is deferred also where the handler catches what defer throws", async () => {
    const pawl = await place.open();
    const codes: unknown[] = [];
    let attempts = 0;
    const mail = reaction("mail", { on: [Deposited] }, async (_, { emit, commit, defer }) => {
      attempts += 1;
      if (attempts < 4) {
        emit("mails", [Opened()]);
        try {
          defer("1ms");
        } catch {
          // As code that logs all errors would.
        }
        codes.push(await codeOf((async () => emit("mails", [Opened()]))()));
        codes.push(await codeOf((async () => commit((tx) => tx.stream("mails").append([Opened()])))()));
        if (attempts === 2) throw new Error("after defer");
        return;
      }
      emit("mails", [Opened()]);
    });
    pawl.work([mail]);
    await pawl.stream("ann").append(deposits(1));
    await expect.poll(() => attempts, PATIENCE).toBe(4);
    await expect.poll(async () => (await pawl.reactions.target("mail", "ann")).handled, PATIENCE).toBe(1);
    expect(codes).toEqual(Array.from({ length: 6 }, () => "reaction_over"));
    expect((await all(pawl.stream("mails").read())).map(brief)).toEqual(["mails 1 Opened"]);
    expect(await pawl.reactions.target("mail", "ann")).toMatchObject({ failures: 0, lastError: null });
  });

  describe("functions that are async where they must not be", () => {
    test("an async key of a projection is the failure of its event", async () => {
      const pawl = await place.open({ logger: false });
      const key = (async () => {
        throw new Error("rejected, and not observed by anyone");
      }) as unknown as () => string;
      const rows = projection("rows", { on: [Deposited], key, version: "1" }, () => 1);
      pawl.work([rows]);
      await pawl.stream("ann").append(deposits(1));
      const failure = () => buildingFailure(pawl, rows);
      await expect.poll(failure, PATIENCE).toMatchObject({ stream: "ann", version: 1 });
    });

    test("an async upcast is refused by readers and folds, blocks a target, and stops a projection", async () => {
      const pawl = await place.open({ logger: false });
      await pawl.stream("ann").append([event<{ cents: number }>("Paid")({ cents: 100 })]);
      const upcast = {
        1: (async () => {
          throw new Error("rejected, and not observed by anyone");
        }) as unknown as () => { amount: number },
      };
      const Paid = event<{ amount: number }>("Paid", { shape: 2, upcast });
      expect(await codeOf(all(pawl.stream("ann").read({ events: [Paid] })))).toBe("decision_async");
      expect(await codeOf(all(pawl.events.read({ events: [Paid] })))).toBe("decision_async");
      const rows = projection("rows", { on: [Paid], version: "1" }, () => 1);
      const mail = reaction("mail", { on: [Paid], retry: { attempts: 2, delay: 1 } }, () => {});
      pawl.work([rows, mail]);
      const failure = () => buildingFailure(pawl, rows);
      await expect.poll(failure, PATIENCE).toMatchObject({ stream: "ann", version: 1 });
      await expect
        .poll(async () => {
          const { letters } = await pawl.reactions.deadLetters("mail");
          const { targets } = await pawl.reactions.targets("mail");
          return letters.length > 0 || targets.some(({ status }) => status === "blocked");
        }, PATIENCE)
        .toBe(true);
    });
  });

  test("a closed handle starts no worker", async () => {
    const pawl = await place.open();
    const closing = pawl.close();
    const mail = reaction("mail", { on: [Deposited] }, () => {});
    expect(() => pawl.work([mail])).toThrow(expect.objectContaining({ code: "closed" }));
    await closing;
    expect(() => pawl.work([mail])).toThrow(expect.objectContaining({ code: "closed" }));
  });

  test("definitions that cannot be worked on together start no worker", async () => {
    const pawl = await place.open();
    const seen: string[] = [];
    const mail = reaction("mail", { on: [Deposited] }, (e) => void seen.push(brief(e)));
    const flow = workflow("flow", async () => void seen.push("flow"));
    const rows = () => projection("rows", { on: [Deposited], version: "1" }, () => 1);
    expect(() => pawl.work([flow, mail, rows(), rows()])).toThrow("two projections");
    await pawl.stream("ann").append(deposits(1));
    await pawl.start(flow, undefined, { id: "run" });
    const other = reaction("other", { on: [Deposited] }, () => {});
    pawl.work([other]);
    await expect
      .poll(async () => (await pawl.reactions.target("other", "ann").catch(() => null))?.handled, PATIENCE)
      .toBe(1);
    expect(seen).toEqual([]);
  });

  test("the longest names of projections and reactions work", async () => {
    const pawl = await place.open();
    const rows = projection("p".repeat(212), { on: [Deposited] }, (row: number | undefined) => (row ?? 0) + 1);
    const seen: string[] = [];
    const mail = reaction("r".repeat(240), { on: [Deposited] }, (e) => void seen.push(brief(e)));
    pawl.work([rows, mail]);
    const appended = await pawl.stream("ann").append(deposits(1));
    await pawl.projection(rows).waitFor(appended);
    expect(await pawl.projection(rows).get("ann")).toBe(1);
    await expect.poll(() => seen, PATIENCE).toEqual(["ann 1 Deposited"]);
  });
});

test("longer names are refused where they are defined", () => {
  const tooLong = expect.objectContaining({ code: "invalid_id" });
  expect(() => projection("p".repeat(213), { on: [Deposited] }, () => 1)).toThrow(tooLong);
  expect(() => projection.sql("é".repeat(107), { on: [Deposited] }, async () => {})).toThrow(tooLong);
  expect(() => reaction("r".repeat(241), { on: [Deposited] }, () => {})).toThrow(tooLong);
});

test("a call in the body of a run names what to use instead", async () => {
  const { openTest } = await import("../../src/testing/index.ts");
  await using pawl = openTest({ strict: false });
  const flow = workflow("flow", async () => {
    try {
      await pawl.stream("ann").append(deposits(1));
      return "appended";
    } catch (error) {
      return (error as Error).message;
    }
  });
  pawl.work([flow]);
  const run = await pawl.start(flow, undefined, { id: "run" });
  expect(await run.result()).toMatch(/ctx\.stream or ctx\.aggregate/);
});
