/**
 * Goal: a long stream, targets that are not due, and targets that are far behind cost no more than few.
 * Method: what is asked of the store is counted, and a worker has a heap that the events would not fit in. `npm run bench -- --only s5,s6,s7` does
 * the same with a million events, and measures.
 */

import { join } from "node:path";
import { expect, test, vi } from "vitest";
import { event, type Pawl, reaction } from "../../src/index.ts";
import { streamAt } from "../../src/stream/stored.ts";
import { Child, spawnNode } from "../node/child.ts";
import { EVERY, onStores, PATIENCE, SQL } from "../workflow/kit.ts";
import { account, Deposited } from "./kit.ts";

const program = join(import.meta.dirname, "children", "drain.ts");

const LONG = 20_000;
const TARGETS = 50;
const BEHIND = 500;

onStores(EVERY, (place) => {
  test(`a command costs the same on ten events as on ${LONG}`, async () => {
    const { pawl, commits } = await place.openHandle();
    const entries = vi.spyOn(pawl.kernel, "entries");
    const costOf = async (stream: string) => {
      const before = commits();
      entries.mockClear();
      for (let index = 0; index < 20; index++) await pawl.aggregate(account, stream).execute("deposit", { amount: 1 });
      const [row] = await pawl.kernel.read([streamAt(stream)]);
      return { commits: commits() - before, reads: entries.mock.calls.length, bytes: row?.value?.length ?? 0 };
    };
    for (const [stream, length] of [
      ["short", 10],
      ["long", LONG],
    ] as const) {
      for (let index = 0; index < 10; index++)
        await pawl.stream(stream).append(Array.from({ length: length / 10 }, () => Deposited({ amount: 1 })));
      // The first command folds what was appended without the aggregate.
      await pawl.aggregate(account, stream).execute("deposit", { amount: 1 });
    }
    const [short, long] = [await costOf("short"), await costOf("long")];
    expect(short).toMatchObject({ commits: 20, reads: 0 });
    expect(long).toMatchObject({ commits: 20, reads: 0 });
    // Numbers have more digits.
    expect(long.bytes - short.bytes).toBeLessThan(20);
  });
});

const Placed = event<{ readonly isFor: "tomorrow" | "now" }>("Placed");

onStores(SQL, (place) => {
  test("targets that wait are not looked at when others become due", async () => {
    const pawl = await place.open();
    let handled = 0;
    let deferred = 0;
    const mail = reaction("mail", { on: [Placed] }, async ({ data }, { defer }) => {
      if (data.isFor === "tomorrow") {
        deferred += 1;
        defer("1 day");
      }
      handled += 1;
    });
    pawl.work([mail]);
    const due = vi.spyOn(pawl.kernel, "due");
    const wait = async (count: number, name: string): Promise<void> => {
      const before = deferred;
      await placeAll(pawl, count, name, "tomorrow");
      await expect.poll(() => deferred - before, PATIENCE).toBe(count);
      await expect.poll(() => busyTargets(pawl), PATIENCE).toBe(0);
    };
    /** How many records the store named as due while ten targets were handled. */
    const namedFor = async (round: string): Promise<number> => {
      due.mockClear();
      const before = handled;
      await placeAll(pawl, 10, round, "now");
      await expect.poll(() => handled - before, PATIENCE).toBe(10);
      const pages = await Promise.all(due.mock.results.map(({ value }) => value));
      return pages.reduce((sum, { keys }) => sum + keys.length, 0);
    };
    await wait(50, "few");
    expect(await namedFor("first")).toBeLessThanOrEqual(100);
    await wait(1000, "many");
    expect(await namedFor("second")).toBeLessThanOrEqual(100);
  });

  test(`${TARGETS} targets, each ${BEHIND} events behind, are drained with a heap that all events would not fit in`, async () => {
    const pawl = await place.open();
    const events = Array.from({ length: BEHIND }, (_, amount) =>
      Deposited({ amount, note: "x".repeat(4000) } as never),
    );
    for (let index = 0; index < TARGETS; index++) await pawl.stream(`account-${index}`).append(events);
    // The events have 100 MB. Live are 16 MB of code, and what is bounded: the events of all targets in work, and of one page. Without the second argument,
    // the room for young objects counts as used.
    const nodeArgs = ["--max-old-space-size=48", "--max-semi-space-size=2"];
    const args = [place.where, place.namespace, String(TARGETS * BEHIND)];
    const worker = new Child(spawnNode(program, args, { nodeArgs }), "a worker");
    try {
      expect(await worker.line()).toBe("drained");
      const { targets } = await pawl.reactions.targets("mail");
      expect(targets).toHaveLength(TARGETS);
    } finally {
      await worker.kill();
    }
  });
});

function placeAll(pawl: Pawl, count: number, name: string, isFor: "tomorrow" | "now"): Promise<unknown> {
  return Promise.all(
    Array.from({ length: count }, (_, index) => pawl.stream(`${name}-${index}`).append([Placed({ isFor })])),
  );
}

/** Targets that a worker holds, or could claim. */
async function busyTargets(pawl: Pawl): Promise<number> {
  const { targets } = await pawl.reactions.targets("mail", { limit: 5000 });
  return targets.filter(({ status }) => status === "running").length;
}
