/**
 * Goal: decisions that read that a record is absent are serializable with those that create it, through every path (G32).
 * Method: two handles race. Each creates its own key and looks whether the other's is there. In any serial order the later of the two
 * finds the other's key, so they cannot both be first. The races are arranged: on the server, the commit of each side waits until
 * the other side is about to commit too, or for a moment if it cannot be. Races that are left to chance are in skew.long.test.ts.
 *
 * `transact.sql` is stopped between two decisions, and nothing is left to chance.
 */

import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { StoreError } from "../../src/index.ts";
import { type Address, address, newAddress } from "../../src/kernel/contract.ts";
import type { Join } from "../../src/kernel/sql/joint.ts";
import type { Pawl } from "../../src/pawl.ts";
import { ownDatabase } from "../postgres/own-database.ts";
import { type IsFirst, isUnanswered, raw, withIdempotent } from "./firsts.ts";
import { type Handle, handleOn, range, sleep } from "./kit.ts";

/** Arranged races of each way, in each of which both sides have done everything but commit, if they can. */
const ARRANGED = 5;
/** Where one side has to wait for the other, the gate opens after this. A look and a write take a few milliseconds. */
const GATE_MS = 150;
/** All races of a way take a few seconds. */
const TIMEOUT_MS = 300_000;

const database = ownDatabase();
beforeAll(async () => {
  // Makes the tables.
  await (await handleOn(database.url)).close();
  await database.admin.query(`
    create table public.gate (is_closed boolean);
    create function public.at_gate() returns trigger language plpgsql as $$ begin
      while exists (select from public.gate where is_closed) loop perform pg_sleep(0.002); end loop; return null; end $$;
    create constraint trigger gated after insert on pawl.record deferrable initially deferred
      for each row when (new.key like '%gated%' and new.key not like 'call/%') execute function public.at_gate()`);
});

/** Commits that create a gated key stop as the last thing they do, until two of them have come, or for a moment. */
async function gated<T>(act: () => Promise<T>): Promise<T> {
  await database.admin.query("insert into public.gate values (true)");
  const acting = act();
  const waiting =
    "select count(*)::int as n from pg_stat_activity where wait_event = 'PgSleep' and datname = current_database()";
  const untilMs = performance.now() + GATE_MS;
  while (performance.now() < untilMs && (await database.admin.query<{ n: number }>(waiting)).rows[0]?.n !== 2)
    await sleep(2);
  await database.admin.query("delete from public.gate");
  return acting;
}

/** In how many arranged races both were first. */
async function arranged(isFirst: IsFirst): Promise<number> {
  await using one = await handleOn(database.url, { max: 4 });
  await using two = await handleOn(database.url, { max: 4 });
  let both = 0;
  for (const n of range(ARRANGED)) {
    const [a, b] = [`gated-a-${n}`, `gated-b-${n}`];
    // Connections, plans and lanes are there, and the store's clock was heard a moment ago.
    await Promise.all([one, two].map(({ pawl }, i) => isFirst(pawl, `warm-${n}-${i}`, `none-${n}-${i}`)));
    const firsts = await gated(() => Promise.all([isFirst(one.pawl, a, b), isFirst(two.pawl, b, a)]));
    if (firsts[0] && firsts[1]) both += 1;
  }
  return both;
}

const withDedupe: IsFirst = (pawl, mine, other) =>
  pawl.transact((tx) => {
    tx.dedupe("mail", mine);
    tx.slot(pawl.slot(`sent/${mine}`)).set(true);
    return tx.slot(pawl.slot(`sent/${other}`)).get().version === 0;
  });

const withCommit: IsFirst = async (pawl, mine, other) => {
  const { value } = await pawl.idempotent(`call/${mine}`, undefined, (attempt) =>
    attempt.commit((tx) => {
      tx.idempotent(`effect/${mine}`, undefined, () => "done");
      return isUnanswered(tx, `effect/${other}`);
    }),
  );
  return value;
};

describe("of two that each create a key and look for the other's, at most one is first", () => {
  test.each([
    ["tx.idempotent in transact", withIdempotent],
    ["tx.dedupe, and slots beside it", withDedupe],
    ["idempotent and its commit", withCommit],
    ["a decision of the kernel that names no key", raw("raw 1", () => [])],
    ["a decision that names its own key as new", raw("raw 2", (mine) => [mine])],
    ["a decision that names both as new", raw("raw 3", (mine, other) => [mine, newAddress(other)])],
    ["a decision that names its own as new, and the other", raw("raw 4", (mine, other) => [mine, other])],
  ])("arranged, with %s", { timeout: TIMEOUT_MS }, async (_, isFirst) => {
    expect(await arranged(isFirst)).toBe(0);
  });
});

describe("two decisions of one transact.sql see one state", () => {
  let one: Handle;
  let two: Handle;
  beforeAll(async () => {
    one = await handleOn(database.url);
    two = await handleOn(database.url);
  });
  afterAll(async () => {
    await one.close();
    await two.close();
  });

  /** Longer than a commit takes, and much shorter than the two seconds that a transaction may keep Pawl's rows idle. */
  const MEANWHILE_MS = 400;

  interface Way {
    readonly name: string;
    /** Creates both in one commit. */
    create(pawl: Pawl, first: string, second: string): Promise<unknown>;
    isAbsent(join: Join, key: string): Promise<boolean>;
  }

  const at = (key: string) => newAddress(address("joint", key));
  /** The record of an idempotency key. */
  const keyAt = (key: string) => address("idempotent", key);
  const isAbsent = (at: (key: string) => Address) => (join: Join, key: string) =>
    join((tx) => !tx.record(at(key)).exists, [at(key)]);

  const ways: readonly Way[] = [
    {
      name: "idempotency keys",
      create: (pawl, first, second) =>
        pawl.transact((tx) => {
          tx.idempotent(first, undefined, () => 1);
          tx.idempotent(second, undefined, () => 2);
        }),
      isAbsent: isAbsent(keyAt),
    },
    {
      name: "records that are named as new",
      create: (pawl, first, second) =>
        pawl.kernel.transact(
          (tx) => {
            for (const key of [first, second]) tx.record(at(key)).write({ value: key });
          },
          [at(first), at(second)],
        ),
      isAbsent: isAbsent(at),
    },
    {
      name: "slots",
      create: (pawl, first, second) =>
        pawl.transact((tx) => {
          for (const key of [first, second]) tx.slot(pawl.slot(key)).set(key);
        }),
      isAbsent: isAbsent((key) => one.pawl.slot(key).touches),
    },
  ];

  test.each(ways)("where another creates two records between them: $name", async ({ name, create, isAbsent }) => {
    let seen: readonly [first: boolean, second: boolean] | undefined;
    // A machine that stops for two seconds here ends the transaction, and it is tried again.
    for (let attempt = 1; seen === undefined; attempt++) {
      const [first, second] = [`${name} k ${attempt}`, `${name} x ${attempt}`];
      let creating: Promise<unknown> | undefined;
      // So that the other handle has heard the store's clock a moment ago.
      await create(two.pawl, `${first} before`, `${second} before`);
      try {
        seen = await one.pawl.kernel.share(async (_, join) => {
          const isFirstAbsent = await isAbsent(join, first);
          creating = create(two.pawl, first, second);
          // It may have to wait until this transaction ends.
          await Promise.race([creating, sleep(MEANWHILE_MS)]);
          return [isFirstAbsent, await isAbsent(join, second)] as const;
        });
      } catch (error) {
        if (!(error instanceof StoreError) || attempt === 5) throw error;
      }
      await creating;
    }
    expect(seen).toEqual([true, true]);
  });
});
