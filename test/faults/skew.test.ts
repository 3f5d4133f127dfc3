/** Clocks that are wrong: by JavaScript everywhere, and by libfaketime where it is installed. */

import { spawnSync } from "node:child_process";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, afterEach, describe, expect, it } from "vitest";
import { skewDate } from "./bench.ts";
import { monotonicNs } from "./ledger.ts";
import { findFaketime, skewedClock } from "./skew.ts";

const HOUR_MS = 3_600_000;
const folder = mkdtempSync(join(tmpdir(), "pawl-skew-"));
afterAll(() => rmSync(folder, { recursive: true, force: true }));

describe("JavaScript's clock", () => {
  afterEach(() => skewDate(0));

  it("is off in every way that it is asked, and a given time stays what it is", () => {
    const nowMs = Date.now();
    skewDate(-HOUR_MS);
    for (const shownMs of [Date.now(), Date.parse(new Date().toISOString()), Date.parse(Date())])
      expect(Math.abs(nowMs - HOUR_MS - shownMs)).toBeLessThan(10_000);
    expect(new Date(5).getTime()).toBe(5);
    expect(new Date(5)).toBeInstanceOf(Date);
    skewDate(0);
    expect(Math.abs(nowMs - Date.now())).toBeLessThan(10_000);
  });
});

describe("a process's clock", () => {
  it("is off where libfaketime is there, and is left to the process where not; the monotonic one is right", () => {
    const library = findFaketime();
    const clock = skewedClock(library, join(folder, "clock"), 24 * HOUR_MS);
    const script = "console.log(Date.now(), Number(process.hrtime.bigint()))";
    const { stdout } = spawnSync(process.execPath, ["-e", script], {
      env: { ...process.env, ...clock.env, NODE_OPTIONS: "" },
      encoding: "utf8",
    });
    const [wallMs = 0, atNs = 0] = stdout.split(" ").map(Number);
    const offMs = library === null ? 0 : 24 * HOUR_MS;
    expect(Math.abs(wallMs - Date.now() - offMs)).toBeLessThan(30_000);
    expect(Math.abs(monotonicNs() - atNs) / 1e6).toBeLessThan(30_000);
    expect(clock.set(0)).toBe(library !== null);
  });
});
