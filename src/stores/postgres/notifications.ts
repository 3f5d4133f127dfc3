/**
 * Notifications: notifying other processes of commits, and being notified of theirs.
 *
 * A notification inside the data's transaction would make all commits of the server wait for one another, so each batch is followed by a
 * small separate transaction that only notifies; while one is in progress, further batches share the next (`Notifier`). Listeners announce
 * themselves, so without listeners nothing is sent. Listening takes a connection of its own, is tested when it starts, and resumes when the
 * connection is lost: `listening.ts` has its states, and `Notifications` acts on them. The marks are always polled as well: slowly if
 * notifications arrive, faster if they do not.
 */

import type { Clock } from "../../kernel/ports.ts";
import type { Connection, ConnectionPool } from "./connections.ts";
import { type Listening, type ListeningEvent, LOOK_UP_MS, mustAnnounce, nextListening, pollMs } from "./listening.ts";

/** How long the test notification may take, from when it was sent. */
const SELF_TEST_MS = 2000;

/** Not prepared, so that it also works before it is known whether statements can be prepared. Allowed in read-only transactions. */
const NOTIFY = { name: "", text: "select pg_notify($1, $2), set_config('synchronous_commit', 'off', true)" };

export interface NotificationOptions {
  readonly connections: ConnectionPool;
  readonly clock: Clock;
  readonly channel: string;
  /** Distinguishes this process's notifications from those of others. */
  readonly writer: string;
  /** Changes with every batch that another process commits. */
  readonly readMarks: () => Promise<string>;
  /** Announces that this process listens. */
  readonly announce: () => Promise<void>;
  /** Whether another process recently announced that it listens. */
  readonly hasListeners: () => Promise<boolean>;
}

const ignore = (): void => {};

/** The end of a test notification's payload. */
const TEST = " test";

/** A connection that listens. */
interface Subscription {
  /** Whether the test notification arrived; rejects if the connection failed before that. */
  readonly isReceived: Promise<boolean>;
  end(): void;
}

/** Starts to listen on this connection, and tests whether a notification arrives. */
function subscribe(
  connection: Connection,
  { connections, clock, channel, writer }: NotificationOptions,
  received: (payload: string) => void,
  lost: () => void,
): Subscription {
  const { promise, resolve, reject } = Promise.withResolvers<boolean>();
  let isOver = false;
  let cancel = ignore;
  const endTest = (isReceived = false) => {
    isOver = true;
    cancel();
    resolve(isReceived);
  };
  connection.listen(
    (payload) => {
      if (payload === `${writer}${TEST}`) endTest(true);
      else if (payload !== writer && !payload.endsWith(TEST)) received(payload);
    },
    () => {
      endTest();
      lost();
    },
  );
  const test = async () => {
    await connection.send([{ statement: { name: "", text: `listen ${channel}` }, values: [] }]);
    await connections.use((other) => other.send([{ statement: NOTIFY, values: [channel, `${writer}${TEST}`] }]));
    // A process that was busy for that long has not looked yet what arrived meanwhile.
    if (!isOver) cancel = clock.after(SELF_TEST_MS, () => clock.soon(endTest));
  };
  test().catch(reject);
  const end = () => {
    endTest();
    drop(connection);
  };
  return { isReceived: promise, end };
}

export class Notifications {
  readonly #options: NotificationOptions;
  readonly #notifier: Notifier;
  readonly #watchers = new Set<() => void>();
  #state: Listening<Subscription> = { is: "idle" };
  #cancelRetry = ignore;
  #cancelPoll = ignore;
  /** The marks at the last poll. */
  #seen: string | undefined;

  constructor(options: NotificationOptions) {
    this.#options = options;
    this.#notifier = new Notifier(options);
  }

  /** Whether notifications arrive at all. */
  async test(): Promise<boolean> {
    if (!this.#options.connections.isLarge) return false;
    const subscription = subscribe(await this.#options.connections.take(), this.#options, ignore, ignore);
    try {
      return await subscription.isReceived;
    } finally {
      subscription.end();
    }
  }

  /** Notifies other processes of a commit. */
  notify(): void {
    this.#notifier.notify();
  }

  watch(changed: () => void): () => void {
    const watcher = () => changed();
    this.#watchers.add(watcher);
    if (this.#watchers.size === 1) {
      this.#seen = undefined;
      void this.#poll();
      this.#move({ is: "watched", hasSpareConnection: this.#options.connections.isLarge });
    }
    return () => {
      this.#watchers.delete(watcher);
      if (this.#watchers.size === 0) this.#move({ is: "unwatched" });
    };
  }

  /** Waits for the notification of the last commit. */
  async close(): Promise<void> {
    this.#watchers.clear();
    this.#move({ is: "unwatched" });
    await this.#notifier.ended();
  }

  /** The only place where the state changes: ends what belongs to the old state, and starts what the new one needs. */
  #move(event: ListeningEvent<Subscription>): void {
    const before = this.#state;
    const after = nextListening(before, event);
    this.#state = after;
    if ("connection" in before && !("connection" in after)) before.connection.end();
    if (after.is === before.is) return;
    this.#cancelRetry();
    switch (after.is) {
      case "idle":
        this.#cancelPoll();
        break;
      case "starting":
        void this.#connect(after);
        break;
      case "testing":
        void this.#awaitTest(after.connection);
        break;
      case "listening":
        // Commits from before this process listened must be looked for.
        this.#callWatchers();
        void this.#poll();
        break;
      case "polling":
        if (after.pauseMs !== null) this.#retryAfter(after.pauseMs);
        break;
      case "waiting":
        this.#retryAfter(after.pauseMs);
        void this.#poll();
        break;
    }
  }

  #retryAfter(ms: number): void {
    this.#cancelRetry = this.#options.clock.after(ms, () => this.#move({ is: "retry" }));
  }

  async #connect(starting: Listening<Subscription>): Promise<void> {
    const { connections } = this.#options;
    try {
      const listener = await connections.take();
      // The last watcher left, or another attempt was started meanwhile.
      if (this.#state !== starting) return drop(listener);
      const connection: Subscription = subscribe(
        listener,
        this.#options,
        () => {
          if (this.#isCurrent(connection)) this.#callWatchers();
        },
        () => {
          if (this.#isCurrent(connection)) this.#move({ is: "failed" });
        },
      );
      this.#move({ is: "connected", connection });
    } catch {
      if (this.#state === starting) this.#move({ is: "failed" });
    }
  }

  async #awaitTest(connection: Subscription): Promise<void> {
    const tested = (isReceived: boolean) => ({ is: "tested", isReceived }) as const;
    const event = await connection.isReceived.then(tested, () => ({ is: "failed" }) as const);
    if (this.#isCurrent(connection)) this.#move(event);
  }

  /** Whether an event belongs to the current connection, and not to an earlier one. */
  #isCurrent(connection: Subscription): boolean {
    return "connection" in this.#state && this.#state.connection === connection;
  }

  get #isWatching(): boolean {
    return this.#watchers.size > 0;
  }

  #callWatchers(): void {
    for (const changed of [...this.#watchers]) changed();
  }

  async #poll(): Promise<void> {
    this.#cancelPoll();
    const { clock } = this.#options;
    if (mustAnnounce(this.#state, clock.nowMs())) await this.#announce();
    try {
      const marks = await this.#options.readMarks();
      const isNew = this.#seen !== undefined && this.#seen !== marks;
      this.#seen = marks;
      if (isNew && this.#isWatching) this.#callWatchers();
    } catch {
      // The next poll will see the change.
    }
    if (!this.#isWatching) return;
    this.#cancelPoll();
    this.#cancelPoll = clock.after(pollMs(this.#state, clock.nowMs()), () => void this.#poll());
  }

  async #announce(): Promise<void> {
    try {
      await this.#options.announce();
      this.#move({ is: "announced", nowMs: this.#options.clock.nowMs() });
    } catch {
      // Retried with the next poll. Until then nothing is sent to this process, and it polls quickly.
    }
  }
}

/** Notifies the other processes of our commits, if any of them listens. */
class Notifier {
  readonly #options: NotificationOptions;
  /** Set while notifying. */
  #notifying: Promise<void> | undefined;
  /** Whether there is a commit that no notification covers yet. */
  #hasUnsent = false;
  #listeners = { exist: false, untilMs: Number.NEGATIVE_INFINITY };

  constructor(options: NotificationOptions) {
    this.#options = options;
  }

  notify(): void {
    this.#hasUnsent = true;
    // Starts later, so that `#notifying` is set before it is cleared.
    this.#notifying ??= Promise.resolve().then(() => this.#notify());
  }

  async ended(): Promise<void> {
    await this.#notifying;
  }

  async #notify(): Promise<void> {
    const { connections, channel, writer, clock, hasListeners } = this.#options;
    try {
      while (this.#hasUnsent) {
        this.#hasUnsent = false;
        if (clock.nowMs() >= this.#listeners.untilMs)
          this.#listeners = { exist: await hasListeners(), untilMs: clock.nowMs() + LOOK_UP_MS };
        if (!this.#listeners.exist) continue;
        await connections.use((connection) => connection.send([{ statement: NOTIFY, values: [channel, writer] }]));
      }
    } catch {
      // The other processes poll.
    } finally {
      this.#notifying = undefined;
    }
  }
}

/** Ends a connection that listens, so that it is not reused. */
function drop(connection: Connection): void {
  connection.markUnusable();
  void connection.end();
}
