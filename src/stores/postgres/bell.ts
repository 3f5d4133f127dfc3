/**
 * The bell: telling other processes of our commits, and receiving word of theirs.
 *
 * A notification inside the data's transaction would make all commits of the server wait for one another, so each batch is followed
 * by a small transaction of its own that only notifies; while one is under way, further batches share the next (`Teller`). Listeners
 * announce themselves, so where there are none, nothing is sent. Listening takes a connection of its own, is tested when it starts,
 * and resumes when the connection is lost: `listening.ts` has its states, and `Bell` acts on them. There is always a poll of the marks
 * as well: slow where notifications arrive, faster where they do not.
 */

import type { Clock } from "../../kernel/ports.ts";
import type { Line, LinePool } from "./lines.ts";
import { type Listening, type ListeningEvent, LOOK_UP_MS, mustAnnounce, nextListening, pollMs } from "./listening.ts";

/** How long the test notification may take. */
const SELF_TEST_MS = 2000;

/** Not worth preparing, and so it also works before it is known whether that can be done. Allowed where transactions are read-only. */
const NOTIFY = { name: "", text: "select pg_notify($1, $2), set_config('synchronous_commit', 'off', true)" };

export interface BellOptions {
  readonly lines: LinePool;
  readonly clock: Clock;
  readonly channel: string;
  /** Distinguishes our own notifications from those of others. */
  readonly writer: string;
  /** Changes with every batch that another process commits. */
  readonly readMarks: () => Promise<string>;
  /** Announces that this process listens. */
  readonly announce: () => Promise<void>;
  /** Whether another process announced lately that it listens. */
  readonly hasListeners: () => Promise<boolean>;
}

const silent = (): void => {};

/** What a test notification ends in. */
const TEST = " hears";

/** A connection that listens. */
interface Subscription {
  /** Whether a notification of our own arrived; rejects if the connection failed before that. */
  readonly isReceived: Promise<boolean>;
  end(): void;
}

/** Starts to listen on this line, and tests whether a notification of our own arrives. */
function subscribe(
  line: Line,
  { lines, clock, channel, writer }: BellOptions,
  received: (payload: string) => void,
  lost: () => void,
): Subscription {
  const { promise, resolve, reject } = Promise.withResolvers<boolean>();
  const cancel = clock.after(SELF_TEST_MS, () => resolve(false));
  const endTest = () => {
    cancel();
    resolve(false);
  };
  line.listen(
    (payload) => {
      if (payload === `${writer}${TEST}`) {
        cancel();
        resolve(true);
      } else if (payload !== writer && !payload.endsWith(TEST)) received(payload);
    },
    () => {
      endTest();
      lost();
    },
  );
  const test = async () => {
    await line.send([{ statement: { name: "", text: `listen ${channel}` }, values: [] }]);
    await lines.use((other) => other.send([{ statement: NOTIFY, values: [channel, `${writer}${TEST}`] }]));
  };
  test().catch((error) => {
    cancel();
    reject(error);
  });
  const end = () => {
    endTest();
    drop(line);
  };
  return { isReceived: promise, end };
}

export class Bell {
  readonly #options: BellOptions;
  readonly #teller: Teller;
  readonly #watchers = new Set<() => void>();
  #state: Listening<Subscription> = { is: "idle" };
  #cancelRetry = silent;
  #cancelPoll = silent;
  /** The marks at the last poll. */
  #seen: string | undefined;

  constructor(options: BellOptions) {
    this.#options = options;
    this.#teller = new Teller(options);
  }

  /** Whether notifications arrive at all. */
  async test(): Promise<boolean> {
    if (!this.#options.lines.isLarge) return false;
    const subscription = subscribe(await this.#options.lines.take(), this.#options, silent, silent);
    try {
      return await subscription.isReceived;
    } finally {
      subscription.end();
    }
  }

  /** We committed something. */
  tell(): void {
    this.#teller.tell();
  }

  watch(changed: () => void): () => void {
    const watcher = () => changed();
    this.#watchers.add(watcher);
    if (this.#watchers.size === 1) {
      this.#seen = undefined;
      void this.#poll();
      this.#move({ is: "watched", hasSpareConnection: this.#options.lines.isLarge });
    }
    return () => {
      this.#watchers.delete(watcher);
      if (this.#watchers.size === 0) this.#move({ is: "unwatched" });
    };
  }

  /** What was committed last is still told. */
  async close(): Promise<void> {
    this.#watchers.clear();
    this.#move({ is: "unwatched" });
    await this.#teller.ended();
  }

  /** The only place where the state changes: leaves what the old one had, and begins what the new one is for. */
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
        // What was committed before this process listened has to be looked for.
        this.#ring();
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
    const { lines } = this.#options;
    try {
      const line = await lines.take();
      // There is no watcher any more, or another attempt was begun meanwhile.
      if (this.#state !== starting) return drop(line);
      const connection: Subscription = subscribe(
        line,
        this.#options,
        () => {
          if (this.#isCurrent(connection)) this.#ring();
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

  /** What belongs to an earlier connection may still arrive. */
  #isCurrent(connection: Subscription): boolean {
    return "connection" in this.#state && this.#state.connection === connection;
  }

  get #isWatching(): boolean {
    return this.#watchers.size > 0;
  }

  #ring(): void {
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
      if (isNew && this.#isWatching) this.#ring();
    } catch {
      // The next poll finds it.
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
      // Tried again with the next poll; until then nothing is sent to this process, and it polls quickly.
    }
  }
}

/** Notifies the other processes of our commits, if any of them listens. */
class Teller {
  readonly #options: BellOptions;
  /** Set while notifying. */
  #telling: Promise<void> | undefined;
  /** Whether something was committed that no notification stands for yet. */
  #isNews = false;
  #listeners = { areThere: false, untilMs: Number.NEGATIVE_INFINITY };

  constructor(options: BellOptions) {
    this.#options = options;
  }

  tell(): void {
    this.#isNews = true;
    // Later, so that it has not ended before it is known to have begun.
    this.#telling ??= Promise.resolve().then(() => this.#tell());
  }

  async ended(): Promise<void> {
    await this.#telling;
  }

  async #tell(): Promise<void> {
    const { lines, channel, writer, clock, hasListeners } = this.#options;
    try {
      while (this.#isNews) {
        this.#isNews = false;
        if (clock.nowMs() >= this.#listeners.untilMs)
          this.#listeners = { areThere: await hasListeners(), untilMs: clock.nowMs() + LOOK_UP_MS };
        if (!this.#listeners.areThere) continue;
        await lines.use((line) => line.send([{ statement: NOTIFY, values: [channel, writer] }]));
      }
    } catch {
      // The others poll.
    } finally {
      this.#telling = undefined;
    }
  }
}

/** It listens, so no other may use it. */
function drop(line: Line): void {
  line.spoil();
  void line.end();
}
