// Two processes share a lock. One is paused while it holds the lock, for longer than its lease, and cannot know that when it resumes: for
// its code, it still holds the lock. The table refuses its write, because it has seen a higher fence.

import { spawn, spawnSync } from "node:child_process";
import { once } from "node:events";
import { checkFence, FENCES_TABLE, open } from "pawl";

const [, , role] = process.argv;
await using pawl = await open("bank.db");

/** Adds to the balance, unless a holder with a higher fence has written already. */
async function deposit(amount: number, fence: number): Promise<void> {
  await pawl.transact.sql(async (sql) => {
    await checkFence(sql, "account/42", fence);
    await sql.query("update account set balance = balance + ? where id = 42", [amount]);
  });
}

if (role === "ann") {
  const work = pawl.lock(
    "account/42",
    async ({ fence }) => {
      console.log("ann holds the lock");
      process.kill(process.pid, "SIGSTOP"); // As a debugger, a hypervisor or an overloaded machine does.
      console.log("ann resumes, without knowing about the pause");
      await deposit(1, fence);
    },
    { lease: "500ms" },
  );
  await work.catch((error: Error & { code?: string }) => console.log("ann is refused:", error.code));
} else if (role === "bob") {
  await pawl.lock("account/42", async ({ fence }) => {
    console.log("bob holds the lock: ann's lease has ended");
    await deposit(20, fence);
  });
} else {
  await pawl.transact.sql(async (sql) => {
    await sql.query(FENCES_TABLE);
    await sql.query("create table account (id integer primary key, balance integer not null)");
    await sql.query("insert into account values (42, 100)");
  });
  const me = [...process.execArgv, import.meta.filename];

  const ann = spawn(process.execPath, [...me, "ann"], { stdio: ["ignore", "pipe", "inherit"] });
  ann.stdout.pipe(process.stdout);
  await once(ann.stdout, "data");

  const bob = spawnSync(process.execPath, [...me, "bob"], { encoding: "utf8", stdio: ["ignore", "pipe", "inherit"] });
  process.stdout.write(bob.stdout);

  ann.kill("SIGCONT");
  await once(ann, "close");
  const { rows } = await pawl.transact.sql((sql) => sql.query("select balance from account"));
  console.log("balance:", rows[0]?.["balance"]);
}

// Output:
// ann holds the lock
// bob holds the lock: ann's lease has ended
// ann resumes, without knowing about the pause
// ann is refused: stale_fence
// balance: 120
