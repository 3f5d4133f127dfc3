/**
 * G19: a full disk causes a clear error, leaves nothing half-written, and work resumes once there is space.
 *
 * Goal: whatever page of the disk is the last one, each call succeeds, fails definitely, or is unknown; and that is true of
 * the file as it is, of the file as a crash right then would leave it, and of the file after there was space again.
 * Method: a small tmpfs, filled so that 0, 1, 2, … pages are left, with writes of several sizes until they fail. One series
 * starts with a short log. In the next, the log is about to be copied back into a file that cannot grow. In the last, a
 * reader keeps the log from being emptied and it is about to need a second page of its index in shared memory, which
 * SQLite finds out only after the frames are written. The crash is a copy of the file and its log.
 *
 * Then the failures that no disk space fixes: files that cannot be written, read or found are reported immediately, with a clear error.
 */

import { copyFileSync, existsSync, mkdirSync, readFileSync, rmSync, statSync, writeFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { DatabaseSync } from "node:sqlite";
import { describe, expect, it, onTestFinished } from "vitest";
import { type StoreCode, StoreError } from "../../src/kernel/errors.ts";
import { open } from "../../src/open.ts";
import type { Pawl } from "../../src/pawl.ts";
import { makeImmutable, PAGE_BYTES, SmallDisk } from "./disk.ts";
import { allOf, scratchFolder } from "./kit.ts";

const folder = scratchFolder();

type Answer = "yes" | "no" | "unknown";

/** What the callers were told. Each write has names of its own, so that each can be looked for. */
class Answers {
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
      const rows = allOf(
        db,
        "select key, case key when 'count' then value end as value from pawl_now where space = 'slot'",
      );
      const slots = new Map(rows.map((row) => [String(row["key"]), row["value"]]));
      let there = 0;
      for (const [n, answer] of this.answers) {
        const has = [slots.has(`one/${n}`), slots.has(`other/${n}`)];
        if (has[0] !== has[1]) faults.push(`write ${n} is there in part`);
        if (answer === "yes" && !has[0]) faults.push(`write ${n} was acknowledged and is missing`);
        if (answer === "no" && has[0]) faults.push(`write ${n} was refused and is there`);
        if (has[0]) there += 1;
      }
      if (slots.get("count") !== String(there))
        faults.push(`${there} writes are there and ${slots.get("count")} were counted`);
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

/** Writes until the disk is full and a while longer; `failed` looks at each failure before the next write. */
async function writeUntilFull(pawl: Pawl, told: Answers, failed: () => void): Promise<void> {
  for (let failures = 0, i = 0; failures < 3; i++) {
    // Several callers at once share a commit, and its fate.
    const sizes = i % 3 === 2 ? [10, 9000, 300] : [(i * 701) % 3000];
    const answers = await Promise.all(sizes.map((bytes) => told.write(pawl, bytes)));
    if (answers.some((answer) => answer !== "yes")) {
      failures += 1;
      failed();
    }
    if (i > 2000) throw new Error("the disk does not get full");
  }
}

/** When the disk gets full: with so many frames to go until something happens to the log, and so many pages to write on. */
interface Moment {
  readonly framesToGo: number;
  readonly freePages: number;
}

interface Series {
  readonly name: string;
  readonly diskMib: number;
  readonly moments: readonly Moment[];
  /** Brings the file to where the disk shall get full; answers how to end what it began. */
  readonly prepare: (pawl: Pawl, path: string, told: Answers, framesToGo: number) => Promise<() => void>;
}

const FRAME_BYTES = PAGE_BYTES + 24;
/** Frames that the first page of the log's index holds. */
const FIRST_INDEX_FRAMES = 4062;
/** Frames after which the store has the log copied back. */
const CHECKPOINT_FRAMES = 4000;

const framesIn = (path: string): number => Math.floor((statSync(`${path}-wal`).size - 32) / FRAME_BYTES);

/** Makes the log this long: by big writes, by small ones, and to the frame by bare SQL. */
async function growLog(pawl: Pawl, path: string, told: Answers, frames: number): Promise<void> {
  while (framesIn(path) < frames - 300) await told.write(pawl, 500_000);
  while (framesIn(path) < frames - 40) await told.write(pawl, 10);
  const db = new DatabaseSync(path);
  // Its own connection would copy the log back after 1000 frames.
  db.exec("pragma wal_autocheckpoint = 0; create table padding (n); insert into padding values (0)");
  for (let i = framesIn(path); i < frames; i++) db.exec("update padding set n = n + 1");
  db.close();
  expect(framesIn(path)).toBe(frames);
}

const steps = (step: number, count: number): number[] => Array.from({ length: count }, (_, index) => index * step);

const SERIES: readonly Series[] = [
  {
    name: "with a short log",
    diskMib: 2,
    moments: steps(1, 32).map((freePages) => ({ framesToGo: 0, freePages })),
    prepare: async (pawl, _path, told) => {
      for (let i = 0; i < 3; i++) await told.write(pawl, 100);
      return () => {};
    },
  },
  {
    name: "with a log about to be copied back",
    diskMib: 36,
    moments: steps(6, 8).map((freePages) => ({ framesToGo: 4, freePages: 4 + freePages })),
    prepare: async (pawl, path, told, framesToGo) => {
      await growLog(pawl, path, told, CHECKPOINT_FRAMES - framesToGo);
      return () => {};
    },
  },
  {
    name: "with a log about to outgrow its index",
    diskMib: 36,
    moments: [0, 1, 5].flatMap((framesToGo) =>
      [0, 2, 5, 8, 11].map((pages) => ({ framesToGo, freePages: framesToGo + pages })),
    ),
    prepare: async (pawl, path, told, framesToGo) => {
      await told.write(pawl, 100);
      const reader = new DatabaseSync(path);
      reader.exec("begin");
      allOf(reader, "select count(*) from pawl_record");
      await growLog(pawl, path, told, FIRST_INDEX_FRAMES - framesToGo);
      return () => reader.close();
    },
  },
];

describe("a disk that gets full", () => {
  const unknowns = new Map<string, number>();

  for (const { name, diskMib, moments, prepare } of SERIES)
    it(`${name}: refuses clearly, keeps what it acknowledged, and resumes when there is space`, async () => {
      const disk = new SmallDisk(join(folder, `full-${moments.length}`), diskMib);
      onTestFinished(() => disk.remove());
      const faults: string[] = [];
      const codes = new Map<string, number>();
      const answers = { yes: 0, no: 0, unknown: 0 };
      for (const { framesToGo, freePages } of moments) {
        const home = join(disk.path, "home");
        const path = join(home, "pawl.db");
        mkdirSync(home);
        const told = new Answers();
        const note = (when: string, of: string) => {
          for (const fault of told.faults(of))
            faults.push(`${framesToGo} frames to go, ${freePages} pages free, ${when}: ${fault}`);
        };
        const pawl = await open(path, { patience: 50 });
        const finish = await prepare(pawl, path, told, framesToGo);
        disk.fill(freePages);
        await writeUntilFull(pawl, told, () => note("after a crash while full", crashCopy(path)));
        note("while full", path);
        for (const answer of told.answers.values()) answers[answer] += 1;
        for (const [code, count] of told.codes) codes.set(code, (codes.get(code) ?? 0) + count);

        disk.makeRoom();
        finish();
        for (let i = 0; i < 3; i++)
          if ((await told.write(pawl, 5000)) !== "yes")
            faults.push(`${freePages} pages free: it does not resume with free space`);
        note("with room again", path);
        await told.settle(pawl);
        await pawl.close();
        note("opened again", path);
        rmSync(home, { recursive: true });
      }
      unknowns.set(name, answers.unknown);
      console.log(
        `diskfull: ${name}, ${moments.length} moments; ${answers.yes} writes acknowledged, ${answers.no} refused, ` +
          `${answers.unknown} unknown; ${JSON.stringify(Object.fromEntries(codes))}; ${faults.length} faults`,
      );
      expect(faults).toEqual([]);
      expect(answers.no).toBeGreaterThan(0);
      for (const code of codes.keys()) expect(["store_full", "store_io", "outcome_unknown"]).toContain(code);
    });

  it("a commit that failed after its frames were written was among them, and was called unknown", () => {
    expect(unknowns.get("with a log about to outgrow its index")).toBeGreaterThan(0);
  });
});

/** What a user is told who opens such a place and writes to it. */
async function tryPlace(path: string): Promise<{ when: "open" | "write" | "never"; code?: string; message?: string }> {
  let pawl: Pawl;
  try {
    pawl = await open(path, { patience: 50 });
  } catch (error) {
    return told("open", error);
  }
  try {
    await pawl.slot<number>("n").set(1);
    return { when: "never" };
  } catch (error) {
    return told("write", error);
  } finally {
    await pawl.close();
  }
}

function told(when: "open" | "write", error: unknown): { when: "open" | "write"; code: string; message: string } {
  if (!(error instanceof StoreError)) throw error;
  return { when, code: error.code, message: error.message };
}

async function makeDatabase(path: string): Promise<void> {
  mkdirSync(dirname(path), { recursive: true });
  const pawl = await open(path);
  for (let i = 0; i < 50; i++) await pawl.slot<string>(`slot ${i}`).set("x".repeat(500));
  await pawl.close();
}

describe("a place that does not serve", () => {
  const places = join(folder, "places");

  interface Place {
    readonly place: string;
    readonly make: (path: string) => void | Promise<void>;
    readonly told: { readonly when: "open" | "write"; readonly code: StoreCode; readonly message: RegExp };
  }
  const rules: readonly Place[] = [
    {
      place: "a folder that is missing",
      make: () => {},
      told: { when: "open", code: "store_unreachable", message: /its folder exists/ },
    },
    {
      place: "a folder where the file should be",
      make: (path) => void mkdirSync(path, { recursive: true }),
      told: { when: "open", code: "store_unreachable", message: /cannot be opened/ },
    },
    {
      place: "a file below a file",
      make: (path) => writeFileSync(dirname(path), "no folder"),
      told: { when: "open", code: "store_unreachable", message: /its folder exists/ },
    },
    {
      place: "a file of something else",
      make: (path) => {
        mkdirSync(dirname(path), { recursive: true });
        writeFileSync(path, Buffer.alloc(3 * PAGE_BYTES, "something else "));
      },
      told: { when: "open", code: "store_corrupt", message: /not an SQLite database/ },
    },
    {
      place: "a file that is one line of text",
      make: (path) => {
        mkdirSync(dirname(path), { recursive: true });
        writeFileSync(path, "hello");
      },
      told: { when: "open", code: "store_corrupt", message: /not an SQLite database/ },
    },
    {
      place: "a file whose pages are damaged after the first",
      make: async (path) => {
        await makeDatabase(path);
        const bytes = readFileSync(path);
        writeFileSync(path, bytes.fill(0xa5, PAGE_BYTES));
      },
      told: { when: "open", code: "store_corrupt", message: /damaged: restore a backup/ },
    },
    {
      place: "a read-only file",
      make: async (path) => {
        await makeDatabase(path);
        makeImmutable(path);
      },
      told: { when: "write", code: "store_readonly", message: /is read-only: check the permissions/ },
    },
    {
      place: "a disk that is mounted read-only",
      make: async (path) => {
        const disk = new SmallDisk(dirname(path), 2);
        onTestFinished(() => disk.remove());
        await makeDatabase(path);
        disk.remount("ro");
      },
      told: { when: "open", code: "store_unreachable", message: /may be written/ },
    },
    {
      place: "a disk that is mounted read-only, and no file yet",
      make: (path) => {
        const disk = new SmallDisk(dirname(path), 2);
        onTestFinished(() => disk.remove());
        disk.remount("ro");
      },
      told: { when: "open", code: "store_unreachable", message: /may be written/ },
    },
  ];

  mkdirSync(places, { recursive: true });
  for (const [index, { place, make, told }] of rules.entries())
    it(`${place} is refused with "${told.code}" at the first ${told.when}`, async () => {
      const path = join(places, String(index), "pawl.db");
      await make(path);
      const said = await tryPlace(path);
      expect(said).toEqual({ ...told, message: expect.stringMatching(told.message) });
    });

  it("a file that serves is not refused", async () => {
    const path = join(places, "good", "pawl.db");
    await makeDatabase(path);
    expect(await tryPlace(path)).toEqual({ when: "never" });
  });

  it("a file that was read-only is written once it no longer is", async () => {
    const path = join(places, "changed", "pawl.db");
    await makeDatabase(path);
    const pawl = await open(path, { patience: 50 });
    const release = makeImmutable(path, `${path}-wal`);
    const failed = told(
      "write",
      await pawl
        .slot<number>("n")
        .set(1)
        .catch((error: unknown) => error),
    );
    expect(["store_readonly", "store_io", "outcome_unknown"]).toContain(failed.code);
    release();
    await pawl.slot<number>("n").set(2);
    expect(await pawl.slot<number>("n").get()).toMatchObject({ value: 2 });
    await pawl.close();
  });
});
