import {
  ALLOWED,
  CASCADE,
  CHILDREN,
  CONTEXT,
  COROUTINE,
  END,
  ENDS,
  HELD_RUN,
  MESSAGES,
  type Planted,
  PREPARE,
  RUNS,
  TROUBLE,
} from "./defect.ts";

/** Children. */
export const children: readonly Planted[] = [
  {
    name: "a child's id with another input gets the old result",
    rule: ALLOWED,
    program: 198,
    edits: [
      {
        file: CONTEXT,
        from: "fingerprint: childId === undefined ? null : fingerprintOf(checked),",
        to: "fingerprint: childId === undefined ? fingerprintOf(checked) : null,",
      },
    ],
  },
  {
    name: "a second parent takes the child's result from the first",
    rule: ENDS,
    program: 39,
    edits: [
      {
        file: MESSAGES,
        from: "  if (isSameParent(value.parent, parent)) return;\n",
        to: "  if (parent.waits) return void run.write({ value: { ...value, parent } });\n",
      },
    ],
  },
  {
    name: "a parent that calls one child twice is told once",
    rule: ENDS,
    program: 98,
    edits: [
      { file: MESSAGES, from: "one.run === other.run && one.id === other.id &&", to: "one.run === other.run &&" },
    ],
  },
  {
    name: "a child's id that is another workflow's is no error that the code can catch",
    rule: TROUBLE,
    program: 198,
    edits: [
      {
        file: PREPARE,
        from: "    if (!isRefusal(error)) throw error;\n",
        to: "    if (error !== null) throw error;\n",
      },
    ],
  },
  {
    name: "a run that ends leaves its children alone",
    rule: CHILDREN,
    program: 2,
    edits: [
      {
        file: HELD_RUN,
        from: '(whenParentEnds === "cancel" ? [run] : [])',
        to: '(whenParentEnds === "cancel" ? [run].slice(1) : [])',
      },
    ],
  },
  {
    name: "a parked run that is canceled leaves its children alone",
    rule: CHILDREN,
    program: 26,
    edits: [
      { file: RUNS, from: "        await cancelChildrenOf(this.#kernel, row);\n", to: "" },
      { file: RUNS, from: 'import { cancelChildrenOf } from "./cascade.ts";\n', to: "" },
    ],
  },
  {
    name: "a run that is parked at the moment in which it is canceled leaves its children alone",
    rule: CHILDREN,
    program: "a run that is parked at the moment in which it is canceled takes its children with it",
    edits: [
      {
        file: RUNS,
        from: 'const hasMoved = isWithoutCode ? run.head !== row.head : run.status === "parked";',
        to: "const hasMoved = isWithoutCode && run.head !== row.head;",
      },
    ],
  },
  {
    name: "a parked child is not ended with its parent",
    rule: CHILDREN,
    program: 611,
    edits: [{ file: CASCADE, from: "  else if (run.dueMs === null)\n", to: "  else if (run.dueMs === -1)\n" }],
  },
  {
    name: "a child that is started by the commit in which it loses a race is left alone",
    rule: CHILDREN,
    program: 229,
    edits: [
      {
        file: COROUTINE,
        from: 'if (word === "child" && lost !== undefined) {',
        to: 'if (word === "child" && lost === null) {',
      },
    ],
  },
  {
    name: "more children, slots and locks in one turn than a commit takes",
    rule: TROUBLE,
    program: 50,
    edits: [{ file: HELD_RUN, from: "const MOST_BEGUN = 200;", to: "const MOST_BEGUN = 200_000;" }],
  },
  {
    name: "a child that was to resume after it has stopped resumes although its parent has ended",
    rule: CHILDREN,
    program: 217,
    edits: [
      {
        file: END,
        from: "value.cancel === undefined || value.cancel.resumes === true",
        to: "value.cancel === undefined",
      },
    ],
  },
];
