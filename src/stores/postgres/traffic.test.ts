/**
 * Goal: a call that got no connection blames the pool or the server, whichever it was.
 * Method: a table of what was seen at the beginning and at the end of its wait; then a pool whose events are made by hand.
 */

import { EventEmitter } from "node:events";
import { describe, expect, test } from "vitest";
import { PoolTraffic, type Traffic, whyNoConnection } from "./traffic.ts";

describe("why no connection came", () => {
  const start: Traffic = { atMs: 0, replies: 7, waitingSinceMs: null, silences: 0, connecting: 0 };
  const end: Traffic = { ...start, atMs: 100 };
  const rules: readonly {
    rule: string;
    before?: Partial<Traffic>;
    after?: Partial<Traffic>;
    why: "pool" | "server";
  }[] = [
    { rule: "the application keeps all connections", why: "pool" },
    { rule: "a reply does not come", after: { waitingSinceMs: -10 }, why: "server" },
    { rule: "a reply does not come for half of the time", after: { waitingSinceMs: 50 }, why: "server" },
    { rule: "a statement was sent later than that", after: { waitingSinceMs: 51 }, why: "pool" },
    { rule: "a reply does not come, but others did", after: { waitingSinceMs: -10, replies: 8 }, why: "pool" },
    { rule: "a reply was given up", after: { silences: 1 }, why: "server" },
    { rule: "a reply was given up, but others came", after: { silences: 1, replies: 8 }, why: "pool" },
    { rule: "a new connection is not made", after: { connecting: 1 }, why: "server" },
    { rule: "a new connection was not made", before: { connecting: 1 }, why: "server" },
    { rule: "others are made slowly", before: { connecting: 2 }, after: { connecting: 1, replies: 8 }, why: "pool" },
  ];
  test.each(rules)("$rule: the $why", ({ before, after, why }) => {
    expect(whyNoConnection({ ...start, ...before }, { ...end, ...after })).toBe(why);
  });
});

test("the counters follow the pool and what is sent", () => {
  const pool = Object.assign(new EventEmitter(), { totalCount: 2 });
  const traffic = new PoolTraffic<object>(pool, () => {});
  expect(traffic.read(100)).toEqual({ atMs: 100, replies: 0, waitingSinceMs: null, silences: 0, connecting: 0 });
  pool.totalCount = 4;
  expect(traffic.read(100).connecting).toBe(2);
  pool.emit("connect", {});
  expect(traffic.read(100)).toMatchObject({ connecting: 1, replies: 1 });
  pool.totalCount = 3;
  pool.emit("remove", {});
  expect(traffic.read(100).connecting).toBe(1);
  const [first, second, third] = [traffic.sent(1), traffic.sent(2), traffic.sent(3)];
  expect(traffic.read(100).waitingSinceMs).toBe(1);
  first("replied");
  first("silent");
  expect(traffic.read(100).waitingSinceMs).toBe(2);
  second("silent");
  third("lost");
  expect(traffic.read(100)).toMatchObject({ replies: 2, waitingSinceMs: null, silences: 1 });
  traffic.close();
  expect(pool.listenerCount("connect") + pool.listenerCount("remove")).toBe(0);
});
