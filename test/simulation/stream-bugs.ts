/** Bugs that streams and aggregates like these could have, each caught by the simulated streams. */

import type { Bug } from "./bugs.ts";
import { streams } from "./scenarios/streams.ts";

const DECIDE = "stream/decide.ts";
const RECORDS = "stream/records.ts";
const STORED = "stream/stored.ts";
const AGGREGATES = "stream/aggregates.ts";
const READING = "stream/reading.ts";

const bug = (name: string, file: string, from: string, to: string): Bug => ({
  name,
  caughtBy: streams.name,
  edits: [{ file, from, to }],
});

export const streamBugs: readonly Bug[] = [
  bug(
    "the expected version of a stream is not checked",
    DECIDE,
    "  expected === undefined || expected === version;",
    "  expected === undefined || version >= 0;",
  ),
  bug(
    "a stream that must not exist may",
    DECIDE,
    "  expected === undefined || expected === version;",
    "  !expected || expected === version;",
  ),
  bug(
    "what a command emitted before it refused is appended",
    DECIDE,
    "  if (refusal !== undefined) return {",
    "  if (refusal !== undefined && events.length === 0) return {",
  ),
  bug(
    "a stored state that lacks events is taken for the last one",
    RECORDS,
    "  if (stored?.version === record.head) return { fold: stored,",
    "  if (stored !== undefined) return { fold: stored,",
  ),
  bug(
    "a state that was folded outside is used although events came since",
    RECORDS,
    "(fold) => fold !== undefined && fold.version >= before && fold.version <= record.head,",
    "(fold) => fold !== undefined && fold.version <= record.head,",
  ),
  bug(
    "the state of other reducers is used",
    STORED,
    "folds[aggregate]?.find((one) => one.by === by)",
    "folds[aggregate]?.at(0)",
  ),
  bug(
    "the last event of a stored state is folded again",
    AGGREGATES,
    "  for await (const page of pagesAfter(kernel, at, fold.version))",
    "  for await (const page of pagesAfter(kernel, at, Math.max(0, fold.version - 1)))",
  ),
  bug(
    "what a command emits is not folded into its state",
    RECORDS,
    "foldEvent(rules, state, event), fold);",
    "({ ...state, version: event.version }), fold);",
  ),
  bug(
    "a reading that is left in the middle of a page continues after it",
    READING,
    "        this.#after = entry.position;\n",
    "        this.#after = page.upTo;\n",
  ),
];
