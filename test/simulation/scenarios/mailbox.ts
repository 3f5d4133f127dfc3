// Goal: the worker on a record sees every entry that is appended, at whatever moment it comes; the last one too (G25, and the basis of G15).
// Method: senders append letters to a record's log and wake it. A worker claims it, reads what is new, and rests without a timer. If it missed
// a letter between its read and its rest, no worker would ever read it.

import { FencedError } from "../../../src/index.ts";
import { claimDue, type Held, wake } from "../../../src/kernel/claim/claim.ts";
import { startWorker } from "../../../src/kernel/claim/worker.ts";
import { address } from "../../../src/kernel/contract.ts";
import { checkCommits } from "../../../src/testing/checkers/commits.ts";
import type { World } from "../../../src/testing/index.ts";
import { until } from "./transfers.ts";

const BOX = address("box", "b");
const LETTERS = 3;

interface Box {
  readonly read: number;
}

export const mailbox = {
  name: "no wake-up is lost",
  async scenario(world: World): Promise<void> {
    for (const name of ["s1", "s2"])
      world.process(name, async (process) => {
        const { kernel } = process.pawl;
        for (let i = 0; i < LETTERS; i++) {
          const sent = address("sent", `${name}-${i}`);
          await until(async () => {
            await kernel.transact(
              (tx) => {
                if (tx.record(sent).exists) return;
                tx.record(sent).write({ value: true });
                const box = tx.record(BOX);
                if (!box.exists) box.write({ value: { read: 0 } satisfies Box, kind: "box" });
                box.append("letter", `${name}-${i}`);
                wake(tx, BOX);
              },
              [sent, BOX],
            );
          }, process);
          await process.sleep(process.random() * 3_000);
        }
        await until(async () => {
          for (;;) {
            const [row] = await kernel.read([BOX]);
            const box = row?.value == null ? null : (kernel.decode(row, row.value) as Box);
            if (box !== null && box.read === 2 * LETTERS) return;
            await process.sleep(1_000);
          }
        }, process);
      });
    for (const name of ["w1", "w2"])
      world.process(
        name,
        async ({ pawl, incarnation, sleep, random }) => {
          const read = async (held: Held) => {
            do {
              const head = await held.look((record) => record.head);
              if (random() < 0.5) await sleep(random() * 500);
              await held.commit((record) => record.write({ value: { read: head } satisfies Box }));
            } while ((await held.rest(() => null)) === "woken");
          };
          startWorker(pawl.kernel, {
            chores: [],
            failed: () => {},
            kinds: ["box"],
            by: `${name}#${incarnation}`,
            leaseMs: 5_000,
            pollMs: 60_000,
            work: read,
          });
          // A second loop without a wake-up of its own, so that claims also race within a process.
          await sleep(random() * 10_000);
          const { held } = await claimDue(pawl.kernel, { kinds: ["box"], by: name, leaseMs: 5_000, limit: 1 });
          for (const one of held)
            await read(one).catch((error: unknown) => {
              if (!(error instanceof FencedError)) throw error;
            });
        },
        { service: true },
      );
    await world.finish();
    checkCommits(world);
  },
};
