/**
 * Goal: the PostgreSQL store, and the kernel on it, avoid all traps that a prototype and its adversary found.
 * Method: real connections, stopped at the worst moment by gates (`traps/arena.ts`); `guards.test.ts` removes
 * the guard of each trap, to see that the trap would fail.
 *
 * The notes count the traps; where they are:
 *   1 version and fence                 traps/moved.ts
 *   2 only the holder writes            traps/moved.ts
 *   3 absent rows                       traps/absent.ts
 *   4 stale reads, stale clock          traps/moved.ts
 *   5 late keys                         traps/locks.ts
 *   6 a locked row stalls a batch       traps/locks.ts; that user SQL comes first is tested where SQL is shared
 *   7 poison, and COMMIT that fails     traps/poison.ts, traps/outcome.ts
 *   8 lost replies, old epochs          traps/outcome.ts
 *   9 fences through delete and restore traps/fences.ts
 *   12 tries are counted at the claim   traps/fences.ts
 *   15 settings and poolers             traps/session.ts, pooler.test.ts
 *   16 a stopped process holds locks    traps/locks.ts
 *   17 notifications                    traps/notifications.ts
 *   plans                               traps/plans.ts
 * Holds of sleeping runs (10), waiter lines (11) and the tail (13) belong to what is not built yet; 14 is SQLite's.
 */

import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { type FreshDatabase, freshDatabase, type PostgresServer, startPostgres } from "./server.ts";
import { Arena } from "./traps/arena.ts";
import { traps } from "./traps/index.ts";

describe("on the shared server", () => {
  let database: FreshDatabase | undefined;
  beforeAll(async () => {
    database = await freshDatabase();
  });
  afterAll(() => database?.drop());

  for (const trap of traps.filter(({ needsServer }) => needsServer !== true))
    test(trap.name, () => Arena.play(database?.url ?? "", trap));
});

describe("on a server of its own", () => {
  let server: PostgresServer | undefined;
  beforeAll(async () => {
    server = await startPostgres();
  });
  afterAll(() => server?.destroy());

  for (const trap of traps.filter(({ needsServer }) => needsServer === true))
    test(trap.name, () => Arena.play(server?.url ?? "", trap));
});

test("no two traps have one name", () => {
  expect(new Set(traps.map(({ name }) => name)).size).toBe(traps.length);
});
