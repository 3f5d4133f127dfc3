// Goal: all committed decisions are serializable together, over any number of keys, present or absent, by every caller of the kernel, although
// requests and replies are lost, processes die in the middle of a commit, rows are found locked and known rows have moved (G32).
// Method: three processes follow random plans over a few lists, several concurrent callers in each: some keys are declared and some turn up late, records are
// taken for absent, claimed records are written by who holds them, decisions throw after writing, and pairs of callers each create a
// key and look whether the other's is there. What each saw and did goes to the checker, with the time; a process that died leaves
// unknown outcomes.

import { checkCommits } from "../../../src/testing/checkers/commits.ts";
import type { ListOperation, ListTransaction } from "../../../src/testing/checkers/lists/transactions.ts";
import { checkSerializable, describeSerializable } from "../../../src/testing/checkers/serializable.ts";
import type { Process, World } from "../../../src/testing/index.ts";
import { Random } from "../../../src/testing/sim/random.ts";
import { actOnce, actOnPair, type Desk, lastReads, type Window } from "../../serializable/paths.ts";

const PROCESSES = ["p", "q", "r"];
const CALLERS = 3;
/** By each process, over all its lives. */
const ACTS = 10;
const PAIRS = 3;

/** Few keys, so that those few transactions meet. */
const WINDOW: Window = {
  name: "w",
  lists: { mortal: ["w/m0", "w/m1"], growing: ["w/g0", "w/g1"] },
  claimed: ["w/c0"],
};

interface Entry {
  readonly id: string;
  readonly about: string;
  readonly startedAt: number;
  endedAt: number | undefined;
  outcome: ListTransaction["outcome"];
  operations: readonly ListOperation[];
}

export const lists = {
  name: "committed decisions are serializable",
  async scenario(world: World): Promise<void> {
    const history: Entry[] = [];
    let events = 0;
    let values = 0;
    const deskOf = (process: Process): Desk => ({
      pawl: process.pawl,
      name: `${process.name}#${process.incarnation}`,
      random: new Random(Math.floor(process.random() * 2 ** 32)),
      hasSql: false,
      sleep: process.sleep,
      nextValue: () => {
        values += 1;
        return values;
      },
      record: async (about, run) => {
        events += 1;
        const id = `${process.name}${history.length}`;
        const entry: Entry = { id, about, startedAt: events, endedAt: undefined, outcome: "unknown", operations: [] };
        history.push(entry);
        const outcome = await run((operations) => {
          entry.operations = operations;
        });
        events += 1;
        Object.assign(entry, outcome, { endedAt: events });
        return outcome;
      },
    });
    PROCESSES.forEach((name, number) => {
      let left = ACTS;
      world.process(name, async (process) => {
        const desk = deskOf(process);
        const call = async (): Promise<void> => {
          while (left > 0) {
            left -= 1;
            if (desk.random.chance(0.3)) {
              const pair = desk.random.below(PAIRS);
              await actOnPair(desk, WINDOW, pair, ((number + desk.random.below(2)) % 2) as 0 | 1);
            } else await actOnce(desk, WINDOW);
            if (desk.random.chance(0.2)) await process.sleep(desk.random.below(1_000));
          }
        };
        await Promise.all(Array.from({ length: CALLERS }, call));
      });
    });
    await world.finish();
    const keys = new Set(history.flatMap(({ operations }) => operations.map(({ key }) => key)));
    const last = await lastReads(world.open(), [...keys]);
    const report = checkSerializable(history, { realTime: true, last });
    const [first] = report.violations;
    world.check(first === undefined, `${first?.message}\n${describeSerializable(report)}`);
    checkCommits(world);
  },
};
