/**
 * Plants one defect, runs programs, and prints the first that breaks the rule which the defect must break:
 * `PAWL_PLANTED='{ "edits": […], "rule": "…", "seeds": […] }' node run-planted.ts`. Without a rule, any will do. With `kept`, it is that program in
 * the worlds of these seeds, otherwise the one that each seed draws. Ends with 0 if one was found.
 */

import { plant } from "../simulation/plant.ts";

const { edits, rule, seeds, kept } = JSON.parse(process.env["PAWL_PLANTED"] ?? "{}");
// Before anything is loaded that loads the source.
plant(edits);
const { tryCase } = await import("./explore.ts");
const { drawCase } = await import("./draw.ts");
const { detectFeatures } = await import("./features.ts");
const { REGRESSIONS } = await import("./regressions.ts");

const features = detectFeatures();
const others = new Set<string>();
let found: string | undefined;
for (const seed of seeds) {
  const plan = kept === undefined ? drawCase(seed, features) : REGRESSIONS[kept];
  if (plan === undefined) throw new Error(`there is no program "${kept}"`);
  const { finding } = await tryCase(plan, seed, features);
  if (finding === undefined) continue;
  if (rule === undefined || finding.rule === rule) {
    const program = kept === undefined ? `${seed}` : `"${kept}" in world ${seed}`;
    found = `found by program ${program}: ${finding.rule}: ${finding.message}`;
    break;
  }
  others.add(finding.rule);
}
console.log(found ?? `not found in ${seeds.length} programs; broken: ${[...others].join(", ") || "nothing"}`);
// What the defect left under way does not matter.
process.exit(found === undefined ? 1 : 0);
