// A run holds a lock for as long as it lives, in whichever process it executes. When a worker is paused in the middle of a step, another takes the
// run over, which raises the fence. The table refuses what the old worker still tries to write.

import { spawn } from "node:child_process";
import { once } from "node:events";
import { DatabaseSync } from "node:sqlite";
import { checkFenceSync, FENCES_TABLE, open, workflow } from "pawl";

const [, , role] = process.argv;

// The bank's own database, which Pawl does not use.
using bank = new DatabaseSync("bank.db", { timeout: 1000 });

/** Adds to the balance, unless a holder with a higher fence has written already. */
function deposit(amount: number, fence: number): void {
  bank.exec("begin immediate");
  try {
    checkFenceSync(bank, "account/42", fence);
    bank.prepare("update account set balance = balance + ? where id = 42").run(amount);
    bank.exec("commit");
  } catch (error) {
    bank.exec("rollback");
    throw error;
  }
}

const payIn = workflow("pay-in", async (ctx, amount: number) =>
  ctx.lock("account/42", ({ fence }) =>
    ctx.step("deposit", () => {
      if (role === "old") {
        console.log("the old worker begins the step");
        process.kill(process.pid, "SIGSTOP");
        console.log("the old worker resumes, without knowing about the pause");
      }
      try {
        deposit(amount, fence);
        console.log("the new worker has taken over, and paid in");
      } catch (error) {
        console.log("the old worker is refused:", (error as { code?: string }).code);
        process.exit();
      }
    }),
  ),
);

await using pawl = await open("runs.db");

if (role === "old") {
  pawl.work([payIn], { lease: "500ms" });
  await pawl.run(payIn, "pay-in-1").result();
} else {
  bank.exec(`${FENCES_TABLE}; create table account (id integer primary key, balance integer not null)`);
  bank.exec("insert into account values (42, 100)");
  const run = await pawl.start(payIn, 20, { id: "pay-in-1" });

  const old = spawn(process.execPath, [...process.execArgv, import.meta.filename, "old"], {
    stdio: ["ignore", "pipe", "inherit"],
  });
  old.stdout.pipe(process.stdout);
  await once(old.stdout, "data");

  pawl.work([payIn]);
  await run.result();
  old.kill("SIGCONT");
  await once(old, "close");
  console.log("balance:", bank.prepare("select balance from account").get()?.["balance"]);
}

// Output:
// the old worker begins the step
// the new worker has taken over, and paid in
// the old worker resumes, without knowing about the pause
// the old worker is refused: stale_fence
// balance: 120
