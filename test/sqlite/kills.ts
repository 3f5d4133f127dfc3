/**
 * Kills processes that write to a SQLite file, and compares the file with what was acknowledged to them: for `kill.test.ts` and `kill.long.test.ts`.
 *
 * Children under load record each acknowledgement in a file of their own before they continue (`children/load.ts`). In one lane a lone
 * process is killed, so that each opening recovers the file; now and then it is killed while it opens. In the other lane two processes
 * share a file, and the remaining one must continue beside the dead one. After each kill, one snapshot of the file is compared with the
 * ledgers. A process is killed at a random moment after some acknowledgements, however long it takes to get there.
 */

import { copyFileSync, existsSync, readFileSync, rmSync, statSync } from "node:fs";
import { join } from "node:path";
import { DatabaseSync } from "node:sqlite";
import { expect } from "vitest";
import { open } from "../../src/open.ts";
import { allOf, type Child, integrityOf, sleep, slotsIn, startChild } from "./kit.ts";

/** Acknowledgements before each kill. */
const BEFORE_KILL = 10;

export interface Kills {
  readonly lone: number;
  readonly beside: number;
}

/** Acknowledgements of one process over all its lives: the highest number for each thing that it counts. */
export class Ledger {
  readonly path: string;
  readonly highest = new Map<string, number>();
  lines = 0;
  #read = 0;

  constructor(path: string) {
    this.path = path;
  }

  refresh(): void {
    if (!existsSync(this.path)) return;
    const text = readFileSync(this.path, "latin1");
    // A line without its end is one whose writer was killed in the middle.
    const end = text.lastIndexOf("\n") + 1;
    for (const line of text.slice(this.#read, end).split("\n")) {
      if (line === "") continue;
      const [what, name, number] = line.split(" ");
      this.highest.set(`${what}/${name}`, Number(number));
      this.lines += 1;
    }
    this.#read = end;
  }

  /** Waits until so many more acknowledgements are in it. */
  async grown(by: number): Promise<void> {
    for (const had = this.lines; this.lines < had + by; this.refresh()) await sleep(5);
  }
}

export interface Report {
  missing: number;
  faults: string[];
}

/** What the file has of each counter, in one snapshot. */
interface Snapshot {
  readonly slots: Map<string, unknown>;
  /** How often each toggle was written, on or off. */
  readonly toggles: Map<string, number>;
  readonly trails: Map<string, { count: number; first: number; last: number; sum: number; head: number }>;
  readonly integrity: string;
}

function look(path: string): Snapshot {
  const db = new DatabaseSync(path, { timeout: 5000 });
  try {
    db.exec("begin");
    const slots = slotsIn(db);
    const toggles = allOf(db, "select key, version from pawl_record where space = 'slot' and key like 'toggle/%'");
    const trails = allOf(
      db,
      `select r.key, r.head, count(*) as count, min(l.version) as first, max(l.version) as last, sum(l.data) as sum
       from pawl_log l join pawl_record r on r.id = l.record where r.space = 'trail' group by r.id`,
    );
    db.exec("commit");
    const integrity = String(allOf(db, "pragma integrity_check")[0]?.["integrity_check"]);
    const numbers = (row: Record<string, unknown>) => ({
      count: Number(row["count"]),
      first: Number(row["first"]),
      last: Number(row["last"]),
      sum: Number(row["sum"]),
      head: Number(row["head"]),
    });
    return {
      slots,
      toggles: new Map(toggles.map((row) => [String(row["key"]), Number(row["version"])])),
      trails: new Map(trails.map((row) => [String(row["key"]), numbers(row)])),
      integrity,
    };
  } finally {
    db.close();
  }
}

/** How far a counter of the ledger has come in the file. */
function reached({ slots, toggles }: Snapshot, name: string): number {
  const [what, caller] = name.split("/");
  if (what === "count") return Number(slots.get(name) ?? 0);
  if (what === "pair") return amountOf(slots.get(`left/${caller}`));
  return toggles.get(name) ?? 0;
}

const amountOf = (value: unknown): number =>
  typeof value === "object" && value !== null && "n" in value ? Number(value.n) : 0;

export class Checker {
  readonly report: Report = { missing: 0, faults: [] };
  readonly #seen = new Map<string, number>();

  /** Holds the file against what the ledgers said before the look and, as a bound from above, after it. */
  check(path: string, ledgers: readonly Ledger[]): void {
    for (const ledger of ledgers) ledger.refresh();
    const before = new Map(ledgers.flatMap(({ highest }) => [...highest]));
    const snapshot = look(path);
    for (const ledger of ledgers) ledger.refresh();
    const after = new Map(ledgers.flatMap(({ highest }) => [...highest]));

    for (const [name, acknowledged] of before) {
      const has = reached(snapshot, name);
      this.report.missing += Math.max(0, acknowledged - has);
      // One commit for each caller may be there without its acknowledgement, and only that one.
      const most = Math.max(after.get(name) ?? 0, this.#seen.get(name) ?? 0) + 1;
      if (has > most) this.#fault(`${name} is at ${has}, and at most ${most} was requested`);
      this.#seen.set(name, has);
    }
    this.#whole(snapshot);
    if (snapshot.integrity !== "ok") this.#fault(`the file is damaged: ${snapshot.integrity}`);
  }

  /** No part of a transact without the rest of it. */
  #whole(snapshot: Snapshot): void {
    let sum = 0;
    for (const [name, value] of snapshot.slots) {
      if (name.startsWith("account/")) sum += Number(value);
      if (!name.startsWith("left/")) continue;
      const caller = name.slice("left/".length);
      const n = amountOf(value);
      const right = amountOf(snapshot.slots.get(`right/${caller}`));
      if (n + right !== 0) this.#fault(`${caller} has ${n} on the left and ${right} on the right`);
      const expected = { count: n, first: 1, last: n, sum: (n * (n + 1)) / 2, head: n };
      const trail = snapshot.trails.get(caller);
      if (JSON.stringify(trail) !== JSON.stringify(expected))
        this.#fault(`${caller} is at ${n}, and its log has ${JSON.stringify(trail)}`);
    }
    for (const [name, times] of snapshot.toggles) {
      const on = snapshot.slots.get(name);
      if (on !== (times % 2 === 1 ? times : undefined)) this.#fault(`${name} was written ${times} times and is ${on}`);
    }
    if (sum !== 0) this.#fault(`the accounts add up to ${sum}`);
  }

  #fault(text: string): void {
    this.report.faults.push(text);
  }
}

/**
 * Kills a lone process, and opens a copy of what it left. The file itself is opened by its successor only, so that its log
 * is recovered each time and goes on growing until it is copied back under load.
 */
async function killLone(
  folder: string,
  kills: number,
): Promise<{ checker: Checker; ledger: Ledger; recovered: number }> {
  const path = join(folder, "lone.db");
  const ledger = new Ledger(join(folder, "lone.ledger"));
  const checker = new Checker();
  let recovered = 0;
  for (let kill = 0; kill < kills; kill++) {
    const child = startChild("load.ts", [path, ledger.path, "a", String(kill)]);
    if (kill % 8 === 7) await sleep(40 + Math.random() * 60);
    else {
      await child.line();
      await ledger.grown(BEFORE_KILL);
      await sleep(Math.random() * 100);
    }
    expect(await child.kill(), child.complaints).toEqual({ code: null, signal: "SIGKILL" });
    if (existsSync(`${path}-wal`) && statSync(`${path}-wal`).size > 0) recovered += 1;
    const copy = copyOf(path);
    const pawl = await open(copy);
    await pawl.slot<number>("openings", { initial: 0 }).update((n) => n + 1);
    checker.check(copy, [ledger]);
    await pawl.close();
  }
  return { checker, ledger, recovered };
}

/** The file and its log as they are on the disk, without the memory that died with the process. */
function copyOf(path: string): string {
  const copy = `${path}-copy`;
  for (const end of ["", "-wal", "-shm"]) rmSync(`${copy}${end}`, { force: true });
  for (const end of ["", "-wal"]) if (existsSync(`${path}${end}`)) copyFileSync(`${path}${end}`, `${copy}${end}`);
  return copy;
}

/** Kills one of two, and waits until the other has gone on. */
async function killBeside(folder: string, kills: number): Promise<{ checker: Checker; ledgers: Ledger[] }> {
  const path = join(folder, "beside.db");
  const ledgers = ["a", "b"].map((who) => new Ledger(join(folder, `beside-${who}.ledger`)));
  const checker = new Checker();
  const start = (index: number, life: number): Child =>
    startChild("load.ts", [path, ledgers[index]?.path ?? "", index === 0 ? "a" : "b", String(life)]);
  const children = [start(0, 0), start(1, 0)];
  for (const child of children) await child.line();
  for (let kill = 0; kill < kills; kill++) {
    await sleep(20 + Math.random() * 120);
    const victim = Math.random() < 0.5 ? 0 : 1;
    const child = children[victim];
    const survivor = ledgers[1 - victim];
    if (child === undefined || survivor === undefined) throw new Error("there are two");
    expect(await child.kill(), child.complaints).toEqual({ code: null, signal: "SIGKILL" });
    survivor.refresh();
    await survivor.grown(BEFORE_KILL);
    checker.check(path, ledgers);
    const next = start(victim, kill + 1);
    children[victim] = next;
    await next.line();
  }
  for (const child of children) await child.kill();
  checker.check(path, ledgers);
  return { checker, ledgers };
}

/** Kills so many, and says what was acknowledged, and what is missing or wrong. */
export async function killUnderLoad(folder: string, kills: Kills): Promise<void> {
  const [lone, beside] = await Promise.all([killLone(folder, kills.lone), killBeside(folder, kills.beside)]);
  const ledgers = [lone.ledger, ...beside.ledgers];
  const acknowledged = ledgers.reduce((sum, ledger) => sum + ledger.lines, 0);
  const missing = lone.checker.report.missing + beside.checker.report.missing;
  console.log(
    `kill: ${kills.lone} kills of a lone process (${lone.recovered} left a log to recover), ${kills.beside} beside a living ` +
      `one; ${acknowledged} acknowledged commits, ${missing} missing`,
  );
  expect(lone.checker.report).toEqual({ missing: 0, faults: [] });
  expect(beside.checker.report).toEqual({ missing: 0, faults: [] });
  expect(integrityOf(join(folder, "lone.db"))).toBe("ok");
  expect(lone.recovered).toBeGreaterThan(kills.lone / 2);
  // One of eight lone processes is killed while it opens.
  expect(acknowledged).toBeGreaterThan(8 * (kills.lone + kills.beside));
}
