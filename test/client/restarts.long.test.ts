/**
 * Goal: a server that is killed, restarted under load, or one of two, costs the callers of a client time and nothing else.
 * Method: servers in processes of their own on one store; many clients count at the same time, each count a run whose id the client makes; servers are
 * killed or asked to end, and started again on the same port. In the end every call has its result, and the count is that of the calls.
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
const CALLERS = 8;

async function startServer(store: string, port = "0"): Promise<{ readonly child: Child; readonly url: string }> {
  const program = join(import.meta.dirname, "children/server.ts");
  const child = new Child(spawnNode(program, [store, port]), "server");
  return { child, url: await child.line() };
}

/** Callers that count until they are told to stop; resolves with how often they counted. */
function countWith(clients: readonly Client[]): { stop(): Promise<number>; readonly done: () => number } {
  let isOver = false;
  let calls = 0;
  const loops = Array.from({ length: CALLERS }, async (_, i) => {
    while (!isOver) {
      const client = clients[(i + calls) % clients.length] as Client;
      await (await client.start("count", 1)).result();
      calls += 1;
    }
  });
  return {
    done: () => calls,
    stop: async () => {
      isOver = true;
      await Promise.all(loops);
      return calls;
    },
  };
}

/** Waits until some more calls are done. */
const more = async (counting: { done: () => number }): Promise<void> => {
  const from = counting.done();
  await expect.poll(() => counting.done(), { timeout: 120_000 }).toBeGreaterThan(from + 5);
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
    const client = createClient({ url, patience: PATIENCE });
    const counting = countWith([client]);
    for (let i = 0; i < 2; i++) {
      await more(counting);
      child.signal(signal);
      await child.ended;
      ({ child, url } = await startServer(store, new URL(url).port));
    }
    await more(counting);
    const calls = await counting.stop();
    expect((await client.slot<number>("count").get()).value).toBe(calls);
  },
);

test("of two servers on one PostgreSQL one is killed: its callers wait for it, and nothing is counted twice", async () => {
  const database = await freshDatabase();
  const [one, two] = [await startServer(database.url), await startServer(database.url)];
  let again: Awaited<ReturnType<typeof startServer>> | undefined;
  onTestFinished(async () => {
    await Promise.all([one.child.kill(), two.child.kill(), again?.child.kill()]);
    await database.drop();
  });
  const clients = [one, two].map(({ url }) => createClient({ url, patience: PATIENCE }));
  const counting = countWith(clients);
  await more(counting);
  await one.child.kill();
  again = await startServer(database.url, new URL(one.url).port);
  await more(counting);
  const calls = await counting.stop();
  for (const client of clients) expect((await client.slot<number>("count").get()).value).toBe(calls);
});
