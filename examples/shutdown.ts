// biome-ignore-all lint/style/noRestrictedImports: the step of the example takes real time.

// A worker gets SIGTERM from a deploy, or Ctrl-C, while a step runs. A step that can finish does, and is recorded; one that takes too long is
// aborted, and runs again in another process. The other process resumes the run immediately: no lease has to end first.

import { fork } from "node:child_process";
import { once } from "node:events";
import { setTimeout as wait } from "node:timers/promises";
import { open, workflow } from "pawl";

const [, , role, stepMs = "0"] = process.argv;
let calls = 0;

const report = workflow("report", async (ctx) => {
  const pages = await ctx.step("collect", async ({ abortSignal }) => {
    calls += 1;
    process.send?.("collecting");
    await wait(Number(stepMs), undefined, { signal: abortSignal });
    return 12;
  });
  return ctx.step("print", () => `${pages} pages`);
});

async function work(): Promise<void> {
  const pawl = await open("reports.db");
  const worker = pawl.work([report], { lease: "10 minutes" });

  async function shutDown(): Promise<void> {
    // Takes no new work. Steps have a second to finish; then their abortSignal aborts.
    await worker.stop({ timeout: "1s" });
    await pawl.close();
  }
  // Once: a second Ctrl-C ends the process in the usual way.
  for (const name of ["SIGTERM", "SIGINT"] as const) process.once(name, shutDown);
}

async function main(): Promise<void> {
  await using pawl = await open("reports.db");
  for (const [signal, ms] of [
    ["SIGTERM", "300"],
    ["SIGINT", "3600000"],
  ] as const) {
    calls = 0;
    const child = fork(import.meta.filename, ["worker", ms]).on("message", () => {
      calls += 1;
    });
    const run = await pawl.start(report);
    await once(child, "message");
    child.kill(signal);
    const [code] = await once(child, "exit");
    console.log(`${signal}: exit code ${code}, the run is ${(await run.status()).status}`);

    await using _worker = pawl.work([report]);
    console.log(`another worker: ${await run.result()}, calls of "collect": ${calls}`);
  }
}

await (role === "worker" ? work() : main());

// Output:
// SIGTERM: exit code 0, the run is waiting
// another worker: 12 pages, calls of "collect": 1
// SIGINT: exit code 0, the run is waiting
// another worker: 12 pages, calls of "collect": 2
