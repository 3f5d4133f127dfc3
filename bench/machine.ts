/**
 * What the benchmark ran on, as far as it matters: no names of machines, people or folders.
 */

import { closeSync, fdatasyncSync, openSync, readFileSync, realpathSync, rmSync, statfsSync, writeSync } from "node:fs";
import { availableParallelism, cpus, totalmem } from "node:os";
import { join, sep } from "node:path";
import { type Disk, type Machine, median } from "./result.ts";

const SYNCS = 100;

/** The database by name and version, and a folder on the disk that it is on, if that is one of this machine. */
export function describeMachine(database: string, folder: string | null): Machine {
  return {
    platform: `${process.platform} ${process.arch}`,
    cpu: cpus()[0]?.model.trim() ?? "unknown",
    cores: availableParallelism(),
    memoryGiB: Math.round(totalmem() / 2 ** 30),
    node: process.versions.node,
    database,
    disk: folder === null ? null : describeDisk(folder),
  };
}

function describeDisk(folder: string): Disk {
  return { fileSystem: fileSystemOf(folder), syncMs: measureSync(folder) };
}

/** Linux has the name; other systems have a number. */
function fileSystemOf(folder: string): string {
  try {
    const path = realpathSync(folder) + sep;
    const mounts = readFileSync("/proc/mounts", "utf8").split("\n");
    const holding = mounts
      .map((line) => line.split(" "))
      .filter(([, at = "-"]) => path.startsWith(at.endsWith(sep) ? at : at + sep))
      .toSorted(([, a = ""], [, b = ""]) => b.length - a.length);
    const type = holding[0]?.[2];
    if (type !== undefined) return type;
  } catch {
    // There is no such list outside Linux.
  }
  return `type 0x${statfsSync(folder).type.toString(16)}`;
}

function measureSync(folder: string): number {
  const path = join(folder, `pawl-bench-sync-${process.pid}`);
  const file = openSync(path, "w");
  const page = Buffer.alloc(4096, 1);
  const times = Array.from({ length: SYNCS }, () => {
    const startedMs = performance.now();
    writeSync(file, page);
    fdatasyncSync(file);
    return performance.now() - startedMs;
  });
  closeSync(file);
  rmSync(path);
  return median(times);
}
