/**
 * A run: the crew at work, faults drawn from a seed, then a time to heal, and then the checks.
 *
 * Each kind of fault occurs once, in an order drawn from the seed, and after that they are drawn by weight until the time is over. Faults
 * on workers continue beside those on the server and the connections. Most of these wait until every worker has recovered from the one
 * before, which is measured; the others occur while it recovers. After that there are no more faults: unresolved operations are repeated
 * until they are acknowledged, and every claim must end within three leases, every run soon. Then the ledger is compared with the database.
 *
 * The seed decides which faults occur, in which order and with which numbers; when exactly they hit the work depends on the machine, as in
 * production.
 */

import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { open } from "../../src/open.ts";
import type { Pawl } from "../../src/pawl.ts";
import { Random } from "../../src/testing/sim/random.ts";
import type { PostgresVersion } from "../postgres/server.ts";
import type { BouncerCounts } from "./bouncer.ts";
import { bouncerFaults } from "./bouncer-faults.ts";
import { type BouncerChoice, Cluster } from "./cluster.ts";
import { Crew, type Place } from "./crew.ts";
import {
  type Fault,
  networkFaults,
  type Scene,
  type ServerFault,
  serverFaults,
  type WorkerFault,
  workerFaults,
} from "./faults.ts";
import { Ledger, monotonicNs, type Operation } from "./ledger.ts";
import type { ProxyCounts } from "./proxy.ts";
import { findFaketime } from "./skew.ts";
import { checkWakeUps, type WakeUps } from "./wake-ups.ts";
import { LEASE_MS } from "./works/claims.ts";
import { works } from "./works/index.ts";
import type { Span, Verdict, Work } from "./works/work.ts";

export interface RunOptions {
  readonly store: "sqlite" | "postgres";
  /** The version of the server. Default: 18. */
  readonly version?: PostgresVersion | undefined;
  readonly seconds: number;
  readonly seed: number;
  readonly workers: number;
  /** Only faults whose name has this in it. */
  readonly only?: string | undefined;
  /** Faults on the network beside those on the server, without waiting for recovery: more in less time, and nothing measured. */
  readonly crowded?: boolean;
  /** What the workers do. Default: `works`. */
  readonly works?: readonly Work[] | undefined;
  /** The factor by which the time limits after the faults are extended, for setups with slower commits. Default: 1. */
  readonly slack?: number | undefined;
  /** Puts PgBouncer between the workers and the server. */
  readonly bouncer?: BouncerChoice | undefined;
  /** Every second worker opens the store with a pool of this size, or all of them do. Default: by its address. */
  readonly pool?: { readonly max: number; readonly isForAll: boolean } | undefined;
  /** Told of what is going on. */
  readonly say?: (sentence: string) => void;
}

export interface WorkReport {
  readonly attempts: number;
  /** Acknowledged attempts that wrote something. */
  readonly commits: number;
  /** Attempts to write whose outcome was unknown, and how many of them had happened, if that can be told. */
  readonly unknown: number;
  readonly happened: number | null;
}

export interface RunReport {
  readonly seconds: number;
  /** How often each kind of fault struck; those that never did are there with 0. */
  readonly struck: ReadonlyMap<string, number>;
  readonly works: ReadonlyMap<string, WorkReport>;
  /** How often each code occurred. */
  readonly refusals: ReadonlyMap<string, number>;
  /** What workers noted: being fenced, losing a lease, being refused when they opened, and so on. */
  readonly notes: ReadonlyMap<string, number>;
  /** How long each surviving worker took, from the end of the fault, until its next acknowledged commit. */
  readonly recoveryMs: ReadonlyMap<string, readonly number[]>;
  /** How long each kind of work that has an end took to come to it, once faults were over; those that did not are left out. */
  readonly healedMs: ReadonlyMap<string, number>;
  readonly repeats: number;
  readonly lives: number;
  readonly proxy: ProxyCounts | null;
  readonly bouncer: BouncerCounts | null;
  /** What was found out about wake-ups through PgBouncer, before the faults and after them. */
  readonly wakeUps: readonly WakeUps[];
  readonly clocks: string;
  readonly violations: readonly string[];
  /** Where everything that the workers said is kept, if something was wrong. */
  readonly ledger: string | null;
}

const LEASES_TO_HEAL = 3;
const RESOLVE_WITHIN_MS = 30_000;
/** What a store may say while it is being hurt, and what losing a race is called. */
const EXPECTED =
  /^(store_busy|store_unreachable|store_readonly|outcome_unknown|fenced|version_conflict|idempotency_in_progress|died)$/;

const sleep = (ms: number): Promise<void> => new Promise((resolve) => setTimeout(resolve, ms));

export async function runFaults(options: RunOptions): Promise<RunReport> {
  const folder = mkdtempSync(join(tmpdir(), "pawl-faults-"));
  const test = new FaultTest(options, folder);
  let isWell = false;
  try {
    const report = await test.go();
    isWell = report.violations.length === 0;
    return report;
  } finally {
    await test.end();
    if (isWell) rmSync(folder, { recursive: true, force: true, maxRetries: 3 });
  }
}

class FaultTest {
  readonly #options: RunOptions;
  readonly #folder: string;
  readonly #works: readonly Work[];
  readonly #random: Random;
  readonly #ledger: Ledger;
  readonly #struck = new Map<string, number>();
  readonly #recovery: Recovery;
  readonly #doubts: Span[] = [];
  readonly #violations: string[] = [];
  readonly #wakeUps: WakeUps[] = [];
  readonly #faketime = findFaketime();
  #cluster: Cluster | null = null;
  #crew: Crew | undefined;

  constructor(options: RunOptions, folder: string) {
    this.#options = options;
    this.#folder = folder;
    this.#works = options.works ?? works;
    this.#random = new Random(options.seed);
    this.#ledger = new Ledger(this.#ledgerFile);
    this.#recovery = new Recovery(this.#ledger, this.#works, () => this.#crew?.present ?? []);
  }

  get #ledgerFile(): string {
    return join(this.#folder, "ledger");
  }

  get #store(): string {
    return this.#cluster?.url ?? join(this.#folder, "faults.db");
  }

  #say(sentence: string): void {
    this.#options.say?.(sentence);
  }

  async go(): Promise<RunReport> {
    const { store, version, workers, seconds, seed, bouncer, pool } = this.#options;
    if (store === "postgres") this.#cluster = await Cluster.start({ proxies: workers + 1, version, bouncer });
    await this.#withPawl(async (pawl) => {
      for (const work of this.#works) await work.prepare?.(pawl);
    });
    await this.#checkWakeUps();
    const crew = new Crew(workers, {
      store: this.#store,
      namespace: NAMESPACE,
      ledger: this.#ledger,
      random: new Random(seed + 1),
      works: this.#works,
      proxies: this.#cluster?.proxies ?? [],
      poolMax: pool?.max ?? null,
      isPoolForAll: pool?.isForAll === true,
      skews: this.#cluster !== null,
      faketime: this.#faketime,
      folder: this.#folder,
    });
    this.#crew = crew;
    crew.start();
    await this.#untilAtWork(crew);
    const startedMs = performance.now();
    await this.#hurt(crew, startedMs + seconds * 1000);
    const hurtSeconds = (performance.now() - startedMs) / 1000;
    const violations = this.#violations;
    const healedMs = await this.#heal(crew, violations);
    await crew.stop();
    await this.#ledger.close();
    await this.#checkWakeUps();
    await this.#cluster?.bouncer?.count();
    const verdicts = await this.#judge(violations);
    violations.push(...crew.accidents);
    return {
      seconds: hurtSeconds,
      struck: this.#struck,
      works: this.#reportWorks(verdicts),
      refusals: this.#countRefusals(violations),
      notes: this.#countNotes(violations),
      recoveryMs: this.#recovery.byFault,
      healedMs,
      repeats: crew.repeats.count,
      lives: crew.places.reduce((sum, { life }) => sum + Number(life.split("#")[1]), 0),
      proxy: this.#sumProxies(),
      bouncer: this.#cluster?.bouncer?.counts ?? null,
      wakeUps: this.#wakeUps,
      clocks: this.#describeClocks(),
      violations,
      ledger: violations.length > 0 ? this.#ledgerFile : null,
    };
  }

  async end(): Promise<void> {
    this.#crew?.abort();
    await this.#cluster?.destroy();
  }

  async #untilAtWork(crew: Crew): Promise<void> {
    const deadlineMs = performance.now() + 180_000;
    const commits = () => this.#ledger.operations("deposits").filter(({ answer }) => answer === "yes").length;
    while (crew.present.length < crew.places.length || commits() < crew.places.length) {
      if (performance.now() > deadlineMs || crew.accidents.length > 0)
        throw new Error(`the crew does not start: ${crew.accidents.join("\n")}`);
      await sleep(20);
    }
  }

  /** What strikes workers, and beside it what strikes the server or the way to it. */
  async #hurt(crew: Crew, untilMs: number): Promise<void> {
    const scene: Scene = {
      crew,
      random: this.#random,
      pastLeaseMs: () => LEASE_MS * (1.2 + 0.8 * this.#random.unit()),
      doubts: this.#doubts,
    };
    const cluster = this.#cluster;
    const isCrowded = this.#options.crowded === true;
    const strikeWorker = (fault: WorkerFault) => fault.strike(scene);
    const lanes = [
      this.#lane({
        faults: workerFaults,
        strike: strikeWorker,
        untilMs,
        pauseMs: isCrowded ? 400 : 1_200,
        isOnWorkers: true,
      }),
    ];
    if (cluster !== null) {
      const onServer = { ...scene, cluster };
      const strike = (fault: ServerFault) => fault.strike(onServer);
      const mend = () => cluster.mend();
      if (isCrowded) lanes.push(this.#lane({ faults: networkFaults, strike, untilMs, pauseMs: 100 }));
      const onBouncer = cluster.bouncer === null ? [] : bouncerFaults;
      const rest = [...(isCrowded ? [] : networkFaults), ...serverFaults, ...onBouncer];
      lanes.push(this.#lane({ faults: rest, strike, mend, untilMs, pauseMs: 250 }));
    }
    await Promise.all(lanes);
  }

  /**
   * Each once, even if that takes longer than there is time, and then by weight until the time is over. One that found nothing to
   * strike, because everything was down already, has a few more tries.
   */
  async #lane<F extends Fault>(lane: Lane<F>): Promise<void> {
    const faults = lane.faults.filter(({ name }) => name.includes(this.#options.only ?? ""));
    if (faults.length === 0) return;
    for (const { name } of faults) this.#struck.set(name, 0);
    const first = this.#shuffled(faults);
    let triesLeft = 10;
    const heavy = faults.flatMap((fault) => Array.from({ length: fault.weight }, () => fault));
    while (first.length > 0 || performance.now() < lane.untilMs) {
      const fault = first.shift() ?? this.#random.pick(heavy);
      this.#say(fault.name);
      // Whether it is measured is decided before, so that what is measured is no choice of the fast ones.
      const isMeasured = this.#options.crowded !== true && this.#random.chance(0.7);
      const recovery = this.#recovery.before(lane.isOnWorkers === true);
      const hasStruck = await lane.strike(fault);
      if (!hasStruck && this.#struck.get(fault.name) === 0 && triesLeft-- > 0) first.push(fault);
      if (hasStruck) {
        this.#struck.set(fault.name, (this.#struck.get(fault.name) ?? 0) + 1);
        const stuck = await recovery.after(fault.name, isMeasured);
        if (stuck.length > 0) this.#violations.push(`${stuck.join(", ")} did not recover after: ${fault.name}`);
      }
      await lane.mend?.();
      await sleep(lane.pauseMs * (0.5 + this.#random.unit()));
    }
  }

  #shuffled<T>(items: readonly T[]): T[] {
    const left = [...items];
    return items.flatMap(() => left.splice(this.#random.below(left.length), 1));
  }

  /** No fault any more: everything that can be worked on is worked on, and what is unresolved is resolved. */
  async #heal(crew: Crew, violations: string[]): Promise<ReadonlyMap<string, number>> {
    this.#say("healing");
    for (const { proxy } of crew.places) proxy?.disarm();
    this.#cluster?.behind?.disarm();
    const startedMs = performance.now();
    crew.heal();
    const healedMs = new Map<string, number>();
    const healing = new Set(this.#works.filter(({ isHealed }) => isHealed !== undefined));
    // Work of its own duration has ended when no more of it is requested.
    const isQuiet = ({ name, healsWithinMs }: Work) =>
      healsWithinMs === undefined ||
      (!this.#ledger.isOpen(name) && !crew.repeats.pending.some((what) => what.startsWith(`${name} `)));
    const allowedMs = new Map(
      this.#works.map(({ name, healsWithinMs }) => [name, healsWithinMs ?? LEASES_TO_HEAL * LEASE_MS]),
    );
    await this.#withPawl(async (pawl) => {
      for (const { name, left } of this.#works)
        if (left !== undefined) {
          const count = await left.count(pawl);
          this.#say(`${count} of ${name} are left`);
          allowedMs.set(name, (allowedMs.get(name) ?? 0) + count * left.eachMs);
        }
      for (const [name, ms] of allowedMs) allowedMs.set(name, ms * (this.#options.slack ?? 1));
      const resolveWithinMs = Math.max(RESOLVE_WITHIN_MS, ...allowedMs.values());
      for (;;) {
        const elapsedMs = performance.now() - startedMs;
        for (const work of healing) {
          if (!isQuiet(work) || !(await work.isHealed?.(pawl))) continue;
          healedMs.set(work.name, performance.now() - startedMs);
          healing.delete(work);
        }
        if (healing.size === 0 && crew.repeats.pending.length === 0) break;
        if (elapsedMs > resolveWithinMs) break;
        await sleep(200);
      }
    });
    for (const { name, isHealed } of this.#works) {
      const tookMs = healedMs.get(name);
      const withinMs = allowedMs.get(name) ?? 0;
      if (isHealed !== undefined && !(tookMs !== undefined && tookMs <= withinMs))
        violations.push(`${withinMs} ms after the last fault, ${name} had not ended: it took ${tookMs ?? "too"} long`);
    }
    for (const what of crew.repeats.pending) violations.push(`${what} was not acknowledged although faults were over`);
    return healedMs;
  }

  async #judge(violations: string[]): Promise<ReadonlyMap<Work, Verdict>> {
    this.#say("judging");
    const verdicts = new Map<Work, Verdict>();
    await this.#withPawl(async (pawl) => {
      for (const work of this.#works) {
        const verdict = await work.judge(pawl, {
          operations: this.#ledger.operations(work.name),
          notes: this.#ledger.notes(work.name),
          doubts: this.#doubts,
        });
        verdicts.set(work, verdict);
        violations.push(...verdict.wrong);
      }
    });
    return verdicts;
  }

  /** Straight to the store, past all proxies. */
  async #withPawl(act: (pawl: Pawl) => Promise<void>): Promise<void> {
    const pawl = await open(this.#store, { namespace: NAMESPACE });
    try {
      await act(pawl);
    } finally {
      await pawl.close();
    }
  }

  /** While nothing else happens. In transaction mode notifications get lost, and that is said. */
  async #checkWakeUps(): Promise<void> {
    const bouncer = this.#cluster?.bouncer ?? null;
    if (bouncer === null) return;
    this.#say("wake-ups");
    const wakeUps = await checkWakeUps(bouncer.url, `wake-ups/${this.#wakeUps.length}`);
    this.#wakeUps.push(wakeUps);
    this.#violations.push(...wakeUps.wrong);
    const mustWarn = bouncer.settings.poolMode === "transaction";
    if (wakeUps.isWarned !== mustWarn)
      this.#violations.push(
        `behind PgBouncer in ${bouncer.settings.poolMode} mode ${mustWarn ? "no" : "a"} warning was given`,
      );
  }

  #reportWorks(verdicts: ReadonlyMap<Work, Verdict>): ReadonlyMap<string, WorkReport> {
    const reports = new Map<string, WorkReport>();
    for (const [work, { unknown, happened }] of verdicts) {
      const operations = this.#ledger.operations(work.name);
      reports.set(work.name, {
        attempts: operations.length,
        commits: operations.filter((operation) => work.isCommit(operation)).length,
        unknown,
        happened,
      });
    }
    return reports;
  }

  #countRefusals(violations: string[]): ReadonlyMap<string, number> {
    const counts = new Map<string, number>();
    for (const { name } of this.#works)
      for (const { code } of this.#ledger.operations(name))
        if (code !== null) counts.set(code, (counts.get(code) ?? 0) + 1);
    for (const [code, count] of counts)
      if (!EXPECTED.test(code))
        violations.push(`${count} attempts were refused with ${code}, which nothing here explains`);
    return counts;
  }

  #countNotes(violations: string[]): ReadonlyMap<string, number> {
    const counts = new Map<string, number>();
    for (const name of ["crew", ...this.#works.map((work) => work.name)])
      for (const { what, life, data } of this.#ledger.notes(name)) {
        counts.set(what, (counts.get(what) ?? 0) + 1);
        if (what === "accident") violations.push(`${life}: ${data}`);
      }
    return counts;
  }

  #describeClocks(): string {
    if (this.#cluster === null) return "clocks as they are";
    if (this.#faketime !== null) return "clocks skewed by libfaketime";
    return "clocks skewed for JavaScript only, as libfaketime is not installed";
  }

  #sumProxies(): ProxyCounts | null {
    const [first, ...rest] = this.#cluster?.proxies ?? [];
    if (first === undefined) return null;
    const sum: ProxyCounts = { ...first.counts };
    for (const { counts } of rest)
      for (const name of Object.keys(sum) as (keyof ProxyCounts)[]) sum[name] += counts[name];
    return sum;
  }
}

const NAMESPACE = "faults";

/** Faults that strike one after another. */
interface Lane<F extends Fault> {
  readonly faults: readonly F[];
  readonly strike: (fault: F) => Promise<boolean>;
  /** Puts right what the next fault needs. */
  readonly mend?: () => Promise<void>;
  readonly untilMs: number;
  readonly pauseMs: number;
  readonly isOnWorkers?: boolean;
}

const common = (a: ReadonlySet<string>, b: ReadonlySet<string>): Set<string> =>
  new Set([...a].filter((one) => b.has(one)));

const RECOVER_WITHIN_MS = 20_000;

/**
 * Measures, fault by fault, how long each worker that outlived it took until its next acknowledged commit. Workers that are killed or
 * stopped meanwhile, which is another fault, are left out; so is everything while the server is being struck by another.
 */
class Recovery {
  readonly byFault = new Map<string, number[]>();
  readonly #works: readonly Work[];
  readonly #crew: () => readonly Place[];
  readonly #watches = new Set<Watch>();
  #isStriking = false;

  constructor(ledger: Ledger, works: readonly Work[], crew: () => readonly Place[]) {
    this.#works = works;
    this.#crew = crew;
    ledger.listen({ ended: (operation) => this.#ended(operation) });
  }

  /** A fault is about to strike; if it is not one on a worker, it disturbs what is being measured. */
  before(isOnWorker: boolean): { after(name: string, isMeasured: boolean): Promise<readonly string[]> } {
    const alive = this.#lives();
    if (!isOnWorker) {
      this.#isStriking = true;
      for (const watch of this.#watches) watch.isDisturbed = true;
    }
    return {
      after: async (name, isMeasured) => {
        const isDisturbed = isOnWorker && this.#isStriking;
        if (!isOnWorker) this.#isStriking = false;
        return isMeasured && !isDisturbed ? this.#measure(name, alive) : [];
      },
    };
  }

  /** Returns the workers that did not recover in time. */
  async #measure(name: string, alive: ReadonlySet<string>): Promise<readonly string[]> {
    const watch: Watch = { from: monotonicNs(), waiting: common(this.#lives(), alive), times: [], isDisturbed: false };
    this.#watches.add(watch);
    const deadlineMs = performance.now() + RECOVER_WITHIN_MS;
    while (watch.waiting.size > 0 && !watch.isDisturbed && performance.now() < deadlineMs) {
      await sleep(5);
      watch.waiting = common(watch.waiting, this.#lives());
    }
    this.#watches.delete(watch);
    if (watch.isDisturbed) return [];
    this.byFault.set(name, [...(this.byFault.get(name) ?? []), ...watch.times]);
    return [...watch.waiting];
  }

  #lives(): Set<string> {
    return new Set(this.#crew().map(({ life }) => life));
  }

  #ended(operation: Operation): void {
    const { endedAt, life } = operation;
    for (const watch of this.#watches) {
      if (endedAt === null || endedAt < watch.from || !watch.waiting.has(life)) continue;
      if (!this.#works.some((work) => work.name === operation.work && work.isCommit(operation))) continue;
      watch.waiting.delete(life);
      watch.times.push((endedAt - watch.from) / 1e6);
    }
  }
}

interface Watch {
  readonly from: number;
  waiting: Set<string>;
  readonly times: number[];
  isDisturbed: boolean;
}
