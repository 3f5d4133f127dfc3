/**
 * A run that loses commits on purpose: the crew at work, and a server that goes back in time meanwhile, repeatedly.
 *
 * Either a standby that was behind is promoted, or a backup is put in the place of the data. Workers live through all of it, with what they
 * remember. The harness knows the time in which commits may be lost, which begins before the standby stops receiving, or before the backup ends, and
 * ends when the old server has. Then everything heals, every run must end, and the ledger is compared with the database: whatever was
 * acknowledged outside of these times is there, and what is there is whole (G31). What was lost in them is counted.
 */

import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { open } from "../../src/open.ts";
import type { Pawl } from "../../src/pawl.ts";
import { Random } from "../../src/testing/sim/random.ts";
import type { PostgresVersion } from "../postgres/server.ts";
import { Cluster } from "./cluster.ts";
import { Crew } from "./crew.ts";
import { Ledger } from "./ledger.ts";
import { appends } from "./works/appends.ts";
import { deposits } from "./works/deposits.ts";
import { trips } from "./works/trips.ts";
import { type Evidence, overlaps, type Span, type Verdict, type Work } from "./works/work.ts";

export interface LossyOptions {
  readonly promotions: number;
  readonly restores: number;
  readonly seed: number;
  readonly workers: number;
  readonly version?: PostgresVersion | undefined;
  /** Told of what is going on. */
  readonly say?: (sentence: string) => void;
}

export interface LossyReport {
  readonly seconds: number;
  readonly promotions: number;
  readonly restores: number;
  readonly works: ReadonlyMap<string, { readonly acknowledged: number; readonly inDoubt: number } & Verdict>;
  readonly refusals: ReadonlyMap<string, number>;
  readonly notes: ReadonlyMap<string, number>;
  readonly violations: readonly string[];
  /** Where everything that the workers said is kept, if something was wrong. */
  readonly ledger: string | null;
}

const NAMESPACE = "lossy";
/** What a store may say while it is being replaced. */
const EXPECTED = /^(store_busy|store_unreachable|store_readonly|outcome_unknown|fenced|died)$/;
const MAX_LOAD_MS = 1_500;
const SETTLE_MS = 1_500;

const sleep = (ms: number): Promise<void> => new Promise((resolve) => setTimeout(resolve, ms));

/** What was acknowledged while commits may have been lost is as good as unknown. */
function doubted({ operations, notes, doubts }: Evidence): Evidence {
  const isDoubtful = (from: number, to: number | null) => overlaps(doubts, from, to ?? from);
  return {
    operations: operations.map((one) =>
      one.answer === "yes" && isDoubtful(one.startedAt, one.endedAt) ? { ...one, answer: "unknown" as const } : one,
    ),
    notes,
    doubts: [],
  };
}

/** Deposits as they always are, but for what may be lost. */
const lossyDeposits: Work = {
  ...deposits,
  async judge(pawl, evidence) {
    const strict = await deposits.judge(pawl, { ...evidence, doubts: [] });
    const verdict = await deposits.judge(pawl, doubted(evidence));
    return { ...strict, wrong: verdict.wrong, lost: strict.wrong.length - verdict.wrong.length };
  },
};

const lossyWorks: readonly Work[] = [appends, trips, lossyDeposits];

export async function runLossy(options: LossyOptions): Promise<LossyReport> {
  const folder = mkdtempSync(join(tmpdir(), "pawl-lossy-"));
  const run = new LossyRun(options, folder);
  let isWell = false;
  try {
    const report = await run.go();
    isWell = report.violations.length === 0;
    return report;
  } finally {
    await run.end();
    if (isWell) rmSync(folder, { recursive: true, force: true, maxRetries: 3 });
  }
}

class LossyRun {
  readonly #options: LossyOptions;
  readonly #folder: string;
  readonly #random: Random;
  readonly #ledger: Ledger;
  readonly #doubts: Span[] = [];
  readonly #violations: string[] = [];
  #cluster: Cluster | undefined;
  #crew: Crew | undefined;

  constructor(options: LossyOptions, folder: string) {
    this.#options = options;
    this.#folder = folder;
    this.#random = new Random(options.seed);
    this.#ledger = new Ledger(join(folder, "ledger"));
  }

  async go(): Promise<LossyReport> {
    const { workers, version, seed, promotions, restores } = this.#options;
    const cluster = await Cluster.start({ proxies: workers + 1, version, synchronous: false });
    this.#cluster = cluster;
    await this.#withPawl(cluster, async (pawl) => {
      for (const work of lossyWorks) await work.prepare?.(pawl);
    });
    const crew = new Crew(workers, {
      store: cluster.url,
      namespace: NAMESPACE,
      ledger: this.#ledger,
      random: new Random(seed + 1),
      works: lossyWorks,
      proxies: cluster.proxies,
      poolMax: null,
      isPoolForAll: false,
      skews: false,
      faketime: null,
      folder: this.#folder,
    });
    this.#crew = crew;
    crew.start();
    await this.#untilAtWork(crew, workers);
    const startedMs = performance.now();
    await this.#lose(cluster);
    const seconds = (performance.now() - startedMs) / 1000;
    await this.#heal(crew, cluster);
    await crew.stop();
    await this.#ledger.close();
    const verdicts = await this.#judge(cluster);
    this.#violations.push(...crew.accidents);
    return {
      seconds,
      promotions,
      restores,
      works: verdicts,
      refusals: this.#countRefusals(),
      notes: this.#countNotes(),
      violations: this.#violations,
      ledger: this.#violations.length > 0 ? join(this.#folder, "ledger") : null,
    };
  }

  async end(): Promise<void> {
    this.#crew?.abort();
    await this.#cluster?.destroy();
  }

  async #untilAtWork(crew: Crew, commits: number): Promise<void> {
    await this.#until(30_000, () => {
      if (crew.accidents.length > 0) throw new Error(`the crew does not start: ${crew.accidents.join("\n")}`);
      return this.#acknowledged() >= commits;
    });
  }

  #acknowledged(): number {
    return this.#ledger.operations(appends.name).reduce((sum, { answer }) => sum + (answer === "yes" ? 1 : 0), 0);
  }

  async #until(withinMs: number, isDone: () => boolean): Promise<boolean> {
    const deadlineMs = performance.now() + withinMs;
    while (!isDone()) {
      if (performance.now() > deadlineMs) return false;
      await sleep(20);
    }
    return true;
  }

  /** Promotions and restores in an order of the seed, each under load, with a while in between for what was remembered to be used. */
  async #lose(cluster: Cluster): Promise<void> {
    const { promotions, restores } = this.#options;
    for (let left = { promotions, restores }; left.promotions + left.restores > 0; ) {
      const isRestore = this.#random.below(left.promotions + left.restores) < left.restores;
      const loadMs = this.#random.unit() * MAX_LOAD_MS;
      const span = isRestore ? await cluster.restoreBackup(loadMs) : await cluster.promoteBehind(loadMs);
      this.#doubts.push(span);
      left = isRestore ? { ...left, restores: left.restores - 1 } : { ...left, promotions: left.promotions - 1 };
      const before = this.#acknowledged();
      this.#options.say?.(`${isRestore ? "restored" : "promoted"}; ${left.promotions + left.restores} to go`);
      if (!(await this.#until(30_000, () => this.#acknowledged() > before)))
        this.#violations.push("nothing was acknowledged for 30 s after the server was replaced");
      await sleep(this.#random.unit() * SETTLE_MS);
      await cluster.mend();
    }
  }

  /** Nothing is lost any more: what was asked for is acknowledged, and every run ends. */
  async #heal(crew: Crew, cluster: Cluster): Promise<void> {
    this.#options.say?.("healing");
    crew.heal();
    await this.#withPawl(cluster, async (pawl) => {
      const left = (await trips.left?.count(pawl)) ?? 0;
      const withinMs = (trips.healsWithinMs ?? 0) + left * (trips.left?.eachMs ?? 0);
      const deadlineMs = performance.now() + withinMs;
      const isQuiet = () => !this.#ledger.isOpen(trips.name) && crew.repeats.pending.length === 0;
      while (!(isQuiet() && (await trips.isHealed?.(pawl)) === true)) {
        if (performance.now() > deadlineMs) {
          this.#violations.push(`${withinMs} ms after the last loss, not all runs had ended`);
          break;
        }
        await sleep(50);
      }
    });
    for (const what of crew.repeats.pending) this.#violations.push(`${what} was not acknowledged although all is well`);
  }

  async #judge(cluster: Cluster): Promise<LossyReport["works"]> {
    this.#options.say?.("judging");
    const verdicts = new Map<string, { acknowledged: number; inDoubt: number } & Verdict>();
    await this.#withPawl(cluster, async (pawl) => {
      for (const work of lossyWorks) {
        const operations = this.#ledger.operations(work.name);
        const evidence = { operations, notes: this.#ledger.notes(work.name), doubts: this.#doubts };
        const commits = operations.filter((operation) => work.isCommit(operation));
        const inDoubt = commits.filter(({ startedAt, endedAt }) =>
          overlaps(this.#doubts, startedAt, endedAt ?? startedAt),
        );
        const verdict = await work.judge(pawl, evidence);
        verdicts.set(work.name, { acknowledged: commits.length, inDoubt: inDoubt.length, ...verdict });
        this.#violations.push(...verdict.wrong);
      }
    });
    return verdicts;
  }

  #countRefusals(): ReadonlyMap<string, number> {
    const counts = new Map<string, number>();
    for (const { name } of lossyWorks)
      for (const { code } of this.#ledger.operations(name))
        if (code !== null) counts.set(code, (counts.get(code) ?? 0) + 1);
    for (const [code, count] of counts)
      if (!EXPECTED.test(code))
        this.#violations.push(`${count} attempts were refused with ${code}, which nothing here explains`);
    return counts;
  }

  #countNotes(): ReadonlyMap<string, number> {
    const counts = new Map<string, number>();
    for (const name of ["crew", ...lossyWorks.map((work) => work.name)])
      for (const { what, life, data } of this.#ledger.notes(name)) {
        counts.set(what, (counts.get(what) ?? 0) + 1);
        if (what === "accident") this.#violations.push(`${life}: ${data}`);
      }
    return counts;
  }

  /** Straight to the server, past all proxies. */
  async #withPawl(cluster: Cluster, act: (pawl: Pawl) => Promise<void>): Promise<void> {
    const pawl = await open(cluster.url, { namespace: NAMESPACE });
    try {
      await act(pawl);
    } finally {
      await pawl.close();
    }
  }
}

/** The report as text. */
export function describeLossy(report: LossyReport): string {
  const list = (counts: ReadonlyMap<string, number>) =>
    [...counts].map(([name, count]) => `${name} ${count}`).join(", ") || "none";
  const lines = [
    `${report.seconds.toFixed(1)} s, ${report.promotions} promotions of a standby that was behind, ${report.restores} restores`,
  ];
  for (const [name, { acknowledged, inDoubt, lost = 0, unknown }] of report.works)
    lines.push(
      `${name}: ${acknowledged} commits were acknowledged, ${inDoubt} of them while commits could be lost, ${lost} are lost; ${unknown} were unknown`,
    );
  lines.push(`not yes: ${list(report.refusals)}`, `noted: ${list(report.notes)}`);
  lines.push(report.violations.length === 0 ? "no violation" : `${report.violations.length} VIOLATIONS`);
  for (const violation of report.violations.slice(0, 60)) lines.push(`- ${violation.slice(0, 600)}`);
  if (report.ledger !== null) lines.push(`everything that the workers said is in ${report.ledger}`);
  return lines.join("\n");
}
