/**
 * One of several processes that share a rate limit: after "go", several callers take tokens for a while, in one of two ways.
 * - decide: in decisions that also note each take in a log, so that the log has the store's time of every one; refusals are asked again
 * - wait: with `acquire`
 * Says how many tokens it took.
 */

import { once } from "node:events";
import { setTimeout as sleep } from "node:timers/promises";
import { address } from "../../../src/kernel/contract.ts";
import { open } from "../../../src/open.ts";
import { RateLimits } from "../../../src/rate/rate.ts";
import { type Figures, GRANTS } from "../kit.ts";

const [where = "", way = "", text = "", forMs = ""] = process.argv.slice(2);
const { max, perMs, burst }: Figures = JSON.parse(text);
const CALLERS = 8;

const pawl = await open(where);
const limit = new RateLimits(pawl.kernel).limit("shared", { max, per: perMs, burst });
const grants = address(GRANTS.space, GRANTS.key);
process.stdout.write("ready\n");
await once(process.stdin, "data");

const untilMs = Date.now() + Number(forMs);
let taken = 0;

async function decide(): Promise<void> {
  while (Date.now() < untilMs) {
    const count = 1 + Math.floor(Math.random() * burst);
    const answer = await pawl.kernel.transact(
      (tx) => {
        const result = limit.within(tx).tryTake(count);
        if (result.ok) {
          const record = tx.record(grants);
          record.write({ value: null });
          record.append("grant", count);
        }
        return result;
      },
      [limit.touches],
    );
    if (answer.ok) taken += count;
    else await sleep(Math.random() * Math.min(20, answer.retryAfterMs));
  }
}

async function wait(): Promise<void> {
  for (;;) {
    const count = 1 + Math.floor(Math.random() * burst);
    const leftMs = untilMs - Date.now();
    if (leftMs <= 0) return;
    const isIn = await limit.acquire({ count, timeout: leftMs }).then(
      () => true,
      () => false,
    );
    if (!isIn) await sleep(5);
    else taken += count;
  }
}

await Promise.all(Array.from({ length: CALLERS }, way === "decide" ? decide : wait));
await pawl.close();
process.stdout.write(`${taken}\n`);
process.stdin.destroy();
