// A further share of the schedules of simulation.test.ts.

import { testShare } from "./shares.ts";

testShare(3);
