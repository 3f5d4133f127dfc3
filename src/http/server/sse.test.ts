/** New event streams have their turns by tenant. */

import { expect, test } from "vitest";
import type { Clock } from "../../kernel/ports.ts";
import { type Feed, sendEvents } from "./sse.ts";
import { Unread } from "./unread.ts";

const clock: Clock = { nowMs: () => 0, soon: (callback) => callback(), after: () => () => {} };

test("of 200 new streams of one tenant, and then one of another, that one is read after one turn", async () => {
  const unread = new Unread(clock, 1000);
  const reads: string[] = [];
  const gone = new AbortController();
  const open = (namespace: string): Promise<Response> => {
    const feed: Feed = {
      wake: (async function* () {})(),
      read: async function* () {
        reads.push(namespace);
        yield { event: "value", data: null };
        return "end";
      },
    };
    const reader = { namespace, keyId: namespace };
    const waiter = { connection: undefined, reader, abortSignal: gone.signal, enter: () => () => {} };
    return sendEvents({ clock, unread }, waiter, feed);
  };
  const opened = await Promise.all([...Array.from({ length: 200 }, () => open("ann")), open("bob")]);
  expect(opened.every(({ status }) => status === 200)).toBe(true);
  expect(reads).toHaveLength(201);
  // Eight read immediately, and the next turn is that of the tenant who was first in line.
  expect(reads.indexOf("bob")).toBe(9);
  gone.abort();
});
