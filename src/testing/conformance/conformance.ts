/**
 * The store conformance suite: every rule of the store contract (`src/kernel/contract.ts`) as a law that can be checked.
 *
 * The author of a store provides a harness, which opens a fresh database and connects writers to it, and runs the laws with any test
 * runner. Each law opens and closes its own database, so they may run in any order and concurrently:
 *
 *     for (const law of storeConformance({ open })) test(law.name, law.check);
 *
 * The laws call the store as the kernel does, and know nothing of how it works. Where the contract leaves a choice ("busy, try again", a
 * row that another transaction has locked, whether a batch that wrote nothing counts), they accept every choice. Laws that a store cannot
 * satisfy are listed in `differences`, with the reason; nothing is left out silently.
 *
 * Out of scope: crashes, full disks and lost connections, which need a harness for each database; and speed.
 */

import { checkDuration, checkFunction, checkList, checkOptions, optionNames } from "../../kernel/check.ts";
import { type Harness, LawContext, type Rule } from "./law-context.ts";
import { closing } from "./laws/closing.ts";
import { columns } from "./laws/columns.ts";
import { commits } from "./laws/commits.ts";
import { due } from "./laws/due.ts";
import { follows } from "./laws/follows.ts";
import { lanes } from "./laws/lanes.ts";
import { lists } from "./laws/lists.ts";
import { logs } from "./laws/logs.ts";
import { prunes } from "./laws/prunes.ts";
import { races } from "./laws/races.ts";
import { reads } from "./laws/reads.ts";
import { sweeps } from "./laws/sweeps.ts";
import { watching } from "./laws/watching.ts";

export type { Harness, HarnessClock } from "./law-context.ts";

/** One rule of the contract. `check` resolves if the store satisfies it, and rejects with what it did instead. */
export interface Law {
  readonly name: string;
  /** Whether it sets the store's clock, and so can only be checked if the harness has a `clock`. */
  readonly setsClock: boolean;
  readonly check: () => Promise<void>;
}

/** A law that a store does not satisfy, and the reason. */
export interface Difference {
  readonly law: string;
  readonly reason: string;
}

export interface ConformanceOptions {
  /** Opens a fresh database for one law. */
  readonly open: () => Promise<Harness>;
  readonly differences?: readonly Difference[];
  /** How long a store may be busy, or a commit may stay unnoticed, before a law fails. Default: 10 s. */
  readonly patienceMs?: number;
}

const OPTIONS = optionNames<ConformanceOptions>({ open: true, differences: true, patienceMs: true });
const DIFFERENCE = optionNames<Difference>({ law: true, reason: true });

const RULES: readonly Rule[] = [
  ...commits,
  ...lanes,
  ...columns,
  ...logs,
  ...follows,
  ...reads,
  ...lists,
  ...due,
  ...sweeps,
  ...prunes,
  ...watching,
  ...closing,
  ...races,
];

/** Returns the laws that the store must satisfy, without those named in `differences`. */
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
      const context = new LawContext(await open(), patienceMs);
      try {
        await check(context);
      } finally {
        await context.end();
      }
    },
  }));
}
