/**
 * A run on the interleaved store with mistakes planted into the source: for `planted.long.test.ts`. Prints the first violation, or nothing.
 * Arguments: one JSON array of edits.
 */

import { type Edit, plant } from "../../simulation/plant.ts";

plant(JSON.parse(process.argv[2] ?? "") as readonly Edit[]);
const { runInterleaved } = await import("../run.ts");
const { violations } = await runInterleaved({}, { seed: 1 });
if (violations[0] !== undefined) process.stdout.write(`${JSON.stringify(violations[0])}\n`);
process.exit(0);
