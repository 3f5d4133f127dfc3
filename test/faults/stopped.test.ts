/**
 * A process that is stopped in the middle of its work, as by a debugger, a hypervisor or an overloaded machine.
 *
 * Goal: it does not delay work on other records, and work on the same rows no longer than the store says; when it resumes it finds out what
 * happened meanwhile, and writes nothing that was decided on stale data (G6).
 * Method: a child reports that it is deciding and waits there; it is stopped (SIGSTOP) while the store holds locks for it, or while it
 * holds a lease; others work; it is continued.
 */

import { join } from "node:path";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { claimDue } from "../../src/kernel/claim/claim.ts";
import { address } from "../../src/kernel/contract.ts";
import { open } from "../../src/open.ts";
import type { Pawl } from "../../src/pawl.ts";
import { LOCKS_HELD_MS } from "../../src/stores/postgres/statements.ts";
import { Child, spawnNode } from "../node/child.ts";
import { type FreshDatabase, freshDatabase } from "../postgres/server.ts";
import { entriesOf } from "./works/deposits.ts";

let database: FreshDatabase;
let pawl: Pawl;
let peer: Pawl;

beforeAll(async () => {
  database = await freshDatabase();
  pawl = await open(database.url);
  peer = await open(database.url);
});

afterAll(async () => {
  await pawl.close();
  await peer.close();
  await database.drop();
});

const sleep = (ms: number): Promise<void> => new Promise((resolve) => setTimeout(resolve, ms));

async function decide(mode: "locked" | "held", leaseMs = 0): Promise<Child> {
  const file = join(import.meta.dirname, "children", "decider.ts");
  const child = new Child(spawnNode(file, [database.url, mode, String(leaseMs)]), "decider.ts");
  expect(await child.line()).toBe("deciding");
  child.signal("SIGSTOP");
  return child;
}

async function timed<T>(promise: Promise<T>): Promise<number> {
  const startedMs = performance.now();
  await promise;
  return performance.now() - startedMs;
}

const slotOf = (of: Pawl, name: string) => of.slot<number>(name, { initial: 0 });
const add = (of: Pawl, name: string) => slotOf(of, name).update((n) => n + 1);

describe("a process stopped between the reading and the writing of a batch", () => {
  it("delays no work on other keys, and work on its own no longer than the stated bound", async () => {
    await Promise.all(["a", "b", "c"].map((name) => add(pawl, name)));
    const child = await decide("locked");
    // Both from the process whose batches must wait for the rows, and from another.
    let isFree = false;
    const contended = [timed(add(pawl, "a")), timed(add(pawl, "b"))];
    void Promise.race(contended).then(() => {
      isFree = true;
    });
    // How long they took that were done before the first that wants the same keys.
    const others: number[] = [];
    while (!isFree) {
      const round = [await timed(add(pawl, "c")), await timed(add(peer, "d")), await timed(slotOf(peer, "a").get())];
      if (!isFree) others.push(...round);
      await sleep(20);
    }
    const waited = await Promise.all(contended);
    console.log(
      `stopped: others' work took ${Math.max(...others).toFixed(0)} ms at the longest (${others.length} times), ` +
        `work on the same keys ${waited.map((ms) => ms.toFixed(0)).join(" and ")} ms`,
    );
    expect(others.length).toBeGreaterThan(0);
    // It was really in the way, and no longer once the server had ended its transaction: it is still stopped.
    expect(Math.min(...waited)).toBeGreaterThan(LOCKS_HELD_MS / 4);

    child.signal("SIGCONT");
    // It decides again, on what is there now: 1 at first, 2 by others, 3 by itself.
    expect(await child.line()).toMatch(/^done /);
    expect((await slotOf(pawl, "a").get()).value).toBe(3);
    expect((await slotOf(pawl, "b").get()).value).toBe(3);
    child.tell("end");
    expect(await child.ended).toEqual({ code: 0, signal: null });
  });
});

describe("a process stopped past its lease", () => {
  it("gets fenced errors after a takeover, whatever it tries, and wrote nothing", async () => {
    const leaseMs = 1_500;
    const job = address("job", "one");
    await pawl.kernel.transact((tx) => tx.record(job).write({ value: {}, kind: "job", dueMs: tx.nowMs }), [job]);
    const child = await decide("held", leaseMs);
    const early = await claimDue(peer.kernel, { kinds: ["job"], by: "heir", leaseMs, limit: 1 });
    expect(early.held).toEqual([]);
    await sleep(leaseMs);
    const { held } = await claimDue(peer.kernel, { kinds: ["job"], by: "heir", leaseMs: 30_000, limit: 1 });
    expect(held).toHaveLength(1);
    for (const heir of held) await heir.commit((record) => record.append("taken over", { fence: heir.fence }));
    child.signal("SIGCONT");
    expect(await child.line()).toBe("refused fenced");
    expect(await child.line()).toBe("refused fenced");
    expect(await child.line()).toBe("refused fenced");
    const entries = await entriesOf(pawl.kernel, job);
    expect(entries.map(({ version, name }) => [version, name])).toEqual([[1, "taken over"]]);
    child.tell("end");
    expect(await child.ended).toEqual({ code: 0, signal: null });
  });
});
