/**
 * Shared by the tests of real SQLite files: a temporary folder, the child processes of `children/`, and reading a file
 * directly.
 */

import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { DatabaseSync } from "node:sqlite";
import { afterAll } from "vitest";
import { Child, spawnNode } from "../node/child.ts";
import { memoryFolder } from "../node/memory-folder.ts";

export type { Child } from "../node/child.ts";

/** A folder of its own for a test file, removed after its last test; in memory, also in the long suite, where the disk plays no part. */
export function scratchFolder(where: "on disk" | "in memory" = "on disk"): string {
  const parent = where === "in memory" ? memoryFolder() : null;
  const folder = mkdtempSync(join(parent ?? tmpdir(), "pawl-sqlite-"));
  afterAll(() => rmSync(folder, { recursive: true, force: true, maxRetries: 3 }));
  return folder;
}

/** Starts a program of `children/`. */
export function startChild(program: string, args: readonly string[]): Child {
  return new Child(spawnNode(join(import.meta.dirname, "children", program), args), program);
}

/** What SQLite itself says of the file: "ok", or what is wrong with it. */
export function integrityOf(path: string): string {
  const db = new DatabaseSync(path);
  try {
    return allOf(db, "pragma integrity_check")
      .map((row) => String(row["integrity_check"]))
      .join("; ");
  } finally {
    db.close();
  }
}

export function allOf(db: DatabaseSync, sql: string, ...values: (string | number)[]): Record<string, unknown>[] {
  return db.prepare(sql).all(...values);
}

/** What stands in the slots of the file, by name, in one snapshot. */
export function slotsIn(db: DatabaseSync): Map<string, unknown> {
  const rows = allOf(db, "select key, value from pawl_now where namespace = 'default' and space = 'slot'");
  return new Map(rows.map((row) => [String(row["key"]), JSON.parse(String(row["value"]))]));
}

export const sleep = (ms: number): Promise<void> => new Promise((resolve) => setTimeout(resolve, ms));

export function median(numbers: readonly number[]): number {
  const sorted = numbers.toSorted((a, b) => a - b);
  return sorted[Math.floor(sorted.length / 2)] ?? Number.NaN;
}
