/**
 * An auditor of machines: reads an instance's log and says what is wrong with it. It knows the transitions and nothing of how Pawl decides.
 *
 * It follows the log entry by entry. Each must be possible where the instance was, each move must be followed at once by every parked event that
 * it made legal, first come first, and by the refusal of those that can never come; and in the end there must be the instance as it is.
 */

import { isDeepStrictEqual } from "node:util";
import type { MachineEvent, MachineInstance } from "../../src/machine/results.ts";

export interface Plan {
  readonly initial: string;
  readonly transitions: Readonly<Record<string, readonly string[]>>;
  readonly maxParked: number;
}

interface Waiting {
  readonly version: number;
  readonly to: string;
  readonly eventId: string | undefined;
}

/** What is wrong; nothing if all is well. */
export function audit(plan: Plan, log: readonly MachineEvent[], instance: MachineInstance | null): readonly string[] {
  if (instance === null) return log.length === 0 ? [] : ["there is a log and no instance"];
  const auditor = new Auditor(plan);
  for (const entry of log) auditor.follow(entry);
  auditor.end(instance);
  return auditor.findings;
}

class Auditor {
  readonly findings: string[] = [];
  readonly #plan: Plan;
  #state = "";
  #version = 0;
  #head = 0;
  #data: unknown;
  #waiting: Waiting[] = [];
  /** Ids of events that moved it or wait. */
  readonly #accepted = new Set<string>();

  constructor(plan: Plan) {
    this.#plan = plan;
  }

  follow(entry: MachineEvent): void {
    const { version, outcome, from, to, code } = entry;
    const must = (condition: boolean, law: string): void => {
      if (!condition) this.findings.push(`entry ${version} (${outcome} ${from} to ${to} ${code ?? ""}): ${law}`);
    };
    must(version === this.#head + 1, "the log has a gap");
    this.#head = version;
    if (outcome === "created") {
      must(version === 1, "it was made twice");
      must(from === null && to === this.#plan.initial, "it was not made in the first state");
      this.#arrive(entry);
      return;
    }
    must(from === this.#state, `it was ${this.#state} then`);
    const turn = this.#nextTurn();
    if (entry.parkedAs !== undefined) {
      must(turn !== undefined && turn.event.version === entry.parkedAs, "it is not this event's turn");
      must(turn?.event.to === to && turn.event.eventId === entry.eventId, "it is not the event that was parked");
      if (turn?.isLegal === true) must(outcome === "applied" || code !== "illegal_transition", "it was legal");
      else must(code === "illegal_transition", "it can never become legal");
      this.#waiting = this.#waiting.filter((one) => one.version !== entry.parkedAs);
      if (outcome === "applied") this.#arrive(entry);
      else if (entry.eventId !== undefined) this.#accepted.delete(entry.eventId);
      return;
    }
    must(turn === undefined, `the event of entry ${turn?.event.version} should have had its turn`);
    if (outcome === "refused") {
      if (code === "illegal_transition") must(!this.#allows(to), "it was allowed");
      if (code === "guard_refused") must(this.#allows(to), "it was not for a guard to refuse");
      if (code === "parking_full") must(this.#waiting.length === this.#plan.maxParked, "there was room");
      return;
    }
    if (entry.eventId !== undefined) {
      must(!this.#accepted.has(entry.eventId), "the event was accepted before");
      this.#accepted.add(entry.eventId);
    }
    if (outcome === "parked") {
      must(!this.#allows(to) && this.#reaches(to), "it should not have been parked");
      this.#waiting.push({ version, to, eventId: entry.eventId });
      must(this.#waiting.length <= this.#plan.maxParked, "there was no room");
      return;
    }
    must(outcome === "moved", "a parked event must say where it was parked");
    must(this.#allows(to), "it was not allowed");
    this.#arrive(entry);
  }

  end(instance: MachineInstance): void {
    const must = (condition: boolean, law: string): void => {
      if (!condition) this.findings.push(law);
    };
    const turn = this.#nextTurn();
    must(turn === undefined, `the event of entry ${turn?.event.version} should have had its turn at the end`);
    must(instance.state === this.#state, `it is ${instance.state}, and its log leads to ${this.#state}`);
    must(instance.version === this.#version, `it is at ${instance.version}, and its last move is ${this.#version}`);
    must(isDeepStrictEqual(instance.data, this.#data), "its data is not what its log says");
    const waits = instance.parked.map(({ to, eventId }) => [to, eventId]);
    const kept = this.#waiting.map(({ to, eventId }) => [to, eventId]);
    must(isDeepStrictEqual(waits, kept), `${JSON.stringify(waits)} wait, and the log says ${JSON.stringify(kept)}`);
  }

  #arrive(entry: MachineEvent): void {
    if (entry.outcome !== "created" && !this.#allows(entry.to))
      this.findings.push(`entry ${entry.version}: no such way`);
    this.#state = entry.to;
    this.#version = entry.version;
    if ("data" in entry) this.#data = entry.data;
  }

  /** The parked event that must be dealt with before anything else happens. */
  #nextTurn(): { readonly event: Waiting; readonly isLegal: boolean } | undefined {
    const legal = this.#waiting.find(({ to }) => this.#allows(to));
    if (legal !== undefined) return { event: legal, isLegal: true };
    const lost = this.#waiting.find(({ to }) => !this.#reaches(to));
    return lost === undefined ? undefined : { event: lost, isLegal: false };
  }

  #allows(to: string): boolean {
    return this.#plan.transitions[this.#state]?.includes(to) ?? false;
  }

  #reaches(to: string): boolean {
    const seen = new Set<string>();
    let edge: readonly string[] = [this.#state];
    while (edge.length > 0) {
      edge = edge.flatMap((state) => this.#plan.transitions[state] ?? []).filter((state) => !seen.has(state));
      for (const state of edge) seen.add(state);
    }
    return seen.has(to);
  }
}
