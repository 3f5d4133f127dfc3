/**
 * Goal: a run can be reached by its id alone, without knowing its workflow.
 * Method: each verb of a handle, on every store, at a handle that has no code and gets no name.
 */

import { expect, expectTypeOf, test } from "vitest";
import { type Run, signal, workflow } from "../../src/index.ts";
import { codeOf } from "../kernel/kit.ts";
import { EVERY, onStores, reaches, resultOf } from "./kit.ts";

const go = signal<number>("go");
const waits = workflow("waits", async (ctx) => (await ctx.waitForSignal(go)).value);

onStores(EVERY, (place) => {
  test("its status, history and result are read, and it is signaled", async () => {
    const [worker, other] = await Promise.all([place.open(), place.open()]);
    worker.work([waits]);
    await worker.start(waits, undefined, { id: "w-1" });
    const run = other.run("w-1");
    expectTypeOf(run).toEqualTypeOf<Run<unknown>>();
    await reaches(run, "waiting");
    expect(await run.status()).toMatchObject({ id: "w-1", workflow: "waits", status: "waiting" });
    expect((await run.history()).length).toBeGreaterThan(0);
    expect(await run.signal(go, 7)).toEqual({ isNew: true });
    expect(await resultOf(run)).toBe(7);
  });

  test("it is canceled, and retried", async () => {
    const [worker, other] = await Promise.all([place.open(), place.open()]);
    let isBroken = true;
    const fragile = workflow("fragile", async (ctx) =>
      ctx.step(
        "once",
        () => {
          if (isBroken) throw new Error("broken");
          return "mended";
        },
        { retry: { attempts: 1 } },
      ),
    );
    worker.work([waits, fragile]);
    await worker.start(waits, undefined, { id: "w-2" });
    await reaches(other.run("w-2"), "waiting");
    await other.run("w-2").cancel({ reason: "no more" });
    await expect(resultOf(other.run("w-2"))).rejects.toMatchObject({ code: "run_canceled" });

    await worker.start(fragile, undefined, { id: "f-1" });
    await expect(resultOf(other.run("f-1"))).rejects.toMatchObject({ code: "run_failed" });
    isBroken = false;
    await other.run("f-1").retry();
    expect(await resultOf(other.run("f-1"))).toBe("mended");
  });

  test("one that does not exist is not found, and with a workflow it must be of that workflow", async () => {
    const pawl = await place.open();
    expect(await codeOf(pawl.run("missing").status())).toBe("run_not_found");
    expect(await codeOf(pawl.run("missing").result())).toBe("run_not_found");
    await pawl.start("waits", undefined, { id: "w-3" });
    expect(await codeOf(pawl.run("others", "w-3").status())).toBe("run_conflict");
    expect((await pawl.run("w-3").status()).workflow).toBe("waits");
    // @ts-expect-error a workflow alone is not an id
    expect(() => pawl.run(waits)).toThrow(expect.objectContaining({ code: "invalid_id" }));
  });
});
