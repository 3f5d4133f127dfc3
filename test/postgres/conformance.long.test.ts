/**
 * Goal: the PostgreSQL store keeps every law of the store contract, on every version it is for and on every way to get there.
 * Method: the suite that users get. The newest version with one lane, without prepared statements, and through a pooler that hands
 * connections on after each transaction; every older version. The newest version with four lanes is in conformance.test.ts.
 */

import { expect, test } from "vitest";
import { connectUnprepared, hastyPorts, type StoreOptions } from "./kit.ts";
import { again, testLaws } from "./laws.ts";
import { Pooler } from "./pooler.ts";
import { freshDatabase, postgresVersions, startPostgres } from "./server.ts";

const older = postgresVersions.filter((version) => version < 18);

testLaws([
  {
    name: "version 18, one lane, all of it fresh for each law",
    lanes: 1,
    async arrive() {
      const { url, drop } = await freshDatabase();
      return { url, leave: drop };
    },
  },
  {
    name: "version 18, nothing prepared",
    lanes: 4,
    async arrive() {
      const { url, drop } = await freshDatabase();
      return again(url, drop, { connect: connectUnprepared });
    },
  },
  {
    name: "version 18, through a pooler in transaction mode",
    lanes: 4,
    async arrive() {
      const { url, drop } = await freshDatabase();
      const pooler = await Pooler.start(url, { serverConnections: 5, forgets: true });
      const leave = async () => {
        expect(pooler.counts.changes).toBeGreaterThan(1000);
        await pooler.close();
        await drop();
      };
      const connect = (at: string, more?: StoreOptions) => connectUnprepared(at, { ...more, ports: hastyPorts });
      return again(pooler.url, leave, { connect });
    },
  },
  ...older.map((version) => ({
    name: `version ${version}, four lanes`,
    lanes: 4,
    async arrive() {
      const server = await startPostgres({ version });
      return again(server.url, () => server.destroy());
    },
  })),
]);

test("there is a server of every older version that Pawl works on", () => {
  expect(older).toEqual([14, 15, 16, 17]);
});
