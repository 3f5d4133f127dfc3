/**
 * Goal: a server that is killed, restarted under load, or one of two, costs the callers of a client time and nothing else.
 * Method: servers in processes of their own on one store; sixty callers count at the same time, each count a run whose id the client makes, and an entry in a
 * ledger, which has nothing but the idempotency key of its request; servers are killed or asked to end, and started again on the same port. Each request gets a whole response, or an error
 * after which it can be repeated, which the client does by itself: in the end every call has its result, and the count and the ledger are those of the calls.
 */

import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { expect, onTestFinished, test } from "vitest";
import { type Client, createClient } from "../../src/http/client/index.ts";
import { Child, spawnNode } from "../node/child.ts";
import { freshDatabase } from "../postgres/server.ts";

/** Ends only a call that hangs. */
const PATIENCE = "2 minutes";
const CALLERS = 60;

async function startServer(store: string, port = "0"): Promise<{ readonly child: Child; readonly url: string }> {
  const program = join(import.meta.dirname, "children/server.ts");
  const child = new Child(spawnNode(program, [store, port]), "server");
  return { child, url: await child.line() };
}

/** What came of requests, each with how often: a status with its code, or why there was no response. */
type Seen = Map<string, number>;

/** A client that notes what each of its requests got, whole: a body that breaks off is no response. */
function watched(url: string, seen: Seen): Client {
  const note = (what: string): void => void seen.set(what, (seen.get(what) ?? 0) + 1);
  return createClient({
    url,
    patience: PATIENCE,
    fetch: async (address, init) => {
      try {
        const response = await fetch(address, init);
        const text = await response.text();
        const isProblem = response.headers.get("content-type") === "application/problem+json";
        note(response.ok ? "done" : isProblem ? `${response.status} ${JSON.parse(text).code}` : `${response.status}`);
        return new Response(text === "" ? null : text, response);
      } catch (error) {
        const { cause, message } = error as Error & { readonly cause?: { readonly code?: string } };
        note(cause?.code ?? message);
        throw error;
      }
    },
  });
}

/** Clean and retryable: there was no connection, or it was cut, or the server says that it is about to end or busy, or still at work on the attempt before. */
const RETRYABLE =
  /^(?:done|ECONNREFUSED|ECONNRESET|EPIPE|UND_ERR_SOCKET|503 (?:server_closing|store_busy|closed)|409 idempotency_in_progress)$/;

/** Callers that count until they are told to stop, and write each count down; resolves with how often they counted. */
function countWith(clients: readonly Client[]): { stop(): Promise<number>; readonly done: () => number } {
  let isOver = false;
  let calls = 0;
  const loops = Array.from({ length: CALLERS }, async (_, i) => {
    for (let n = 0; !isOver; n++) {
      const client = clients[(i + n) % clients.length] as Client;
      await (await client.start("count", 1)).result();
      await client.stream("ledger").append([{ name: "Counted", data: `${i}/${n}` }]);
      calls += 1;
    }
  });
  const all = Promise.all(loops);
  // Whoever waits meanwhile learns it when they are stopped.
  all.catch(() => {
    isOver = true;
    calls = Number.POSITIVE_INFINITY;
  });
  return {
    done: () => calls,
    stop: async () => {
      isOver = true;
      await all;
      return calls;
    },
  };
}

/** Every call counted once, and is in the ledger once; and every request got a response or an error that is safe to retry. */
async function check(client: Client, calls: number, seen: Seen): Promise<void> {
  expect((await client.slot<number>("count").get()).value).toBe(calls);
  const entries: unknown[] = [];
  for await (const { data } of client.stream("ledger").read()) entries.push(data);
  expect(new Set(entries).size).toBe(calls);
  expect(entries.length).toBe(calls);
  expect([...seen.keys()].filter((what) => !RETRYABLE.test(what))).toEqual([]);
  console.log(`${calls} calls: ${[...seen].map(([what, count]) => `${what} ${count}`).join(", ")}`);
}

/** Waits until some more calls are done. */
const more = async (counting: { done: () => number }): Promise<void> => {
  const from = counting.done();
  await expect.poll(() => counting.done(), { timeout: 120_000 }).toBeGreaterThan(from + CALLERS);
};

test.each(["SIGKILL", "SIGTERM"] as const)(
  "a server that is restarted under load loses nothing, and repeats nothing: %s",
  async (signal) => {
    const folder = mkdtempSync(join(tmpdir(), "pawl-client-"));
    const store = join(folder, "count.db");
    let { child, url } = await startServer(store);
    onTestFinished(async () => {
      await child.kill();
      rmSync(folder, { recursive: true, force: true });
    });
    const seen: Seen = new Map();
    const client = watched(url, seen);
    const counting = countWith([client]);
    for (let i = 0; i < 2; i++) {
      await more(counting);
      child.signal(signal);
      await child.ended;
      ({ child, url } = await startServer(store, new URL(url).port));
    }
    await more(counting);
    await check(client, await counting.stop(), seen);
    expect([...seen.keys()].length).toBeGreaterThan(1);
  },
);

test("of two servers on one PostgreSQL one is killed and one is stopped, in turn, under load: nothing is lost, and nothing counted twice", async () => {
  const database = await freshDatabase();
  const servers = [await startServer(database.url), await startServer(database.url)];
  onTestFinished(async () => {
    await Promise.all(servers.map(({ child }) => child.kill()));
    await database.drop();
  });
  const seen: Seen = new Map();
  const clients = servers.map(({ url }) => watched(url, seen));
  const counting = countWith(clients);
  for (const [at, signal] of [
    [0, "SIGKILL"],
    [1, "SIGTERM"],
    [0, "SIGTERM"],
    [1, "SIGKILL"],
  ] as const) {
    await more(counting);
    const { child, url } = servers[at] as Awaited<ReturnType<typeof startServer>>;
    child.signal(signal);
    // A server that is asked to end lets requests end, and says how it went.
    expect(await child.ended).toEqual(signal === "SIGTERM" ? { code: 0, signal: null } : { code: null, signal });
    servers[at] = await startServer(database.url, new URL(url).port);
  }
  await more(counting);
  const calls = await counting.stop();
  for (const client of clients) await check(client, calls, seen);
  expect(seen.has("ECONNREFUSED")).toBe(true);
});
