/**
 * `/livez` and `/readyz`, for what restarts processes and sends them requests. Neither needs a key, and neither says more than a word.
 *
 * Live is a process whose event loop turns: it responds. Ready is one whose store responds in time and whose claim loops turn, if it has any, and that is not
 * being closed.
 */

import { address } from "../../kernel/contract.ts";
import type { Kernel } from "../../kernel/kernel.ts";
import { pause } from "../../kernel/ports.ts";
import type { Routing } from "./route.ts";

/** A store that takes longer is not ready. */
const STORE_MS = 2000;
/** A record that need not exist. */
const ANY = address("api_key", "readyz");

export function health({ app, closing, kernel }: Routing): void {
  app.get("/livez", () => said(200, "live"));
  app.get("/readyz", async () => {
    if (closing.aborted) return said(503, "closing");
    if ([...kernel.loops].some((loop) => loop.isStalled)) return said(503, "worker");
    return (await responds(kernel)) ? said(200, "ready") : said(503, "store");
  });
}

async function responds(kernel: Kernel): Promise<boolean> {
  const answered = new AbortController();
  const isThere = kernel.read([ANY]).then(
    () => true,
    () => false,
  );
  try {
    const late = pause(kernel.ports.clock, STORE_MS, answered.signal).then(() => false);
    return await Promise.race([isThere, late]);
  } finally {
    answered.abort();
  }
}

const said = (status: number, word: string): Response =>
  new Response(`${word}\n`, { status, headers: { "content-type": "text/plain", "cache-control": "no-store" } });
