#!/usr/bin/env node
/**
 * The program `pawl`. It loads the rest only on a Node that Pawl works on: what an older one says about it, if it can parse it at all, names no Node.
 */

import { refusalOf } from "./node-version.ts";

const refusal = refusalOf(process.versions.node);
if (refusal === undefined) await import("./process.ts");
else {
  process.stderr.write(`pawl: ${refusal} (unsupported_node)\n`);
  process.exitCode = 1;
}
