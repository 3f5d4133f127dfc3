/**
 * Goal: a `projection.sql` whose function never settles is seen in `status()`, and leaves the database to others between its tries.
 * Method: a function that hangs until it is told not to; the deadline of SQLite is the real one, that of PostgreSQL a shorter one.
 */

import pg from "pg";
import { expect, onTestFinished, test } from "vitest";
import { open, type Pawl, projection } from "../../src/index.ts";
import { nodePorts } from "../../src/node/ports.ts";
import { openPostgres } from "../../src/stores/postgres/postgres.ts";
import { onStores, PATIENCE, type Place, SQL } from "../workflow/kit.ts";
import { Deposited, deposits } from "./kit.ts";

async function openOn(place: Place): Promise<Pawl> {
  const { namespace } = place;
  if (place.store === "SQLite") return place.open({ logger: false });
  const pool = new pg.Pool({ connectionString: place.where, max: 10 });
  const options = { schema: "pawl", ports: nodePorts, durability: "full", patienceMs: 30_000, sharedMs: 500 } as const;
  const pawl = await open({ store: await openPostgres({ pool, namespace, ...options }), namespace, logger: false });
  onTestFinished(async () => {
    await pawl.close();
    await pool.end();
  });
  return pawl;
}

onStores(SQL, (place) => {
  test.each(["setUp", "apply", "swap"] as const)(
    "a function %s that never settles is a failure that status names",
    async (hanging) => {
      const pawl = await openOn(place);
      let isHanging = true;
      let tries = 0;
      const mayHang = async (part: string): Promise<void> => {
        if (part !== hanging) return;
        tries += 1;
        if (isHanging) await new Promise(() => {});
      };
      const sums = projection.sql(
        "sums",
        { on: [Deposited], version: "1", setUp: () => mayHang("setUp"), swap: () => mayHang("swap") },
        () => mayHang("apply"),
      );
      await pawl.stream("ann").append(deposits(2));
      pawl.work([sums]);
      const status = () =>
        pawl
          .projection(sums)
          .status()
          .catch(() => null);
      await expect
        .poll(async () => (await status())?.building?.failure?.message, PATIENCE)
        .toEqual(expect.stringContaining("rolled back"));
      // Others get their turn, and the tries are counted.
      await pawl.stream("ann").append(deposits(1));
      await expect.poll(async () => (await status())?.building?.failure?.count, PATIENCE).toBeGreaterThan(1);
      isHanging = false;
      await expect.poll(async () => (await status())?.live?.behind, PATIENCE).toBe(0);
      expect((await status())?.live?.failure).toBeNull();
      expect(tries).toBeGreaterThan(2);
    },
  );
});
