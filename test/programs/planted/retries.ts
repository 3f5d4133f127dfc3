import {
  ALLOWED,
  COROUTINE,
  EFFECTS,
  ENDS,
  HELD_RUN,
  MEMORY,
  MODEL,
  type Planted,
  RECORDED,
  REPLAY,
  REPORTED,
  RETRY,
  SURPLUS,
  TROUBLE,
  VERBS,
} from "./defect.ts";

/** What a retry of a run remembers, and what it forgets. */
export const retries: readonly Planted[] = [
  {
    name: "a retry forgets the successes before the failure that ended the run",
    rule: RECORDED,
    program: 7,
    edits: [
      {
        file: MEMORY,
        from: '    if (!("error" in outcome)) return;\n',
        to: "",
      },
    ],
  },
  {
    name: "a retry begins the history anew",
    rule: RECORDED,
    program: 7,
    edits: [
      {
        file: REPLAY,
        from: '    else if (version < retriedAt && name !== "started")\n      coroutine.remember(version, name, kernel.decodeFresh(at, entry.data), entry.atMs);\n',
        to: '    else if (version < retriedAt && name !== "started") coroutine.forgot(name, kernel.decodeFresh(at, entry.data));\n',
      },
    ],
  },
  {
    name: "what a retry remembers must be asked for in the order of the history",
    rule: TROUBLE,
    program: 157,
    edits: [{ file: REPLAY, from: 'else if (version < retriedAt && name !== "started")', to: "else if (version < 0)" }],
  },
  {
    name: "a retry recovers one of several failures",
    rule: MODEL,
    program: 121,
    edits: [
      {
        file: MEMORY,
        from: 'if (!("error" in outcome)) return;',
        to: 'if (!("error" in outcome) || this.#facts.length > 0) return;',
      },
    ],
  },
  {
    name: "a retry forgets failures that the code had handled",
    rule: "a failure that was handled stays",
    program: 122,
    edits: [{ file: MEMORY, from: "    if (this.#facts.length > 0) this.#facts = [];\n", to: "" }],
  },
  {
    name: "a parent that failed through its child fails again when it is retried",
    rule: "a failed child is retried with its parent",
    program: 23,
    edits: [
      {
        file: COROUTINE,
        from: "    this.#failures.settled(pending, outcome, at);",
        to: '    if (pending.kind !== "child") this.#failures.settled(pending, outcome, at);',
      },
      {
        file: COROUTINE,
        from: '        if ("error" in outcome && child !== undefined) this.#failures.addChild({ ...child, waits: true });\n',
        to: "",
      },
    ],
  },
  {
    name: "a failed child is not retried with its parent",
    rule: "a failed child is retried with its parent",
    program: 23,
    edits: [
      {
        file: RETRY,
        from: '    case "failed":\n      letContinue(tx, child, id, [], room);\n',
        to: '    case "failed":\n',
      },
    ],
  },
  {
    name: "a parent that is retried is not told of the child that it waits for",
    rule: ENDS,
    program: 49,
    edits: [{ file: RETRY, from: "  if (parent.waits) addWaiter(tx, id, parent);\n", to: "" }],
  },
  {
    name: "a child that was canceled because its parent failed is left as it is when that is retried",
    rule: ENDS,
    program: 1412,
    edits: [
      {
        file: COROUTINE,
        from: '(waits || whenParentEnds === "cancel") && !this.#lost',
        to: '(waits || whenParentEnds === "cancel") && run === "" && !this.#lost',
      },
    ],
  },
  {
    name: "retried code continues under a lock that it had given up",
    rule: ALLOWED,
    program: 100,
    edits: [
      {
        file: HELD_RUN,
        from: "if (retriedAt === undefined || this.coroutine.kept.size === 0) return false;",
        to: "if (retriedAt !== -1) return false;",
      },
    ],
  },
  {
    name: "retried code continues under a lock that it only stands in line for",
    rule: ALLOWED,
    program: "retry() goes on under a lock only when it is held again, whatever else wakes the run",
    edits: [
      {
        file: HELD_RUN,
        from: "if (known.has(id) ? isHeld && known.get(id) === undefined : !this.#isTakenOver(id, known)) return true;",
        to: "if (!known.has(id) && isHeld && !this.#isTakenOver(id, known)) return true;",
      },
    ],
  },
  {
    name: "a retried run counts on the place in line that it had left",
    rule: ALLOWED,
    program: "retry() takes a new place in the line that the run had left",
    edits: [
      {
        file: COROUTINE,
        from: '    if (oldest.word === "queued" && pending !== undefined) pending.queuedFact = oldest;\n    else this.apply(',
        to: "    this.apply(",
      },
    ],
  },
  {
    name: "a release that is remembered from before the retry releases the lock of after it",
    rule: SURPLUS,
    program: 7,
    edits: [
      { file: COROUTINE, from: "        if (this.#failures.areOpen) this.#failures.add(at);\n", to: "" },
      { file: HELD_RUN, from: "rangesOf(forgotten)", to: "rangesOf(forgotten).slice(0, 0)" },
    ],
  },
  {
    name: "the time before a retry counts for a step's totalTimeout",
    rule: MODEL,
    program: "retry() gives a step all of its totalTimeout again",
    edits: [
      {
        file: EFFECTS,
        from: "const sinceMs = Math.max(pending.sinceMs, this.#run.coroutine.retriedAtMs);",
        to: "const { sinceMs } = pending;",
      },
    ],
  },
  {
    name: "the attempts before a retry count for the step that is done again",
    rule: "a retry gives a step all of its attempts again",
    program: 190,
    edits: [{ file: MEMORY, from: "    this.#facts.push(...attemptFacts);\n", to: "" }],
  },
  {
    name: "after a retry, what was done on a slot is found by its number alone",
    rule: REPORTED,
    program: "an operation on a slot that is new after a retry does not get what another one did",
    edits: [
      { file: MEMORY, from: "if (this.#leftOf === null) return number;", to: "if (number > 0) return number;" },
      {
        file: COROUTINE,
        from: "if (pending !== undefined && !isAbout(pending, oldest))",
        to: "if (oldest === undefined)",
      },
    ],
  },
  {
    name: "what a branch that was left behind begins handles what the function has thrown",
    rule: MODEL,
    program:
      "a failure that the function has thrown is forgotten by a retry, although a branch left behind goes on after it",
    edits: [{ file: COROUTINE, from: '      if ("error" in outcome) this.#failures.threw();\n', to: "" }],
  },
  {
    name: "a turn from before a retry is used after it",
    rule: "a step's rateLimit counts every attempt",
    program: "a turn from before a retry is not used after it",
    edits: [{ file: COROUTINE, from: "      pending.hasTurn = false;\n      pending.dueMs = null;\n", to: "" }],
  },
  {
    name: "a retry remembers that a lock was released, and not which hold of it",
    rule: SURPLUS,
    program: "a retried run does not wait for a lock that its new code has released",
    edits: [{ file: VERBS, from: "      return unlockVerb(plan.of);\n", to: "      return undefined;\n" }],
  },
];
