/**
 * Goal: signals, the timeout and cancellations that meet at the exact deadline of a task have one outcome, the same for every caller, although the server is
 * killed in between (G15, G2). `test/simulation/scenarios/served-tasks.ts` does the same ten thousand times in simulation.
 * Method: `pawl serve` as a process on a real store. Six callers with the real client create the same task, read its deadline, and signal, cancel or wait at
 * that moment, twice; ten tasks race at a time. The server is killed (`kill -9`) around their deadlines and started again on the same port. All that callers
 * were told, and what the next server says, is one outcome for each task.
 */

import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { expect, onTestFinished, test } from "vitest";
import { type Client, createClient } from "../../src/http/client/index.ts";
import { KEYS, served } from "../cli/kit.ts";
import { freshDatabase } from "../postgres/server.ts";
import { receiver } from "./kit.ts";
import { ACTS, type Act, outcomeText, settle } from "./race.ts";

const ROUNDS = 5;
const TASKS = 10;
const MAX_WAIT_MS = 1_500;
const BEFORE_MS = 50;

const grounds = {
  SQLite: async () => {
    const folder = mkdtempSync(join(tmpdir(), "pawl-races-"));
    onTestFinished(() => rmSync(folder, { recursive: true, force: true, maxRetries: 3 }));
    return join(folder, "races.db");
  },
  PostgreSQL: async () => {
    const { url, drop } = await freshDatabase();
    onTestFinished(() => drop());
    return url;
  },
};

const until = (ms: number): Promise<void> => new Promise((resolve) => setTimeout(resolve, ms - Date.now()));
const check = (isSo: boolean, message: string): void => expect(isSo, message).toBe(true);

/** The end of the wait, as the server knows it; now, if the task has ended. */
async function deadlineOf(client: Client, id: string): Promise<number> {
  for (;;) {
    const { doing, endedAt } = await client.run(id).status();
    if (endedAt !== null) return Date.now();
    const at = doing.find(({ kind }) => kind === "signal")?.until;
    if (at != null) return at.getTime();
    await until(Date.now() + 20);
  }
}

interface Race {
  readonly tasks: Set<string>;
  readonly tokens: Set<string | null>;
  readonly outcomes: Set<string>;
}

async function play(client: Client, targetUrl: string, key: string, act: Act, race: Race, known: (ms: number) => void) {
  const { task, signalToken } = await client.tasks.create({
    targetUrl,
    idempotencyKey: key,
    retry: { attempts: 100, delay: 50, maxDelay: 200 },
    waitForSignal: true,
    maxWaitTime: MAX_WAIT_MS,
  });
  race.tasks.add(task.id);
  race.tokens.add(signalToken);
  const deadlineMs = await deadlineOf(client, task.id);
  known(deadlineMs);
  // A request takes some milliseconds to the store.
  await until(deadlineMs - BEFORE_MS * Math.random());
  for (let times = 0; times < 2; times++) {
    const outcome = await settle(client, task.id, signalToken, act, check);
    if (outcome !== null) race.outcomes.add(outcomeText(outcome));
  }
  const { outcome } = await client.tasks.get(task.id, { wait: "2 minutes" });
  race.outcomes.add(outcome === null ? "none" : outcomeText(outcome));
}

test.each(["SQLite", "PostgreSQL"] as const)(
  "fifty races over HTTP with a server that is killed have one outcome each, on %s",
  async (name) => {
    const store = await grounds[name]();
    const { url: targetUrl } = await receiver();
    const args = ["--store", store, "--allow", "127.0.0.1/32", "--lease", "2s"];
    let server = await served(args, KEYS);
    onTestFinished(async () => void (await server.child.kill()));
    const { url, key } = server;
    let interrupted = 0;
    const client = createClient({
      url,
      key: key ?? "",
      patience: "2 minutes",
      fetch: (address, init) =>
        fetch(address, init).catch((error: unknown) => {
          interrupted += 1;
          throw error;
        }),
    });
    const kinds = new Set<string>();
    for (let round = 0; round < ROUNDS; round++) {
      const first = Promise.withResolvers<number>();
      const races = Array.from(
        { length: TASKS },
        (): Race => ({ tasks: new Set(), tokens: new Set(), outcomes: new Set() }),
      );
      const players = races.flatMap((race, i) =>
        ACTS.map((act) => play(client, targetUrl, `${round}/${i}`, act, race, first.resolve)),
      );
      const over = Promise.all(players);
      over.catch(first.reject);
      await until((await first.promise) + BEFORE_MS * (Math.random() - 0.5));
      await server.child.kill();
      server = await served([...args, "--port", new URL(url).port], KEYS);
      await over;
      for (const { tasks, tokens, outcomes } of races) {
        expect([tasks.size, tokens.size, [...outcomes]]).toEqual([1, 1, [expect.stringContaining('"at":')]]);
        const [told = ""] = outcomes;
        const [id = ""] = tasks;
        const { outcome } = await client.tasks.get(id);
        expect(outcome && outcomeText(outcome)).toBe(told);
        kinds.add(String(outcome?.by));
      }
    }
    console.log(`${name}: outcomes by ${[...kinds].join(", ")}; ${interrupted} requests interrupted`);
    expect(interrupted).toBeGreaterThan(0);
  },
);
