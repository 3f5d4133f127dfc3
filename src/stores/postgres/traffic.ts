/**
 * What a process sees of the server through one pool, so that a call that gets no connection can say why: the pool is too small, or the server does not
 * reply. A server that is frozen (a paused machine, a hung disk, a network that loses everything) keeps all connections busy as well.
 *
 * The pool may be the application's: its own statements are not seen. Where only they are waiting, the pool counts as too small.
 */

/** A reading of the counters of a pool. */
export interface Traffic {
  readonly atMs: number;
  /** How often anything came from the server: a reply, or a new connection. */
  readonly replies: number;
  /** Since when Pawl is waiting for the reply that it has waited for longest; null if for none. */
  readonly waitingSinceMs: number | null;
  /** How often Pawl has given up waiting for a reply. */
  readonly silences: number;
  /** How many connections are being made now. */
  readonly connecting: number;
}

/** Why no connection came between these two readings. */
export function whyNoConnection(before: Traffic, after: Traffic): "pool" | "server" {
  if (after.replies !== before.replies) return "pool";
  const isConnecting = before.connecting > 0 || after.connecting > 0;
  // A statement of the last moment says nothing: the connection may have become free just before.
  const isWaiting = after.waitingSinceMs !== null && after.waitingSinceMs <= (before.atMs + after.atMs) / 2;
  return isConnecting || isWaiting || after.silences !== before.silences ? "server" : "pool";
}

/** The events and the counter of a Pool of `pg`; other pools may lack them. */
interface PoolEvents<Client> {
  readonly totalCount?: number;
  on?(event: "connect" | "remove", listener: (client: Client) => void): unknown;
  off?(event: "connect" | "remove", listener: (client: Client) => void): unknown;
}

/** The counters of one pool. */
export class PoolTraffic<Client> {
  readonly #pool: PoolEvents<Client>;
  readonly #connected: (client: Client) => void;
  readonly #removed = (): void => void this.#made--;
  /** Connections that were made; those from before this process looked had been. */
  #made: number;
  #replies = 0;
  /** When they were sent, for the statements that wait for a reply, in order. */
  readonly #pending = new Set<{ readonly sinceMs: number }>();
  #silences = 0;

  constructor(pool: object, connected: (client: Client) => void) {
    this.#pool = pool as PoolEvents<Client>;
    this.#made = this.#pool.totalCount ?? 0;
    this.#connected = (client) => {
      this.#made += 1;
      this.#replies += 1;
      connected(client);
    };
    this.#pool.on?.("connect", this.#connected);
    this.#pool.on?.("remove", this.#removed);
  }

  /** Removes the listeners from the pool. */
  close(): void {
    this.#pool.off?.("connect", this.#connected);
    this.#pool.off?.("remove", this.#removed);
  }

  /** Statements were sent. Returns what is to be called when their reply came, or was given up; later calls do nothing. */
  sent(nowMs: number): (how: "replied" | "silent" | "lost") => void {
    const one = { sinceMs: nowMs };
    this.#pending.add(one);
    return (how) => {
      if (!this.#pending.delete(one)) return;
      if (how === "replied") this.#replies += 1;
      else if (how === "silent") this.#silences += 1;
    };
  }

  read(nowMs: number): Traffic {
    const [oldest] = this.#pending;
    return {
      atMs: nowMs,
      replies: this.#replies,
      waitingSinceMs: oldest?.sinceMs ?? null,
      silences: this.#silences,
      connecting: Math.max(0, (this.#pool.totalCount ?? 0) - this.#made),
    };
  }
}
