/** What clients wish of the runs of a fault run, what they hear, and what the workers note: the words of `runs.ts` and `check-runs.ts`. */

import type { RunStatus } from "../../../src/workflow/stored.ts";
import type { Stall } from "../bench.ts";

/** How soon after a stall a begin may still be one that had been decided on before it. */
export const WAKING_NS = 500e6;
export const SIGNALS = ["first", "second"] as const;

export interface Order {
  readonly napMs: number;
  /** Whether the printer can be asked what it printed. */
  readonly asks: boolean;
  /** How long it waits for each signal; null for as long as it takes. */
  readonly waitMs: number | null;
}

export interface Result {
  readonly saw: Saw;
  /** What the two signals said; null for one that did not come in time. */
  readonly heard: readonly (string | null)[];
  readonly child: unknown;
  readonly chance: number;
}

/** Values of steps that the code had in hand, by step. */
export type Saw = Readonly<Record<string, string>>;

export type Wish =
  | { readonly verb: "start"; readonly run: string; readonly order: Order; readonly delayMs: number }
  | { readonly verb: "signal"; readonly run: string; readonly signal: string }
  | { readonly verb: "cancel"; readonly run: string }
  | { readonly verb: "result"; readonly run: string; readonly timeoutMs: number }
  | { readonly verb: "resolve"; readonly run: string; readonly step: string; readonly answer: Truth }
  | { readonly verb: "retry"; readonly run: string };

/** What a client heard: how a run ended, or one of the things that are no fault of anybody's. */
export type ClientResult =
  | { readonly ended: RunStatus; readonly value?: unknown; readonly reason?: string }
  | { readonly isNew: boolean }
  | { readonly status: RunStatus }
  | { readonly refused: string }
  | Record<string, never>;

/** An effect begins. */
export interface Begun {
  readonly run: string;
  readonly step: string;
  readonly key: string;
  readonly saw: Saw;
  readonly stall: Stall | null;
}

/** It happened, and this is what it gave. */
export interface Done {
  readonly run: string;
  readonly step: string;
  readonly value: string;
}

export type Truth = { readonly done: true; readonly value: string } | { readonly done: false };

/** What the printer said when it was asked. */
export interface Reconciled {
  readonly run: string;
  readonly step: string;
  readonly said: Truth | { readonly unknown: true };
}

export const payloadOf = (run: string, signal: string): string => `${run} ${signal}`;
/** What a run may be parked for here: nobody knew, or workers died on it again and again. */
export const EXPECTED_PARKING =
  /^step ".*" may or may not have happened|^it was claimed \d+ times without getting anywhere$/;
