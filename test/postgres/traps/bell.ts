/**
 * Traps around notifications: they must slow no commit down, and may be lost.
 */

import assert from "node:assert/strict";
import { STALE } from "../../../src/stores/postgres/statements.ts";
import { statement } from "../../../src/stores/postgres/train.ts";
import { rest } from "../../../src/testing/conformance/stage.ts";
import { isNotify } from "../watched.ts";
import { type Arena, addOne, at, type Trap, trap, until, within } from "./arena.ts";

/** The connection of this database that listens, if there is one. */
const listeners = (arena: Arena): Promise<unknown[][]> =>
  arena.sql("select pid from pg_stat_activity where query like 'listen %' and datname = current_database()");

/** Somebody of the test's own who counts notifications. */
async function countNotifications(arena: Arena): Promise<{ readonly heard: string[] }> {
  const client = await arena.client();
  const heard: string[] = [];
  client.on("notification", ({ payload = "" }) => {
    if (!payload.endsWith(" hears")) heard.push(payload);
  });
  await client.query(`listen ${statement(`${arena.schema}\ndefault`).name}`);
  return { heard };
}

export const bell: readonly Trap[] = [
  trap(
    "no transaction that writes notifies, and one notification stands for all commits made meanwhile",
    async (arena) => {
      await arena.listener();
      const pool = arena.watched();
      const kernel = await arena.kernel({ pool });
      await addOne(kernel, at("k"));
      await pool.quiet();
      const { heard } = await countNotifications(arena);
      const before = pool.trains.length;
      const held = pool.hold(isNotify);
      for (let n = 0; n < 20; n++) await addOne(kernel, at(`k${n % 3}`));
      await within("the first notification is under way", held.reached);
      held.open();
      await pool.quiet();
      await until("the notifications are there", () => heard.length === 2);
      await rest(50);
      assert.equal(heard.length, 2, "one for the first, and one for all that came meanwhile");
      assert.equal(pool.trains.slice(before).filter(isNotify).length, 2);
      for (const texts of pool.trains.filter(isNotify))
        assert.ok(!texts.some((text) => text.includes(STALE) || /^(begin|commit)/.test(text)), texts.join("\n"));
    },
  ),

  trap("where nobody listens, nobody is told", async (arena) => {
    const pool = arena.watched();
    const kernel = await arena.kernel({ pool });
    await addOne(kernel, at("k"));
    await pool.quiet();
    const { heard } = await countNotifications(arena);
    for (let n = 0; n < 5; n++) await addOne(kernel, at("k"));
    await pool.quiet();
    await rest(50);
    assert.deepEqual(heard, []);
  }),

  trap("who listens begins with a look, since a commit may have come before it listened", async (arena) => {
    const store = await arena.store();
    let rings = 0;
    store.watch(() => {
      rings += 1;
    });
    await until("it rings", () => rings > 0, 1500);
  }),

  trap("a commit that was made before everybody knew of a new listener is found soon", async (arena) => {
    const kernel = await arena.kernel();
    // It has just found out that nobody listens, and does not ask again for a while.
    await addOne(kernel, at("k"));
    await rest(100);
    const listener = await arena.listener();
    const before = listener.rings;
    await addOne(kernel, at("k"));
    await until("it is found", () => listener.rings > before, 1400, 1);
  }),

  trap("a commit is heard of at once, and not when somebody looks", async (arena) => {
    const kernel = await arena.kernel();
    // Before anybody listens, nobody is told, the second time without asking.
    for (let n = 0; n < 3; n++) await addOne(kernel, at("k"));
    const listener = await arena.listener();
    // Until it has been there for a while, it also looks often.
    await rest(2300);
    for (let n = 0; n < 3; n++) {
      const before = listener.rings;
      await addOne(kernel, at("k"));
      await until("it is heard", () => listener.rings > before, 900, 1);
      await rest(60);
    }
  }),

  trap("a listening connection that is lost is made anew", async (arena) => {
    await arena.listener();
    await until("it listens", async () => (await listeners(arena)).length === 1);
    const [old] = await listeners(arena);
    await arena.sql("select pg_terminate_backend($1)", old);
    await until("another listens", async () => {
      const [now, more] = await listeners(arena);
      return now !== undefined && more === undefined && now[0] !== old?.[0];
    });
  }),

  trap("a commit whose notification is lost is found by looking", async (arena) => {
    const listener = await arena.listener();
    const pool = arena.watched();
    const kernel = await arena.kernel({ pool });
    const held = pool.hold(isNotify);
    const before = listener.rings;
    await addOne(kernel, at("k"));
    await within("it is being told", held.reached);
    await until("it is found", () => listener.rings > before, 3000);
    held.open();
  }),
];
