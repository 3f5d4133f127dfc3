// Goal: a run that waits for very many locks waits, although a search for a deadlock does not look at all of them.

import { expect, test } from "vitest";
import { type Context, workflow } from "../../src/index.ts";
import { openTest } from "../../src/testing/index.ts";

const numbers = (count: number): number[] => Array.from({ length: count }, (_, n) => n);

test("a run can wait for more locks than a search for a deadlock looks at", async () => {
  await using pawl = openTest();
  const names = numbers(1_030).map((n) => `m${n}`);
  for (const name of names) await pawl.mutex(name).acquire();
  const waits = workflow("waits", (ctx: Context) => Promise.all(names.map((name) => ctx.mutex(name).acquire())));
  const events: string[] = [];
  pawl.work([waits], { on: ({ type }) => void events.push(type) });
  const run = await pawl.start(waits, undefined);
  await run.until("waiting");
  expect((await run.status()).status).toBe("waiting");
  expect(events).not.toContain("run.trouble");
});
