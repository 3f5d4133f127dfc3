import {
  ALLOWED,
  COROUTINE,
  DISAPPEARS,
  EFFECTS,
  ENDS,
  EXECUTION,
  INBOX,
  MODEL,
  OPERATION,
  OPERATION_RULES,
  PENDING,
  type Planted,
  REJECTION,
  REPORTED,
  STORED,
  TROUBLE,
  WARM,
} from "./defect.ts";

/** Mistakes that are reported, and must not hang, be lost or end the process. */
export const mistakes: readonly Planted[] = [
  {
    name: "an operation of ctx in a step's function is not refused",
    rule: TROUBLE,
    program: 3,
    edits: [
      {
        file: COROUTINE,
        from: "return place !== undefined && (place.step !== undefined ||",
        to: 'return place !== undefined && (place.step === "" ||',
      },
    ],
  },
  {
    name: "an operation of ctx after the end of the run never settles",
    rule: "use after the end throws",
    program: 5,
    edits: [
      {
        file: COROUTINE,
        from: "    if (this.isEnded) {\n      this.#refuse(operation,",
        to: '    if (this.isEnded && plan.kind === "unlock") {\n      this.#refuse(operation,',
      },
    ],
  },
  {
    name: "code that was kept warm for a run that ended elsewhere is not told",
    rule: "use after the end throws",
    program: "ctx after an end on another worker throws",
    edits: [
      {
        file: WARM,
        from: "        execution.discard();\n        coroutine.refuseNew();\n        return;",
        to: "        return;",
      },
    ],
  },
  {
    name: "a rejection behind a semaphore or a lock ends the process if it is awaited later",
    rule: REJECTION,
    program: 3,
    edits: [
      {
        file: OPERATION,
        from: "    operation.hush();\n    operation.track(tracked);",
        to: "    operation.track(tracked);",
      },
    ],
  },
  {
    name: "a rejection ends the process if it is awaited later",
    rule: REJECTION,
    program: 3,
    edits: [{ file: OPERATION, from: "    this.hush();\n", to: "" }],
  },
  {
    name: "a signal goes to the wait that was asked for first, although it lost its race",
    rule: ALLOWED,
    program: 646,
    edits: [
      {
        file: INBOX,
        from: "for (let index = turns.length - 1; index >= 0; index--) yield* turns[index]?.waits ?? [];",
        to: "for (const { waits } of turns) yield* waits;",
      },
      {
        file: PENDING,
        from: "return this.isObserved && !this.isAwaited && this.reactions.length === 0;",
        to: "return false;",
      },
    ],
  },
  {
    name: "a signal that comes between two races goes to the loser of the first",
    rule: ENDS,
    program: 139,
    edits: [
      {
        file: PENDING,
        from: "return this.isObserved && !this.isAwaited && this.reactions.length === 0;",
        to: "return false;",
      },
    ],
  },
  {
    name: "what was not awaited before the return is dropped",
    rule: DISAPPEARS,
    program: 9,
    edits: [
      {
        file: OPERATION_RULES,
        from: "  if (branch.isKept) return true;\n",
        to: "  if (branch.isKept || childId === undefined) return false;\n",
      },
    ],
  },
  {
    name: "a slot's change that was not awaited before the return is dropped",
    rule: DISAPPEARS,
    program: 360,
    edits: [
      {
        file: OPERATION_RULES,
        from: '    case "step":\n    case "slot":\n    case "stream":\n    case "rate":\n    case "unlock":\n      return true;',
        to: '    case "step":\n    case "stream":\n    case "rate":\n    case "unlock":\n      return true;',
      },
    ],
  },
  {
    name: "a child that was not awaited before the return is not started",
    rule: MODEL,
    program: 1053,
    edits: [
      {
        file: OPERATION_RULES,
        from: '    case "child":\n      return childId === undefined;',
        to: '    case "child":\n      return childId === "";',
      },
    ],
  },
  {
    name: "a failure that was never observed is forgotten",
    rule: MODEL,
    program: 27,
    edits: [
      {
        file: EXECUTION,
        from: '"ok" in outcome && unobserved !== undefined ? { error: unobserved.error } : outcome',
        to: "outcome",
      },
    ],
  },
  {
    name: "what was not awaited is not reported",
    rule: REPORTED,
    program: 9,
    edits: [
      {
        file: "workflow/execution/ending.ts",
        from: "if (forgotten.length > 0 && !coroutine.hasWarned) {",
        to: "if (forgotten.length > 1 && !coroutine.hasWarned) {",
      },
    ],
  },
  {
    name: "names with # are taken for numbered ones",
    rule: TROUBLE,
    program: 14,
    edits: [{ file: STORED, from: 'text.includes("#") ? text.replaceAll("#", "##") : text', to: "text" }],
  },
  {
    name: "a lock of plain code counts as held when it was released long ago",
    rule: ALLOWED,
    program: 27,
    edits: [
      { file: "lock/lock.ts", from: ".filter(({ isHeld }) => isHeld);", to: ";" },
      {
        file: EFFECTS,
        from: "return holding.run(NO_LOCKS, () => this.#call(pending, run, step));",
        to: "return this.#call(pending, run, step);",
      },
    ],
  },
];
