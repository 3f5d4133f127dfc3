/**
 * Hearing of other processes' commits: the write-ahead log file changes, and then `data_version` tells whether it was
 * somebody else. Own commits leave it as it is.
 *
 * The file changes a little before the commit can be seen, by as long as the disk takes to sync. So after each change one looks
 * again and again, less and less often, until there is something to see. A slow poll stands in where the file system does not tell.
 */

import { watch as watchFile } from "node:fs";
import type { Clock } from "../../kernel/ports.ts";

const POLL_MS = 500;
/** Together about a quarter of a second: a sync that takes longer is left to the poll. */
const LOOK_AFTER_MS = [1, 1, 1, 1, 2, 4, 8, 16, 32, 64, 128] as const;

export function watchCommits(
  walPath: string,
  clock: Clock,
  dataVersion: () => number,
  changed: () => void,
): () => void {
  let seen = tryOr(-1, dataVersion);
  let looks = 0;
  let waitMs = 0;
  let cancel = () => {};

  const lookAfter = (ms: number) => {
    cancel();
    waitMs = ms;
    cancel = clock.after(ms, look);
  };
  const look = () => {
    const now = tryOr(seen, dataVersion);
    const isNew = now !== seen;
    seen = now;
    looks += 1;
    lookAfter(isNew ? POLL_MS : (LOOK_AFTER_MS[looks] ?? POLL_MS));
    if (isNew) changed();
  };
  const watcher = startWatcher(walPath, () => {
    looks = 0;
    // A look that is about to happen is not put off, or a busy file would put it off for ever.
    if (waitMs > LOOK_AFTER_MS[0]) lookAfter(LOOK_AFTER_MS[0]);
  });
  lookAfter(POLL_MS);
  return () => {
    cancel();
    watcher?.close();
  };
}

/** While another process recovers the log file, even this cannot be read; the poll asks again. */
function tryOr<T>(otherwise: T, act: () => T): T {
  try {
    return act();
  } catch {
    return otherwise;
  }
}

/** Some file systems cannot watch; the poll does it alone there. */
function startWatcher(path: string, onChange: () => void): { close(): void } | undefined {
  try {
    const watcher = watchFile(path, onChange);
    watcher.on("error", () => watcher.close());
    return watcher;
  } catch {
    return undefined;
  }
}
