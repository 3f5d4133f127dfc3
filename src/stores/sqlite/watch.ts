/**
 * Hearing of other processes' commits: the write-ahead log file changes, and then `data_version` tells whether it was
 * somebody else. Own commits leave it as it is. A slow poll stands in where the file system does not tell.
 */

import { watch as watchFile } from "node:fs";
import type { Clock } from "../../kernel/ports.ts";

const POLL_MS = 500;

export function watchCommits(
  walPath: string,
  clock: Clock,
  dataVersion: () => number,
  changed: () => void,
): () => void {
  let seen = tryOr(-1, dataVersion);
  let checking = false;
  let stopped = false;
  const look = () => {
    checking = false;
    if (stopped) return;
    const now = tryOr(seen, dataVersion);
    if (now === seen) return;
    seen = now;
    changed();
  };
  const soon = () => {
    if (checking) return;
    checking = true;
    clock.soon(look);
  };
  let cancelPoll = clock.after(POLL_MS, function poll() {
    soon();
    cancelPoll = clock.after(POLL_MS, poll);
  });
  const watcher = startWatcher(walPath, soon);
  return () => {
    stopped = true;
    cancelPoll();
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
