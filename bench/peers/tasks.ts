/**
 * `npm run bench:peers -- tasks`: HTTP tasks of Pawl beside job queues whose jobs make the same HTTP call, on one machine, in turns.
 *
 *   npm run bench:peers -- tasks                       all of them, some four minutes
 *   npm run bench:peers -- tasks --quick               to see that everything runs
 *   npm run bench:peers -- tasks --only pg-boss,pawl   some of them: pawl, pawl-sqlite, pg-boss, bullmq
 *   npm run bench:peers -- tasks --save                also into results-tasks.json and results-tasks.md beside this file
 *
 * BullMQ needs Debian's `redis-server`. It is compared with Pawl on SQLite: both are on one machine, and sync what they acknowledge.
 */

import { mkdirSync } from "node:fs";
import { join } from "node:path";
import { type RedisServer, startRedis } from "../redis.ts";
import { onGround } from "./on-ground.ts";
import { pawlTasksPostgres, pawlTasksSqlite } from "./pawl-tasks.ts";
import { openPostgres, type Postgres } from "./postgres.ts";
import { type SideCase, type SidePeer, sideBySide } from "./side-by-side.ts";
import { bullmq } from "./task-bullmq.ts";
import type { TaskPeer } from "./task-peer.ts";
import { pgBoss } from "./task-pg-boss.ts";
import { createdThenDelivered, lone, type TaskSizes, together } from "./task-protocols.ts";
import { type Receiver, startReceiver } from "./task-receiver.ts";

interface Sizes extends TaskSizes {
  readonly rounds: number;
  readonly warmUpMs: number;
}

const FULL: Sizes = { callers: 100, rounds: 5, forMs: 3000, warmUpMs: 1000, backlog: 5000, lone: 100 };
const QUICK: Sizes = { callers: 100, rounds: 1, forMs: 300, warmUpMs: 100, backlog: 1000, lone: 10 };

const CREATED: SideCase = { id: "a", title: "tasks created" };
const DELIVERED: SideCase = { id: "b", title: "calls, nothing created meanwhile" };
const TOGETHER: SideCase = { id: "c", title: "created and called" };
const LONE: SideCase = { id: "d", title: "creation to call, alone", unit: "ms" };

let postgres: Postgres | null = null;
let redis: RedisServer | null = null;
let receiver: Receiver | null = null;

await sideBySide<TaskPeer & Pick<SidePeer, "beside">, Sizes>({
  name: "tasks",
  heading: "HTTP tasks side by side",
  peers: [pawlTasksPostgres, pgBoss, pawlTasksSqlite, { ...bullmq, beside: "pawl-sqlite" }],
  cases: [CREATED, DELIVERED, TOGETHER, LONE],
  sizes: { full: FULL, quick: QUICK },
  begin: async (peers, home) => {
    receiver = await startReceiver();
    if (peers.some(({ store }) => store === "postgres")) postgres = await openPostgres();
    if (peers.some(({ store }) => store === "redis")) {
      const folder = join(home, "redis");
      mkdirSync(folder);
      redis = await startRedis(folder);
    }
    return `${postgres?.server ?? "no PostgreSQL"}, SQLite ${process.versions["sqlite"]}, ${redis?.version ?? "no Redis"}`;
  },
  end: async () => {
    await Promise.all([postgres?.close(), redis?.stop(), receiver?.stop()]);
  },
  play: async (peer, sizes, home, { guarded, found }) => {
    const to = receiver;
    if (to === null) throw new Error("there is no receiver");
    await onGround(peer, postgres, home, async (ground) => {
      const session = await peer.open({
        folder: ground.folder,
        get database() {
          return ground.database;
        },
        targetUrl: to.url,
        redis: redis?.place ?? "",
      });
      try {
        await together(session, to, { ...sizes, forMs: sizes.warmUpMs });
        await postgres?.settle();
        await guarded("a", "created, then called", async () => {
          const { created, delivered } = await createdThenDelivered(session, to, sizes);
          found(CREATED, created);
          found(DELIVERED, delivered);
        });
        await guarded("c", TOGETHER.title, async () => found(TOGETHER, await together(session, to, sizes)));
        await guarded("d", LONE.title, async () => found(LONE, await lone(session, to, sizes)));
      } finally {
        await session.close();
      }
    });
  },
});
