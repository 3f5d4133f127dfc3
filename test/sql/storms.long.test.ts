/**
 * Goal: connections that end at any moment, many of them, change nothing about what `transact.sql` promises.
 * Method: the server ends connections at random while several callers work, for a few seconds.
 */

import { expect, test } from "vitest";
import { FaultyProxy } from "../faults/proxy.ts";
import { postgresGround, sleep } from "./grounds.ts";
import { openThrough, pairOn } from "./pairs.ts";

test("in a storm of ended connections, yes is yes, no is no, and both sides are there or neither", async () => {
  const ground = await postgresGround();
  const proxy = await FaultyProxy.start(Number(new URL(ground.where).port));
  const pair = await pairOn(ground);
  const through = await openThrough(proxy, ground, { max: 8 });
  const { pawl } = through;
  const admin = await ground.connect();
  const untilMs = performance.now() + 4000;
  let ended = 0;
  const answers = new Map<string, "yes" | "no" | "unknown">();
  const count = (what: string) => [...answers.values()].filter((answer) => answer === what).length;
  // Longer on a slow machine, until enough has happened.
  const isOver = () => performance.now() > untilMs && ended > 10 && count("yes") > 10 && count("no") > 2;
  const storm = (async () => {
    while (!isOver()) {
      // One of those that are about to commit, or any.
      const [row] = await admin.query(
        `select count(pg_terminate_backend(pid)) as n from (
           select pid from pg_stat_activity where datname = current_database() and pid <> pg_backend_pid()
           order by state = 'active' and query ilike 'commit' desc, random() limit 1) as one`,
      );
      ended += Number(row?.["n"]);
      if (ended % 5 === 0) proxy.dropCommitReplies(1);
      await sleep(10 + 40 * Math.random());
    }
  })();
  const work = async (worker: number) => {
    for (let i = 0; !isOver(); i++) {
      const id = `${worker}-${i}`;
      try {
        await pawl.transact.sql(async (sql, tx) => {
          await pair.insert(sql, id);
          await tx((tx) => tx.slot(pawl.slot<string>(`${pair.slot}/${id}`)).set(id));
        });
        answers.set(id, "yes");
      } catch (error) {
        answers.set(
          id,
          error instanceof Error && "code" in error && error.code === "outcome_unknown" ? "unknown" : "no",
        );
      }
    }
  };
  await Promise.all([storm, ...Array.from({ length: 4 }, (_, worker) => work(worker))]);
  proxy.disarm();
  const rows = new Set((await pair.found())[0]);
  const slots = new Set<unknown>();
  for (let after: string | null = null; ; ) {
    const page = await pawl.slots.list({ prefix: `${pair.slot}/`, after, limit: 1000 });
    for (const { value } of page.slots) slots.add(value);
    after = page.next;
    if (after === null) break;
  }
  expect(slots).toEqual(rows);
  for (const [id, answer] of answers)
    if (answer !== "unknown") expect([id, rows.has(id)]).toEqual([id, answer === "yes"]);
  await admin.end();
  await through[Symbol.asyncDispose]();
  await proxy.close();
  await ground.leave();
});

test("a connection that the server ends in the moment it is made does not end the process", async () => {
  const ground = await postgresGround();
  const thrown: unknown[] = [];
  const kept = process.listeners("uncaughtException");
  process.removeAllListeners("uncaughtException");
  process.on("uncaughtException", (error) => thrown.push(error));
  const pawl = await ground.open({ patience: 2000 });
  const admin = await ground.connect();
  const untilMs = performance.now() + 6000;
  const storm = async () => {
    while (performance.now() < untilMs) {
      await admin.query(`select pg_terminate_backend(pid) from pg_stat_activity
        where datname = current_database() and pid <> pg_backend_pid() order by random() limit 1`);
      await sleep(10 * Math.random());
    }
  };
  const work = async (worker: number) => {
    while (performance.now() < untilMs)
      await pawl.transact.sql((_, tx) => tx((tx) => tx.slot(pawl.slot<number>(`k${worker}`)).set(1))).catch(() => {});
  };
  await Promise.all([storm(), ...Array.from({ length: 8 }, (_, worker) => work(worker))]);
  process.removeAllListeners("uncaughtException");
  for (const listener of kept) process.on("uncaughtException", listener);
  await admin.end();
  await pawl.close();
  await ground.leave();
  expect(thrown).toEqual([]);
});
