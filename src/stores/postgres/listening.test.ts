/**
 * Goal: from each state of listening, each event leads to the correct next state, and late events change nothing.
 * Method: a table of all transitions. Each pair of a state and an event that is not in the table must leave the state as it was.
 */

import { describe, expect, test } from "vitest";
import { type Listening, type ListeningEvent, mustAnnounce, nextListening, pollMs } from "./listening.ts";

type State = Listening<string>;
type Event = ListeningEvent<string>;

const starting = (failures: number): State => ({ is: "starting", failures });
const testing = (failures: number): State => ({ is: "testing", failures, connection: "c" });
const waiting = (failures: number, pauseMs: number): State => ({ is: "waiting", failures, pauseMs });
const polling = (pauseMs: number | null): State => ({ is: "polling", pauseMs });
const listening = (firstMs?: number, lastMs = firstMs): State => ({
  is: "listening",
  connection: "c",
  announced: firstMs === undefined || lastMs === undefined ? null : { firstMs, lastMs },
});
const idle: State = { is: "idle" };

const watched: Event = { is: "watched", hasSpareConnection: true };
const watchedInSmallPool: Event = { is: "watched", hasSpareConnection: false };
const unwatched: Event = { is: "unwatched" };
const connected: Event = { is: "connected", connection: "c" };
const received: Event = { is: "tested", isReceived: true };
const notReceived: Event = { is: "tested", isReceived: false };
const announced: Event = { is: "announced", nowMs: 5000 };
const failed: Event = { is: "failed" };
const retry: Event = { is: "retry" };

const rules: readonly { rule: string; from: State; event: Event; to: State }[] = [
  { rule: "the first watcher starts it", from: idle, event: watched, to: starting(0) },
  { rule: "a small pool only polls", from: idle, event: watchedInSmallPool, to: polling(null) },
  { rule: "a connection is tested", from: starting(0), event: connected, to: testing(0) },
  { rule: "failures are counted until a test ends", from: starting(2), event: connected, to: testing(2) },
  { rule: "a first failure costs a short pause", from: starting(0), event: failed, to: waiting(1, 100) },
  { rule: "a third one a longer pause", from: starting(2), event: failed, to: waiting(3, 500) },
  { rule: "the pause has a limit", from: starting(40), event: failed, to: waiting(41, 5000) },
  { rule: "the test notification arrived", from: testing(2), event: received, to: listening() },
  { rule: "without notifications it polls", from: testing(2), event: notReceived, to: polling(60_000) },
  { rule: "a test can fail", from: testing(0), event: failed, to: waiting(1, 100) },
  { rule: "and again", from: testing(1), event: failed, to: waiting(2, 200) },
  { rule: "a listener is announced", from: listening(), event: announced, to: listening(5000) },
  { rule: "and again", from: listening(1000), event: announced, to: listening(1000, 5000) },
  { rule: "a lost connection begins a new count", from: listening(), event: failed, to: waiting(1, 100) },
  { rule: "whether announced or not", from: listening(1000), event: failed, to: waiting(1, 100) },
  { rule: "polling is tested again", from: polling(60_000), event: retry, to: starting(0) },
  { rule: "after a pause comes an attempt", from: waiting(3, 500), event: retry, to: starting(3) },
];

const states: readonly State[] = [
  idle,
  starting(0),
  starting(2),
  starting(40),
  testing(0),
  testing(1),
  testing(2),
  listening(),
  listening(1000),
  polling(null),
  polling(60_000),
  waiting(3, 500),
];
const events: readonly Event[] = [
  watched,
  watchedInSmallPool,
  connected,
  received,
  notReceived,
  announced,
  failed,
  retry,
];

const same = (a: object, b: object): boolean => JSON.stringify(a) === JSON.stringify(b);
/** Rows for states that differ only in what does not matter for the event. */
const isRuled = (state: State, event: Event): boolean =>
  rules.some((rule) => rule.from.is === state.is && same(rule.event, event)) && !same(state, polling(null));

describe("a transition", () => {
  test.each(rules)("$rule: $from.is, $event.is", ({ from, event, to }) => {
    expect(nextListening(from, event)).toEqual(to);
  });

  test.each(states)("from $is to idle, when the last watcher leaves", (state) => {
    expect(nextListening(state, unwatched)).toEqual(idle);
  });

  const late = states.flatMap((state) =>
    events.filter((event) => !isRuled(state, event)).map((event) => ({ state, event })),
  );
  test.each(late)("does not happen: $state.is, $event.is", ({ state, event }) => {
    expect(nextListening(state, event)).toBe(state);
  });
});

describe("polls", () => {
  const polls: readonly { rule: string; state: State; nowMs: number; afterMs: number }[] = [
    { rule: "are quick while it starts", state: starting(0), nowMs: 0, afterMs: 200 },
    { rule: "are quick while it is tested", state: testing(0), nowMs: 0, afterMs: 200 },
    { rule: "are quick where nothing arrives", state: polling(60_000), nowMs: 0, afterMs: 200 },
    { rule: "are quick between attempts", state: waiting(1, 100), nowMs: 0, afterMs: 200 },
    { rule: "are quick until it is announced", state: listening(), nowMs: 99_000, afterMs: 200 },
    { rule: "are quick until all others know", state: listening(1000), nowMs: 2999, afterMs: 200 },
    { rule: "are slow from then on", state: listening(1000), nowMs: 3000, afterMs: 2000 },
    { rule: "stay slow when it is announced again", state: listening(1000, 9000), nowMs: 9001, afterMs: 2000 },
  ];
  test.each(polls)("$rule", ({ state, nowMs, afterMs }) => {
    expect(pollMs(state, nowMs)).toBe(afterMs);
  });
});

describe("an announcement", () => {
  const times: readonly { rule: string; state: State; nowMs: number; isDue: boolean }[] = [
    { rule: "is due when it begins to listen", state: listening(), nowMs: 0, isDue: true },
    { rule: "is not due again soon", state: listening(1000), nowMs: 20_999, isDue: false },
    { rule: "is due again after a while", state: listening(1000), nowMs: 21_000, isDue: true },
    { rule: "counts from the last one", state: listening(1000, 21_000), nowMs: 40_999, isDue: false },
    { rule: "is for listeners only", state: polling(60_000), nowMs: 0, isDue: false },
    { rule: "is not made before the test", state: testing(0), nowMs: 0, isDue: false },
  ];
  test.each(times)("$rule", ({ state, nowMs, isDue }) => {
    expect(mustAnnounce(state, nowMs)).toBe(isDue);
  });
});
