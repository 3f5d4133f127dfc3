/** Every mistake, in the order of the laws. */

import type { Broken } from "../broken.ts";
import { closing } from "./closing.ts";
import { columns } from "./columns.ts";
import { commits } from "./commits.ts";
import { due } from "./due.ts";
import { following } from "./following.ts";
import { lanes } from "./lanes.ts";
import { lists } from "./lists.ts";
import { logs } from "./logs.ts";
import { prunes } from "./prunes.ts";
import { races } from "./races.ts";
import { reads } from "./reads.ts";
import { sweeps } from "./sweeps.ts";
import { watching } from "./watching.ts";

export const BROKEN: readonly Broken[] = [
  ...commits,
  ...lanes,
  ...columns,
  ...logs,
  ...following,
  ...reads,
  ...lists,
  ...due,
  ...sweeps,
  ...prunes,
  ...watching,
  ...closing,
  ...races,
];
