/**
 * Goal: the PostgreSQL store keeps every law of the store contract, on every version it is for and on every way to get there.
 * Method: the suite that users get. The newest version with one lane and with four, and without prepared statements; every older
 * version; and through a pooler that hands connections on after each transaction.
 *
 * There is no difference from the laws. The laws of one store run a few at a time, most on connections that they share.
 */

import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { type Harness, storeConformance } from "../../src/testing/conformance/conformance.ts";
import { connectUnprepared, type HarnessOptions, harness, hastyPorts, poolOn, type StoreOptions } from "./kit.ts";
import { Pooler } from "./pooler.ts";
import { freshDatabase, postgresVersions, startPostgres } from "./server.ts";

/** Where the laws are kept, and how to leave it. */
interface Place {
  readonly url: string;
  readonly options?: HarnessOptions;
  leave(): Promise<void>;
}

interface Way {
  readonly name: string;
  readonly lanes: number;
  arrive(): Promise<Place>;
}

/** Laws that use connections and schemas of laws before them. */
function again(url: string, leave: () => Promise<unknown>, options: HarnessOptions = {}): Place {
  const pool = poolOn(url, 40);
  return {
    url,
    options: { pool, ...options },
    async leave() {
      await pool.end();
      await leave();
    },
  };
}

const older = postgresVersions.filter((version) => version < 18);

const ways: readonly Way[] = [
  {
    name: "version 18, one lane, all of it fresh for each law",
    lanes: 1,
    async arrive() {
      const { url, drop } = await freshDatabase();
      return { url, leave: drop };
    },
  },
  {
    name: "version 18, four lanes",
    lanes: 4,
    async arrive() {
      const { url, drop } = await freshDatabase();
      return again(url, drop);
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
];

describe.each(ways)("$name", ({ lanes, arrive }) => {
  let place: Place | undefined;
  beforeAll(async () => {
    place = await arrive();
  });
  afterAll(() => place?.leave());

  let law: (() => Promise<Harness>) | undefined;
  const open = () => {
    if (place === undefined) throw new Error("there is no server");
    law ??= harness(place.url, lanes, place.options);
    return law();
  };
  for (const law of storeConformance({ open })) test.concurrent(law.name, law.check);
});

test("there is a server of every older version that Pawl works on", () => {
  expect(older).toEqual([14, 15, 16, 17]);
});
