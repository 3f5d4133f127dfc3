// The generated programs that programs.test.ts leaves out, and the schedules that it leaves out of programs that broke a promise once.

import { PROGRAMS, SHARE, testPrograms, testRegressions } from "./shares.ts";

testPrograms(SHARE + 1, PROGRAMS);
testRegressions({ first: 2, last: 20 });
