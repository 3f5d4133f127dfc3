/**
 * Goal: whatever a receiver does, and however often the processes that call it are killed, every task ends; every call for a task has its one key; and a
 * receiver that goes by the key has done the work of each task once.
 * Method: two processes work on forty tasks, half of which wait for a signal. They are killed (`kill -9`) again and again, as long as tasks are open, and
 * replaced. The receiver is slow, dies, responds late, redirects, drips, closes half-way, and sends without an end, each at random; it signals in its own
 * time, more than once, and notes what it was told.
 */

import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterEach, expect, test } from "vitest";
import { open, type Pawl } from "../../src/index.ts";
import { Child, spawnNode } from "../node/child.ts";
import { freshDatabase } from "../postgres/server.ts";
import { PATIENCE } from "../workflow/kit.ts";
import { type Behavior, KEYS, receiver } from "./kit.ts";

const TASKS = 40;
const KILLS_MS = 700;
const LONG = 400_000;

const endings: (() => Promise<void> | void)[] = [];
afterEach(async () => {
  for (const end of endings.splice(0).reverse()) await end();
});

/** What the receiver did for each key: its effect, which it has once for each. */
const ledger = new Map<string, number>();
const keysOf = new Map<string, Set<string>>();
const told = new Map<string, Set<string>>();

function moody(pawl: () => Pawl): Behavior {
  const work = (task: string, key: string): void => {
    keysOf.set(task, (keysOf.get(task) ?? new Set()).add(key));
    if (!ledger.has(key)) ledger.set(key, 0);
    // A receiver that dedupes: the work of a key is done once.
    if (ledger.get(key) === 0) ledger.set(key, 1);
  };
  const signal = async (task: string, token: string): Promise<void> => {
    const status = Math.random() < 0.5 ? "completed" : "failed";
    const tried = await pawl().tasks.trySignal(token, { status, value: Math.random() < 0.5 ? 1 : 2 });
    if (!("outcome" in tried)) throw new Error("the token is unknown");
    told.set(task, (told.get(task) ?? new Set()).add(JSON.stringify(tried.outcome)));
  };
  return (response, { headers, key }) => {
    const task = String(headers["pawl-task-id"]);
    const token = headers["pawl-signal-token"];
    work(task, key);
    if (token !== undefined)
      for (const ms of [0, 50, 300])
        if (Math.random() < 0.5) setTimeout(() => void signal(task, String(token)), Math.random() * ms);
    const mood = Math.random();
    const { socket } = response;
    if (mood < 0.1) return void socket?.destroy();
    if (mood < 0.2) return void setTimeout(() => response.end("late"), 600);
    if (mood < 0.25) return void setTimeout(() => response.end("much too late"), 3000);
    if (mood < 0.3) return void response.writeHead(503, { "retry-after": "0" }).end();
    if (mood < 0.35)
      return void response.writeHead(200, { "content-length": "9" }).write("half", () => socket?.destroy());
    if (mood < 0.4) {
      const timer = setInterval(() => response.write("."), 10);
      return void response.on("close", () => clearInterval(timer));
    }
    if (mood < 0.45) {
      const more = (): void => {
        while (!response.destroyed && response.write(Buffer.alloc(65_536)));
      };
      response.on("drain", more);
      return more();
    }
    response.end("fine");
  };
}

const grounds = {
  SQLite: async () => {
    const folder = mkdtempSync(join(tmpdir(), "pawl-task-kills-"));
    endings.push(() => rmSync(folder, { recursive: true, force: true, maxRetries: 3 }));
    return join(folder, "shop.db");
  },
  PostgreSQL: async () => {
    const { url, drop } = await freshDatabase();
    endings.push(drop);
    return url;
  },
};

test.each(["SQLite", "PostgreSQL"] as const)(
  "every task ends, and its work is done once, on %s",
  { timeout: LONG },
  async (name) => {
    for (const map of [ledger, keysOf, told]) map.clear();
    const where = await grounds[name]();
    const pawl = await open(where, { ...KEYS, logger: false });
    endings.push(() => pawl.close());
    const { url } = await receiver(moody(() => pawl));
    const options = { targetUrl: url, timeout: 1000, retry: { attempts: 1000, delay: 10, maxDelay: 100 } };
    const created = await Promise.all(
      Array.from({ length: TASKS }, (_, n) =>
        pawl.tasks.create({
          ...options,
          id: `t${n}`,
          ...(n % 2 === 0 ? {} : { waitForSignal: true, maxWaitTime: 2000 }),
        }),
      ),
    );
    let isOver = false;
    let kills = 0;
    const life = async (): Promise<void> => {
      while (!isOver) {
        const process = spawnNode(join(import.meta.dirname, "children", "worker.ts"), [where]);
        const child = new Child(process, "worker.ts");
        await child.line();
        await new Promise((resolve) => setTimeout(resolve, KILLS_MS * Math.random()));
        process.kill("SIGKILL");
        kills += 1;
        await child.ended;
      }
    };
    const lives = [life(), life()];
    try {
      for (const { task } of created) {
        const { outcome } = await pawl.tasks.get(task.id, { wait: LONG });
        const signals = told.get(task.id) ?? new Set();
        for (const one of signals) expect(one).toBe(JSON.stringify(outcome));
        expect(["completed", "failed", "timed_out"]).toContain(outcome?.status);
        expect(keysOf.get(task.id)?.size ?? 1).toBe(1);
      }
    } finally {
      isOver = true;
      await Promise.all(lives);
    }
    expect(kills).toBeGreaterThan(2);
    expect([...ledger.values()].every((count) => count === 1)).toBe(true);
    await expect
      .poll(
        async () => (await pawl.tasks.list({ status: ["running", "waiting", "pending", "parked"] })).tasks,
        PATIENCE,
      )
      .toEqual([]);
  },
);
