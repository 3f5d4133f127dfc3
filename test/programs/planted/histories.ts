import {
  ARRIVALS,
  COROUTINE,
  ENDS,
  EXECUTION,
  HELD_RUN,
  HOLDER,
  JOINT,
  LOCKS,
  PARKED,
  type Planted,
  RECORDED,
  REPLAY,
  SURPLUS,
  TO_BEGIN,
  TROUBLE,
} from "./defect.ts";

/** The history, and what else a run goes on with on another worker. */
export const histories: readonly Planted[] = [
  {
    name: "a fact that the code did not ask for is passed over",
    rule: ENDS,
    program: 130,
    edits: [
      {
        file: COROUTINE,
        from: "if (!this.#lost.has(text)) throw ",
        to: "if (!this.#lost.has(text)) return false;\n      if (word !== kind) throw ",
      },
    ],
  },
  {
    name: "a worker whose code contradicts the history parks the run",
    rule: PARKED,
    program: 251,
    edits: [
      {
        file: HELD_RUN,
        from: "const isLong = contradicted !== undefined && tx.nowMs - contradicted.sinceMs >= contradictionMs;",
        to: "const isLong = contradicted === undefined || tx.nowMs - contradicted.sinceMs >= contradictionMs;",
      },
    ],
  },
  {
    name: "a worker whose code contradicts the history uses up the run's tries",
    rule: PARKED,
    program: 233,
    edits: [
      {
        file: HOLDER,
        from: "    tries: Math.max(0, record.tries - 1),\n  });\n}\n\n/** This process lacks",
        to: "  });\n}\n\n/** This process lacks",
      },
    ],
  },
  {
    name: "a step that was recorded is begun again after a replay",
    rule: RECORDED,
    program: 1,
    edits: [
      { file: REPLAY, from: "  coroutine.takeNew();\n", to: "" },
      {
        file: EXECUTION,
        from: "for (const pending of coroutine.waiting.values()) if (begins(pending)) this.#toBegin.add(pending);",
        to: "",
      },
      {
        file: TO_BEGIN,
        from: "if (waiting.get(pending.text) === pending) {",
        to: "if (waiting.size >= 0) {",
      },
      {
        file: EXECUTION,
        from: 'if (plan.kind !== "step" || !this.coroutine.waiting.has(text) || ',
        to: 'if (plan.kind !== "step" || ',
      },
    ],
  },
  {
    name: "a transaction is heard of before what the history has before it",
    rule: TROUBLE,
    program: "a transaction beside a lock that is granted is heard of in the order of the history",
    edits: [
      {
        file: ARRIVALS,
        from: "queue.splice(at < 0 ? queue.length : at, 0, arrival);",
        to: "queue.unshift(arrival);",
      },
    ],
  },
  {
    name: "a lock that a commit of the run itself granted to it does not wake it",
    rule: ENDS,
    program: 13,
    edits: [
      {
        file: LOCKS,
        from: "      this.put({ ...hold, fence });\n      wakeRun(tx, run);\n",
        to: "      this.put({ ...hold, fence });\n",
      },
    ],
  },
  {
    name: "an attempt that timed out commits its transaction all the same",
    rule: "step.tx takes effect exactly once",
    program: 179,
    edits: [
      {
        file: JOINT,
        from: "    if (this.#attempt?.isOver === true) throw new AttemptOverError(this.pending.id, this.#attempt.attempt);\n",
        to: "",
      },
      {
        file: JOINT,
        from: "return this.#attempt === undefined ? work() : Promise.race([work(), this.#attempt.expired]);",
        to: "return work();",
      },
      { file: JOINT, from: "() => this.#attempt?.isOver === false", to: "() => true" },
    ],
  },
  {
    name: "a replay that was given up half-way is taken for a whole one, and locks that its code released later are requested again",
    rule: SURPLUS,
    program: 214,
    edits: [
      {
        file: EXECUTION,
        from: "        if (this.#isOver()) return await this.#ending.promise;\n",
        to: '        if (run.hasLostLocks) {\n          await run.reenter(() => false);\n          this.#over("released", undefined);\n        }\n        if (this.#isOver()) return await this.#ending.promise;\n',
      },
      // Either of these would notice it.
      { file: EXECUTION, from: "        run.checkReplayed();\n", to: "" },
      {
        file: HELD_RUN,
        from: "    if (head !== this.coroutine.head) throw",
        to: "    if (head < this.coroutine.head) throw",
      },
    ],
  },
  {
    name: "the intent of a step that lost a race before it began stays",
    rule: PARKED,
    program: "a step that loses a race while its intent is written did not happen",
    edits: [
      { file: EXECUTION, from: "    if (!this.coroutine.hasLost(pending)) return;\n", to: "    if (true) return;\n" },
    ],
  },
];
