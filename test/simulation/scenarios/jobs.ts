// Goal: work is done by one holder at a time; a holder that lost its lease writes nothing and gets an error; fences increase through crash,
// expiry, deletion and sweeping; and once faults stop, all work is claimed within three leases and ends (G6, G7, G16, G17, G25).
// Method: workers claim jobs, write under their fence in several commits, sleep in the middle for longer than the lease, crash and are paused.
// Jobs are deleted when done, swept, and created again under the same name.

import { FencedError } from "../../../src/index.ts";
import { claimDue } from "../../../src/kernel/claim/claim.ts";
import { startWorker } from "../../../src/kernel/claim/worker.ts";
import { address, DELETED_KEPT_MS } from "../../../src/kernel/contract.ts";
import type { Tx } from "../../../src/kernel/decision.ts";
import type { Draft } from "../../../src/kernel/draft.ts";
import type { Kernel } from "../../../src/kernel/kernel.ts";
import { checkCommits } from "../../../src/testing/checkers/commits.ts";
import type { World } from "../../../src/testing/index.ts";
import { until } from "./transfers.ts";

const LEASE_MS = 10_000;
const KIND = "job";
const JOBS = ["j0", "j1", "j2"];
const STEPS = 2;

interface Job {
  readonly round: number;
  readonly steps: number;
}

/** A record that jobs write to and do not hold. */
function tally(tx: Tx): Draft {
  const record = tx.record(at("tally"));
  if (!record.exists) record.write({ value: {} });
  return record;
}

const at = (name: string) => address("job", name);

export const jobs = {
  name: "one holder at a time, and work continues",
  async scenario(world: World): Promise<void> {
    const { commits } = world.database;
    const acknowledged = new Set<string>();
    const written = new Set<string>();
    let marks = 0;
    for (const name of ["w1", "w2", "w3"])
      world.process(
        name,
        async ({ pawl, incarnation, random, sleep }) => {
          startWorker(pawl.kernel, {
            chores: [],
            kinds: [KIND],
            by: `${name}#${incarnation}`,
            leaseMs: LEASE_MS,
            concurrency: 2,
            work: async (held) => {
              for (let step = 1; step <= STEPS; step++) {
                const mark = `mark ${++marks}`;
                const left = await held.commit((record) => {
                  const job = record.value as Job;
                  record.append("step", { fence: held.fence, mark });
                  record.write({ value: { ...job, steps: job.steps + 1 } });
                  return STEPS - job.steps - 1;
                });
                acknowledged.add(mark);
                // The right to write elsewhere in the job's name ends with the lease as well.
                if (random() < 0.5)
                  await held.commit((_, tx) => void tally(tx).append("count", { fence: held.fence, job: held.at.key }));
                if (random() < 0.3) await sleep(random() * 2 * LEASE_MS);
                if (left <= 0) break;
              }
              await held.rest(
                () => null,
                (record) => {
                  record.append("done", { fence: held.fence });
                  record.remove();
                },
              );
            },
            failed: (error) => {
              if (error instanceof FencedError) world.note(`${name} was fenced`);
            },
          });
        },
        { service: true },
      );
    world.process("client", async (process) => {
      const { kernel } = process.pawl;
      for (const round of [1, 2]) {
        for (const name of JOBS) await until(() => make(kernel, name, round), process);
        for (const name of JOBS) await until(() => gone(kernel, name, process.sleep), process);
        if (round === 1 && process.random() < 0.5) {
          // A week goes by on the store's clock, and what was deleted is swept away for good.
          world.database.jumpClock(DELETED_KEPT_MS + 7_200_000);
          await until(async () => void (await world.database.memory.connect("simulated").sweep(100)), process);
        }
      }
    });
    await world.finish();
    checkCommits(world);
    const done = new Map<string, number>();
    const fences = new Map<string, number>();
    for (const { nowMs, puts } of commits) {
      const before = new Map(fences);
      for (const { row } of puts) fences.set(row.key, row.fence);
      for (const { was, row, entries } of puts) {
        const isClaim = row.fence > (was?.fence ?? 0);
        if (isClaim) world.check(row.dueMs === nowMs + LEASE_MS, `${row.key} was claimed without a full lease`);
        for (const { name, data } of entries) {
          const { fence, mark, job } = JSON.parse(data) as { fence: number; mark?: string; job?: string };
          if (job !== undefined) {
            // A batch may also have a claim that was decided after it.
            const valid = [before.get(job), fences.get(job)];
            world.check(valid.includes(fence), `"${name}" was written for ${job} under fence ${fence}, not ${valid}`);
            continue;
          }
          if (mark !== undefined) written.add(mark);
          // A claim that was decided later in the same commit has lifted the fence since.
          const isValid = fence === row.fence || fence === was?.fence;
          world.check(isValid, `${row.key}: "${name}" was written under fence ${fence}, not ${row.fence}`);
          if (name === "done") done.set(row.key, (done.get(row.key) ?? 0) + 1);
        }
      }
    }
    for (const mark of acknowledged) world.check(written.has(mark), `${mark} was acknowledged and is not there`);
    for (const name of JOBS)
      world.check(done.get(name) === 2, `${name} was done ${done.get(name)} times in two rounds`);
  },
};

async function make(kernel: Kernel, name: string, round: number): Promise<void> {
  await kernel.transact(
    (tx: Tx) => {
      const record = tx.record(at(name));
      const made = tx.record(at(`made/${name}`));
      if (made.exists && (made.value as number) >= round) return;
      made.write({ value: round });
      record.write({ value: { round, steps: 0 } satisfies Job, kind: KIND, dueMs: tx.nowMs });
    },
    [at(name), at(`made/${name}`)],
  );
}

async function gone(kernel: Kernel, name: string, sleep: (ms: number) => Promise<void>): Promise<void> {
  for (;;) {
    const [row = null] = await kernel.read([at(name)]);
    if (row === null || row.value === null) return;
    await sleep(500);
  }
}

// Goal: once faults stop, everything that can be worked on is claimed within three leases (G25), also without any wake-up.
// Method: a job is left held by a process that died; there is only the claim loop of one worker.
export const recovery = {
  name: "what a dead process held is taken up within three leases",
  async scenario(world: World): Promise<void> {
    let claimedAtMs: number | undefined;
    world.process("client", async (process) => {
      await until(() => make(process.pawl.kernel, "j0", 1), process);
      await until(() => gone(process.pawl.kernel, "j0", process.sleep), process);
    });
    world.process(
      "mortal",
      async ({ pawl, incarnation, sleep }) => {
        for (;;) {
          await claimDue(pawl.kernel, { kinds: [KIND], by: `mortal#${incarnation}`, leaseMs: LEASE_MS, limit: 1 });
          // It holds what it has and does nothing more.
          await sleep(3_600_000);
        }
      },
      { service: true },
    );
    world.process(
      "heir",
      async ({ pawl, incarnation }) => {
        startWorker(pawl.kernel, {
          chores: [],
          failed: () => {},
          kinds: [KIND],
          by: `heir#${incarnation}`,
          leaseMs: LEASE_MS,
          work: async (held) => {
            claimedAtMs ??= world.nowMs;
            await held.rest(
              () => null,
              (record) => record.remove(),
            );
          },
        });
      },
      { service: true },
    );
    await world.finish();
    checkCommits(world);
    const late = (claimedAtMs ?? Number.POSITIVE_INFINITY) - (world.healedAtMs ?? 0);
    world.check(late <= 3 * LEASE_MS, `it was claimed ${late} ms after healing`);
  },
};

// Goal: a timer fires at its millisecond, not before and not at the next poll.
// Method: no faults; records that come due one after another, a worker that has nothing else to do.
export const timers = {
  name: "what is due is claimed at its millisecond",
  options: { calm: true, reorder: 0.7 },
  async scenario(world: World): Promise<void> {
    const late: number[] = [];
    const dueIn = Array.from({ length: 4 }, () => 1 + world.random.below(20_000));
    world.process(
      "worker",
      async ({ pawl }) => {
        startWorker(pawl.kernel, {
          chores: [],
          failed: () => {},
          kinds: [KIND],
          by: "worker",
          work: async (held) => {
            await held.rest(
              () => null,
              (record, tx) => {
                late.push(tx.nowMs - (record.value as { dueMs: number }).dueMs);
                record.remove();
              },
            );
          },
        });
      },
      { service: true },
    );
    world.process("client", async (process) => {
      const { kernel } = process.pawl;
      for (const [i, ms] of dueIn.entries())
        await kernel.transact(
          (tx) => {
            const dueMs = tx.nowMs + ms;
            tx.record(at(`j${i}`)).write({ value: { dueMs }, kind: KIND, dueMs });
          },
          [at(`j${i}`)],
        );
      for (const i of dueIn.keys()) await gone(kernel, `j${i}`, process.sleep);
    });
    await world.finish();
    checkCommits(world);
    world.check(
      late.every((ms) => ms >= 0 && ms <= 2),
      `they were claimed ${late.join(", ")} ms late`,
    );
  },
};
