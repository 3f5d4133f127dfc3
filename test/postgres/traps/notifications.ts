/**
 * Traps around notifications: they must slow no commit down, and may be lost.
 */

import assert from "node:assert/strict";
import { statement } from "../../../src/stores/postgres/pipeline.ts";
import { STALE } from "../../../src/stores/postgres/statements.ts";
import { sleep } from "../../../src/testing/conformance/law-context.ts";
import { isNotify } from "../watched.ts";
import { type Arena, addOne, at, type Trap, trap, until, within, withoutPolls } from "./arena.ts";

/** How often a listener looks, while it is new and later. */
const QUICK_POLL_MS = 200;
const SLOW_POLL_MS = 2000;

/** The connection of this database that listens, if there is one. */
const listeners = (arena: Arena): Promise<unknown[][]> =>
  arena.sql("select pid from pg_stat_activity where query like 'listen %' and datname = current_database()");

/** Somebody of the test's own who counts notifications. */
async function countNotifications(arena: Arena): Promise<{ readonly heard: string[] }> {
  const client = await arena.client();
  const heard: string[] = [];
  client.on("notification", ({ payload = "" }) => {
    if (!payload.endsWith(" test")) heard.push(payload);
  });
  await client.query(`listen ${statement(`${arena.schema}\ndefault`).name}`);
  return { heard };
}

export const notifications: readonly Trap[] = [
  trap("no transaction that writes notifies, and one notification covers all commits made meanwhile", async (arena) => {
    await arena.listener();
    const pool = arena.watched();
    const kernel = await arena.kernel({ pool });
    const { heard } = await countNotifications(arena);
    await addOne(kernel, at("k"));
    await until("its notification is there", () => heard.length === 1);
    await pool.quiet();
    const before = pool.pipelines.length;
    const held = pool.hold(isNotify);
    for (let n = 0; n < 20; n++) await addOne(kernel, at(`k${n % 3}`));
    await within("the first notification is under way", held.reached);
    held.open();
    await pool.quiet();
    await until("the notifications are there", () => heard.length === 3);
    await sleep(50);
    assert.equal(heard.length, 3, "one before, one for the first, and one for all that came meanwhile");
    assert.equal(pool.pipelines.slice(before).filter(isNotify).length, 2);
    for (const texts of pool.pipelines.filter(isNotify))
      assert.ok(!texts.some((text) => text.includes(STALE) || /^(begin|commit)/.test(text)), texts.join("\n"));
  }),

  trap("without listeners, nothing is sent", async (arena) => {
    const pool = arena.watched();
    const kernel = await arena.kernel({ pool });
    await addOne(kernel, at("k"));
    await pool.quiet();
    const { heard } = await countNotifications(arena);
    for (let n = 0; n < 5; n++) await addOne(kernel, at("k"));
    await pool.quiet();
    await sleep(50);
    assert.deepEqual(heard, []);
  }),

  trap("a listener reads first, because a commit may have happened before it listened", async (arena) => {
    const store = await arena.store({ ports: withoutPolls(QUICK_POLL_MS, SLOW_POLL_MS) });
    let rings = 0;
    store.watch(() => {
      rings += 1;
    });
    await until("it rings", () => rings > 0);
  }),

  trap("a commit that was made before all others knew a new listener is found soon", async (arena) => {
    const kernel = await arena.kernel();
    // It has just found out that nobody listens, and does not ask again for a while.
    await addOne(kernel, at("k"));
    await sleep(100);
    const listener = await arena.listener({ ports: withoutPolls(SLOW_POLL_MS) });
    const before = listener.rings;
    await addOne(kernel, at("k"));
    await until("it is found", () => listener.rings > before);
  }),

  trap("a commit is noticed by notification, not by the next poll", async (arena) => {
    const kernel = await arena.kernel();
    // Before anybody listens, nobody is told, the second time without asking.
    for (let n = 0; n < 3; n++) await addOne(kernel, at("k"));
    const listener = await arena.listener({ ports: withoutPolls(QUICK_POLL_MS, SLOW_POLL_MS) });
    // Until then the other has not asked again whether anybody listens.
    await sleep(2300);
    for (let n = 0; n < 3; n++) {
      const before = listener.rings;
      await addOne(kernel, at("k"));
      await until("it is noticed", () => listener.rings > before);
      await sleep(60);
    }
  }),

  trap("a listening connection that is lost is replaced", async (arena) => {
    await arena.listener();
    await until("it listens", async () => (await listeners(arena)).length === 1);
    const [old] = await listeners(arena);
    await arena.sql("select pg_terminate_backend($1)", old);
    await until("another listens", async () => {
      const [now, more] = await listeners(arena);
      return now !== undefined && more === undefined && now[0] !== old?.[0];
    });
  }),

  trap("a commit whose notification is lost is found by polling", async (arena) => {
    const listener = await arena.listener();
    const pool = arena.watched();
    const kernel = await arena.kernel({ pool });
    const held = pool.hold(isNotify);
    const before = listener.rings;
    await addOne(kernel, at("k"));
    await within("it is being notified", held.reached);
    await until("it is found", () => listener.rings > before);
    held.open();
  }),
];
