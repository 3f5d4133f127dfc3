/**
 * Goal: the code of a run is ordinary code: branches, races, generators, time, randomness and shared values are the same each time it is
 * replayed.
 * Method: everything runs warm, and again without any warm code, where each wake-up replays the whole history.
 */

import { describe, expect, test } from "vitest";
import { type Context, signal, type Workflow, workflow } from "../../src/index.ts";
import { gate } from "../kernel/kit.ts";
import { EVERY, endLease, factsOf, onStores, PATIENCE, reaches, resultOf } from "./kit.ts";

const go = signal<number>("go");
const NONE = { retry: { attempts: 1 } } as const;

onStores(EVERY, (place) => {
  /** What a workflow returns, warm and replayed at each wake-up. */
  async function bothWays<T>(it: Workflow<undefined, T>): Promise<[T, T]> {
    const [one, two] = await Promise.all([place.open(), place.open()]);
    const warm = one.work([it]);
    const first = await resultOf(await one.start(it));
    await warm.stop();
    two.work([it], { warm: 0 });
    return [first, await resultOf(await two.start(it))];
  }

  describe("several concurrently", () => {
    test("Promise.all returns all results in their places", async () => {
      const it = workflow("it", async (ctx) =>
        Promise.all([
          ctx.step("a", () => "a"),
          ctx.sleep(5).then(() => "slept"),
          ctx.step("c", async () => "c"),
          ctx.step.atMostOnce("d", () => "d"),
        ]),
      );
      const all = ["a", "slept", "c", "d"];
      expect(await bothWays(it)).toEqual([all, all]);
    });

    test("Promise.race returns the first, and the others are no longer waited for", async () => {
      const it = workflow("it", async (ctx) =>
        Promise.race([ctx.sleep("1 hour").then(() => "late"), ctx.step("a", () => "a")]),
      );
      expect(await bothWays(it)).toEqual(["a", "a"]);
    });

    test("Promise.allSettled returns both kinds of outcome", async () => {
      const it = workflow("it", async (ctx) => {
        const all = await Promise.allSettled([
          ctx.step("a", () => "a"),
          ctx.step("b", () => Promise.reject(new Error("no")), NONE),
        ]);
        return all.map((one) => (one.status === "fulfilled" ? one.value : (one.reason as Error).message));
      });
      expect(await bothWays(it)).toEqual([
        ["a", "no"],
        ["a", "no"],
      ]);
    });

    const orders = ["abc", "acb", "bac", "bca", "cab", "cba"];
    test.each(orders)("branches that end in the order %s are replayed in that order", async (order) => {
      const [one, two] = await Promise.all([place.openHandle(), place.open()]);
      const gates = { a: gate(), b: gate(), c: gate() };
      const names = ["a", "b", "c"] as const;
      const branches = (step: (name: "a" | "b" | "c") => Promise<string>, last: () => unknown) =>
        workflow("branches", async (ctx) => {
          const seen: string[] = [];
          const both = names.map((name) => ctx.step(name, () => step(name)));
          const first = await Promise.race(both);
          await Promise.all(both.map(async (branch) => seen.push(await branch)));
          await ctx.step("last", last);
          return { first, seen };
        });
      let isAtEnd = false;
      one.pawl.work([
        branches(
          (name) => gates[name].opened.then(() => name),
          () => {
            isAtEnd = true;
            return new Promise(() => {});
          },
        ),
      ]);
      const run = await one.pawl.start("branches", undefined, { id: "one" });
      for (const [index, name] of [...order].entries()) {
        gates[name as "a"].open();
        await expect.poll(async () => (await factsOf(run)).length, PATIENCE).toBe(index + 2);
      }
      await expect.poll(() => isAtEnd, PATIENCE).toBe(true);
      one.die();
      await endLease(two, "one");
      const again: string[] = [];
      two.work([
        branches(
          async (name) => {
            again.push(name);
            return name;
          },
          () => {},
        ),
      ]);
      expect(await resultOf(two.run("branches", "one"))).toEqual({ first: order[0], seen: [...order] });
      expect(again).toEqual([]);
    });
  });

  describe("the generator form", () => {
    test("an async function* is refused: where it is defined, and by the run if a function returns one", async () => {
      const mixed = async function* (ctx: Context): AsyncGenerator<unknown, number> {
        yield ctx.step("a", () => 1);
        return 2;
      };
      expect(() => workflow("mixed", mixed as never)).toThrow(/not an async function\*/);
      const pawl = await place.open();
      const it = workflow("it", ((ctx: Context) => mixed(ctx)) as never);
      pawl.work([it]);
      await expect(resultOf(await pawl.start(it))).rejects.toMatchObject({
        cause: { message: expect.stringMatching(/not an async function\*/) },
      });
    });

    test("does what the async form does, with yield*", async () => {
      const it = workflow("it", function* (ctx: Context) {
        const a = yield* ctx.step("a", () => 1);
        yield* ctx.sleep(5);
        const [b, c] = yield* ctx.all([ctx.step("b", () => "b"), ctx.step("c", () => true)]);
        const first = yield* ctx.race([ctx.step("d", () => "d"), ctx.sleep("1 hour").then(() => "late")]);
        const settled = yield* ctx.allSettled([ctx.step("e", () => Promise.reject(new Error("no")), NONE)]);
        return [a, b, c, first, settled[0]?.status];
      });
      const all = [1, "b", true, "d", "rejected"];
      expect(await bothWays(it)).toEqual([all, all]);
    });

    test("a step's failure is thrown at its yield*, and finally runs", async () => {
      const it = workflow("it", function* (ctx: Context) {
        const seen: unknown[] = [];
        try {
          yield* ctx.step("a", () => Promise.reject(new Error("no")), NONE);
        } catch (error) {
          seen.push((error as Error).message);
        } finally {
          seen.push(yield* ctx.step("cleanup", () => "clean"));
        }
        return seen;
      });
      expect(await bothWays(it)).toEqual([
        ["no", "clean"],
        ["no", "clean"],
      ]);
    });

    test("what it throws fails the run", async () => {
      const pawl = await place.open();
      // biome-ignore lint/correctness/useYield: it throws before it would.
      const it = workflow("it", function* () {
        throw new RangeError("at once");
      });
      pawl.work([it]);
      await expect(resultOf(await pawl.start(it))).rejects.toMatchObject({ cause: { name: "RangeError" } });
    });
  });

  describe("time and randomness", () => {
    test("are the same at replay: each turn of the code runs many times, and returns the same", async () => {
      const pawl = await place.open();
      const said: string[][] = [];
      const it = workflow("it", async (ctx) => {
        const drawn: string[] = [];
        const draw = () => drawn.push(`${ctx.now().toISOString()} ${ctx.random()} ${ctx.uuid()}`);
        said.push(drawn);
        draw();
        draw();
        await ctx.sleep(3);
        draw();
        await ctx.step("a", () => 1);
        draw();
        await ctx.sleep(3);
        draw();
        return drawn;
      });
      pawl.work([it], { warm: 0 });
      const result = await resultOf(await pawl.start(it));
      expect(said.length).toBeGreaterThanOrEqual(3);
      for (const drawn of said) expect(drawn).toEqual(result.slice(0, drawn.length));
      const parts = result.map((line) => line.split(" "));
      expect(new Set(parts.map(([, random]) => random)).size).toBe(5);
      expect(new Set(parts.map(([, , uuid]) => uuid)).size).toBe(5);
      for (const [time, random, uuid] of parts) {
        expect(Number(random)).toBeGreaterThanOrEqual(0);
        expect(Number(random)).toBeLessThan(1);
        expect(uuid).toMatch(/^[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$/);
        expect(time).toMatch(/^\d{4}-/);
      }
      const times = parts.map(([time]) => time ?? "");
      expect(times).toEqual(times.toSorted());
    });

    test("random numbers differ between runs", async () => {
      const pawl = await place.open();
      const it = workflow("it", async (ctx) => [ctx.random(), ctx.uuid()]);
      pawl.work([it]);
      const [a, b] = await Promise.all([pawl.start(it), pawl.start(it)].map(async (run) => resultOf(await run)));
      expect(a).not.toEqual(b);
    });

    test("a sleep until a time that has passed ends immediately", async () => {
      const pawl = await place.open();
      const it = workflow("it", async (ctx) => {
        await ctx.sleepUntil(new Date("2020-01-01"));
        await ctx.sleepUntil(0);
        await ctx.sleep(0);
        return "up";
      });
      pawl.work([it]);
      const run = await pawl.start(it);
      expect(await resultOf(run)).toBe("up");
      expect(await factsOf(run)).toEqual([
        "started",
        "sleep 1",
        "woke 1",
        "sleep 2",
        "woke 2",
        "sleep 3",
        "woke 3",
        "completed",
      ]);
    });

    test("a sleep of years is one record with its end", async () => {
      const pawl = await place.open();
      const it = workflow("it", async (ctx) => ctx.sleepUntil(new Date("2100-01-01T00:00:00Z")));
      pawl.work([it]);
      const run = await pawl.start(it);
      await reaches(run, "waiting");
      expect((await run.status()).dueAt).toEqual(new Date("2100-01-01T00:00:00Z"));
    });

    test("what is logged is logged once, not again at replay", async () => {
      const pawl = await place.open();
      const logged: unknown[] = [];
      const it = workflow("it", async (ctx) => {
        ctx.log("begun");
        await ctx.sleep(1);
        ctx.log("slept", { well: true });
        await ctx.sleep(1);
        ctx.log("done");
      });
      pawl.work([it], { warm: 0, on: ({ type, message, data }) => type === "log" && logged.push([message, data]) });
      await resultOf(await pawl.start(it));
      expect(logged).toEqual([
        ["begun", undefined],
        ["slept", { well: true }],
        ["done", undefined],
      ]);
    });
  });

  describe("slots", () => {
    test("in the global scope are those of pawl.slot, read and changed from both sides", async () => {
      const pawl = await place.open();
      const it = workflow("it", async (ctx) => {
        const total = ctx.slot<number>("total", { scope: "global", initial: 0 });
        const before = (await total.get()).value;
        await total.update((n) => n + 5);
        await ctx.waitForSignal(go);
        return [before, (await total.get()).value];
      });
      pawl.work([it], { warm: 0 });
      const total = pawl.slot("total", { initial: 0 });
      await total.set(10);
      const run = await pawl.start(it);
      await reaches(run, "waiting");
      expect((await total.get()).value).toBe(15);
      await total.update((n) => n * 2);
      await run.signal(go, 1);
      expect(await resultOf(run)).toEqual([10, 30]);
      expect((await total.get()).value).toBe(30);
    });

    test("of the workflow are shared by its runs, and not by those of other workflows", async () => {
      const pawl = await place.open();
      const count = (name: string) =>
        workflow(
          name,
          async (ctx) => (await ctx.slot("n", { scope: "workflow", initial: 0 }).update((n) => n + 1)).value,
        );
      pawl.work([count("a"), count("b")]);
      const results: unknown[] = [];
      for (const name of ["a", "a", "b", "a"]) results.push(await resultOf(await pawl.start(name)));
      expect(results).toEqual([1, 2, 1, 3]);
    });

    test("of the run are shared with its children", async () => {
      const pawl = await place.open();
      const child = workflow("child", async (ctx) => (await ctx.slot("n", { initial: 0 }).update((n) => n + 1)).value);
      const parent = workflow("parent", async (ctx) => {
        const n = ctx.slot("n", { initial: 0 });
        await n.set(10);
        return [await ctx.call(child), await ctx.call(child), (await n.get()).value];
      });
      pawl.work([child, parent], { warm: 0 });
      const runs = [await pawl.start(parent), await pawl.start(parent), await pawl.start(child)];
      expect(await Promise.all(runs.map((run) => resultOf<unknown>(run)))).toEqual([[11, 12, 12], [11, 12, 12], 1]);
    });

    test("take effect once, however often the code is replayed", async () => {
      const pawl = await place.open();
      const it = workflow("it", async (ctx) => {
        const n = ctx.slot("n", { scope: "global", initial: 0 });
        for (let i = 0; i < 5; i++) {
          await n.update((value) => value + 1);
          await ctx.sleep(1);
        }
        return (await n.get()).value;
      });
      pawl.work([it], { warm: 0 });
      expect(await resultOf(await pawl.start(it))).toBe(5);
    });

    // On memory each decision runs twice, and the stack of an error that was made in it is not the same twice.
    test("all verbs return what those of pawl.slot do, and a refusal is thrown where the code can catch it", async () => {
      const pawl = await place.open();
      const it = workflow("it", async (ctx) => {
        const slot = ctx.slot<string>("s", { scope: "global" });
        const codeOfCaught = (error: unknown) => (error as { code?: string }).code ?? (error as Error).message;
        return [
          await slot.get(),
          await slot.set("a", { expectedVersion: 0 }),
          await slot.set("b", { expectedVersion: 0 }).catch(codeOfCaught),
          await slot.trySet("b", { expectedVersion: 0 }),
          await slot
            .update(() => {
              throw new Error("of the user");
            })
            .catch(codeOfCaught),
          await slot.get(),
          await slot.delete(),
        ];
      });
      pawl.work([it]);
      const results = await resultOf(await pawl.start(it));
      expect(results).toMatchObject([
        { value: undefined, version: 0 },
        { version: 1 },
        "version_conflict",
        { ok: false },
        "of the user",
        { value: "a", version: 1 },
        { deleted: true },
      ]);
    });

    test("of many concurrent runs, no update is lost", async () => {
      const [one, two] = await Promise.all([place.open(), place.open()]);
      const it = workflow("it", async (ctx) => {
        await ctx.slot("n", { scope: "global", initial: 0 }).update((n) => n + 1);
      });
      one.work([it]);
      two.work([it]);
      const runs = Array.from({ length: 20 }, (_, n) => (n % 2 === 0 ? one : two).start(it));
      await Promise.all(runs.map(async (run) => resultOf(await run)));
      expect((await one.slot("n", { initial: 0 }).get()).value).toBe(20);
    });
  });
});
