/**
 * A small disk that a test can fill to the page: a tmpfs of its own.
 *
 * Mounting takes root, or `sudo` without a password. Without either, the tests that need it fail with that reason: a
 * disk that is never full proves nothing. The same goes for a file that not even root may change.
 */

import { spawnSync } from "node:child_process";
import { mkdirSync, rmSync, statfsSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { onTestFinished } from "vitest";

export const PAGE_BYTES = 4096;

export class SmallDisk {
  readonly path: string;

  constructor(path: string, sizeMib: number) {
    this.path = path;
    mkdirSync(path, { recursive: true });
    asRoot("mount", "-t", "tmpfs", "-o", `size=${sizeMib}m,mode=1777`, "pawl-test", path);
  }

  get freePages(): number {
    const { bavail, bsize } = statfsSync(this.path);
    return (bavail * bsize) / PAGE_BYTES;
  }

  /** Leaves this many pages free, and no more. */
  fill(freePages: number): void {
    writeFileSync(join(this.path, "filling"), Buffer.alloc(Math.max(0, this.freePages - freePages) * PAGE_BYTES, 1));
    if (this.freePages > freePages) throw new Error(`the disk has ${this.freePages} pages free, not ${freePages}`);
  }

  makeRoom(): void {
    rmSync(join(this.path, "filling"), { force: true });
  }

  /** Takes the disk away, with whatever is still open on it. */
  remove(): void {
    asRoot("umount", "--lazy", this.path);
  }

  remount(how: "ro" | "rw"): void {
    asRoot("mount", "-o", `remount,${how}`, this.path);
  }
}

/** Lets nobody change the files, root included, until the answer is called or the test is over. */
export function makeImmutable(...paths: string[]): () => void {
  asRoot("chattr", "+i", ...paths);
  let released = false;
  const release = () => {
    if (!released) asRoot("chattr", "-i", ...paths);
    released = true;
  };
  onTestFinished(release);
  return release;
}

function asRoot(command: string, ...args: string[]): void {
  const direct = spawnSync(command, args, { encoding: "utf8" });
  if (direct.status === 0) return;
  if (spawnSync("sudo", ["-n", command, ...args]).status === 0) return;
  const said = direct.error?.message ?? direct.stderr.trim();
  throw new Error(
    `"${command} ${args.join(" ")}" failed: ${said}. This test makes a disk full or read-only for itself: run it as root, with sudo ` +
      "that asks for no password, or in a container that may mount (docker run --cap-add SYS_ADMIN).",
  );
}
