// Goal: workflows keep their guarantees for any program, with the mistakes that people make: a recorded step never runs again, step.tx takes effect once,
// at-most-once is not repeated on a guess (G14); cleanup runs; misuse is reported and nothing hangs, disappears or leaves a rejection unhandled (G33).
// Method: generated programs, half of them under faults, against an external ledger and a model. These are the first of two
// thousand; the others are in the long suite. `npm run simulate` runs two hundred thousand, and
// checks that every operation, mistake and fault was reached.

import { SHARE, testPrograms, testRegressions } from "./shares.ts";

testPrograms(1, SHARE);

testRegressions({ first: 1, last: 1, isWithWorlds: true });
