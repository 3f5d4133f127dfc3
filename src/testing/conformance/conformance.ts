/**
 * The store conformance suite: every rule of the store contract (`src/kernel/contract.ts`) as a law that can be checked.
 *
 * A store's author gives a harness, which opens a fresh database and connects writers to it, and runs the laws with any
 * test runner; each law opens and closes a database of its own, so they may run in any order and side by side:
 *
 *     for (const law of storeConformance({ open })) test(law.name, law.check);
 *
 * The laws speak to the store as the kernel does, and know nothing of how it works. Where the contract leaves a choice
 * ("busy, try again", a row that another has locked, whether a batch that wrote nothing counts), they accept every choice.
 * What a store cannot do is named in `differences`, with the reason; nothing is left out silently.
 *
 * Leaves out: crashes, full disks and lost connections, which need a harness for each database; and speed.
 */

import { checkDuration, checkFunction, checkList, checkOptions, optionNames } from "../../kernel/check.ts";
import { closing } from "./laws/closing.ts";
import { columns } from "./laws/columns.ts";
import { commits } from "./laws/commits.ts";
import { due } from "./laws/due.ts";
import { lanes } from "./laws/lanes.ts";
import { lists } from "./laws/lists.ts";
import { logs } from "./laws/logs.ts";
import { races } from "./laws/races.ts";
import { reads } from "./laws/reads.ts";
import { sweeps } from "./laws/sweeps.ts";
import { watching } from "./laws/watching.ts";
import { type Harness, type Rule, Stage } from "./stage.ts";

export type { Harness, HarnessClock } from "./stage.ts";

/** One rule of the contract. `check` resolves if the store keeps it, and rejects with what it did instead. */
export interface Law {
  readonly name: string;
  /** Whether it sets the store's clock, and so can only be checked where the harness has a `clock`. */
  readonly setsClock: boolean;
  readonly check: () => Promise<void>;
}

/** A law that a store does not keep, and why that must be so. */
export interface Difference {
  readonly law: string;
  readonly reason: string;
}

export interface ConformanceOptions {
  /** Opens a fresh database for one law. */
  readonly open: () => Promise<Harness>;
  readonly differences?: readonly Difference[];
  /** How long a store may be busy, or silent about a commit, before a law is broken; 10 s unless said otherwise. */
  readonly patienceMs?: number;
}

const OPTIONS = optionNames<ConformanceOptions>({ open: true, differences: true, patienceMs: true });
const DIFFERENCE = optionNames<Difference>({ law: true, reason: true });

const RULES: readonly Rule[] = [
  ...commits,
  ...lanes,
  ...columns,
  ...logs,
  ...reads,
  ...lists,
  ...due,
  ...sweeps,
  ...watching,
  ...closing,
  ...races,
];

/** The laws that the store must keep, without those named in `differences`. */
export function storeConformance(options: ConformanceOptions): readonly Law[] {
  checkOptions(options ?? null, OPTIONS);
  const { open, differences = [], patienceMs = 10_000 } = options;
  checkFunction(open, "open");
  checkDuration(patienceMs, "patienceMs");
  checkList(differences, "the differences");
  for (const difference of differences) checkOptions(difference ?? null, DIFFERENCE, "a difference");
  const left = new Set<string>();
  for (const { law, reason } of differences) {
    if (!RULES.some(({ name }) => name === law)) throw new RangeError(`there is no law "${law}" to differ from`);
    if (reason.trim() === "") throw new RangeError(`the difference from "${law}" has no reason`);
    left.add(law);
  }
  return RULES.filter(({ name }) => !left.has(name)).map(({ name, setsClock, check }) => ({
    name,
    setsClock,
    async check() {
      const stage = new Stage(await open(), patienceMs);
      try {
        await check(stage);
      } finally {
        await stage.end();
      }
    },
  }));
}
