/** The guards that guards.test.ts leaves out. */

import { testGuards } from "./guarding.ts";

testGuards("long");
