/**
 * Emmett, on PostgreSQL and on SQLite.
 *
 * An append is `appendToStream` without an expected version; a command is its CommandHandler, which reads the stream, folds it, and appends with the
 * version that it has seen, and tries again on a conflict. Reactions are a consumer that pulls batches of all events, and calls its
 * handler for one after another.
 */

import { join } from "node:path";
import { CommandHandler, type Event, type EventStore } from "@event-driven-io/emmett";
import { getPostgreSQLEventStore } from "@event-driven-io/emmett-postgresql";
import pg from "pg";
import { type Charge, versionOf } from "./peer.ts";
import { again, atMost, checkLimit, outOf, type Reacting, type StreamPeer, type StreamSession } from "./stream-peer.ts";

const POOL_SIZE = 40;
const BATCH_SIZE = 1000;
const PULL_EVERY_MS = 5;
/** Its own default is three attempts, which a hundred callers on one stream use up. */
const RETRY = { retries: 1000, minTimeout: 2, maxTimeout: 50, factor: 1.5, randomize: true } as const;

type Charged = Event<"Charged", Record<string, string | number>>;
type Account = { readonly count: number; readonly total: number };

const handle = CommandHandler<Account, Charged>({
  evolve: ({ count, total }, { data }) => ({ count: count + 1, total: total + Number(data["total"]) }),
  initialState: () => ({ count: 0, total: 0 }),
  retry: { onVersionConflict: RETRY },
});

const charged = (charge: Charge): Charged => ({ type: "Charged", data: { ...charge } });

/** What a consumer of either store is started and stopped with. */
interface Consumer {
  start(): Promise<unknown>;
  stop(): Promise<unknown>;
  close(): Promise<unknown>;
}

type OnEvent = (message: {
  readonly type: string;
  readonly data: Charged["data"];
  readonly metadata: { readonly streamName: string; readonly streamPosition: bigint };
}) => Promise<void>;

function session(
  store: EventStore,
  isConflict: (error: unknown) => boolean,
  consume: (onEvent: OnEvent, id: string) => Consumer,
  close: () => Promise<unknown>,
): StreamSession {
  const append = (stream: string, charges: readonly Charge[]) =>
    again(() => store.appendToStream(stream, charges.map(charged)), isConflict);
  let consumers = 0;
  return {
    append: (stream, charge) => append(stream, [charge]),
    fill: append,
    command: (stream, charge) =>
      again(
        () =>
          handle(store, stream, ({ total }) => {
            checkLimit(total, charge);
            return charged(charge);
          }),
        isConflict,
      ),
    count: async (stream) => (await store.readStream(stream)).events.length,
    react: async (handleEvent, emits): Promise<Reacting> => {
      consumers += 1;
      const onEvent: OnEvent = async ({ type, data, metadata: { streamName, streamPosition } }) => {
        if (type !== "Charged") return;
        if (emits) await store.appendToStream(outOf(streamName), [{ type: "Mailed", data }]);
        handleEvent(streamName, Number(streamPosition));
      };
      const consumer = consume(onEvent, `mail-${consumers}`);
      const running = consumer.start();
      running.catch(() => {});
      return {
        stop: async () => {
          await consumer.stop();
          await running;
          await consumer.close();
        },
      };
    },
    close: async () => void (await close()),
  };
}

export const emmettPostgres: StreamPeer = {
  id: "emmett",
  name: "Emmett (PostgreSQL)",
  version: versionOf("@event-driven-io/emmett-postgresql"),
  store: "postgres",
  settings:
    `a pool of ${POOL_SIZE} (that of pg has 10), the CommandHandler with retries on version conflicts; ` +
    `a consumer with a reactor, batches of ${BATCH_SIZE}, pulled every ${PULL_EVERY_MS} ms.`,
  async open({ database }) {
    const pool = new pg.Pool({ connectionString: database, max: POOL_SIZE });
    pool.on("error", () => {});
    const store = getPostgreSQLEventStore(database, { connectionOptions: { pool } });
    await store.schema.migrate();
    const consume = (onEvent: OnEvent, processorId: string): Consumer => {
      const consumer = store.consumer({ pulling: { batchSize: BATCH_SIZE, pullingFrequencyInMs: PULL_EVERY_MS } });
      consumer.reactor({ processorId, startFrom: "BEGINNING", eachMessage: (message) => onEvent(message as never) });
      return consumer;
    };
    return session(store, isConflictOnPostgres, consume, async () => {
      await store.close();
      await pool.end();
    });
  },
};

const isConflictOnPostgres = (error: unknown): boolean =>
  error instanceof Error && /version|concurrency|duplicate key|deadlock/i.test(`${error.name} ${error.message}`);

export const emmettSqlite: StreamPeer = {
  id: "emmett-sqlite",
  name: "Emmett (SQLite)",
  version: `${versionOf("@event-driven-io/emmett-sqlite")} with core ${versionOf("@event-driven-io/emmett")}`,
  store: "sqlite",
  settings:
    "WAL, synchronous FULL; one connection, and its calls one after another: with a connection for each call, as it comes, concurrent calls fail with " +
    '"SQLITE_BUSY: database is locked", and concurrent calls on one connection share a transaction that a failure of one rolls back for all; ' +
    `a consumer with a processor, batches of ${BATCH_SIZE}, pulled every ${PULL_EVERY_MS} ms.`,
  async open({ folder }) {
    const { getSQLiteEventStore, sqliteConnection } = await import("@event-driven-io/emmett-sqlite");
    const fileName = join(folder, "emmett.db");
    const connection = sqliteConnection({ fileName });
    const store = getSQLiteEventStore({ fileName, connectionOptions: { singleton: true, connection } });
    await store.schema.migrate();
    const consume = (onEvent: OnEvent, processorId: string): Consumer => {
      const consumer = store.consumer({ pulling: { batchSize: BATCH_SIZE, pullingFrequencyInMs: PULL_EVERY_MS } });
      consumer.processor({ processorId, startFrom: "BEGINNING", eachMessage: (message) => onEvent(message as never) });
      return consumer;
    };
    const { append, fill, command, ...rest } = session(
      store,
      () => false,
      consume,
      async () => connection.close(),
    );
    const inTurn = atMost(1);
    return {
      ...rest,
      append: (stream, charge) => inTurn(() => append(stream, charge)),
      fill: (stream, charges) => inTurn(() => fill(stream, charges)),
      command: (stream, charge) => inTurn(() => command(stream, charge)),
    };
  },
};
