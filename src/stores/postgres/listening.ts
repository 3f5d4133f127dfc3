/**
 * Listening for notifications, as a state machine: one function returns the next state for an event. `notifications.ts` acts on the states.
 *
 *     idle ──watched──▶ starting ──connected──▶ testing ──received──▶ listening
 *                          ▲ │                   │   │                    │
 *                     retry│ │failed       failed│   │not received        │failed
 *                          │ ▼                   ▼   ▼                    ▼
 *                        waiting ◀───────────────┘  polling            waiting
 *
 * Polling is left by `retry` too, and every state by `unwatched`, for idle. Whatever the state, the marks are polled while there is a
 * watcher (`pollMs`): a crash can lose a notification, and a pooler all of them.
 *
 * An event that does not belong to the state changes nothing: it came too late.
 */

const SAFETY_POLL_MS = 2000;
const FALLBACK_POLL_MS = 200;
/** Pauses before a connection that failed or was lost is made again: the more failures in a row, the longer. */
const RETRY_MS = [100, 200, 500, 1000, 2000, 5000] as const;
/** Where notifications do not arrive, listening is tested again this often. */
const RETEST_MS = 60_000;
/** A listener announces itself again this often. */
const ANNOUNCE_MS = 20_000;

/** How often, at most, a process looks up whether any other listens. */
export const LOOK_UP_MS = 1000;
/** How long it may take until all others know a new listener. Until then it polls quickly. */
const NEW_MS = 2 * LOOK_UP_MS;

export type Listening<Connection> =
  /** There is no watcher. */
  | { readonly is: "idle" }
  /** A connection is being made. */
  | { readonly is: "starting"; readonly failures: number }
  /** A test notification was sent to this connection. */
  | { readonly is: "testing"; readonly failures: number; readonly connection: Connection }
  /** Notifications arrive. Others know that this process listens from its first announcement, which is repeated. */
  | {
      readonly is: "listening";
      readonly connection: Connection;
      readonly announced: { readonly firstMs: number; readonly lastMs: number } | null;
    }
  /** Notifications do not arrive. Tested again after this pause; never, if there is no free connection for it. */
  | { readonly is: "polling"; readonly pauseMs: number | null }
  /** The connection failed or was lost, and is made again after this pause. */
  | { readonly is: "waiting"; readonly failures: number; readonly pauseMs: number };

export type ListeningEvent<Connection> =
  /** The first watcher was added. */
  | { readonly is: "watched"; readonly hasSpareConnection: boolean }
  /** The last watcher was removed. */
  | { readonly is: "unwatched" }
  | { readonly is: "connected"; readonly connection: Connection }
  /** The test ended: the test notification arrived, or it did not arrive in time. */
  | { readonly is: "tested"; readonly isReceived: boolean }
  /** Other processes can now see that this process listens. */
  | { readonly is: "announced"; readonly nowMs: number }
  /** The connection could not be made, or is lost. */
  | { readonly is: "failed" }
  /** The pause is over. */
  | { readonly is: "retry" };

/** The state after the event; the same object if nothing changes. */
export function nextListening<C>(state: Listening<C>, event: ListeningEvent<C>): Listening<C> {
  if (event.is === "unwatched") return state.is === "idle" ? state : { is: "idle" };
  switch (state.is) {
    case "idle":
      if (event.is !== "watched") return state;
      return event.hasSpareConnection ? { is: "starting", failures: 0 } : { is: "polling", pauseMs: null };
    case "starting":
      if (event.is === "connected") return { ...state, is: "testing", connection: event.connection };
      return event.is === "failed" ? waiting(state.failures) : state;
    case "testing":
      if (event.is === "failed") return waiting(state.failures);
      if (event.is !== "tested") return state;
      if (!event.isReceived) return { is: "polling", pauseMs: RETEST_MS };
      return { is: "listening", connection: state.connection, announced: null };
    case "listening":
      if (event.is === "failed") return waiting(0);
      if (event.is !== "announced") return state;
      return { ...state, announced: { firstMs: state.announced?.firstMs ?? event.nowMs, lastMs: event.nowMs } };
    case "polling":
      return event.is === "retry" && state.pauseMs !== null ? { is: "starting", failures: 0 } : state;
    case "waiting":
      return event.is === "retry" ? { is: "starting", failures: state.failures } : state;
  }
}

const waiting = (failures: number): Listening<never> => ({
  is: "waiting",
  failures: failures + 1,
  pauseMs: RETRY_MS[failures] ?? 5000,
});

/** The pause until the next poll. */
export function pollMs<C>(state: Listening<C>, nowMs: number): number {
  const isKnown = state.is === "listening" && state.announced !== null && nowMs >= state.announced.firstMs + NEW_MS;
  return isKnown ? SAFETY_POLL_MS : FALLBACK_POLL_MS;
}

/** Whether it is time to announce that this process listens. */
export function mustAnnounce<C>(state: Listening<C>, nowMs: number): boolean {
  return state.is === "listening" && (state.announced === null || nowMs >= state.announced.lastMs + ANNOUNCE_MS);
}
