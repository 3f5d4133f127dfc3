import {
  BRANCH,
  CANCELLATION,
  CLEANUP,
  CONTEXT,
  COROUTINE,
  DEADLOCK,
  END,
  ENDS,
  EXECUTION,
  HELD_RUN,
  INTERRUPTED,
  MODEL,
  OPERATION_RULES,
  type Planted,
  SHIELDED,
} from "./defect.ts";

/** Cancellation, cleanup, races and shields. */
export const cancellations: readonly Planted[] = [
  {
    name: "a step that succeeds after the cancellation lets the code go on, and the cleanup throws the cancellation",
    rule: CLEANUP,
    program: 65,
    edits: [
      {
        file: COROUTINE,
        from: "      this.#cancellation.thrown();\n      if (!isInterruptible(pending, cancel.running)) {\n        pending.isCanceled = true;\n        continue;\n      }\n",
        to: "      if (!isInterruptible(pending, cancel.running)) continue;\n      this.#cancellation.thrown();\n",
      },
    ],
  },
  {
    name: "a cancellation is thrown by every operation after it",
    rule: CLEANUP,
    program: 56,
    edits: [
      {
        file: CANCELLATION,
        from: "return this.#arrived !== undefined && !this.#isThrown;",
        to: "return this.#arrived !== undefined;",
      },
    ],
  },
  {
    name: "a canceled run has no time for cleanup",
    rule: CLEANUP,
    program: 65,
    edits: [
      {
        file: EXECUTION,
        from: "if (canceledAtMs !== undefined && nowMs >= canceledAtMs + this.#definition.graceMs) this.#isGraceOver = true;",
        to: "if (canceledAtMs !== undefined && nowMs >= canceledAtMs) this.#isGraceOver = true;",
      },
      {
        file: HELD_RUN,
        from: "canceledAtMs === undefined ? this.timesOutMs : canceledAtMs + this.definition.graceMs;",
        to: "canceledAtMs === undefined ? this.timesOutMs : canceledAtMs;",
      },
    ],
  },
  {
    name: "a step under way is not waited for when the run is canceled",
    rule: INTERRUPTED,
    program: 65,
    edits: [
      {
        file: OPERATION_RULES,
        from: "return isPostponed && running?.includes(id) !== true;",
        to: "return isPostponed || running?.includes(id) !== true;",
      },
    ],
  },
  {
    name: "a cancellation in shielded code is thrown by the cleanup after it",
    rule: CLEANUP,
    program: 56,
    edits: [
      {
        file: CANCELLATION,
        from: "    this.#isThrown = this.#shields.size > 0;\n    for (const shield of this.#shields) shield.isCanceled = true;\n",
        to: "    for (const shield of this.#shields) shield.isCanceled = false;\n",
      },
    ],
  },
  {
    name: "shielded code is interrupted",
    rule: SHIELDED,
    program: 765,
    edits: [{ file: BRANCH, from: 'this.isShielded = is === "shielded";', to: "this.isShielded = false;" }],
  },
  {
    name: "ctx.race leaves its losers alone",
    rule: MODEL,
    program: 2476,
    edits: [{ file: CONTEXT, from: "      cancelAll(racing.filter((one) => one !== winner));\n", to: "" }],
  },
  {
    name: "a race whose code is canceled does not wait for the cleanup of its branches",
    rule: CLEANUP,
    program: "a race that is canceled waits for the cleanup of its branches",
    edits: [
      {
        file: CONTEXT,
        from: "      if (isInterrupted) return Promise.allSettled(racing.filter((one) => one instanceof Operation));\n",
        to: "      if (isInterrupted && isCanceled) return undefined;\n",
      },
    ],
  },
  {
    name: "shielded code loses a race",
    rule: SHIELDED,
    program: 83,
    edits: [
      {
        file: CONTEXT,
        from: "return this.#coroutine.compose(shown, branch, shielded, () => {});",
        to: "return this.#coroutine.compose(shown, branch, shielded);",
      },
    ],
  },
  {
    name: "what shielded code left waiting is waited for when that code has ended",
    rule: ENDS,
    program: "what lost a race in shielded code is not waited for when that has ended",
    edits: [{ file: CONTEXT, from: "        branch.isOver = true;\n", to: "        branch.isOver = false;\n" }],
  },
  {
    name: "cancel by force waits for the code",
    rule: "force ends a run",
    program: 8,
    edits: [{ file: END, from: "&& !isBegun) || force) {", to: "&& !isBegun)) {" }],
  },
  {
    name: "a cancellation that found nothing to interrupt goes past the shielded code to the cleanup after it",
    rule: CLEANUP,
    program: "a cancellation that found nothing to interrupt is thrown by shielded code, not by the cleanup after it",
    edits: [{ file: CANCELLATION, from: "isCanceled: isOutermost && this.isDue", to: "isCanceled: false" }],
  },
  {
    name: "the locks that a run holds itself are read like others when a circle is searched",
    rule: ENDS,
    program: "a run that waits for more of its own locks than a search reads is told so",
    edits: [{ file: DEADLOCK, from: "waiting.filter((hold) => !isOwn(hold))", to: "waiting" }],
  },
];
