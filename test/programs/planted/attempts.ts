import {
  ALLOWED,
  COROUTINE,
  EFFECTS,
  JOINT,
  type Planted,
  PREPARE,
  RECORDED,
  REPEATED,
  REPORTED,
  STEPS,
} from "./defect.ts";

/** What belongs to an attempt is dead when the attempt is over. */
export const attempts: readonly Planted[] = [
  {
    name: "a heartbeat of an attempt that is over arms its timer, which fails the attempt again",
    rule: RECORDED,
    program: 1,
    edits: [
      {
        file: STEPS,
        from: '      if (this.#isOver) {\n        this.#host.usedLate(this.#pending, this.attempt, "heartbeat()");\n        return;\n      }\n',
        to: "",
      },
      {
        file: STEPS,
        from: "    if (!this.end()) return;\n    this.abort(error);",
        to: "    this.end();\n    this.abort(error);",
      },
    ],
  },
  {
    name: "a heartbeat of an attempt that is over is ignored in silence",
    rule: REPORTED,
    program: 4,
    edits: [
      { file: STEPS, from: '        this.#host.usedLate(this.#pending, this.attempt, "heartbeat()");\n', to: "" },
    ],
  },
  {
    name: "an attempt that timed out is recorded when it returns after all",
    rule: RECORDED,
    program: 20,
    edits: [
      {
        file: STEPS,
        from: "        if (attempt.end()) this.#host.succeeded(this.#pending, value);",
        to: "        attempt.end();\n        this.#host.succeeded(this.#pending, value);",
      },
    ],
  },
  {
    name: "abortSignal, first read when the attempt is over, is not aborted",
    rule: "the abortSignal of an attempt that is over is aborted",
    program: 13,
    edits: [
      {
        file: STEPS,
        from: "      if (this.#abortReason !== undefined) this.#abort.abort(this.#abortReason.reason);\n      else if (this.#isOver) this.#abort.abort(new AttemptOverError(this.#pending.id, this.attempt));\n",
        to: "",
      },
    ],
  },
  {
    name: "totalTimeout is counted anew for each attempt",
    rule: "totalTimeout spans all attempts",
    program: 16,
    edits: [
      {
        file: STEPS,
        from: "return firstAttemptMs === undefined ? totalTimeoutMs : firstAttemptMs + totalTimeoutMs - this.#host.nowMs();",
        to: "return firstAttemptMs === undefined ? totalTimeoutMs : totalTimeoutMs;",
      },
    ],
  },
  {
    name: "totalTimeout is forgotten where the next attempt is put off for long",
    rule: "totalTimeout spans all attempts",
    program: 263,
    edits: [
      {
        file: EFFECTS,
        from: "...(firstAttemptMs === undefined ? {} : { firstMs: firstAttemptMs }) };",
        to: "...(firstAttemptMs === undefined || attempts > 0 ? {} : { firstMs: firstAttemptMs }) };",
      },
      {
        file: COROUTINE,
        from: "pending.firstAttemptMs = firstMs ?? pending.firstAttemptMs;",
        to: "pending.firstAttemptMs = firstMs;",
      },
    ],
  },
  {
    name: "a step's rateLimit counts its first attempt only",
    rule: "a step's rateLimit counts every attempt",
    program: 30,
    edits: [
      {
        file: STEPS,
        from: "if (this.#plan.turn === undefined || this.#pending.hasTurn) {",
        to: "if (this.#plan.turn === undefined || this.#pending.hasTurn || this.#pending.attempts > 0) {",
      },
    ],
  },
  {
    name: "a store that is busy when a turn is reserved costs an attempt",
    rule: ALLOWED,
    program: "a store that is busy when a step's turn is reserved costs no attempt",
    edits: [
      {
        file: STEPS,
        from: "        if (error instanceof StoreError) this.#tryLater();\n        else this.threw(error);",
        to: "        this.threw(error);",
      },
    ],
  },
  {
    name: "a result that cannot be stored is tried again",
    rule: REPEATED,
    program: 16,
    edits: [
      {
        file: EFFECTS,
        from: "      this.failed(pending, unstorableResult(error, ",
        to: '      if (pending.plan.kind === "step" && pending.attempts < 3) this.begin(pending, pending.plan);\n      else this.failed(pending, unstorableResult(error, ',
      },
    ],
  },
  {
    name: "a step that runs at most once is begun without its intent",
    rule: "an at-most-once step is not repeated on a guess",
    program: 108,
    edits: [
      {
        file: PREPARE,
        from: "if (!needsIntent(one)) continue;",
        to: "if (needsIntent(one)) made.intents.push(one);\n      continue;",
      },
    ],
  },
  {
    name: "a step that may have happened is done again without asking",
    rule: "an at-most-once step is not repeated on a guess",
    program: 104,
    edits: [
      {
        file: EFFECTS,
        from: "void this.#reconcile(pending, step, mode, plan.timeoutMs);",
        to: "step.start(mode.run);",
      },
    ],
  },
  {
    name: "a failed at-most-once step is tried again like any other",
    rule: "an at-most-once step is not repeated on a guess",
    program: 11,
    edits: [{ file: STEPS, from: '  if (plan.mode.is === "once") return null;\n', to: "" }],
  },
  {
    name: "the record of step.tx is written in a commit of its own, after its transaction",
    rule: "step.tx takes effect exactly once",
    program: 5,
    edits: [
      { file: EFFECTS, from: "          await decide((tx) => joint.record(tx));\n", to: "" },
      {
        file: EFFECTS,
        from: "      return hasBegun ? joint.failed(error, true) : joint.failed(new NotBegun(error), false);\n    }\n",
        to: "      return hasBegun ? joint.failed(error, true) : joint.failed(new NotBegun(error), false);\n    }\n    await kernel.transact((tx) => joint.record(tx), [at]);\n",
      },
    ],
  },
  {
    name: "a commit of step.tx whose reply is lost is taken for a failed attempt",
    rule: ALLOWED,
    program: 596,
    edits: [
      {
        file: EFFECTS,
        from: "      return hasBegun ? joint.failed(error, true) :",
        to: "      return hasBegun ? joint.failed(error, false) :",
      },
    ],
  },
  {
    name: "an attempt of step.tx begins in its transaction although its time is over",
    rule: RECORDED,
    program: "an attempt of step.tx whose time is over when its transaction opens does not begin",
    edits: [
      {
        file: JOINT,
        from: "    this.#checkCurrent();\n    return this.#attempt === undefined",
        to: "    return this.#attempt === undefined",
      },
    ],
  },
];
