/**
 * A temporary folder whose files are in memory, for tests that need files but not a disk: a commit there costs no write to a disk, and so
 * neither the time nor half of the processor time. What a process has written is there after its SIGKILL all the same; only a power cut would
 * tell the difference, and no test makes one. The long suite keeps to the disk, so that the real fsync is used as well.
 */

import { readFileSync, statfsSync } from "node:fs";
import { freemem } from "node:os";

/** More than all tests that run concurrently ever had in files, several times over. */
const NEEDED_BYTES = 3 * 2 ** 30;

/**
 * Null where the system's temporary folder is to be used: one was chosen (`TMPDIR`), or the machine has no such folder, or it is small or no program
 * may run from it, as in some containers.
 */
export function memoryFolder(path = "/dev/shm"): string | null {
  if (process.env["TMPDIR"] !== undefined) return null;
  try {
    const mount = readFileSync("/proc/mounts", "utf8")
      .split("\n")
      .map((line) => line.split(" "))
      .find(([, place]) => place === path);
    const [, , type, options = ""] = mount ?? [];
    if (type !== "tmpfs" || options.split(",").some((option) => option === "noexec" || option === "ro")) return null;
    const { bavail, bsize } = statfsSync(path);
    return Math.min(bavail * bsize, freemem()) >= NEEDED_BYTES ? path : null;
  } catch {
    return null;
  }
}
