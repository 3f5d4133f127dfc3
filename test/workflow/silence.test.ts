/**
 * Goal: what an operator should know is logged without a listener: in one line each, rate-limited, to the logger or nowhere.
 * Method: runs that fail, are parked or are not claimed, with a logger that keeps its lines; and the lines themselves by hand.
 */

import { describe, expect, test } from "vitest";
import { type Logger, open, workflow } from "../../src/index.ts";
import { StoreError } from "../../src/kernel/errors.ts";
import { Log } from "../../src/kernel/log.ts";
import { Pawl } from "../../src/pawl.ts";
import { openTest } from "../../src/testing/index.ts";
import { logRunEvent } from "../../src/workflow/execution/run-log.ts";
import { bench } from "../kernel/kit.ts";

function lines(): { readonly logger: Logger; readonly said: string[] } {
  const said: string[] = [];
  const write = (message: string): void => void said.push(message);
  return { logger: { warn: write, error: write }, said };
}

const fails = workflow("fails", async (ctx) =>
  ctx.step("a", () => Promise.reject(new Error("no luck")), { retry: { attempts: 1 } }),
);
const forgets = workflow("forgets", async (ctx) => {
  void ctx.step("mail", () => {});
});

describe("a logger", () => {
  test("gets one line for a run that failed, and one for what was not awaited", async () => {
    const { logger, said } = lines();
    await using pawl = await open("memory:", { logger });
    pawl.work([fails, forgets]);
    await (await pawl.start(fails, undefined, { id: "f" })).result().catch(() => {});
    await (await pawl.start(forgets, undefined, { id: "g" })).result();
    expect(said).toEqual([
      'pawl: run "f" of "fails" failed: no luck',
      'pawl: run "g" of "forgets": the workflow\'s function returned without awaiting step "mail"',
    ]);
  });

  test.each([null, "console", {}, { warn: () => {} }, 1])("%o is refused", async (logger) => {
    await expect(open("memory:", { logger: logger as never })).rejects.toMatchObject({ code: "invalid_argument" });
  });
});

test("a listener or a logger that throws, now or in a promise, stops nothing", async () => {
  const unhandled: unknown[] = [];
  const heard = (error: unknown): void => void unhandled.push(error);
  process.on("unhandledRejection", heard);
  const deaf = async (): Promise<void> => Promise.reject(new Error("the listener is broken"));
  const loud = (): void => {
    throw new Error("the listener is broken");
  };
  for (const bad of [deaf, loud]) {
    await using pawl = await open("memory:", { logger: { warn: bad, error: bad } });
    pawl.work([fails], { on: bad });
    await expect((await pawl.start(fails)).result()).rejects.toMatchObject({ code: "run_failed" });
    await using kit = openTest();
    kit.work([fails], { on: bad });
    await expect((await kit.start(fails)).result()).rejects.toMatchObject({ code: "run_failed" });
  }
  await new Promise((resolve) => setTimeout(resolve, 10));
  process.off("unhandledRejection", heard);
  expect(unhandled).toEqual([]);
});

test("by default lines go to stderr, except for a worker with a listener; false writes none", async () => {
  const said: string[] = [];
  const { write } = process.stderr;
  process.stderr.write = ((text: string) => said.push(String(text)) > 0) as typeof write;
  try {
    for (const [logger, on] of [
      [undefined, undefined],
      [undefined, () => {}],
      [false, undefined],
    ] as const) {
      await using pawl = await open("memory:", logger === undefined ? {} : { logger });
      pawl.work([fails], on === undefined ? {} : { on });
      await (await pawl.start(fails, undefined, { id: "f" })).result().catch(() => {});
    }
  } finally {
    process.stderr.write = write;
  }
  expect(said.filter((line) => line.startsWith("pawl:"))).toEqual(['pawl: run "f" of "fails" failed: no luck\n']);
});

test("a run that is waited for, and that no worker claims, is logged once", async () => {
  const on = bench();
  const { logger, said } = lines();
  const pawl = new Pawl(on.kernel, { log: new Log(logger, on.clock, false) });
  const run = await pawl.start("missspelt", undefined, { id: "m" });
  const result = run.result().catch(() => {});
  await on.clock.advance(9_000);
  expect(said).toEqual([]);
  await on.clock.advance(60_000);
  expect(said).toEqual([expect.stringMatching(/run "m" .* no worker .*"missspelt"/)]);
  await run.cancel();
  await result;
});

test("a run that is waited for, and whose workflow is paused, is logged with that and not as one without a worker", async () => {
  const on = bench();
  const { logger, said } = lines();
  const pawl = new Pawl(on.kernel, { log: new Log(logger, on.clock, false) });
  await pawl.workflows.pause("light", { reason: "the vendor is down" });
  const run = await pawl.start("light", undefined, { id: "p" });
  const result = run.result().catch(() => {});
  await on.clock.advance(60_000);
  expect(said).toEqual([
    expect.stringMatching(
      /run "p" .* workflow "light" is paused since .* \(the vendor is down\): .*workflows\.resume$/,
    ),
  ]);
  await run.cancel();
  await result;
});

describe("lines", () => {
  test("are rate-limited, and say how many were left out", () => {
    const { logger, said } = lines();
    let nowMs = 0;
    const log = new Log(logger, { nowMs: () => nowMs }, true);
    for (let i = 0; i < 1000; i++) log.warn("again");
    expect(said.length).toBe(20);
    nowMs = 10_000;
    log.warn("later");
    expect(said.at(-1)).toBe("pawl: later (980 lines before this one were left out)");
  });

  test("about an unreachable store come after five seconds, and then once a minute", () => {
    const { logger, said } = lines();
    let nowMs = 0;
    const log = new Log(logger, { nowMs: () => nowMs }, true);
    const error = new StoreError("store_unreachable", "retry", "connection refused");
    for (; nowMs < 130_000; nowMs += 1000) logRunEvent(log, { type: "run.trouble", workflow: "", run: "", error });
    expect(said.length).toBe(3);
    expect(said[0]).toContain("has not reached its store for 5 s");
  });
});
