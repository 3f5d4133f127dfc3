/**
 * The commands on a store that this process opens.
 */

import { apiKeys } from "../http/server/keys/keys.ts";
import { toWire } from "../http/server/values.ts";
import { framesOf } from "../kernel/stack.ts";
import type { Lock } from "../lock/lock.ts";
import { type LockRef, lockAt, lockOf } from "../lock/stored.ts";
import type { Pawl } from "../pawl.ts";
import { STREAMS } from "../stream/stored.ts";
import type { Backend, LockLine, LockName, StreamLine } from "./backend.ts";
import { backendOn } from "./calls.ts";

export function storeBackend(pawl: Pawl, place: string): Backend {
  return backendOn(pawl, {
    place,
    keys: apiKeys(pawl),
    lock: (lock) => lockOn(pawl, lock),
    listLocks: async ({ kind, prefix = "", after = null, limit }) => {
      const rows = await pawl.kernel.list({ space: lockAt({ kind, name: "" }).space, prefix, after, limit: limit + 1 });
      const page = rows.slice(0, limit);
      return {
        items: page.map((row) => lockLine({ kind, name: row.key }, pawl.kernel.decode(row, row.value ?? "[[]]"))),
        next: rows.length > limit ? (page.at(-1)?.key ?? null) : null,
      };
    },
    listStreams: async ({ prefix = "", after = null, limit }) => {
      const rows = await pawl.kernel.list({ space: STREAMS, prefix, after, limit: limit + 1 });
      const page = rows.slice(0, limit);
      return {
        items: page.map(
          ({ key, head, status }): StreamLine => ({ stream: key, version: head, status: status ?? "open" }),
        ),
        next: rows.length > limit ? (page.at(-1)?.key ?? null) : null,
      };
    },
    exportStreams: async (prefix, write, wrote) => {
      const target = {
        write: (piece: string, written: (error?: Error | null) => void) => {
          wrote(piece.split("\n").length - 1);
          write(piece).then(() => written(), written);
        },
      };
      return (await pawl.streams.export({ prefix }, target, { from: "kept" })).partial ?? [];
    },
    toWire,
    framesOf,
    close: () => pawl.close(),
  });
}

/** A handle that inspects and intervenes: it declares no permits and has no lease. */
function lockOn(pawl: Pawl, { kind, name }: LockName): Lock {
  if (kind === "mutex") return pawl.mutex(name);
  return kind === "semaphore" ? pawl.semaphore(name) : pawl.rwlock(name).write;
}

function lockLine({ kind, name }: LockRef, stored: unknown): LockLine {
  const { permits, holders, waiting } = lockOf(stored);
  const [first] = holders;
  return {
    name,
    kind,
    permits,
    held: holders.length,
    waiting,
    holder: first === undefined ? null : (first.owner?.run ?? first.by ?? first.ticket),
    fence: first?.fence ?? null,
    until: first === undefined || first.untilMs === null ? null : new Date(first.untilMs).toISOString(),
  };
}
