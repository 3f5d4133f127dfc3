/**
 * What event streams hold for clients that have not read it yet: bounded for each stream and for all of them.
 *
 * A stream hands over one chunk, and reads on when the client has taken it. Where a client takes longer than `TAKE_MS`, or all streams together hold
 * more than `limits.unreadBytes`, it is disconnected; in the second case it is the one that has been waited for longest. It loses nothing: it continues with
 * `Last-Event-ID`. What streams read at the same time would be bounded by nothing else, so only `TOGETHER` of them do.
 */

import type { Clock } from "../../kernel/ports.ts";

const TAKE_MS = 60_000;
const TOGETHER = 8;

export class Unread {
  readonly #clock: Clock;
  readonly #mostBytes: number;
  #bytes = 0;
  /** The oldest first. */
  readonly #held = new Set<{ readonly drop: () => void }>();
  #reading = 0;
  readonly #line: (() => void)[] = [];

  constructor(clock: Clock, mostBytes: number) {
    this.#clock = clock;
    this.#mostBytes = mostBytes;
  }

  /** Reads when it is this stream's turn. */
  async turn<T>(read: () => Promise<T>): Promise<T> {
    if (this.#reading < TOGETHER) this.#reading += 1;
    else await new Promise<void>((resolve) => this.#line.push(resolve));
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
  hold(bytes: number, drop: () => void): () => void {
    const held = { drop };
    const cancel = this.#clock.after(TAKE_MS, drop);
    this.#held.add(held);
    this.#bytes += bytes;
    for (const oldest of this.#held) {
      // One chunk is sent however large it is.
      if (this.#bytes <= this.#mostBytes || oldest === held) break;
      oldest.drop();
    }
    return () => {
      if (!this.#held.delete(held)) return;
      this.#bytes -= bytes;
      cancel();
    };
  }
}
