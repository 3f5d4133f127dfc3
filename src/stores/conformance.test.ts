/**
 * Goal: every store of this package satisfies every law of the store contract.
 * Method: the suite that users get, on a fresh database for each law. The tests of the suite show that each law can fail.
 */

import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { describe, expect, test } from "vitest";
import { nodePorts, wallMs } from "../node/ports.ts";
import { type Difference, type Harness, storeConformance } from "../testing/conformance/conformance.ts";
import { MemoryDatabase } from "./memory/memory.ts";
import { openSqlite } from "./sqlite/sqlite.ts";

function memory(lanes: number): () => Promise<Harness> {
  return async () => {
    let nowMs = 1_800_000_000_000;
    const database = new MemoryDatabase(() => nowMs);
    return {
      connect: async (namespace = "default") => database.connect(namespace, { lanes }),
      clock: {
        advance: (ms) => {
          nowMs += ms;
        },
        set: (ms) => {
          nowMs = ms;
        },
      },
      close: async () => {},
    };
  };
}

/** `moved`: the laws set the clock. `real`: the machine's own clock. */
function sqlite(clock: "moved" | "real"): () => Promise<Harness> {
  return async () => {
    const folder = mkdtempSync(join(tmpdir(), "pawl-conformance-"));
    let offsetMs = 0;
    const storeMs = () => wallMs() + offsetMs;
    const options = { path: join(folder, "pawl.db"), ports: nodePorts, wallMs: storeMs, patienceMs: 5000 };
    const moving = {
      advance: (ms: number) => {
        offsetMs += ms;
      },
      set: (ms: number) => {
        offsetMs = ms - wallMs();
      },
    };
    return {
      connect: (namespace = "default") => openSqlite({ ...options, namespace, durability: "process" }),
      ...(clock === "moved" ? { clock: moving } : {}),
      close: async () => rmSync(folder, { recursive: true, force: true }),
    };
  };
}

interface StoreUnderTest {
  readonly name: string;
  readonly open: () => Promise<Harness>;
  /** Laws that the store need not satisfy. */
  readonly differences?: readonly Difference[];
}

const CLOCK_IS_REAL: Difference = {
  law: "a clock that steps back does not reorder a log: stamps go back, versions and positions increase",
  reason: "a test must not set back the machine's own clock",
};

const stores: readonly StoreUnderTest[] = [
  { name: "memory", open: memory(1) },
  { name: "memory, with three lanes", open: memory(3) },
  { name: "SQLite", open: sqlite("moved") },
  {
    name: "SQLite, on the machine's clock",
    open: sqlite("real"),
    differences: [CLOCK_IS_REAL],
  },
];

describe.each(stores)("$name", ({ open, differences = [] }) => {
  for (const law of storeConformance({ open, differences, patienceMs: 120_000 })) test(law.name, law.check);
});

test("a difference must name a law, and say why", () => {
  const open = memory(1);
  const withOne = (difference: Difference) => () => storeConformance({ open, differences: [difference] });
  expect(withOne({ ...CLOCK_IS_REAL, law: "no such law" })).toThrow(RangeError);
  expect(withOne({ ...CLOCK_IS_REAL, reason: " " })).toThrow(RangeError);
  expect(withOne(CLOCK_IS_REAL)).not.toThrow();
});

test("a law that sets the clock says so where there is none to set", async () => {
  const laws = storeConformance({ open: sqlite("real") }).filter((law) => law.setsClock);
  expect(laws.map((law) => law.name)).toEqual([CLOCK_IS_REAL.law]);
  for (const law of laws) await expect(law.check()).rejects.toThrow("clock can be set");
});
