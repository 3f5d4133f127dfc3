/** Pawl's streams, on PostgreSQL and on SQLite: the library of this repository, from its sources, with what it comes with. */

import { join } from "node:path";
import { aggregate, event, open, reaction } from "../../src/index.ts";
import type { Charge } from "./peer.ts";
import { LIMIT, outOf, type StreamPeer, type StreamSession } from "./stream-peer.ts";

const Charged = event<Charge>("Charged");
const Mailed = event<Charge>("Mailed");

const account = aggregate("account", {
  initial: { count: 0, total: 0 },
  on: [[Charged, ({ count, total }, charge) => ({ count: count + 1, total: total + charge.total })]],
  commands: {
    charge: ({ total }, charge: Charge, { emit, refuse }) => {
      if (total + charge.total > LIMIT) refuse("limit_exceeded", { total });
      emit(Charged(charge));
    },
  },
});

const shared = {
  version: "of this repository",
  settings: "as it comes; a target for each stream, 100 of them at a time (10 as it comes).",
} as const;

export const pawlStreamsPostgres: StreamPeer = {
  ...shared,
  id: "pawl",
  name: "Pawl (PostgreSQL)",
  store: "postgres",
  open: ({ database }) => openPawl(database),
};

export const pawlStreamsSqlite: StreamPeer = {
  ...shared,
  id: "pawl-sqlite",
  name: "Pawl (SQLite)",
  store: "sqlite",
  open: ({ folder }) => openPawl(join(folder, "pawl.db")),
};

async function openPawl(place: string): Promise<StreamSession> {
  const pawl = await open(place);
  let reactions = 0;
  return {
    append: (stream, charge) => pawl.stream(stream).append([Charged(charge)]),
    fill: (stream, charges) => pawl.stream(stream).append(charges.map((charge) => Charged(charge))),
    command: (stream, charge) => pawl.aggregate(account, stream).execute("charge", charge),
    count: (stream) => pawl.stream(stream).head(),
    react: async (handle, emits) => {
      reactions += 1;
      const mail = reaction(
        `mail-${reactions}`,
        { on: [Charged], concurrency: 100 },
        async ({ stream, version, data }, { emit }) => {
          if (emits) emit(outOf(stream), [Mailed(data)]);
          handle(stream, version);
        },
      );
      return pawl.work([mail]);
    },
    close: () => pawl.close(),
  };
}
