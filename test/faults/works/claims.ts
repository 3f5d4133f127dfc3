/**
 * Claims: records that one worker at a time may work on, under a short lease.
 *
 * A worker claims a record, appends entries with its fence in them, and releases it, or removes it so that another creates it again. Some
 * hold it for longer than a lease, by renewing; some continue after they learned that their lease is uncertain, so that only the fence
 * protects the log. Half of the records go through the kernel's own claim loop, the others through a loop here that also records when it
 * asked. A follower in a separate process reads every log by version.
 *
 * Checked: fences increase with every claim and never go back in a log (G7); a worker that lost a record to another writes nothing more and
 * gets an error (G6); logs have no gap, every acknowledged entry is there once and no refused one is (G1, G2); the follower saw each entry
 * once and in order (G12). The run checks whether all of it ends once faults are over (G25).
 */

import { claimDue, type Held, wake } from "../../../src/kernel/claim/claim.ts";
import { startWorker } from "../../../src/kernel/claim/worker.ts";
import { type Address, address } from "../../../src/kernel/contract.ts";
import { FencedError } from "../../../src/kernel/errors.ts";
import type { Kernel } from "../../../src/kernel/kernel.ts";
import type { Answered, Bench } from "../bench.ts";
import { monotonicNs } from "../ledger.ts";
import { entriesOf } from "./deposits.ts";
import { type Evidence, overlaps, type Work } from "./work.ts";

const NAME = "claims";
export const LEASE_MS = 1_500;
/** Which loop takes them. */
const KINDS = { ours: "job", kernels: "shift" } as const;
const RECORDS = 10;
const CONCURRENCY = 2;
const POLL_MS = 60;
/** The store's clock counts whole milliseconds, and is not the one that the ledger counts by. */
const CLOCK_SLACK_MS = 10;

const SPACE = "claims";
const names = Array.from({ length: RECORDS }, (_, i) => `${i % 2 === 0 ? KINDS.ours : KINDS.kernels}-${i}`);
const at = (name: string): Address => address(SPACE, name);
/** Holders of all records also write here, under the fence of their own. */
const TALLY = "tally";
/** All logs of this work. */
export const followed: readonly Address[] = [...names, TALLY].map(at);

/** What an entry of any of the logs has in it. `of` is the record whose fence it is. */
export interface Mark {
  readonly of: string;
  readonly fence: number;
  readonly mark: string;
}

/** An attempt to append one entry to the log of `to`. */
export interface Append extends Mark {
  readonly to: string;
  /** Gives the record back in the same commit. */
  readonly rests?: boolean;
}

/** Where it went; null for a rest that was not taken because there was news, and that wrote nothing. */
interface Appended {
  readonly version: number | null;
}

/** A claim that was granted; `since` is when it was asked for, if that is known. */
export interface Grant {
  readonly of: string;
  readonly fence: number;
  readonly since: number | null;
}

export interface Seen extends Mark {
  readonly to: string;
  readonly version: number;
}

export const claims: Work = {
  name: NAME,

  async prepare(pawl) {
    for (const name of names) await make(pawl.kernel, name);
  },

  async act(bench) {
    const { pawl, random } = bench;
    const worker = startWorker(pawl.kernel, {
      chores: [],
      kinds: [KINDS.kernels],
      by: bench.life,
      leaseMs: LEASE_MS,
      concurrency: CONCURRENCY,
      pollMs: 10 * POLL_MS,
      work: (held, { abortSignal }) => workOn(bench, held, abortSignal, null),
      failed: (error) => {
        if (error instanceof FencedError) bench.note(NAME, "fenced", error.data);
      },
    });
    const hands = new Set<Promise<void>>();
    const make = async () => {
      while (!bench.isOver) {
        if (!bench.isHealing) await tend(bench);
        await bench.sleep((2 + random.unit()) * POLL_MS);
      }
    };
    const claim = async () => {
      while (!bench.isOver) {
        if (hands.size < CONCURRENCY)
          for (const hand of await take(bench, CONCURRENCY - hands.size)) {
            hands.add(hand);
            void hand.finally(() => hands.delete(hand));
          }
        await bench.sleep((0.5 + random.unit()) * POLL_MS);
      }
      await Promise.all(hands);
    };
    await Promise.all([claim(), make()]);
    await worker.stop();
  },

  async isHealed(pawl) {
    const rows = await pawl.kernel.read(names.map(at));
    return rows.every((row) => row === null || row.value === null);
  },

  async judge(pawl, evidence) {
    const logs = new Map<string, LogEntry[]>();
    for (const address of followed) {
      const entries = await entriesOf(pawl.kernel, address);
      logs.set(
        address.key,
        entries.map(({ version, data }) => ({ version, ...(data as Mark) })),
      );
    }
    const wrong = checkClaims(evidence, logs);
    const there = new Set([...logs.values()].flatMap((entries) => entries.map(({ mark }) => mark)));
    const unknown = evidence.operations.filter(({ answer }) => answer === "unknown");
    const happened = unknown.filter(({ input }) => there.has((input as Append).mark)).length;
    return { wrong, unknown: unknown.length, happened };
  },

  isCommit: ({ answer, output }) => answer === "yes" && (output as Appended).version !== null,
};

async function make(kernel: Kernel, name: string): Promise<void> {
  await kernel.transact(
    (tx) => {
      const record = tx.record(at(name));
      if (!record.exists) record.write({ value: {}, kind: name.split("-")[0] ?? null, dueMs: tx.nowMs });
    },
    [at(name)],
  );
}

/** Makes what was removed, and wakes somebody now and then. Neither is worth a word: both show in what comes of them. */
async function tend({ pawl: { kernel }, random }: Bench): Promise<void> {
  try {
    const rows = await kernel.read(names.map(at));
    for (const [i, name] of names.entries()) if (rows[i]?.value == null) await make(kernel, name);
    const lucky = at(random.pick(names));
    if (random.chance(0.2)) await kernel.transact((tx) => wake(tx, lucky), [lucky]);
  } catch {
    // Whatever it is, the attempts that are written down meet it too.
  }
}

/** Claims what is due, and works on each; the work goes on when this returns. */
async function take(bench: Bench, limit: number): Promise<Promise<void>[]> {
  const since = monotonicNs();
  const started: Promise<void>[] = [];
  try {
    await claimDue(bench.pawl.kernel, {
      kinds: [KINDS.ours],
      by: bench.life,
      leaseMs: LEASE_MS,
      limit,
      granted: (held) => started.push(keeping(bench, held, since)),
    });
  } catch {
    // Nobody says that a claim failed: what was claimed all the same comes due again.
  }
  return started;
}

/** Works on a record, and renews its lease meanwhile. */
async function keeping(bench: Bench, held: Held, since: number): Promise<void> {
  const lost = new AbortController();
  const renewing = setInterval(() => {
    held.renew(LEASE_MS).catch((error: unknown) => {
      if (!(error instanceof FencedError)) return;
      lost.abort();
      clearInterval(renewing);
    });
  }, LEASE_MS / 3);
  try {
    await workOn(bench, held, lost.signal, since);
  } catch (error) {
    bench.accident(NAME, error);
  } finally {
    clearInterval(renewing);
    held.abandon();
  }
}

async function workOn(bench: Bench, held: Held, lost: AbortSignal, since: number | null): Promise<void> {
  const { random } = bench;
  const { fence } = held;
  const of = held.at.key;
  bench.note(NAME, "grant", { of, fence, since } satisfies Grant);
  const isStubborn = random.chance(0.7);
  const append = async (
    to: string,
    act: (mark: Mark) => Promise<Appended>,
    rests = false,
  ): Promise<"go on" | "stop"> => {
    const mark = { of, fence, mark: bench.mark() };
    const wish: Append = { ...mark, to, rests };
    const answer: Answered<Appended> = await bench.attempt(NAME, wish, () => act(mark));
    if (answer.is === "no" && answer.code === "fenced") bench.note(NAME, "fenced", { of, fence });
    if (answer.is === "no" && answer.code === "fenced") return "stop";
    if (!lost.aborted) return "go on";
    bench.note(NAME, "lease lost", { of, fence });
    return isStubborn ? "go on" : "stop";
  };
  for (let steps = 1 + random.below(4); steps > 0; steps--) {
    const step = (mark: Mark) => held.commit((record) => ({ version: record.append("step", mark) }));
    if ((await append(of, step)) === "stop") return;
    if (random.chance(0.2)) {
      const count = (mark: Mark) =>
        held.commit((_, tx) => {
          const tally = tx.record(at(TALLY));
          if (!tally.exists) tally.write({ value: {} });
          return { version: tally.append("count", mark) };
        });
      if ((await append(TALLY, count)) === "stop") return;
    }
    if (!bench.isHealing) await bench.sleep(random.unit() * (random.chance(0.1) ? 2 * LEASE_MS : 150));
  }
  // A rest that finds news looks at it and tries again; after a few, the lease may as well run out.
  for (let tries = 0; tries < 5; tries++) {
    let isResting = false;
    const isLast = bench.isHealing || random.chance(0.2);
    const restMs = 20 + random.below(300);
    const rest = async (mark: Mark): Promise<Appended> => {
      let version: number | null = null;
      const answer = await held.rest(
        (tx) => (isLast ? null : tx.nowMs + restMs),
        (record) => {
          version = record.append(isLast ? "removed" : "rested", mark);
          if (isLast) record.remove();
        },
      );
      isResting = answer === "rested";
      return { version: isResting ? version : null };
    };
    if ((await append(of, rest, true)) === "stop" || isResting) return;
    try {
      await held.look(() => undefined);
    } catch {
      return;
    }
  }
}

export interface LogEntry extends Mark {
  readonly version: number;
}

/** Holds what the workers and the follower said against the logs as they are in the end. */
export function checkClaims(evidence: Evidence, logs: ReadonlyMap<string, readonly LogEntry[]>): string[] {
  const appends = evidence.operations.map(({ input, ...rest }) => ({ ...rest, input: input as Append }));
  const grants = evidence.notes
    .filter(({ what }) => what === "grant")
    .map(({ at: grantedAt, life, data }) => ({ grantedAt, life, ...(data as Grant) }));
  return [
    ...checkLogs(appends, logs),
    ...checkFencesInLogs(logs),
    ...checkGrants(grants),
    ...checkLeases(appends, grants),
    ...checkStaleWrites(appends, grants),
    ...checkFollower(evidence, logs),
  ];
}

type Asked = Omit<Evidence["operations"][number], "input"> & { readonly input: Append };
type GrantedClaim = Grant & { readonly grantedAt: number; readonly life: string };

/** No gap; what was acknowledged is where it was said to be; what was refused is nowhere; nothing is there twice. */
function checkLogs(appends: readonly Asked[], logs: ReadonlyMap<string, readonly LogEntry[]>): string[] {
  const wrong: string[] = [];
  const places = new Map<string, { readonly log: string; readonly entry: LogEntry }>();
  for (const [log, entries] of logs)
    for (const [i, entry] of entries.entries()) {
      if (entry.version !== i + 1) wrong.push(`${log} has entry ${entry.version} where ${i + 1} belongs`);
      const other = places.get(entry.mark);
      if (other !== undefined)
        wrong.push(`${entry.mark} is there twice: ${other.log} ${other.entry.version} and ${log} ${entry.version}`);
      places.set(entry.mark, { log, entry });
    }
  const asked = new Set<string>();
  for (const { input, answer, output, code, life } of appends) {
    asked.add(input.mark);
    const place = places.get(input.mark);
    const version = answer === "yes" ? (output as Appended).version : null;
    if (version !== null && place === undefined)
      wrong.push(`${input.mark} was acknowledged to ${life} as ${input.to} ${version} and is lost`);
    if (version !== null && place !== undefined && (place.log !== input.to || place.entry.version !== version))
      wrong.push(`${input.mark} was acknowledged as ${input.to} ${version} and is ${place.log} ${place.entry.version}`);
    const isNo = answer === "no" || (answer === "yes" && version === null);
    if (isNo && place !== undefined)
      wrong.push(`${input.mark} was refused (${code ?? "news"}) and is there: ${place.log} ${place.entry.version}`);
    if (place !== undefined && (place.entry.fence !== input.fence || place.entry.of !== input.of))
      wrong.push(`${input.mark} is there with another fence than it was written under`);
  }
  for (const [mark, { log, entry }] of places)
    if (!asked.has(mark)) wrong.push(`${log} ${entry.version} is ${mark}, which no worker requested`);
  return wrong;
}

/** Every writer after a takeover had the newer fence. */
function checkFencesInLogs(logs: ReadonlyMap<string, readonly LogEntry[]>): string[] {
  const wrong: string[] = [];
  for (const [log, entries] of logs) {
    const highest = new Map<string, number>();
    for (const { of, fence, version } of entries) {
      const before = highest.get(of) ?? 0;
      if (fence < before)
        wrong.push(`${log} ${version} was written under fence ${fence} of ${of}, after fence ${before}`);
      highest.set(of, Math.max(before, fence));
    }
  }
  return wrong;
}

/** No fence is given out twice, and who asked after another had it gets a higher one. */
function checkGrants(grants: readonly GrantedClaim[]): string[] {
  const wrong: string[] = [];
  for (const [of, all] of Map.groupBy(grants, (grant) => grant.of)) {
    const byFence = all.toSorted((a, b) => a.fence - b.fence);
    for (const [i, grant] of byFence.entries()) {
      const next = byFence[i + 1];
      if (next !== undefined && next.fence === grant.fence)
        wrong.push(`fence ${grant.fence} of ${of} was given to ${grant.life} and to ${next.life}`);
    }
    // Of all that have a higher fence, the one that was had first.
    let earliest: GrantedClaim | undefined;
    for (const grant of byFence.toReversed()) {
      if (grant.since !== null && earliest !== undefined && grant.since > earliest.grantedAt)
        wrong.push(
          `${grant.life} asked for ${of} after ${earliest.life} had fence ${earliest.fence}, and got ${grant.fence}`,
        );
      if (earliest === undefined || grant.grantedAt < earliest.grantedAt) earliest = grant;
    }
  }
  return wrong;
}

/**
 * Nobody is given what another has a lease on. A lease began no earlier than it was asked for, and the next holder's no later than it
 * was heard of; in between must be the whole lease, unless the holder may have given it back.
 */
function checkLeases(appends: readonly Asked[], grants: readonly GrantedClaim[]): string[] {
  const wrong: string[] = [];
  const rests = Map.groupBy(
    appends.filter(({ input, answer, output }) => {
      if (input.rests !== true || answer === "no") return false;
      return answer !== "yes" || (output as Appended).version !== null;
    }),
    ({ input }) => `${input.of} ${input.fence}`,
  );
  for (const [of, all] of Map.groupBy(grants, (grant) => grant.of)) {
    const byFence = all.toSorted((a, b) => a.fence - b.fence);
    for (const [i, { fence, since, life }] of byFence.entries()) {
      const next = byFence[i + 1];
      // The kernel's own loop, which does not say when it asked, also gives back what failed.
      if (next === undefined || since === null) continue;
      if (rests.get(`${of} ${fence}`)?.some(({ startedAt }) => startedAt < next.grantedAt)) continue;
      const heldMs = (next.grantedAt - since) / 1e6;
      if (heldMs < LEASE_MS - CLOCK_SLACK_MS)
        wrong.push(`${life} was granted ${of} under fence ${fence}, and ${heldMs} ms later ${next.life} was as well`);
    }
  }
  return wrong;
}

/** A write that began when another holder already had a newer fence must not be acknowledged. */
function checkStaleWrites(appends: readonly Asked[], grants: readonly GrantedClaim[]): string[] {
  const wrong: string[] = [];
  const timelines = new Map(
    [...Map.groupBy(grants, (grant) => grant.of)].map(([of, all]) => {
      let highest = 0;
      const rising = all
        .toSorted((a, b) => a.grantedAt - b.grantedAt)
        .map(({ grantedAt, fence }) => {
          highest = Math.max(highest, fence);
          return { at: grantedAt, fence: highest };
        });
      return [of, rising] as const;
    }),
  );
  for (const { input, answer, output, startedAt, life } of appends) {
    if (answer !== "yes" || (output as Appended).version === null) continue;
    const before = timelines.get(input.of)?.findLast((moment) => moment.at < startedAt);
    if (before !== undefined && before.fence > input.fence)
      wrong.push(`${life} wrote ${input.mark} under fence ${input.fence} of ${input.of} when ${before.fence} was out`);
  }
  return wrong;
}

/** Everything once and in order, and nothing that was taken back. A follower that was started anew begins anew. */
function checkFollower({ notes, doubts }: Evidence, logs: ReadonlyMap<string, readonly LogEntry[]>): string[] {
  const wrong: string[] = [];
  const reached = new Map<string, number>();
  const furthest = new Map<string, number>();
  for (const { what, data, life, at: seenAt } of notes) {
    if (what !== "seen") continue;
    const { to, version, mark } = data as Seen;
    const before = reached.get(`${life} ${to}`) ?? 0;
    if (version !== before + 1) wrong.push(`the follower of ${to} saw ${version} after ${before}`);
    reached.set(`${life} ${to}`, version);
    furthest.set(to, Math.max(furthest.get(to) ?? 0, version));
    const entry = logs.get(to)?.[version - 1];
    // The one thing it may have seen that is gone: a commit that never reached the standby.
    if (entry?.mark !== mark && !overlaps(doubts, seenAt, seenAt))
      wrong.push(`the follower saw ${mark} as ${to} ${version}, and it is ${entry?.mark ?? "gone"}`);
  }
  if (furthest.size > 0)
    for (const [log, entries] of logs)
      if ((furthest.get(log) ?? 0) < entries.length)
        wrong.push(`the follower of ${log} came to ${furthest.get(log) ?? 0} of ${entries.length}`);
  return wrong;
}
