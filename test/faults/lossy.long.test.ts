/**
 * A server that loses commits under live processes; `npm run faults -- --lossy` does the same for longer.
 *
 * Goal: after a promotion or a restore that loses commits, nothing that is acknowledged afterwards is overwritten by what processes remember from
 * before it, and runs resume from the history that is there and keep it whole (G31).
 * Method: two workers append to lists, deposit and run workflows while a standby that is behind is promoted, twice, and a backup is restored once. A
 * ledger that no fault affects is compared with the database at the end.
 */

import { expect, it } from "vitest";
import { describeLossy, runLossy } from "./lossy.ts";

it("overwrites nothing that was acknowledged after the loss, and ends every run", async () => {
  const seed = Math.floor(Math.random() * 1_000_000);
  const report = await runLossy({ promotions: 2, restores: 1, seed, workers: 2 });
  console.log(`lossy: seed ${seed}; ${describeLossy(report)}`);
  expect(report.violations).toEqual([]);
  // It would show nothing if nothing had been lost.
  expect(report.works.get("appends")?.lost).toBeGreaterThan(10);
  for (const [name, { acknowledged, inDoubt }] of report.works)
    expect(acknowledged - inDoubt, name).toBeGreaterThan(20);
});
