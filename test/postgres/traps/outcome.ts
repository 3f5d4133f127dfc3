/**
 * Traps around commits whose outcome is unknown: a lost reply, a lost request, a commit in progress that no caller waits for any
 * more, a batch that arrives after its caller gave up, a standby that did not confirm.
 */

import assert from "node:assert/strict";
import { StoreError } from "../../../src/kernel/errors.ts";
import { failure } from "../../../src/stores/postgres/failure.ts";
import { isCommit } from "../watched.ts";
import { type Arena, addOne, at, commit, isPending, make, refusal, type Trap, trap, until, within } from "./arena.ts";

/** A kernel on a way that can lose what passes, with one commit made. */
async function lossy(arena: Arena) {
  const proxy = await arena.proxy();
  const pool = arena.watched(proxy.urlOf(arena.url));
  const kernel = await arena.kernel({ pool, lanes: 1 });
  await addOne(kernel, at("k"));
  await pool.quiet();
  return { proxy, pool, kernel };
}

/** Commits wait for a standby that is not there; answers how to let them go. */
async function missStandby(arena: Arena): Promise<() => Promise<void>> {
  const set = async (names: string) => {
    await arena.sql("set synchronous_commit = local");
    await arena.sql(`alter system set synchronous_standby_names = '${names}'`);
    await arena.sql("select pg_reload_conf()");
    await until("the setting is known", async () => (await arena.value("show synchronous_standby_names")) === names);
  };
  await set("nobody");
  arena.atEnd(() => set(""));
  return () => set("");
}

/** Ends the wait for the standby of whoever waits, as an impatient administrator does. */
async function endWait(arena: Arena, how: "pg_cancel_backend" | "pg_terminate_backend"): Promise<void> {
  await until("a commit waits for the standby", async () => (await arena.waitingFor("SyncRep")) > 0);
  const waiting = "select pid, xact_start::text from pg_stat_activity where wait_event = 'SyncRep'";
  const [one, another] = await arena.sql(waiting);
  assert.ok(one !== undefined && another === undefined, "another transaction waits too");
  await arena.sql(`select ${how}($1)`, one.slice(0, 1));
  const isLeft = `select count(*)::int from (${waiting}) w where pid = $1 and xact_start = $2`;
  await until("it waits no longer", async () => (await arena.value(isLeft, one)) === 0);
}

export const outcome: readonly Trap[] = [
  trap("a commit whose reply is lost is found by its mark, and not repeated", async (arena) => {
    const { proxy, pool, kernel } = await lossy(arena);
    const held = pool.hold(isCommit);
    const adding = addOne(kernel, at("k"));
    await within("it is about to commit", held.reached);
    proxy.dropCommitReplies(1);
    held.open();
    assert.equal(await within("it is answered", adding), 2);
    assert.equal(proxy.counts.commitRepliesDropped, 1);
    assert.equal(await within("and so is the next", addOne(kernel, at("k"))), 3);
    assert.equal(await arena.entryCount(at("k")), 3);
  }),

  trap("a commit whose request is lost, completely or in part, does not count as made", async (arena) => {
    const { proxy, pool, kernel } = await lossy(arena);
    for (const [n, part] of (["whole", "second half"] as const).entries()) {
      const held = pool.hold(isCommit);
      const adding = addOne(kernel, at("k"));
      await within("it is about to commit", held.reached);
      proxy.dropRequests(1, part);
      held.open();
      assert.equal(await within("it is answered", adding), n + 2);
      assert.equal(proxy.counts.requestsDropped, n + 1);
      assert.equal(await arena.entryCount(at("k")), n + 2);
      await pool.quiet();
    }
  }),

  trap("a COMMIT with the tag ROLLBACK does not count as a commit", async (arena) => {
    const pool = arena.watched();
    const kernel = await arena.kernel({ pool, lanes: 1 });
    await addOne(kernel, at("k"));
    pool.swap(isCommit, "commit", "rollback");
    assert.equal(await within("it is answered", addOne(kernel, at("k"))), 2);
    assert.equal((await kernel.read([at("k")]))[0]?.value, "2");
    assert.equal(await arena.entryCount(at("k")), 2);
  }),

  trap("settling waits for a commit in progress, and then knows its outcome", async (arena) => {
    const proxy = await arena.proxy();
    const store = await arena.store({ url: proxy.urlOf(arena.url) });
    const gate = await arena.commitGate("k");
    const { epoch, sequence } = await store.settle(0);
    const puts = [make(at("k"))];
    const batch = { lane: 0, epoch, sequence: sequence + 1, lock: [], needsClock: false, decide: () => ({ puts }) };
    const lost = refusal(store.commit(batch));
    await gate.reached();
    proxy.cutAll();
    assert.equal(await within("it is lost", lost), "outcome_unknown");
    // The server is in the middle of it all the same.
    assert.equal(await within("a first try", refusal(store.settle(0))), "store_busy");
    assert.equal(await arena.waitingFor("PgSleep"), 1);
    await gate.open();
    let settled: { epoch: number; sequence: number } | undefined;
    await until("it is settled", async () => {
      settled = await store.settle(0).catch(() => undefined);
      return settled !== undefined;
    });
    assert.equal(settled?.sequence, sequence + 1);
    assert.ok((await store.read([at("k")]))[0]);
  }),

  trap("a batch of an epoch that was settled is refused, however late it arrives", async (arena) => {
    const pool = arena.watched();
    const store = await arena.store({ pool });
    const held = pool.hold(isCommit);
    const late = commit(store, [], () => [make(at("k"))]).catch((error: unknown) => error);
    await within("it is under way", held.reached);
    const { sequence } = await store.settle(0);
    held.open();
    const error = await within("it is answered", late);
    assert.ok(error instanceof StoreError);
    assert.deepEqual([error.code, error.data.remedy], ["store_refused", "settle"]);
    assert.equal((await store.read([at("k")]))[0], null);
    assert.equal((await store.settle(0)).sequence, sequence);
  }),

  trap("a connection that the server ends in the middle of a commit makes its outcome unknown", async (arena) => {
    const store = await arena.store();
    const gate = await arena.commitGate("k");
    const lost = refusal(commit(store, [], () => [make(at("k"))]));
    await gate.reached();
    await arena.sql("select pg_terminate_backend(pid) from pg_stat_activity where wait_event = 'PgSleep'");
    assert.equal(await within("it is answered", lost), "outcome_unknown");
    await gate.open();
    assert.equal((await store.settle(0)).sequence, 0);
  }),

  trap("an error that may have ended the connection is not a definite failure once COMMIT was sent", async () => {
    const told = (code: string, severity: string) => {
      const error = failure(Object.assign(new Error("reported by the server"), { code, severity }), true);
      return error instanceof StoreError ? error.code : "no store error";
    };
    assert.equal(told("57P01", "FATAL"), "outcome_unknown");
    assert.equal(told("08006", "ERROR"), "outcome_unknown");
    assert.equal(told("57P02", "WARNING"), "outcome_unknown");
    assert.equal(told("40001", "ERROR"), "store_busy");
    assert.equal(told("23514", "ERROR"), "store_refused");
  }),

  ...[
    { where: "", options: "" },
    { where: ", also if warnings are not sent", options: "-c client_min_messages=error" },
  ].map(({ where, options }) =>
    trap(
      `a commit that did not wait for the standby is unknown, and confirmed only when the standby has it${where}`,
      async (arena) => {
        const url = new URL(arena.url);
        url.searchParams.set("options", options);
        const kernel = await arena.kernel({ url: url.href, lanes: 1 });
        await addOne(kernel, at("k"));
        const release = await missStandby(arena);
        const adding = addOne(kernel, at("k"));
        await endWait(arena, "pg_cancel_backend");
        assert.ok(await isPending(adding, 100), "the commit was answered although no standby has it");
        // Now its mark is asked for; that must wait as well.
        await endWait(arena, "pg_cancel_backend");
        assert.ok(await isPending(adding, 100), "the mark was accepted although no standby has it");
        // It is asked for again, as long as it takes.
        await until("the mark is read again", async () => (await arena.waitingFor("SyncRep")) > 0);
        await release();
        assert.equal(await within("it is answered", adding), 2);
        assert.equal(await arena.entryCount(at("k")), 2);
      },
      { needsServer: true },
    ),
  ),

  trap(
    "a commit that happened although its connection was ended while it waited for the standby is found",
    async (arena) => {
      const kernel = await arena.kernel({ lanes: 1 });
      await addOne(kernel, at("k"));
      const release = await missStandby(arena);
      const adding = addOne(kernel, at("k"));
      await endWait(arena, "pg_terminate_backend");
      await release();
      assert.equal(await within("it is answered", adding), 2);
      assert.equal(await arena.entryCount(at("k")), 2);
    },
    { needsServer: true },
  ),
];
