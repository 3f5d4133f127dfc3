/**
 * Goal: a peer resumes the runs of a dead process from the history, and a run that none can resume waits for an operator.
 * Method: handles that die with their leases standing, a process that is killed, runs that are parked.
 * Code that contradicts its history is in contradiction.long.test.ts.
 */

import { randomUUID } from "node:crypto";
import { join } from "node:path";
import { describe, expect, test, vi } from "vitest";
import { open, type RunEvent, signal, workflow } from "../../src/index.ts";
import { gate } from "../kernel/kit.ts";
import { Child, spawnNode } from "../node/child.ts";
import { EVERY, endLease, factsOf, loseLease, onStores, PATIENCE, reaches, resultOf } from "./kit.ts";

const go = signal<number>("go");
const never = () => new Promise<never>(() => {});

onStores(EVERY, (place) => {
  describe("a peer", () => {
    test("resumes where a dead worker was, and repeats no recorded step", async () => {
      const [one, two] = await Promise.all([place.openHandle(), place.open()]);
      const ran: string[] = [];
      const keys = new Map<string, Set<string>>();
      const steps = (by: string, last: () => unknown) =>
        workflow("steps", async (ctx) => {
          const results: string[] = [];
          for (const name of ["a", "b", "c"])
            results.push(
              (await ctx.step(name, ({ key }) => {
                keys.set(name, (keys.get(name) ?? new Set()).add(key));
                ran.push(`${by} ${name}`);
                return name === "c" ? last() : `${by} ${name}`;
              })) as string,
            );
          return results;
        });
      one.pawl.work([steps("one", never)]);
      await one.pawl.start("steps", undefined, { id: "one" });
      await expect.poll(() => ran.length, PATIENCE).toBe(3);
      one.die();
      await endLease(two, "one");
      two.work([steps("two", () => "two c")]);
      expect(await resultOf(two.run("steps", "one"))).toEqual(["one a", "one b", "two c"]);
      expect(ran).toEqual(["one a", "one b", "one c", "two c"]);
      expect([...keys.values()].map(({ size }) => size)).toEqual([1, 1, 1]);
    });

    // A crash before each commit in turn: the result is the same, and each recorded step ran once for its record.
    test.each([1, 2, 3, 4, 5, 6])("resumes after a crash before commit %i of the run", async (crashAt) => {
      const [one, two] = await Promise.all([place.openHandle(), place.open()]);
      const ran = { plain: 0, once: 0, reconciled: 0 };
      const kinds = workflow("kinds", async (ctx) => {
        const a = await ctx.step("plain", () => `plain ${++ran.plain}`);
        const b = await ctx.step.atMostOnce("once", () => `once ${++ran.once}`, {
          reconcile: () => {
            ran.reconciled += 1;
            return ran.once === 0 ? { done: false } : { done: true, value: `once ${ran.once}` };
          },
        });
        await ctx.sleep(1);
        const n = await ctx.slot("n", { scope: "global", initial: 0 }).update((value) => value + 1);
        return [a, b, n.value];
      });
      one.pawl.work([kinds]);
      // The first commit of all is the start, which is acknowledged.
      const started = one.pawl.start(kinds, undefined, { id: "one" });
      await started;
      one.dieBefore(crashAt);
      await expect
        .poll(async () => (await two.run(kinds, "one").status()).status === "completed" || one.isDead(), PATIENCE)
        .toBe(true);
      one.die();
      if ((await two.run(kinds, "one").status()).status !== "completed") await endLease(two, "one");
      two.work([kinds]);
      const [a, b, n] = await resultOf(two.run(kinds, "one"));
      expect(a).toMatch(/^plain [12]$/);
      expect([b, n]).toEqual(["once 1", 1]);
      expect(ran.once).toBe(1);
      const facts = await factsOf(two.run(kinds, "one"));
      expect(facts.filter((name) => name === "step plain" || name === "step once").length).toBe(2);
    });

    test("wakes a run that sleeps, although the process that began it is dead", async () => {
      const [one, two] = await Promise.all([place.openHandle(), place.open()]);
      const naps = workflow("naps", async (ctx) => {
        // Long enough that the first process is dead by then, and has not claimed it again.
        await ctx.sleep(2000);
        return (await ctx.waitForSignal(go)).value;
      });
      one.pawl.work([naps]);
      await one.pawl.start(naps, undefined, { id: "one" });
      await reaches(two.run(naps, "one"), "waiting");
      one.die();
      two.work([naps]);
      await two.run(naps, "one").signal(go, 4);
      expect(await resultOf(two.run(naps, "one"))).toBe(4);
    });

    test("that took over is the only one that writes: the old worker's step is aborted and its result is discarded", async () => {
      const [one, two] = await Promise.all([place.open(), place.open()]);
      const begun = gate();
      const { opened, open: letGo } = gate();
      const aborted: boolean[] = [];
      let isTold = false;
      const it = (by: string, wait: () => Promise<unknown>) =>
        workflow("it", async (ctx) =>
          ctx.step("a", async ({ abortSignal }) => {
            abortSignal.addEventListener("abort", () => {
              isTold = true;
            });
            await wait();
            aborted.push(abortSignal.aborted);
            return by;
          }),
        );
      // With its one place in use, it does not claim the run again itself.
      one.work(
        [
          it("old", () => {
            begun.open();
            return opened;
          }),
        ],
        { concurrency: 1, lease: 1_000 },
      );
      const run = await one.start("it", undefined, { id: "one" });
      await begun.opened;
      two.work([it("new", async () => {})]);
      await loseLease(one, "one");
      expect(await resultOf(two.run("it", "one"))).toBe("new");
      await expect.poll(() => isTold, PATIENCE).toBe(true);
      letGo();
      await expect.poll(() => aborted.length, PATIENCE).toBe(2);
      expect(aborted).toEqual([false, true]);
      expect(await resultOf(run)).toBe("new");
      expect(await factsOf(run)).toEqual(["started", "step a", "completed"]);
    });
  });

  test("a listener is notified that a run was lost to a peer", async () => {
    const [one, two] = await Promise.all([place.open(), place.open()]);
    const begun = gate();
    const told: string[] = [];
    const it = (wait: boolean) =>
      workflow("it", async (ctx) =>
        ctx.step("a", ({ abortSignal }) => {
          if (!wait) return "new";
          begun.open();
          return new Promise<string>((resolve) => abortSignal.addEventListener("abort", () => resolve("old")));
        }),
      );
    one.work([it(true)], { concurrency: 1, lease: 300, on: ({ type }) => told.push(type) });
    await one.start("it", undefined, { id: "one" });
    await begun.opened;
    two.work([it(false)]);
    await loseLease(one, "one");
    expect(await resultOf(two.run("it", "one"))).toBe("new");
    await expect.poll(() => told).toContain("run.lost");
  });

  describe("a run that is being released to rest", () => {
    // The commit that releases it, or its reply, takes longer than the concurrent sleep.
    const lost = (what: "request" | "answer") => async () => {
      const handle = await place.openHandle();
      const ran: string[] = [];
      const it = workflow("it", async (ctx) => {
        const slow = () => handle.hold(what, new Promise((resolve) => setTimeout(resolve, 400)));
        await Promise.all([ctx.sleep(200), ctx.step("a", slow)]);
        await ctx.step("b", () => ran.push("b"));
        await ctx.sleep(1);
      });
      handle.pawl.work([it]);
      const run = await handle.pawl.start(it);
      expect(await run.result({ timeout: "2s" })).toBe(undefined);
      const woken = ["sleep 1", "step a", "woke 1", "step b", "sleep 2", "woke 2"];
      expect(await factsOf(run)).toEqual(["started", ...woken, "completed"]);
      expect(ran).toEqual(["b"]);
    };
    test("loses no timer that ends before the store has it", lost("request"));
    test("loses no timer that ends before the reply comes", lost("answer"));
  });

  describe("a worker that stops", () => {
    test("lets the running step finish, begins no other, and another worker resumes immediately", async () => {
      const [one, two] = await Promise.all([place.open(), place.open()]);
      const begun = gate();
      const { opened, open: letGo } = gate();
      const ran: string[] = [];
      const it = (by: string) =>
        workflow("it", async (ctx) => {
          const a = await ctx.step("a", async () => {
            ran.push(`${by} a`);
            begun.open();
            await opened;
            return `${by} a`;
          });
          return [
            a,
            await ctx.step("b", () => {
              ran.push(`${by} b`);
              return `${by} b`;
            }),
          ];
        });
      const worker = one.work([it("one")]);
      const run = await one.start("it", undefined, { id: "one" });
      await begun.opened;
      const stopped = worker.stop();
      letGo();
      await stopped;
      expect(await factsOf(run)).toEqual(["started", "step a"]);
      two.work([it("two")]);
      expect(await resultOf(run)).toEqual(["one a", "two b"]);
      expect(ran).toEqual(["one a", "two b"]);
    });

    test("claims no more, and leaves what is started then to others", async () => {
      const [one, two] = await Promise.all([place.open(), place.open()]);
      const it = workflow("it", async () => "done");
      await one.work([it]).stop();
      const run = await one.start(it);
      expect((await run.status()).status).toBe("pending");
      two.work([it]);
      expect(await resultOf(run)).toBe("done");
    });

    test("with a timeout aborts steps when it is over, and ends", async () => {
      const [one, two] = await Promise.all([place.open(), place.open()]);
      const begun = gate();
      let isTold = false;
      const it = (wait: boolean) =>
        workflow("it", async (ctx) =>
          ctx.step("a", ({ abortSignal }) => {
            if (!wait) return "done";
            begun.open();
            abortSignal.addEventListener("abort", () => {
              isTold = true;
            });
            return never();
          }),
        );
      const worker = one.work([it(true)]);
      const run = await one.start("it", undefined, { id: "one" });
      await begun.opened;
      await worker.stop({ timeout: 10 });
      expect(isTold).toBe(true);
      await endLease(two, "one");
      two.work([it(false)]);
      expect(await resultOf(run)).toBe("done");
    });

    test("with a timeout does not record what aborted steps return as their outcome", async () => {
      const [one, two] = await Promise.all([place.open(), place.open()]);
      const begun = gate();
      const obeys = workflow("it", async (ctx) =>
        ctx.step("a", async ({ abortSignal }) => {
          begun.open();
          await new Promise((_, reject) => abortSignal.addEventListener("abort", () => reject(abortSignal.reason)));
        }),
      );
      const worker = one.work([obeys]);
      const run = await one.start("it", undefined, { id: "one" });
      await begun.opened;
      await worker.stop({ timeout: 10 });
      two.work([workflow("it", async (ctx) => ctx.step("a", () => "done"))]);
      expect(await resultOf(run)).toBe("done");
    });

    test("closing a handle stops its workers, and peers resume", async () => {
      const [one, two] = await Promise.all([place.open(), place.open()]);
      const it = workflow("it", async (ctx) => (await ctx.waitForSignal(go)).value);
      one.work([it]);
      const { id } = await one.start(it);
      await reaches(two.run(it, id), "waiting");
      await one.close();
      two.work([it]);
      await two.run(it, id).signal(go, 1);
      expect(await resultOf(two.run(it, id))).toBe(1);
    });
  });

  describe("parking and retry", () => {
    test("a run that failed resumes at the step that failed, and completed steps are not repeated", async () => {
      const pawl = await place.open();
      const ran: string[] = [];
      let isBroken = true;
      const it = workflow("it", async (ctx) => {
        const a = await ctx.step("a", () => {
          ran.push("a");
          return randomUUID();
        });
        await ctx.step(
          "b",
          () => {
            ran.push("b");
            if (isBroken) throw new Error("down");
          },
          { retry: { attempts: 1 } },
        );
        return a;
      });
      pawl.work([it]);
      const run = await pawl.start(it);
      await expect(resultOf(run)).rejects.toMatchObject({ code: "run_failed" });
      const [, a] = await run.history();
      isBroken = false;
      await run.retry();
      expect(a?.data).toEqual({ ok: await resultOf(run) });
      expect(ran).toEqual(["a", "b", "b"]);
    });

    test("it may fail again, and be retried again", async () => {
      const pawl = await place.open();
      let times = 0;
      const it = workflow("it", async (ctx) =>
        ctx.step(
          "a",
          () => {
            times += 1;
            if (times < 3) throw new Error(`down ${times}`);
            return times;
          },
          { retry: { attempts: 1 } },
        ),
      );
      pawl.work([it]);
      const run = await pawl.start(it);
      for (const n of [1, 2]) {
        await expect(resultOf(run)).rejects.toMatchObject({ cause: { message: `down ${n}` } });
        await run.retry();
        await expect
          .poll(async () => ["failed", "completed"].includes((await run.status()).status), PATIENCE)
          .toBe(true);
      }
      expect(await resultOf(run)).toBe(3);
    });

    test("a run that completed, or has not ended, is not retried", async () => {
      const pawl = await place.open();
      const it = workflow("it", async () => 1);
      const waits = workflow("waits", async (ctx) => ctx.sleep("1 hour"));
      pawl.work([it, waits]);
      const done = await pawl.start(it);
      await resultOf(done);
      await expect(done.retry()).rejects.toMatchObject({
        code: "run_conflict",
        message: expect.stringMatching(/completed/),
      });
      const waiting = await pawl.start(waits);
      await reaches(waiting, "waiting");
      await expect(waiting.retry()).rejects.toMatchObject({
        code: "run_conflict",
        message: expect.stringMatching(/waiting/),
      });
    });

    test("a parked run that is taken over while it is ended with its parent is lost, and there is no trouble", async () => {
      const [one, two, three] = await Promise.all([place.openHandle(), place.open(), place.open()]);
      let begun = 0;
      const stuck = workflow("stuck", (ctx) =>
        ctx.step.atMostOnce("charge", () => {
          begun += 1;
          return never();
        }),
      );
      const parent = workflow("parent", async (ctx) => {
        await ctx.start(stuck, undefined, { id: "child", whenParentEnds: "cancel" });
        await ctx.waitForSignal(go);
      });
      one.pawl.work([parent, stuck]);
      const run = await one.pawl.start(parent, undefined, { id: "parent" });
      await expect.poll(() => begun, PATIENCE).toBe(1);
      await reaches(run, "waiting");
      one.die();
      await endLease(three, "child");
      const events: RunEvent[] = [];
      two.work([parent, stuck], { on: (event) => void events.push(event) });
      const child = three.run(stuck, "child");
      await reaches(child, "parked");
      // Its worker ends it in several commits; before the last one, another worker holds it.
      const read = two.kernel.entriesAfter.bind(two.kernel);
      let hasLost = false;
      vi.spyOn(two.kernel, "entriesAfter").mockImplementation(async function* (at, after) {
        if (at.key === "child" && !hasLost) {
          hasLost = true;
          await three.kernel.transact(
            (tx) => {
              const record = tx.record(at);
              record.write({ fence: record.fence + 1, holder: "another", dueMs: tx.nowMs + 600_000 });
            },
            [at],
          );
        }
        yield* read(at, after);
      });
      await three.run(parent, "parent").signal(go, 1);
      const ofChild = () => events.filter(({ type }) => type === "run.lost" || type === "run.trouble");
      await expect.poll(() => ofChild().length, PATIENCE).toBe(1);
      expect(ofChild()).toMatchObject([{ type: "run.lost", workflow: "stuck", run: "child" }]);
      await endLease(three, "child");
      await reaches(child, "canceled");
      expect(ofChild()).toHaveLength(1);
    });

    test("a run that is parked is not claimed until an operator cancels or resumes it", async () => {
      const [one, two] = await Promise.all([place.openHandle(), place.open()]);
      let times = 0;
      const it = workflow("it", async (ctx) =>
        ctx.step.atMostOnce("charge", () => {
          times += 1;
          return times === 1 || times === 2 ? never() : `charge ${times}`;
        }),
      );
      one.pawl.work([it]);
      await one.pawl.start(it, undefined, { id: "a" });
      await one.pawl.start(it, undefined, { id: "b" });
      await expect.poll(() => times, PATIENCE).toBe(2);
      one.die();
      await Promise.all(["a", "b"].map((id) => endLease(two, id)));
      two.work([it]);
      const [a, b] = [two.run(it, "a"), two.run(it, "b")];
      await Promise.all([reaches(a, "parked"), reaches(b, "parked")]);
      expect(times).toBe(2);
      expect((await two.runs.list({ status: "parked" })).runs.length).toBe(2);
      await a.resolveStep("charge", { done: false });
      expect(await resultOf(a)).toBe("charge 3");
      expect((await b.status()).status).toBe("parked");
      await b.resolveStep("charge", { done: true, value: "by hand" });
      expect(await resultOf(b)).toBe("by hand");
      await expect(b.resolveStep("charge", { done: false })).rejects.toMatchObject({ code: "run_conflict" });
    });
  });
});

onStores(["SQLite"], (place) => {
  test("a process that is killed in the middle of a step leaves a run that another resumes", async () => {
    const child = new Child(spawnNode(join(import.meta.dirname, "children", "victim.ts"), [place.where]), "victim.ts");
    expect(await child.line()).toBe("in step two");
    await child.kill();
    const pawl = await open(place.where, { namespace: "victims" });
    try {
      const ran: string[] = [];
      const it = workflow("it", async (ctx) => [
        await ctx.step("one", () => ran.push("one")),
        await ctx.step("two", () => {
          ran.push("two");
          return "survivor two";
        }),
      ]);
      pawl.work([it]);
      expect(await resultOf(pawl.run(it, "one"))).toEqual(["victim one", "survivor two"]);
      expect(ran).toEqual(["two"]);
    } finally {
      await pawl.close();
    }
  });
});
