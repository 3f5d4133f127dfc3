/** The stores with a mistake that broken.test.ts leaves out. */

import { testMistakes } from "./mistaken.ts";

testMistakes("long");
