/**
 * What event streams hold for clients that have not read it yet: bounded for each stream and for all of them.
 *
 * A stream hands over one chunk, and reads on when the client has taken it. Where a client takes longer than `TAKE_MS`, it is disconnected. Where all streams
 * together hold more than `limits.unreadBytes`, one is disconnected of the tenant that holds the most: the one that has been waited for longest. It loses
 * nothing: it continues with `Last-Event-ID`.
 *
 * What streams read at the same time would be bounded by nothing else, so only `TOGETHER` of them do. The others wait in line, where tenants take turns,
 * and within a tenant its API keys: however many streams of one wait, another waits for one turn of each.
 */

import type { Clock } from "../../kernel/ports.ts";

const TAKE_MS = 60_000;
const TOGETHER = 8;

/** Whose stream it is. */
export interface Reader {
  readonly namespace: string;
  /** Null on a server without keys. */
  readonly keyId: string | null;
}

interface Held {
  readonly namespace: string;
  readonly drop: () => void;
}

export class Unread {
  readonly #clock: Clock;
  readonly #mostBytes: number;
  #bytes = 0;
  readonly #bytesOf = new Map<string, number>();
  /** The oldest first. */
  readonly #held = new Set<Held>();
  #reading = 0;
  readonly #line = new Line();

  constructor(clock: Clock, mostBytes: number) {
    this.#clock = clock;
    this.#mostBytes = mostBytes;
  }

  /** Reads when it is this stream's turn. */
  async turn<T>(reader: Reader, read: () => Promise<T>): Promise<T> {
    if (this.#reading < TOGETHER) this.#reading += 1;
    else await new Promise<void>((resolve) => this.#line.push(reader, resolve));
    try {
      return await read();
    } finally {
      // The turn passes to the next in line.
      const next = this.#line.shift();
      if (next === undefined) this.#reading -= 1;
      else next();
    }
  }

  /** Counts a chunk until the client has taken it, which the returned function says. `drop` disconnects the client and calls that function, too. */
  hold({ namespace }: Reader, bytes: number, drop: () => void): () => void {
    const held = { namespace, drop };
    const cancel = this.#clock.after(TAKE_MS, drop);
    this.#held.add(held);
    this.#count(namespace, bytes);
    while (this.#bytes > this.#mostBytes) {
      const slowest = this.#slowestBeside(held);
      // One chunk is sent however large it is.
      if (slowest === undefined) break;
      slowest.drop();
    }
    return () => {
      if (!this.#held.delete(held)) return;
      this.#count(namespace, -bytes);
      cancel();
    };
  }

  /** The oldest of the tenant that holds the most, but for the newest of all. */
  #slowestBeside(newest: Held): Held | undefined {
    let [most] = this.#bytesOf;
    for (const one of this.#bytesOf) if (most === undefined || one[1] > most[1]) most = one;
    for (const one of this.#held) if (one !== newest && one.namespace === most?.[0]) return one;
    return undefined;
  }

  #count(namespace: string, bytes: number): void {
    this.#bytes += bytes;
    const now = (this.#bytesOf.get(namespace) ?? 0) + bytes;
    if (now === 0) this.#bytesOf.delete(namespace);
    else this.#bytesOf.set(namespace, now);
  }
}

type Go = () => void;

/** A line in which tenants take turns, and the API keys of a tenant take its turns in turn. The first in a map is the next. */
class Line {
  readonly #tenants = new Map<string, Map<string | null, Go[]>>();

  push({ namespace, keyId }: Reader, go: Go): void {
    const keys = this.#tenants.get(namespace) ?? new Map<string | null, Go[]>();
    const line = keys.get(keyId) ?? [];
    line.push(go);
    this.#tenants.set(namespace, keys.set(keyId, line));
  }

  shift(): Go | undefined {
    const [tenant] = this.#tenants;
    if (tenant === undefined) return undefined;
    const [namespace, keys] = tenant;
    const [[keyId, line] = [null, []]] = keys;
    const go = line.shift();
    keys.delete(keyId);
    if (line.length > 0) keys.set(keyId, line);
    this.#tenants.delete(namespace);
    if (keys.size > 0) this.#tenants.set(namespace, keys);
    return go;
  }
}
