/**
 * The phases of an execution: what may happen while this process works on a run.
 *
 * | phase | meaning | code receives facts | a commit may begin | next |
 * |---|---|---|---|---|
 * | replaying | the code is brought to the end of its history | only from the history | no | running, failing, over |
 * | running | no commit is under way | yes | yes | committing, deciding, ending, failing, over |
 * | committing | a commit writes facts that the code has seen | yes, for the next commit | no | running, failing, over |
 * | deciding | a commit, or a step's transaction, makes facts that the code has not seen, or the run is put to rest | no | no | running, failing, over |
 * | ending | the run's end is written, or it is parked or released | yes, written with the end | no | failing, over |
 * | failing | something went wrong: the code is not used again, and the run is put back, released or parked | no | no | over |
 * | over | this process does not work on the run any more | no | no | |
 *
 * In every phase, arrivals are queued; they become facts in a phase in which the code receives facts. Steps begin in "running" only.
 */

export type Phase = "replaying" | "running" | "committing" | "deciding" | "ending" | "failing" | "over";

interface PhaseRules {
  /** The code is at the end of its history, and still in use. */
  readonly isLive: boolean;
  /** Arrivals become facts, and the code receives them. */
  readonly takesFacts: boolean;
  /** A commit is under way, and another one has to wait for it. */
  readonly isCommitting: boolean;
  readonly next: readonly Phase[];
}

export const PHASES: Readonly<Record<Phase, PhaseRules>> = {
  replaying: { isLive: false, takesFacts: false, isCommitting: false, next: ["running", "failing", "over"] },
  running: {
    isLive: true,
    takesFacts: true,
    isCommitting: false,
    next: ["committing", "deciding", "ending", "failing", "over"],
  },
  committing: { isLive: true, takesFacts: true, isCommitting: true, next: ["running", "failing", "over"] },
  deciding: { isLive: true, takesFacts: false, isCommitting: true, next: ["running", "failing", "over"] },
  ending: { isLive: true, takesFacts: true, isCommitting: true, next: ["failing", "over"] },
  failing: { isLive: false, takesFacts: false, isCommitting: false, next: ["over"] },
  over: { isLive: false, takesFacts: false, isCommitting: false, next: [] },
};
