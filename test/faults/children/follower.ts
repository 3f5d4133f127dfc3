/**
 * Follows every log of the claims by version, and prints each entry as it sees it. It is no worker: it gets no signals,
 * but its connections are as unreliable as theirs.
 */

import { createInterface } from "node:readline";
import { PawlError } from "../../../src/index.ts";
import type { Pawl } from "../../../src/pawl.ts";
import { say } from "../bench.ts";
import { monotonicNs } from "../ledger.ts";
import { followed, type Mark, type Seen } from "../works/claims.ts";
import { openAs } from "./open.ts";
import type { WorkerArguments } from "./worker.ts";

const POLL_MS = 250;

const args = JSON.parse(process.argv[2] ?? "") as WorkerArguments;
let isOver = false;
const lines = createInterface({ input: process.stdin });
lines.on("line", (line) => {
  if (line.includes('"stop"')) isOver = true;
});
lines.on("close", () => process.exit(3));

const reached = new Map<string, number>();
const { pawl, end } = await patiently(() => openAs(args));
let ring = () => {};
pawl.kernel.listen(() => ring());
for (;;) {
  // Told before it looks for the last time, so that nothing is left unseen.
  const isLast = isOver;
  const rung = new Promise<void>((resolve) => {
    ring = resolve;
  });
  await follow(pawl);
  if (isLast) break;
  await Promise.race([rung, new Promise((resolve) => setTimeout(resolve, POLL_MS))]);
  // Every commit notifies it: a few concurrent reads are enough.
  await new Promise((resolve) => setTimeout(resolve, 20));
}
await pawl.close();
await end();
process.exit(0);

async function follow({ kernel }: Pawl): Promise<void> {
  const rows = await patiently(() => kernel.read(followed));
  for (const [i, at] of followed.entries()) {
    const head = rows[i]?.head ?? 0;
    for (;;) {
      const after = reached.get(at.key) ?? 0;
      if (head <= after) break;
      const entries = await patiently(() => kernel.entries(at, after, 200));
      if (entries.length === 0) break;
      for (const { version, data } of entries) {
        const mark = kernel.decode(at, data) as Mark;
        say({
          is: "note",
          work: "claims",
          what: "seen",
          data: { ...mark, to: at.key, version } satisfies Seen,
          at: monotonicNs(),
        });
        reached.set(at.key, version);
      }
    }
  }
}

/** Reads are free to repeat. */
async function patiently<T>(read: () => Promise<T>): Promise<T> {
  for (;;) {
    try {
      return await read();
    } catch (error) {
      if (!(error instanceof PawlError)) throw error;
      await new Promise((resolve) => setTimeout(resolve, 50));
    }
  }
}
