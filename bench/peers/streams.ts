/**
 * `npm run bench:peers -- streams`: event streams of Pawl and its peers side by side, on one machine, in turns.
 *
 *   npm run bench:peers -- streams                     all of them, some ten minutes
 *   npm run bench:peers -- streams --quick             to see that everything runs
 *   npm run bench:peers -- streams --only act,pawl     some of them
 *   npm run bench:peers -- streams --rounds 5          more rounds, for a noisy machine
 *   npm run bench:peers -- streams --save              also into results-streams.json and results-streams.md beside this file
 *
 * Each turn has a fresh database or file, a warm-up, and every case; reactions have a database of their own.
 */

import { actPostgres, actPostgresDefault, actSqlite, actSqliteDefault } from "./act.ts";
import { emmettPostgres, emmettSqlite } from "./emmett.ts";
import { onGround } from "./on-ground.ts";
import { pawlStreamsPostgres, pawlStreamsSqlite } from "./pawl-streams.ts";
import { openPostgres, type Postgres } from "./postgres.ts";
import { type SideCase, sideBySide } from "./side-by-side.ts";
import type { StreamPeer, StreamSession } from "./stream-peer.ts";
import { calls, drained } from "./stream-protocols.ts";

interface Sizes {
  readonly callers: number;
  readonly rounds: number;
  /** How long callers continue. */
  readonly forMs: number;
  readonly warmUpMs: number;
  /** What reactions catch up with. */
  readonly streams: number;
  readonly events: number;
  /** A drain that takes longer is measured by what it has handled until then. */
  readonly drainMs: number;
}

const FULL: Sizes = {
  callers: 100,
  rounds: 3,
  forMs: 4000,
  warmUpMs: 1000,
  streams: 100,
  events: 100,
  drainMs: 15_000,
};
const QUICK: Sizes = { callers: 100, rounds: 1, forMs: 500, warmUpMs: 200, streams: 20, events: 20, drainMs: 3000 };

interface Case extends SideCase {
  /** It needs a database of its own, with no other events. */
  readonly isReacting: boolean;
  run(session: StreamSession, sizes: Sizes): Promise<number>;
}

const calling = (verb: "append" | "command", isHot: boolean) => (session: StreamSession, sizes: Sizes) =>
  calls(session, verb, `${verb}-${isHot ? "one" : "many"}`, { ...sizes, isHot });

const reacting = (emits: boolean) => (session: StreamSession, sizes: Sizes) =>
  drained(session, "drain", { ...sizes, forMs: sizes.drainMs, emits });

const CASES: readonly Case[] = [
  { id: "a", title: "appends to many streams", isReacting: false, run: calling("append", false) },
  { id: "b", title: "appends to one stream", isReacting: false, run: calling("append", true) },
  { id: "c", title: "commands on many streams", isReacting: false, run: calling("command", false) },
  { id: "d", title: "commands on one stream", isReacting: false, run: calling("command", true) },
  { id: "e", title: "reactions", isReacting: true, run: reacting(false) },
  { id: "f", title: "reactions that append", isReacting: true, run: reacting(true) },
];

const PEERS: readonly StreamPeer[] = [
  pawlStreamsPostgres,
  actPostgres,
  actPostgresDefault,
  emmettPostgres,
  pawlStreamsSqlite,
  actSqlite,
  actSqliteDefault,
  emmettSqlite,
];

let postgres: Postgres | null = null;

await sideBySide<StreamPeer, Sizes>({
  name: "streams",
  heading: "Event streams side by side",
  peers: PEERS,
  cases: CASES,
  sizes: { full: FULL, quick: QUICK },
  begin: async (peers) => {
    if (peers.some(({ store }) => store === "postgres")) postgres = await openPostgres();
    return `${postgres?.server ?? "no PostgreSQL"}, SQLite ${process.versions["sqlite"]}`;
  },
  end: async () => void (await postgres?.close()),
  play: async (peer, sizes, home, { guarded, found }) => {
    const turn = (cases: readonly Case[]) =>
      onGround(peer, postgres, home, async (ground) => {
        const session = await peer.open(ground);
        try {
          if (!cases.some(({ isReacting }) => isReacting))
            await calls(session, "command", "warm-up", { ...sizes, forMs: sizes.warmUpMs, isHot: false });
          await postgres?.settle();
          for (const one of cases)
            await guarded(one.id, one.title, async () => found(one, await one.run(session, sizes)));
        } finally {
          await session.close();
        }
      });
    if (peer.isForReactions !== true) await turn(CASES.filter(({ isReacting }) => !isReacting));
    for (const one of CASES) if (one.isReacting) await turn([one]);
  },
});
