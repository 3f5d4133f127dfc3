/**
 * The demonstration: its verdict can fail. That it runs to its verdict, and hurts the processes in it, is in demo.long.test.ts.
 *
 * Goal: what a newcomer sees first is true. A demonstration that would say "nothing lost" whatever happened proves nothing.
 * Method: a small honest run of the shop in this process, whose database or ledgers are tampered with, one mistake for each check of the
 * verdict.
 */

import { spawnSync } from "node:child_process";
import { appendFileSync, closeSync, mkdtempSync, openSync, rmSync, writeSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { DatabaseSync } from "node:sqlite";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { integrityOf, makeLedgers, openReadOnly, PROVIDER_LEDGER, readEvidence } from "../../demo/evidence.ts";
import { amid, drawBrief, drawPicture, type Snapshot } from "../../demo/picture.ts";
import { balanceOf, chargeOrder, ORDER_KIND, placeOrder, startOrder } from "../../demo/shop.ts";
import { paint } from "../../demo/terminal.ts";
import { hardestStory, judge, tallyOf } from "../../demo/verdict.ts";
import { open } from "../../src/index.ts";
import { claimDue } from "../../src/kernel/claim/claim.ts";

const demo = join(import.meta.dirname, "../../demo");
const flags = ["--conditions=pawl-source", "--disable-warning=ExperimentalWarning"];

let folder = "";
beforeAll(() => {
  folder = mkdtempSync(join(tmpdir(), "pawl-demo-test-"));
});
afterAll(() => rmSync(folder, { recursive: true, force: true }));

/** The demonstration puts its own folder into the one named here, so that one sees what it leaves behind. */
function runDemo(args: readonly string[]) {
  const temp = mkdtempSync(join(folder, "tmp-"));
  const result = spawnSync(process.execPath, [...flags, join(demo, "main.ts"), ...args], {
    encoding: "utf8",
    env: { ...process.env, TMPDIR: temp, TEMP: temp, TMP: temp },
    timeout: 80_000,
  });
  return { ...result, temp };
}

describe("the demonstration", () => {
  it("refuses what it does not know", () => {
    expect(runDemo(["--seconds", "1"])).toMatchObject({ status: 2, stdout: expect.stringContaining("--seconds") });
    expect(runDemo(["--what"])).toMatchObject({ status: 2, stdout: expect.stringContaining("--what") });
    expect(runDemo(["--help"])).toMatchObject({ status: 0, stdout: expect.stringContaining("--keep") });
  });
});

describe("the verdict", () => {
  it("an honest run passes every check", async () => {
    const run = await honestRun();
    expect(failures(run)).toEqual([]);
    expect(tally(run)).toMatchObject({ charged: 3, takenOver: 1, refused: 1, ignored: 1, lost: 0, twice: 0 });
    expect(tally(run).balanceCents).toBe(tally(run).expectedCents);
  });

  it("what each process did adds up to what was done", async () => {
    const { doneBy, placed, charged } = tally(await honestRun());
    expect({ placed, charged }).toEqual({ placed: 3, charged: 3 });
    expect([...doneBy]).toEqual([
      ["web 1", 3],
      ["worker 2", 2],
      ["worker 1", 1],
    ]);
  });

  it("the order that was attempted most often has its story told", async () => {
    const run = await honestRun();
    const names = story(run).map(({ order, name }) => `${order} ${name}`);
    expect(names).toEqual(["0002 placed", "0002 started", "0002 started", "0002 charged"]);
  });

  const chargeOf = "name = 'charged' and record = (select id from pawl_record where key = '0001')";
  const mistakes = [
    {
      mistake: "a charge that is missing",
      sql: `delete from pawl_log where ${chargeOf}`,
      fails: ["every order was charged", "no acknowledged charge is missing"],
      counted: { lost: 1 },
    },
    {
      mistake: "a doubled charge",
      sql: `insert into pawl_log (record, version, name, data, at)
              select record, version + 1, name, data, at from pawl_log where ${chargeOf};
            update pawl_record set value = value + 1000 where key = 'balance'`,
      fails: ["no order was charged twice", "the balance is right to the cent"],
      counted: { twice: 1 },
    },
    {
      mistake: "a cent too much",
      sql: "update pawl_record set value = value + 1 where key = 'balance'",
      fails: ["the balance is right to the cent"],
      counted: { balanceCents: 6_001, expectedCents: 6_000 },
    },
    {
      mistake: "a wrong price that another one makes up for",
      sql: `update pawl_log set data = json_set(data, '$.cents', 1001) where ${chargeOf}`,
      fails: ["the balance is right to the cent"],
    },
    {
      mistake: "an order placed twice",
      sql: `insert into pawl_log (record, version, name, data, at)
              select record, 9, name, data, at from pawl_log where name = 'placed' limit 1`,
      fails: ["no duplicate made a second order"],
    },
    {
      mistake: "a confirmed order that was never placed",
      sql: "delete from pawl_log where name = 'placed' and version = 1 and position = 1",
      fails: ["no duplicate made a second order"],
      counted: { lost: 1 },
    },
    {
      mistake: "an order that nobody charged",
      ledger: "order 0004 700",
      fails: ["every order was charged", "the balance is right to the cent"],
    },
    {
      mistake: "an acknowledgement under a fence that is not there",
      ledger: "charged 0001 12",
      fails: ["no acknowledged charge is missing"],
      counted: { lost: 1 },
    },
    {
      mistake: "a late commit that was let in",
      sql: `update pawl_log set data = json_set(data, '$.fence', (
              select min(json_extract(l.data, '$.fence')) from pawl_log l where l.record = pawl_log.record and l.name = 'started'))
            where name = 'charged'`,
      fails: ["no acknowledged charge is missing", "no refused commit slipped in", "each take-over had a higher fence"],
    },
    {
      mistake: "a fence that did not rise",
      sql: "update pawl_log set data = json_set(data, '$.fence', 1) where name = 'started' and version = 3",
      fails: ["each take-over had a higher fence"],
    },
    {
      mistake: "an order left on the queue",
      sql: "update pawl_record set kind = 'order' where key = '0001'",
      fails: ["nothing is left half-done"],
    },
  ];
  it.each(mistakes)("$mistake is found", async ({ sql, ledger, fails, counted }) => {
    const run = await honestRun();
    if (sql !== undefined) tamper(run.database, sql);
    if (ledger !== undefined) appendFileSync(join(run.ledgers, PROVIDER_LEDGER), `${ledger}\n`);
    expect(failures(run)).toEqual(fails);
    if (counted !== undefined) expect(tally(run)).toMatchObject(counted);
  });

  it("a damaged file is found", async () => {
    const run = await honestRun();
    emptyIndex(run.database, "pawl_log_version");
    expect(failures(run)).toEqual(["the file is whole"]);
  });

  it("the audit says so loudly, and its exit code is 1", async () => {
    const run = await honestRun();
    const audit = () =>
      spawnSync(process.execPath, [...flags, join(demo, "audit.ts"), run.database], { encoding: "utf8" });
    expect(audit()).toMatchObject({ status: 0, stdout: expect.stringContaining("NOTHING LOST") });
    appendFileSync(join(run.ledgers, PROVIDER_LEDGER), "order 0004 700\n");
    const { status, stdout } = audit();
    expect({ status, isLoud: stdout.includes("THE BOOKS ARE WRONG: 2 of 9 checks failed") }).toEqual({
      status: 1,
      isLoud: true,
    });
    expect(stdout).not.toContain("NOTHING LOST");
  });
});

interface HonestRun {
  readonly database: string;
  readonly ledgers: string;
}

/**
 * Three orders: one plain, one taken over from a worker that comes back too late, one delivered twice. Each worker is one
 * process after another.
 */
async function honestRun(): Promise<HonestRun> {
  const database = join(mkdtempSync(join(folder, "run-")), "shop.db");
  const ledgers = makeLedgers(database);
  const note = (line: string) => appendFileSync(join(ledgers, PROVIDER_LEDGER), `${line}\n`);
  const [late, good] = [await open(database), await open(database)];
  const place = async (id: string, cents: number) => {
    note(`delivered ${id}`);
    note(`confirmed ${id} ${(await placeOrder(good, { id, cents }, "web 1 (pid 10)")) ? "new" : "again"}`);
  };
  const claim = async (pawl: typeof good, by: string, leaseMs: number) => {
    const [held] = (await claimDue(pawl.kernel, { kinds: [ORDER_KIND], by, leaseMs, limit: 1 })).held;
    if (held === undefined) throw new Error("there was nothing to claim");
    await startOrder(held, by);
    return held;
  };
  const charge = async (held: Awaited<ReturnType<typeof claim>>, by: string) => {
    await chargeOrder(held, balanceOf(good), by);
    note(`charged ${held.at.key} ${held.fence}`);
  };
  for (const [id, cents] of [
    ["0001", 1_000],
    ["0002", 2_000],
    ["0003", 3_000],
  ] as const) {
    note(`order ${id} ${cents}`);
    await place(id, cents);
    if (id === "0002") {
      const frozen = await claim(late, "worker 1 (pid 11)", 10);
      await new Promise((resolve) => setTimeout(resolve, 20));
      await charge(await claim(good, "worker 2 (pid 12)", 5_000), "worker 2 (pid 12)");
      await expect(chargeOrder(frozen, balanceOf(late), "worker 1 (pid 11)")).rejects.toMatchObject({ code: "fenced" });
      note(`refused ${id} ${frozen.fence}`);
    } else {
      const by = id === "0001" ? "worker 2 (pid 9)" : "worker 1 (pid 13)";
      await charge(await claim(good, by, 5_000), by);
    }
  }
  await place("0003", 3_000);
  await Promise.all([late.close(), good.close()]);
  return { database, ledgers };
}

function tamper(database: string, sql: string): void {
  const db = new DatabaseSync(database);
  db.exec(sql);
  db.close();
}

/** Writes into the file that the index has no entries. In the head of a page, the third and fourth byte count them. */
function emptyIndex(database: string, index: string): void {
  const db = new DatabaseSync(database);
  const { rootpage } = db.prepare("select rootpage from sqlite_schema where name = ?").get(index) ?? {};
  const { page_size: pageSize } = db.prepare("pragma page_size").get() ?? {};
  db.close();
  const file = openSync(database, "r+");
  writeSync(file, new Uint8Array(2), 0, 2, (Number(rootpage) - 1) * Number(pageSize) + 3);
  closeSync(file);
}

function reading<T>({ database }: HonestRun, read: (db: DatabaseSync) => T): T {
  const db = openReadOnly(database);
  try {
    return read(db);
  } finally {
    db.close();
  }
}

const failures = (run: HonestRun) =>
  reading(run, (db) =>
    judge(readEvidence(db, run.ledgers), integrityOf(db))
      .filter(({ holds }) => !holds)
      .map(({ law }) => law),
  );

const tally = (run: HonestRun) => reading(run, (db) => tallyOf(readEvidence(db, run.ledgers)));

const story = (run: HonestRun) => reading(run, (db) => hardestStory(readEvidence(db, run.ledgers).log));

describe("the picture", () => {
  const scene: Snapshot = {
    elapsedMs: 61_000,
    lengthMs: 60_000,
    orderCount: 1_200,
    tally: {
      ordered: 700,
      placed: 690,
      charged: 600,
      doneBy: new Map([
        ["web 1", 690],
        ["worker 1", 301],
        ["worker 2", 299],
      ]),
      waiting: 80,
      inHand: 10,
      takenOver: 31,
      ignored: 230,
      refused: 6,
      lost: 0,
      twice: 0,
      balanceCents: 3_300_000,
      expectedCents: 3_300_000,
    },
    processes: [
      { name: "web 1", pid: 4_194_304, state: "working", killCount: 3, inHand: null, does: "placed" },
      { name: "worker 1", pid: 12, state: "working", killCount: 0, inHand: ["0601", "0602"], does: "charged" },
      { name: "worker 2", pid: 13, state: "killed", killCount: 12, inHand: ["0603"], does: "charged" },
    ],
    news: Array.from({ length: 20 }, (_, index) => ({ atMs: index, what: "killed", sentence: `news ${index}` })),
    calm: false,
  };
  const draw = (size: { width: number; height: number }, more?: Partial<Snapshot>) =>
    drawPicture({ ...scene, ...more }, size).map((line) => paint(line, { color: false }));

  it.each([
    { width: 80, height: 24 },
    { width: 120, height: 40 },
    { width: 100, height: 12 },
    { width: 70, height: 15 },
    { width: 70, height: 5 },
    { width: 70, height: 1 },
  ])("it fits $width x $height, and the proof is in it", (size) => {
    const lines = draw(size);
    for (const line of lines) expect(line.length, line).toBeLessThanOrEqual(size.width);
    expect(lines.length).toBeLessThanOrEqual(size.height);
    expect(lines.join("\n")).toMatch(/lost 0 .* charged twice 0 .* balance \$33,000\.00 = \$33,000\.00/);
  });

  it.each([
    { height: 24, news: 8, processes: 3 },
    { height: 17, news: 1, processes: 3 },
    { height: 16, news: 0, processes: 3 },
    { height: 15, news: 0, processes: 3 },
    { height: 14, news: 0, processes: 2 },
    { height: 11, news: 0, processes: 0 },
  ])("at a height of $height there are $news news and $processes processes", ({ height, news, processes }) => {
    const lines = draw({ width: 80, height });
    const those = (pattern: RegExp) => lines.filter((line) => pattern.test(line)).length;
    expect({ news: those(/news/), processes: those(/^ {2}(web|worker) \d/) }).toEqual({ news, processes });
  });

  it("what a process has done is as of the same moment as the total", () => {
    const rows = draw({ width: 80, height: 24 }).map((line) => / (placed|charged) +(\d+) {3}killed/.exec(line));
    expect(rows.filter((row) => row !== null).map(([, does, times]) => [does, times])).toEqual([
      ["placed", "690"],
      ["charged", "301"],
      ["charged", "299"],
    ]);
  });

  it.each([
    { orders: 0, sentence: "while it was idle" },
    { orders: 1, sentence: "in the middle of 1 order" },
    { orders: 4, sentence: "in the middle of 4 orders" },
  ])("a process with $orders orders in hand is killed $sentence", ({ orders, sentence }) => {
    expect(amid(orders)).toBe(sentence);
  });

  it("the newest news is last, and as much of it as fits", () => {
    expect(draw({ width: 80, height: 24 }).at(-1)).toContain("news 19");
    expect(draw({ width: 80, height: 10 }).join("\n")).not.toContain("news");
  });

  it("a line is cut to the width of the terminal, and its style ends with it", () => {
    expect(paint([["abc", "red"], ["def"]], { width: 4, color: true })).toBe("\u001b[31mabc\u001b[0md");
    expect(paint([["abc", "red"], ["def"]], { width: 2, color: false })).toBe("ab");
  });

  it("a wrong balance is shown as wrong", () => {
    const wrong = { ...scene, tally: { ...scene.tally, balanceCents: 1 } };
    expect(draw({ width: 80, height: 24 }, wrong).join("\n")).toContain("$0.01 ≠ $33,000.00");
    expect(paint(drawBrief(wrong), { color: false })).toContain("balance WRONG");
    expect(paint(drawBrief(scene), { color: false })).toContain("balance right");
  });
});
