/**
 * Pawl, on PostgreSQL and on SQLite: the library of this repository, from its sources, with what it comes with.
 */

import { join } from "node:path";
import { open, workflow } from "../../src/index.ts";
import { charge, type Peer, type PeerSession } from "./peer.ts";

const work = workflow("work", async (ctx, steps: number) => {
  for (let step = 0; step < steps; step++) await ctx.step("charge", () => charge(step));
  return steps;
});

const shared = { version: "of this repository", settings: "as it comes" } as const;

export const pawlPostgres: Peer = {
  ...shared,
  id: "pawl",
  name: "Pawl (PostgreSQL)",
  store: "postgres",
  open: ({ database }) => openPawl(database),
};

export const pawlSqlite: Peer = {
  ...shared,
  id: "pawl-sqlite",
  name: "Pawl (SQLite)",
  store: "sqlite",
  open: ({ folder }) => openPawl(join(folder, "pawl.db")),
};

async function openPawl(place: string): Promise<PeerSession> {
  const pawl = await open(place);
  const worker = pawl.work([work]);
  return {
    submit: (steps) => pawl.start(work, steps),
    run: async (steps) => (await pawl.start(work, steps)).result(),
    close: async () => {
      await worker.stop();
      await pawl.close();
    },
  };
}
