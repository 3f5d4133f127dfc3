/**
 * A process that places orders until it has an answer to each, or is killed: for `processes.long.test.ts`.
 *
 * It says "placed" with the receipt's number, or "refused" with the code, right after it got that result. Some of these processes
 * work on the runs that they start as well.
 */

import { writeSync } from "node:fs";
import { setTimeout as sleep } from "node:timers/promises";
import { FencedError, IdempotencyInProgressError, PawlError } from "../../../src/index.ts";
import { LEASE_MS, OPTIONS, type Way } from "../orders.ts";
import { fulfil, openOne, placeApart, placeAtOnce, placeByAttempt, type Receipt, type Request } from "../shop.ts";

const [where = "", way = "", text = "", works = ""] = process.argv.slice(2);
const requests: Request[] = JSON.parse(text);
const AT_ONCE = 3;
const PAUSE_MS = 25;

const say = (line: string) => writeSync(1, `${line}\n`);
const pawl = await openOne(where, { actions: OPTIONS });
if (works === "works") pawl.work([fulfil], { lease: LEASE_MS });

/** Orders go one of two ways, which must not differ. */
function place(request: Request): Promise<Receipt> {
  if ((way as Way) === "apart") return placeApart(pawl, request);
  return Number(request.id.slice(1)) % 4 < 2 ? placeAtOnce(pawl, request) : placeByAttempt(pawl, request);
}

async function answered(request: Request): Promise<string> {
  for (;;)
    try {
      return `placed ${request.id} ${(await place(request)).number}`;
    } catch (error) {
      if (!(error instanceof PawlError)) throw error;
      // Another has it now, or had it for a while because this process was too slow: the next answer tells.
      if (error instanceof IdempotencyInProgressError) await sleep(Math.min(50, error.data.retryAfterMs));
      else if (!(error instanceof FencedError)) return `refused ${request.id} ${error.code}`;
    }
}

const first = Math.floor(Math.random() * requests.length);
const todo = [...requests.slice(first), ...requests.slice(0, first)];
async function work(): Promise<void> {
  for (let request = todo.shift(); request !== undefined; request = todo.shift()) {
    say(await answered(request));
    await sleep(Math.random() * PAUSE_MS);
  }
}

say("ready");
await Promise.all(Array.from({ length: AT_ONCE }, work));
await pawl.close();
say("done");
