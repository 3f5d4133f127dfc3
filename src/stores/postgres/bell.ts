/**
 * The bell: telling other processes of our commits, and hearing of theirs.
 *
 * A notification inside the data's transaction would make all commits of the server wait for one another, so each batch is followed
 * by a small transaction of its own that only notifies; while one is under way, further batches share the next. Listeners say that
 * they are there, so where there are none, nobody is told and nothing is spent. Listening takes
 * a connection of its own, is tested when it starts, and is taken up again when it is lost. Since a crash can lose a notification,
 * and a pooler swallows them all, there is always a poll of the marks as well: slow where listening works, faster where not.
 */

import type { Clock } from "../../kernel/ports.ts";
import type { Line, LinePool } from "./lines.ts";

const SAFETY_POLL_MS = 2000;
const FALLBACK_POLL_MS = 200;
const SELF_TEST_MS = 2000;
const RELISTEN_MS = [100, 200, 500, 1000, 2000, 5000] as const;
/** Where listening does not work, it is tried again this often. */
const RETEST_MS = 60_000;
/** Whether anybody listens is looked up this often at most; without a listener nobody is told. */
const ASK_MS = 1000;
/** A listener says so anew this often. */
const LISTENING_MS = 20_000;
/** How long everybody may take to notice a new listener; it polls quickly for so long. */
const NEW_MS = 2 * ASK_MS;

/** Not worth preparing, and so it also works before it is known whether that can be done. */
const NOTIFY = { name: "", text: "select pg_notify($1, $2), set_config('synchronous_commit', 'off', true)" };

export interface BellOptions {
  readonly lines: LinePool;
  readonly clock: Clock;
  readonly channel: string;
  /** What tells our own notifications from those of others. */
  readonly writer: string;
  /** Changes with every batch that another process commits. */
  readonly marks: () => Promise<string>;
  /** Says that this process listens. */
  readonly sayListening: () => Promise<void>;
  /** Whether another process said so lately. */
  readonly isHeard: () => Promise<boolean>;
}

const silent = (): void => {};

/** What a test notification ends in. */
const TEST = " hears";

/** Starts listening, and says whether a notification of our own arrives. */
export function listen(
  line: Line,
  { lines, clock, channel, writer }: Pick<BellOptions, "lines" | "clock" | "channel" | "writer">,
  heard: (payload: string) => void,
  lost: () => void,
): { readonly hears: Promise<boolean>; readonly stop: () => void } {
  const { promise, resolve, reject } = Promise.withResolvers<boolean>();
  const cancel = clock.after(SELF_TEST_MS, () => resolve(false));
  const stop = () => {
    cancel();
    resolve(false);
  };
  line.listen(
    (payload) => {
      if (payload === `${writer}${TEST}`) {
        cancel();
        resolve(true);
      } else heard(payload);
    },
    () => {
      stop();
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
  return { hears: promise, stop };
}

export class Bell {
  readonly #options: BellOptions;
  readonly #watchers = new Set<() => void>();
  #telling: Promise<void> | undefined;
  #isNews = false;
  #isHeard = false;
  #askAtMs = Number.NEGATIVE_INFINITY;
  #saidAtMs = Number.NEGATIVE_INFINITY;
  #isNewUntilMs = Number.NEGATIVE_INFINITY;
  #line: Line | undefined;
  #cancelListen = () => {};
  #cancelPoll = () => {};
  #stopTest = () => {};
  #failures = 0;
  #seen: string | undefined;
  /** Whether notifications arrive: undefined until tested. */
  hears: boolean | undefined;

  constructor(options: BellOptions) {
    this.#options = options;
  }

  /** Whether notifications arrive at all. */
  async test(): Promise<boolean> {
    if (!this.#options.lines.isLarge) return false;
    const line = await this.#options.lines.take();
    try {
      return await listen(line, this.#options, silent, silent).hears;
    } finally {
      drop(line);
    }
  }

  /** We committed something. */
  tell(): void {
    this.#isNews = true;
    // Later, so that it has not ended before it is known to have begun.
    this.#telling ??= Promise.resolve().then(() => this.#tell());
  }

  async #tell(): Promise<void> {
    const { lines, channel, writer, clock } = this.#options;
    try {
      while (this.#isNews) {
        this.#isNews = false;
        if (clock.nowMs() >= this.#askAtMs) {
          this.#isHeard = await this.#options.isHeard();
          this.#askAtMs = clock.nowMs() + ASK_MS;
        }
        if (!this.#isHeard) continue;
        await lines.use((line) => line.send([{ statement: NOTIFY, values: [channel, writer] }]));
      }
    } catch {
      // The others poll.
    } finally {
      this.#telling = undefined;
    }
  }

  watch(changed: () => void): () => void {
    const watcher = () => changed();
    this.#watchers.add(watcher);
    if (this.#watchers.size === 1) this.#start();
    return () => {
      this.#watchers.delete(watcher);
      if (this.#watchers.size === 0) this.#stop();
    };
  }

  /** What was committed last is still told. */
  async close(): Promise<void> {
    this.#watchers.clear();
    this.#stop();
    await this.#telling;
  }

  #start(): void {
    this.#seen = undefined;
    void this.#poll();
    if (this.#options.lines.isLarge) void this.#listen();
  }

  #stop(): void {
    this.#cancelListen();
    this.#cancelPoll();
    this.#letGo();
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
    try {
      if (this.hears === true && clock.nowMs() >= this.#saidAtMs + LISTENING_MS) {
        this.#saidAtMs = clock.nowMs();
        await this.#options.sayListening();
      }
      const marks = await this.#options.marks();
      const isNew = this.#seen !== undefined && this.#seen !== marks;
      this.#seen = marks;
      if (isNew && this.#isWatching) this.#ring();
    } catch {
      // The next one will tell.
    }
    if (!this.#isWatching) return;
    this.#cancelPoll();
    const isSettled = this.hears === true && clock.nowMs() >= this.#isNewUntilMs;
    this.#cancelPoll = clock.after(isSettled ? SAFETY_POLL_MS : FALLBACK_POLL_MS, () => void this.#poll());
  }

  async #listen(): Promise<void> {
    const { lines, clock, writer } = this.#options;
    let line: Line | undefined;
    try {
      line = await lines.take();
      // Somebody else was quicker, or nobody wants it any more.
      if (!this.#isWatching || this.#line !== undefined) return drop(line);
      this.#line = line;
      const isOurs = () => this.#line === line;
      const heard = (payload: string) => {
        if (payload !== writer && !payload.endsWith(TEST) && isOurs()) this.#ring();
      };
      const lost = () => {
        if (isOurs()) this.#relisten();
      };
      const { hears: hearing, stop } = listen(line, this.#options, heard, lost);
      this.#stopTest = stop;
      const hears = await hearing;
      if (!isOurs()) return;
      this.hears = hears;
      this.#failures = 0;
      if (hears) {
        this.#isNewUntilMs = clock.nowMs() + NEW_MS;
        this.#saidAtMs = Number.NEGATIVE_INFINITY;
        // What was committed while nobody listened has to be looked for.
        this.#ring();
        void this.#poll();
      } else {
        // Notifications do not come this way. They are polled for, and once in a while it is tried again.
        this.#line = undefined;
        drop(line);
        this.#cancelListen = clock.after(RETEST_MS, () => void this.#listen());
      }
    } catch {
      if (line === undefined || this.#line === line) this.#relisten();
    }
  }

  #relisten(): void {
    this.#letGo();
    if (!this.#isWatching) return;
    const afterMs = RELISTEN_MS[Math.min(this.#failures, RELISTEN_MS.length - 1)] ?? 5000;
    this.#failures += 1;
    this.#cancelListen();
    this.#cancelListen = this.#options.clock.after(afterMs, () => void this.#listen());
    void this.#poll();
  }

  #letGo(): void {
    const line = this.#line;
    this.#line = undefined;
    this.hears = undefined;
    this.#stopTest();
    if (line !== undefined) drop(line);
  }
}

/** It listens, so nobody else may have it. */
export function drop(line: Line): void {
  line.spoil();
  void line.end();
}
