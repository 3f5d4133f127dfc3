/**
 * A backup that is restored into a SQLite file under a live process, by SQLite's backup API: it writes the saved pages into the file as one
 * transaction of another connection, so every process that has the file open continues with the content of the backup.
 *
 * Goal: what is committed after the restore is not overwritten by what a process remembers from before it, and a run resumes from the history that is
 * there and keeps it whole (G31).
 * Method: a holder and a run continue after commits that are lost; another handle writes in between, so that versions repeat.
 */

import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { backup, DatabaseSync } from "node:sqlite";
import { afterEach, beforeEach, expect, it } from "vitest";
import { type Context, workflow } from "../../src/index.ts";
import { claimDue, wake } from "../../src/kernel/claim/claim.ts";
import { address } from "../../src/kernel/contract.ts";
import { open } from "../../src/open.ts";
import type { Pawl } from "../../src/pawl.ts";
import { replayHistory, saveHistory } from "../../src/testing/index.ts";

let folder: string;
const opened: Pawl[] = [];

beforeEach(() => {
  folder = mkdtempSync(join(tmpdir(), "pawl-restore-"));
});

afterEach(async () => {
  for (const pawl of opened.splice(0)) await pawl.close();
  rmSync(folder, { recursive: true, force: true });
});

const live = () => join(folder, "live.db");
const saved = () => join(folder, "saved.db");

async function openLive(): Promise<Pawl> {
  const pawl = await open(live());
  opened.push(pawl);
  return pawl;
}

/** Copies one file's content into another, whoever has it open. */
async function copy(from: string, to: string): Promise<void> {
  const source = new DatabaseSync(from);
  try {
    await backup(source, to);
  } finally {
    source.close();
  }
}

it("a holder does not overwrite what was written after the restore", async () => {
  const at = address("job", "one");
  const [holder, other] = [await openLive(), await openLive()];
  await other.kernel.transact((tx) => tx.record(at).write({ value: 0, kind: "job", dueMs: tx.nowMs }), [at]);
  const { held } = await claimDue(holder.kernel, { kinds: ["job"], by: "holder", leaseMs: 60_000, limit: 1 });
  const [job] = held;
  if (job === undefined) throw new Error("there was nothing to claim");
  await copy(live(), saved());
  for (const mark of ["lost 1", "lost 2"]) await job.commit((record) => record.append("step", mark));
  await copy(saved(), live());
  // So many that the record has the version which the holder remembers.
  for (let i = 0; i < 2; i++) await other.kernel.transact((tx) => wake(tx, at), [at]);
  await job.commit((record) => record.append("step", "kept"));
  const [row] = await other.kernel.read([at]);
  const entries = await other.kernel.entries(at, 0, 10);
  expect(row?.wakes).toBe(2);
  expect(entries.map(({ version, data }) => [version, JSON.parse(data)])).toEqual([[1, "kept"]]);
  expect(row?.head).toBe(1);
});

it("a slot that is known is not overwritten", async () => {
  const [one, other] = [await openLive(), await openLive()];
  const list = (pawl: Pawl) => pawl.slot<readonly string[]>("list", { initial: [] });
  const append = (pawl: Pawl, mark: string) => list(pawl).update((marks) => [...marks, mark]);
  await append(one, "first");
  await copy(live(), saved());
  await append(one, "lost");
  await copy(saved(), live());
  await append(other, "second");
  await append(one, "third");
  expect((await list(other).get()).value).toEqual(["first", "second", "third"]);
});

it("a run resumes from the history that the restore left", async () => {
  const gate = Promise.withResolvers<void>();
  const isWaiting = Promise.withResolvers<void>();
  const times = new Map<string, number>();
  const trip = workflow("trip", async (ctx: Context) => {
    const act = (name: string) =>
      ctx.step(name, async () => {
        times.set(name, (times.get(name) ?? 0) + 1);
        if (name === "one") await copy(live(), saved());
        if (name === "three") {
          isWaiting.resolve();
          await gate.promise;
        }
        return `${name} done`;
      });
    return [await act("one"), await act("two"), await act("three")];
  });
  const pawl = await openLive();
  pawl.work([trip], { lease: 2_000 });
  const run = await pawl.start(trip, undefined, { id: "t" });
  await isWaiting.promise;
  // Steps one and two are lost, and the code waits in step three.
  await copy(saved(), live());
  gate.resolve();
  expect(await run.result({ timeout: 20_000 })).toEqual(["one done", "two done", "three done"]);
  expect(times.get("one")).toBe(2);
  const replayed = await replayHistory(trip, await saveHistory(pawl, "t"));
  expect(replayed).toMatchObject({ ok: true, status: "completed" });
  const check = new DatabaseSync(live());
  expect(check.prepare("pragma integrity_check").get()).toEqual({ integrity_check: "ok" });
  check.close();
}, 40_000);
