/**
 * G19: a full disk gives a clear refusal, leaves nothing half-written, and stops nobody once there is room.
 *
 * Goal: whatever page of the disk is the last one, each call is told yes, a definite no, or unknown; and that is true of
 * the file as it is, of the file as a crash right then would leave it, and of the file after there was room again.
 * Method: a small tmpfs, filled so that 0, 1, 2, … pages are left, with writes of several sizes until they fail. One series
 * starts with a short log; in the other a reader keeps the log from being emptied and it is about to need a second page of
 * its index in shared memory, which SQLite finds out only after the frames are written. The crash is a copy of the file
 * and its log.
 */

import { copyFileSync, existsSync, mkdirSync, rmSync, statSync } from "node:fs";
import { join } from "node:path";
import { DatabaseSync } from "node:sqlite";
import { afterAll, describe, expect, it } from "vitest";
import { StoreError } from "../../src/kernel/errors.ts";
import { open, type Pawl } from "../../src/open.ts";
import { SmallDisk } from "./disk.ts";
import { allOf, scratchFolder } from "./kit.ts";

const folder = scratchFolder();

type Answer = "yes" | "no" | "unknown";

/** What the callers were told. Each write has names of its own, so that each can be looked for. */
class Told {
  readonly answers = new Map<number, Answer>();
  readonly codes = new Map<string, number>();
  #next = 0;

  /** One commit of two slots and a counter; of this size, with this answer. */
  async write(pawl: Pawl, bytes: number): Promise<Answer> {
    const n = this.#next++;
    let answer: Answer = "yes";
    try {
      await this.#attempt(pawl, n, bytes);
    } catch (error) {
      if (!(error instanceof StoreError)) throw error;
      answer = error.code === "outcome_unknown" ? "unknown" : "no";
      this.codes.set(error.code, (this.codes.get(error.code) ?? 0) + 1);
    }
    this.answers.set(n, answer);
    return answer;
  }

  #attempt(pawl: Pawl, n: number, bytes: number): Promise<void> {
    const one = pawl.slot<string>(`one/${n}`);
    const other = pawl.slot<string>(`other/${n}`);
    const count = pawl.slot<number>("count", { initial: 0 });
    return pawl.transact(
      (tx) => {
        tx.slot(one).set("1".repeat(bytes));
        tx.slot(count).update((so) => so + 1);
        tx.slot(other).set("2".repeat(bytes));
      },
      { touches: [one, other, count] },
    );
  }

  /** Asks again for what is unknown, as users are told to: with the same names. */
  async settle(pawl: Pawl): Promise<void> {
    for (const [n, answer] of this.answers) {
      if (answer !== "unknown") continue;
      if ((await pawl.slot<string>(`one/${n}`).get()).version === 0) await this.#attempt(pawl, n, 10);
      this.answers.set(n, "yes");
    }
  }

  /** What is wrong with the file, given what was told. */
  faults(path: string): string[] {
    const db = new DatabaseSync(path);
    try {
      const faults: string[] = [];
      const rows = allOf(db, "select key, case key when 'count' then value end as value from pawl_now where space = 'slot'");
      const slots = new Map(rows.map((row) => [String(row["key"]), row["value"]]));
      let there = 0;
      for (const [n, answer] of this.answers) {
        const has = [slots.has(`one/${n}`), slots.has(`other/${n}`)];
        if (has[0] !== has[1]) faults.push(`write ${n} is there in part`);
        if (answer === "yes" && !has[0]) faults.push(`write ${n} was acknowledged and is missing`);
        if (answer === "no" && has[0]) faults.push(`write ${n} was refused and is there`);
        if (has[0]) there += 1;
      }
      if (slots.get("count") !== String(there)) faults.push(`${there} writes are there and ${slots.get("count")} were counted`);
      for (const row of allOf(db, "pragma integrity_check"))
        if (row["integrity_check"] !== "ok") faults.push(String(row["integrity_check"]));
      return faults;
    } finally {
      db.close();
    }
  }
}

/** The file as a crash at this moment leaves it: the two files on the disk, and no shared memory. */
function crashCopy(path: string): string {
  const copy = join(folder, "crashed.db");
  for (const end of ["", "-wal", "-shm"]) rmSync(`${copy}${end}`, { force: true });
  for (const end of ["", "-wal"]) if (existsSync(`${path}${end}`)) copyFileSync(`${path}${end}`, `${copy}${end}`);
  return copy;
}

/** Writes until the disk is full and a while longer. */
async function writeUntilFull(pawl: Pawl, told: Told): Promise<void> {
  for (let failures = 0, i = 0; failures < 3; i++) {
    // Several callers at once share a commit, and its fate.
    const sizes = i % 3 === 2 ? [10, 9000, 300] : [(i * 701) % 3000];
    const answers = await Promise.all(sizes.map((bytes) => told.write(pawl, bytes)));
    if (answers.some((answer) => answer !== "yes")) failures += 1;
    if (i > 2000) throw new Error("the disk does not get full");
  }
}

interface Series {
  readonly name: string;
  readonly moments: number;
  /** Brings the file to where the disk gets full; answers how to end what it began. */
  readonly prepare: (pawl: Pawl, path: string, told: Told) => Promise<() => void>;
}

const FRAME_BYTES = 4096 + 24;
/** Frames that the first page of the log's index holds. */
const FIRST_INDEX_FRAMES = 4062;

const framesIn = (path: string): number => Math.floor((statSync(`${path}-wal`).size - 32) / FRAME_BYTES);

const SERIES: readonly Series[] = [
  {
    name: "with a short log",
    moments: 32,
    prepare: async (pawl, _path, told) => {
      for (let i = 0; i < 3; i++) await told.write(pawl, 100);
      return () => {};
    },
  },
  {
    name: "with a log about to outgrow its index",
    moments: 24,
    prepare: async (pawl, path, told) => {
      await told.write(pawl, 100);
      const reader = new DatabaseSync(path);
      reader.exec("begin");
      allOf(reader, "select count(*) from pawl_record");
      while (framesIn(path) < FIRST_INDEX_FRAMES - 400) await told.write(pawl, 500_000);
      while (framesIn(path) < FIRST_INDEX_FRAMES - 12) await told.write(pawl, 10);
      return () => reader.close();
    },
  },
];

describe("a disk that gets full", () => {
  const disk = new SmallDisk(join(folder, "full"), 40);

  for (const { name, moments, prepare } of SERIES)
    it(`${name}: refuses clearly, keeps what it acknowledged, and goes on when there is room`, async () => {
      const faults: string[] = [];
      const codes = new Map<string, number>();
      const answers = { yes: 0, no: 0, unknown: 0 };
      for (let freePages = 0; freePages < moments; freePages++) {
        const t1=performance.now();const path = join(disk.path, "db", "pawl.db");
        mkdirSync(join(disk.path, "db"));
        const told = new Told();
        const note = (when: string, of: string) => {
          for (const fault of told.faults(of)) faults.push(`${freePages} pages free, ${when}: ${fault}`);
        };
        const pawl = await open(path, { patience: 100 });
        const finish = await prepare(pawl, path, told);
        disk.fill(freePages);
        await writeUntilFull(pawl, told);
        note("while full", path);
        const t0=performance.now();note("after a crash while full", crashCopy(path)); console.log(freePages, performance.now()-t0, t0-t1, JSON.stringify(Object.fromEntries(told.codes)));
        for (const answer of told.answers.values()) answers[answer] += 1;
        for (const [code, count] of told.codes) codes.set(code, (codes.get(code) ?? 0) + count);

        disk.makeRoom();
        finish();
        for (let i = 0; i < 3; i++)
          if ((await told.write(pawl, 5000)) !== "yes") faults.push(`${freePages} pages free: there is room and it does not go on`);
        note("with room again", path);
        await told.settle(pawl);
        await pawl.close();
        note("opened again", path);
        rmSync(join(disk.path, "db"), { recursive: true });
      }
      console.log(
        `diskfull: ${name}, ${moments} moments; ${answers.yes} writes acknowledged, ${answers.no} refused, ${answers.unknown} ` +
          `unknown; ${JSON.stringify(Object.fromEntries(codes))}; ${faults.length} faults`,
      );
      expect(faults).toEqual([]);
      expect(answers.no).toBeGreaterThan(0);
    });
});
