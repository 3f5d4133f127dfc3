/**
 * Goal: whatever the order in which appending transactions commit, no reader of all streams and no reaction skips an event or sees one after an event
 * that was placed behind it (G12).
 * Method: three transactions on connections of their own append one after the other and are held open; they end in every order, some by a rollback. A
 * reader and a reaction look after each end: what they have seen is always a beginning of what there is at last. In `guards.ts`, a cursor by the
 * highest position is planted, which skips events (`failures.ts`, "an event that becomes visible late").
 */

import { describe, expect, test } from "vitest";
import { type Pawl, reaction } from "../../src/index.ts";
import { onStores, PATIENCE, type Place } from "../workflow/kit.ts";
import { all, Deposited, Opened } from "./kit.ts";

/** An open transaction that has appended. */
interface Open {
  commit(): Promise<void>;
  rollback(): Promise<void>;
}

type Begin = (place: Place, pawl: Pawl, stream: string) => Promise<Open>;

class Undone extends Error {}

const ways: Record<string, Begin> = {
  /** A transaction of the application, which Pawl joins. */
  async within(place, pawl, stream) {
    const own = await place.connect();
    await own.query("begin");
    await pawl.within(own.executor, (tx) => tx.stream(stream).append([Opened(), Deposited({ amount: 1 })]));
    return {
      commit: async () => void (await own.query("commit")),
      rollback: async () => void (await own.query("rollback")),
    };
  },
  /** A transaction of Pawl's, which the application takes part in. */
  async "transact.sql"(_, pawl, stream) {
    const appended = Promise.withResolvers<void>();
    const end = Promise.withResolvers<void>();
    const done = pawl.transact.sql(async (_, tx) => {
      await tx((inner) => inner.stream(stream).append([Opened(), Deposited({ amount: 1 })]));
      appended.resolve();
      await end.promise;
    });
    await Promise.race([appended.promise, done]);
    return {
      async commit() {
        end.resolve();
        await done;
      },
      async rollback() {
        end.reject(new Undone());
        await expect(done).rejects.toThrow(Undone);
      },
    };
  },
};

/** How many times this handle has asked what there is to follow. */
function countLooks({ kernel }: Pawl): () => number {
  let looks = 0;
  const follow = kernel.follow.bind(kernel);
  kernel.follow = async (query) => {
    const page = await follow(query);
    looks += 1;
    return page;
  };
  return () => looks;
}

const brief = ({ stream, version }: { readonly stream: string; readonly version: number }) => `${stream} ${version}`;
const eventsOf = (streams: readonly string[]) => streams.flatMap((stream) => [`${stream} 1`, `${stream} 2`]);

/** In which order the transactions a, b and c end; with an exclamation mark, by a rollback. */
const ENDINGS = [
  "a b c",
  "a c b",
  "b a c",
  "b c a",
  "c a b",
  "c b a",
  "c b a!",
  "c! b a",
  "b! c a",
  "c b! a",
  "c a! b",
];

onStores(["PostgreSQL"], (place) => {
  describe.each(Object.entries(ways))("transactions by %s", (_, begin) => {
    test.each(ENDINGS)(
      "that append as a, b, c and end as %s: a reader and a reaction in between miss nothing",
      async (endings) => {
        const [writer, other, reader, worker] = [
          await place.open(),
          await place.open(),
          await place.open(),
          await place.open(),
        ];
        const looks = countLooks(worker);
        const handled: string[] = [];
        worker.work([reaction("copy", { on: [Opened, Deposited], target: "all" }, (e) => void handled.push(brief(e)))]);
        const open: Record<string, Open> = {};
        for (const [i, stream] of ["a", "b", "c"].entries())
          open[stream] = await begin(place, [writer, other][i % 2] ?? writer, stream);
        // It is committed before all others, and was placed behind them.
        await other.stream("d").append([Opened(), Deposited({ amount: 1 })]);
        const kept = ["a", "b", "c", "d"].filter((stream) => !endings.includes(`${stream}!`));
        const whole = eventsOf(kept);

        const read: string[] = [];
        let after = "0";
        const look = async () => {
          const reading = reader.events.read({ after });
          read.push(...(await all(reading)).map(brief));
          after = reading.cursor;
          const before = looks();
          // One that had begun before, and one that began after.
          await expect.poll(looks, PATIENCE).toBeGreaterThan(before + 1);
          expect(read).toEqual(whole.slice(0, read.length));
          expect(handled).toEqual(whole.slice(0, handled.length));
        };
        await look();
        expect([read, handled]).toEqual([[], []]);
        for (const ending of endings.split(" ")) {
          const transaction = open[ending.slice(0, 1)];
          await (ending.endsWith("!") ? transaction?.rollback() : transaction?.commit());
          // Commits wake the reaction; so that it looks also after a rollback, something else is committed.
          await writer.slot("wake", { initial: 0 }).update((n) => n + 1);
          await look();
        }
        expect(read).toEqual(whole);
        await expect.poll(() => handled, PATIENCE).toEqual(whole);
      },
    );
  });
});
