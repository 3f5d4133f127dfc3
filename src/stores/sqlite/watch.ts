/**
 * Noticing other processes' commits: the write-ahead log file changes, and then `data_version` says whether another process committed. This
 * process's own commits do not change it.
 *
 * The file changes a little before the commit is visible, by as long as the disk takes to sync. So after each change, `data_version` is
 * read repeatedly, less and less often, until there is a change to see. A slow poll takes over if the file system reports no changes.
 */

import { watch as watchFile } from "node:fs";
import type { Clock } from "../../kernel/ports.ts";

const POLL_MS = 500;
/** Together about a quarter of a second: a longer sync is left to the poll. */
const CHECK_AFTER_MS = [1, 1, 1, 1, 2, 4, 8, 16, 32, 64, 128] as const;

export function watchCommits(
  walPath: string,
  clock: Clock,
  dataVersion: () => number,
  changed: () => void,
): () => void {
  let seen = tryOr(-1, dataVersion);
  let checks = 0;
  let waitMs = 0;
  let cancel = () => {};

  const checkAfter = (ms: number) => {
    cancel();
    waitMs = ms;
    cancel = clock.after(ms, check);
  };
  const check = () => {
    const now = tryOr(seen, dataVersion);
    const isNew = now !== seen;
    seen = now;
    checks += 1;
    checkAfter(isNew ? POLL_MS : (CHECK_AFTER_MS[checks] ?? POLL_MS));
    if (isNew) changed();
  };
  const watcher = startWatcher(walPath, () => {
    checks = 0;
    // A check that is about to happen is not postponed, or a busy file would postpone it forever.
    if (waitMs > CHECK_AFTER_MS[0]) checkAfter(CHECK_AFTER_MS[0]);
  });
  checkAfter(POLL_MS);
  return () => {
    cancel();
    watcher?.close();
  };
}

/** While another process recovers the log file, even this cannot be read; the poll tries again. */
function tryOr<T>(otherwise: T, act: () => T): T {
  try {
    return act();
  } catch {
    return otherwise;
  }
}

/** Some file systems cannot be watched; then only the poll is used. */
function startWatcher(path: string, onChange: () => void): { close(): void } | undefined {
  try {
    const watcher = watchFile(path, onChange);
    watcher.on("error", () => watcher.close());
    return watcher;
  } catch {
    return undefined;
  }
}
