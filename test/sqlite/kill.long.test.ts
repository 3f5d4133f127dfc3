/** G1 at length: ninety kills more than in kill.test.ts. */

import { it } from "vitest";
import { killUnderLoad } from "./kills.ts";
import { scratchFolder } from "./kit.ts";

const folder = scratchFolder();

it("ninety times, an acknowledged commit survives kill -9, and no commit is there in part", { timeout: 600_000 }, () =>
  killUnderLoad(folder, { lone: 54, beside: 36 }),
);
