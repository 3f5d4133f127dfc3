// Two processes share a lock. One is paused while it holds it, for longer than its lease, and does not know when it goes on: it still
// believes that the lock is its own. The table knows better: it has seen a higher fence.

import { spawn, spawnSync } from "node:child_process";
import { once } from "node:events";
import { checkFence, FENCES_TABLE, open } from "pawl";

const [, , role] = process.argv;
await using pawl = await open("bank.db");

/** Adds to the balance, unless somebody with a higher fence has written already. */
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
      console.log("ann has the lock");
      process.kill(process.pid, "SIGSTOP"); // As a debugger, a hypervisor or a full machine does it.
      console.log("ann goes on, and knows nothing");
      await deposit(1, fence);
    },
    { lease: "500ms" },
  );
  await work.catch((error: Error & { code?: string }) => console.log("ann is refused:", error.code));
} else if (role === "bob") {
  await pawl.lock("account/42", async ({ fence }) => {
    console.log("bob has the lock, as ann's lease is over");
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
// ann has the lock
// bob has the lock, as ann's lease is over
// ann goes on, and knows nothing
// ann is refused: stale_fence
// balance: 120
