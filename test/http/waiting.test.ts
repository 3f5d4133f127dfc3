/**
 * Requests that wait, and the limits on them: they end with their API key, share their places fairly, and hold little for a client that does not read.
 */

import { join } from "node:path";
import { describe, expect, test } from "vitest";
import { apiKeys } from "../../src/http/server/index.ts";
import { open } from "../../src/index.ts";
import { scratchFolder } from "../sqlite/kit.ts";
import { follow, refusal, type Served, sender, served } from "./kit.ts";

const folder = scratchFolder("in memory");
const unauthorized = { status: 401, code: "unauthorized" };

const waiting = (kit: Served, count: number) =>
  expect.poll(async () => (await kit.send("GET", "/metrics")).text).toContain(`pawl_http_waiting ${count}\n`);

/** A stream and each kind of long poll with a key; each waits. */
async function waitWith(kit: Served, key: string) {
  const send = sender(kit.url, key);
  await kit.pawl.start("w", undefined, { id: "r1" });
  await kit.pawl.tasks.create({ targetUrl: "https://example.com/", id: "t1", delay: "1 day" });
  await kit.pawl.mutex("door").acquire();
  const waits = {
    events: ["/v1/slots/x/events", "/v1/runs/r1/events", "/v1/streams/s/events", "/v1/events"].map((path) =>
      follow(kit, path, 99, undefined, key),
    ),
    polls: [
      send("GET", "/v1/runs/r1/result?wait=60s"),
      send("GET", "/v1/tasks/t1?wait=60s"),
      send("POST", "/v1/locks/door/acquire", { wait: "60s" }),
      send("POST", "/v1/locks/door/acquire", { wait: "60s" }, { "idempotency-key": "k" }),
    ],
  };
  await waiting(kit, 8);
  return waits;
}

async function allEnd({ events, polls }: Awaited<ReturnType<typeof waitWith>>): Promise<void> {
  // A stream that breaks off rejects.
  await Promise.all(events);
  for (const poll of polls) expect(refusal(await poll)).toEqual(unauthorized);
}

describe("the end of an API key", () => {
  test("a key that is revoked takes its event streams and long polls along, and no others", async () => {
    const kit = await served();
    const keys = apiKeys(kit.pawl);
    const { id, key } = await keys.create({ name: "x", scopes: ["read", "write"] });
    const waits = await waitWith(kit, key);
    const other = follow(kit, "/v1/slots/y/events", 2);
    await waiting(kit, 9);
    await keys.revoke(id);
    await allEnd(waits);
    await waiting(kit, 1);
    await kit.pawl.slot("y").set(1);
    expect(await other).toHaveLength(2);
    // Nothing is left in the line for the lock.
    expect((await kit.pawl.mutex("door").inspect()).waiters).toHaveLength(0);
  });

  test("so does one that another process revokes", async () => {
    const path = join(folder, "pawl.db");
    const pawl = await open(path, { logger: false });
    const kit = await served({}, pawl);
    const { id, key } = await apiKeys(pawl).create({ name: "x", scopes: ["read", "write"] });
    const waits = await waitWith(kit, key);
    const other = await open(path, { logger: false });
    await apiKeys(other).revoke(id);
    await other.close();
    await allEnd(waits);
  });

  test("so does one that expires, or whose time of grace ends", async () => {
    const kit = await served();
    const keys = apiKeys(kit.pawl);
    const { key: short } = await keys.create({ name: "x", scopes: ["read"], expiresAt: Date.now() + 3000 });
    await follow(kit, "/v1/slots/x/events", 99, undefined, short);
    const { id, key } = await keys.create({ name: "y", scopes: ["read", "write"] });
    const waits = await waitWith(kit, key);
    const rotated = await keys.rotate(id, { grace: "500ms" });
    const current = follow(kit, "/v1/slots/y/events", 2, undefined, rotated.key);
    await allEnd(waits);
    await waiting(kit, 1);
    await kit.pawl.slot("y").set(1);
    expect(await current).toHaveLength(2);
  });

  test("what waits is no reason to read a key for each request", async () => {
    const kit = await served();
    const { id, key } = await apiKeys(kit.pawl).create({ name: "x", scopes: ["read"] });
    const streams = Array.from({ length: 20 }, () => follow(kit, "/v1/slots/x/events", 99, undefined, key));
    await waiting(kit, 20);
    let read = 0;
    const { read: reading } = kit.pawl.kernel;
    kit.pawl.kernel.read = async (keys) => {
      read += keys.filter(({ space }) => space === "api_key").length;
      return reading.call(kit.pawl.kernel, keys);
    };
    // One look at all keys that are watched, after a commit that is not theirs.
    await kit.pawl.slot("z").set(1);
    await apiKeys(kit.pawl).revoke(id);
    await Promise.all(streams);
    expect(read).toBeLessThan(5);
  });
});
