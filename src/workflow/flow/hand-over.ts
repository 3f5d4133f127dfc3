/**
 * Hand-over: the commit that ends a run takes the next one for this process, where this process works on it and has a place.
 *
 * That commit frees the places of the run and admits the next one in line (`places.ts`). Left to itself, the next one is pending then: some process
 * looks for it and claims it, which takes a read and another commit. So the process that ends a run keeps the place that this one had, and the
 * commit claims the first run that it admits (`Succession`), as a worker would: tries are counted, its fence rises, and if the process dies, its lease
 * ends. The code begins right after that commit.
 *
 * Others have their share (`mayTakeNext`): now and then the next run is left to whichever process claims it first, so that a process that is added
 * gets work; and a process that has more to do than places leaves every second place to its claim loop, so that other workflows are not kept waiting.
 *
 * A commit that has to find the line and its first run one after the other takes a round trip for each. So the process remembers, for the limits of
 * the runs that it ended, which ones those were after its last commit (`expected`). Wrong guesses lock rows in vain, so runs are only named as long as they are
 * right.
 */

import { claim } from "../../kernel/claim/claim.ts";
import type { Address, Row } from "../../kernel/contract.ts";
import type { Tx } from "../../kernel/decision.ts";
import type { Draft } from "../../kernel/draft.ts";
import { queueOf, type RunStatus, type RunValue, runAt } from "../stored.ts";
import { mayTakeNext } from "./decide.ts";
import { limitAt, lineAt, type PlaceRef } from "./stored.ts";

/** What a hand-over needs of the worker. */
export interface Successors {
  readonly by: string;
  readonly leaseMs: number;
  /** More may be due here than there are places. */
  readonly mayHaveMore: boolean;
  /** Keeps a place for a run. Returns whether there was one: `release` it afterwards. */
  reserve(): boolean;
  release(): void;
  /** Whether this process works on the run, and has room for it where a run of the workflow `ending` ends. Must not read the clock. */
  takes(run: string, value: RunValue, ending: string): boolean;
  /** Works on the run that was taken. Its lease began no earlier than `safeUntilMs` assumes. */
  adopt(row: Row, safeUntilMs: number): void;
  /** This process's clock. */
  nowMs(): number;
}

/** What waits for a limit, as far as this process knows. */
interface Expected {
  readonly line: string;
  /** The first run of the line, and whether the last guess was right. */
  readonly run: string | undefined;
  readonly isTrusted: boolean;
}

/** For how many limits that is remembered. */
const MOST_EXPECTED = 1000;

/** The hand-overs of one worker. */
export class HandOvers {
  readonly #successors: Successors;
  readonly #expected = new Map<string, Expected>();
  /** How many runs were taken since one was last left to others. */
  #inARow = 0;

  constructor(successors: Successors) {
    this.#successors = successors;
  }

  /** For the commit that ends this run; `end` must be called after it. Undefined if the run holds no place. */
  begin(value: RunValue): HandOver | undefined {
    const places = value.gate?.places;
    if (places === undefined || value.gate?.isOpen !== true) return undefined;
    const successors = this.#successors;
    const isTaking = mayTakeNext(this.#inARow, successors.mayHaveMore) && successors.reserve();
    const expected = places.flatMap((ref) => this.#recordsOf(ref));
    return new HandOver(successors, { workflow: value.workflow, isTaking, expected }, (next) =>
      this.#noted(places, next),
    );
  }

  #recordsOf(ref: PlaceRef): readonly Address[] {
    const expected = this.#expected.get(limitAt(ref).text);
    if (expected === undefined) return [];
    const { line, run, isTrusted } = expected;
    return run !== undefined && isTrusted ? [lineAt(line), runAt(run)] : [lineAt(line)];
  }

  #noted(places: readonly PlaceRef[], next: Succession): void {
    if (next.taken !== undefined) this.#inARow += 1;
    else if (next.first !== undefined) this.#inARow = 0;
    for (const ref of places) {
      const { text } = limitAt(ref);
      const before = this.#expected.get(text);
      const now = next.expected?.get(text);
      this.#expected.delete(text);
      if (now === undefined) continue;
      this.#expected.set(text, { ...now, isTrusted: before?.run === undefined || before.run === next.first });
      if (this.#expected.size > MOST_EXPECTED) this.#expected.delete(this.#expected.keys().next().value as string);
    }
  }
}

/** One commit that ends a run. */
export class HandOver {
  readonly #successors: Successors;
  readonly #ending: { readonly workflow: string; readonly isTaking: boolean };
  readonly #noted: (next: Succession) => void;
  readonly #safeUntilMs: number;
  /** What the decision will ask for, besides the limits of the run that ends; none if nothing is known to wait. */
  readonly expected: readonly Address[];

  constructor(
    successors: Successors,
    { expected, ...ending }: { workflow: string; isTaking: boolean; expected: readonly Address[] },
    noted: (next: Succession) => void,
  ) {
    this.#successors = successors;
    this.#ending = ending;
    this.expected = expected;
    this.#noted = noted;
    // Before the commit: the lease cannot begin earlier than this.
    this.#safeUntilMs = successors.nowMs() + successors.leaseMs;
  }

  /** For one attempt of the decision. */
  decide(): Succession {
    const { isTaking, workflow } = this.#ending;
    return new Succession(isTaking ? this.#successors : undefined, workflow);
  }

  /** The attempt that was committed. */
  committed(next: Succession): void {
    this.#noted(next);
    if (next.taken !== undefined) this.#successors.adopt(next.taken, this.#safeUntilMs);
  }

  /** Frees the place that was kept; a run that was taken has one of its own by now. */
  end(): void {
    if (this.#ending.isTaking) this.#successors.release();
  }
}

/** What one attempt of the decision admits. */
export class Succession {
  readonly #successors: Successors | undefined;
  readonly #ending: string;
  /** The first run that was admitted. */
  first: string | undefined;
  /** The run that was taken, as it is then. */
  taken: Row | undefined;
  /** The first line of each limit afterwards, and its first run, as far as they are known. */
  expected: Map<string, Pick<Expected, "line" | "run">> | undefined;

  constructor(successors: Successors | undefined, ending: string) {
    this.#successors = successors;
    this.#ending = ending;
  }

  /** Runs wait: a claim needs the store's clock, which is asked for before anything else is looked up. */
  begin(tx: Tx): void {
    if (this.#successors !== undefined) void tx.nowMs;
  }

  /** The run is pending now. */
  admitted(tx: Tx, record: Draft, value: RunValue): void {
    const run = record.at.key;
    this.first ??= run;
    if (this.taken !== undefined || this.#successors?.takes(run, value, this.#ending) !== true) return;
    const { by, leaseMs } = this.#successors;
    const kindAfter = (): string => queueOf(value.workflow, value.pool);
    this.taken = claim(tx, record.at, { by, leaseMs, status: "running" satisfies RunStatus, kindAfter });
  }

  expect(ref: PlaceRef, line: string, run: string | undefined): void {
    this.expected ??= new Map();
    this.expected.set(limitAt(ref).text, { line, run });
  }
}
