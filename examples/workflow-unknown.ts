// A letter must be printed once. The printer takes no key and has no status, so after a crash it is unknown whether it printed: the step does not
// run again on a guess, the run is parked, and an operator who has looked at the printer resolves it.

import { spawnSync } from "node:child_process";
import { appendFileSync, readFileSync } from "node:fs";
import { open, workflow } from "pawl";

const [, , role] = process.argv;

const letter = workflow("letter", async (ctx, to: string) => {
  const page = await ctx.step.atMostOnce("print", () => {
    appendFileSync("printer.txt", `Dear ${to},\n`);
    if (role === "first") process.kill(process.pid, "SIGKILL"); // Printed, but not recorded.
    return 1;
  });
  return ctx.step("file", () => `filed page ${page}`);
});

await using pawl = await open("office.db");

if (role === "first") {
  pawl.work([letter], { lease: "500ms" });
  await (await pawl.start(letter, "Ann", { id: "letter-1" })).result();
} else {
  const { signal } = spawnSync(process.execPath, [...process.execArgv, import.meta.filename, "first"]);
  console.log("the first process ended with", signal);

  pawl.work([letter]);
  const run = pawl.run(letter, "letter-1");
  await run.result().catch((error: Error) => console.log(error.message));
  const { runs } = await pawl.runs.list({ status: "parked" });
  console.log("waiting for an operator:", runs.map(({ id }) => id).join(", "));

  const isPrinted = readFileSync("printer.txt", "utf8").includes("Dear Ann");
  await run.resolveStep("print", isPrinted ? { done: true, value: 1 } : { done: false });
  console.log(await run.result());
  console.log("pages in the printer:", readFileSync("printer.txt", "utf8").split("\n").length - 1);
}

// Output:
// the first process ended with SIGKILL
// run "letter-1" is parked: step "print" may or may not have happened: find out, then call run.resolveStep("print", { done: true, value }) or { done: false }
// waiting for an operator: letter-1
// filed page 1
// pages in the printer: 1
