/**
 * What every capability tells the handle about itself. Slots, locks, actions, workflows and the others are all described in this way, and the handle
 * (`src/pawl.ts`), `tx` (`src/tx.ts`), the workers and the sweeps go through the list of them (`src/capabilities.ts`) without naming any.
 *
 * ARCHITECTURE.md, "How to add a capability", walks through a small one.
 */

import type { OptionNames } from "./check.ts";
import type { Address } from "./contract.ts";
import type { Tx } from "./decision.ts";
import type { Origin } from "./origin.ts";

/** Records of one kind that need attention when they are due, by a commit of its own and without a claim. */
export interface Queue {
  readonly kind: string;
  /** Does what is due: removes what has expired, frees what a dead process held. Resolves with true if it removed something. */
  readonly chore: (at: Address) => Promise<unknown>;
  /** Others wait for it, so workers do it as soon as it is due. Default: false; it can wait for a sweep. */
  readonly isUrgent?: boolean;
}

/** The verbs of a capability inside a decision, as they are implemented: each gets the decision's own `tx` first. */
export type View<Verbs> = {
  readonly [Name in keyof Verbs]: Verbs[Name] extends (...given: infer Given) => infer Result
    ? (tx: Tx, ...given: Given) => Result
    : (tx: Tx) => Verbs[Name];
};

/** How this process works on definitions, of whatever capability. */
export interface WorkSettings {
  /** Names this process in the leases that it holds. */
  readonly by: string;
  readonly leaseMs: number;
  /** How many records of a capability are worked on concurrently. */
  readonly concurrency: number;
  /** Logs what no caller receives: for `failed` of `startWorker`. */
  failed(error: unknown): void;
}

/** This process at work on definitions of one capability. */
export interface WorkPart {
  /** Resolves when the store knows the definitions, or when the part has stopped before that. Never rejects. Default: at once. */
  readonly ready?: Promise<void> | undefined;
  /** Claims nothing more, and ends or releases what is under way. After `timeoutMs`, work is aborted. */
  stop(timeoutMs: number | undefined): Promise<void>;
}

/** Starts all parts, or none: if one cannot start, those that did are stopped. */
export function startAll(starts: readonly (() => WorkPart)[]): readonly WorkPart[] {
  const parts: WorkPart[] = [];
  try {
    for (const start of starts) parts.push(start());
    return parts;
  } catch (error) {
    for (const part of parts) void part.stop(0).catch(() => {});
    throw error;
  }
}

/** How a capability takes part in `pawl.work`. */
export interface Works {
  /** The names of the options of `pawl.work` that only this capability knows. Default: none. */
  readonly options?: OptionNames;
  /** Whether this is one of its definitions. */
  accepts(definition: unknown): boolean;
  /** Puts this process to work on these definitions. `options` are all that `pawl.work` got. The handle stops the part when it is closed. */
  start(definitions: readonly unknown[], settings: WorkSettings, options: object): WorkPart;
}

export interface Capability {
  /** Its verbs on the handle, by their names in `pawl`. */
  readonly verbs: object;
  /** Its verbs inside a decision, by their names in `tx`. */
  readonly view?: Readonly<Record<string, (tx: Tx, ...given: never[]) => unknown>>;
  /** What it has in `tx` that is not a function, such as `tx.actions`. */
  readonly properties?: Readonly<Record<string, (tx: Tx) => unknown>>;
  /** What is to be done about its records when they are due. */
  readonly queues?: readonly Queue[];
  /** What `pawl.work` does with its definitions. */
  readonly works?: Works;
  /** Its verbs on a handle of `pawl.with`, where they differ: what they do has this origin. */
  scoped?(origin: Origin): object;
  /**
   * Does outside a decision what the decision lacked, as its error says: then `pawl.transact` decides again. Resolves with false if the error says
   * something else.
   */
  mend?(error: unknown): Promise<boolean>;
  /** Throws, when the handle is opened, if it cannot work with what is stored. */
  check?(): Promise<void>;
  /** Whether something is held or under way that `close` must end. Default: true, so that `close` is called. */
  readonly isBusy?: boolean;
  /** Ends what is under way and releases what is held, before the handle is closed. */
  close?(): Promise<void>;
}
