/**
 * A worker for a run with a long history: one process makes it, another replays it, and prints the outcome.
 */

import { open, signal, type Workflow, workflow } from "../../../src/index.ts";

export const goOn = signal("go on");
const NAMES = Array.from({ length: 1000 }, (_, index) => `step-${index}`);

export const long: Workflow<number, number> = workflow("long", async (ctx, thousands: number) => {
  let sum = 0;
  for (let thousand = 1; thousand <= thousands; thousand++) {
    const given = await Promise.all(NAMES.map((name) => ctx.step(name, () => 1)));
    for (const one of given) sum += one;
  }
  await ctx.waitForSignal(goOn);
  return sum;
});

const [store, namespace] = process.argv.slice(2);
if (import.meta.main && store !== undefined && namespace !== undefined) {
  const pawl = await open(store, { namespace });
  pawl.work([long], {
    on: ({ type, error }) => {
      if (type.startsWith("run.")) process.stdout.write(`${type}${error === undefined ? "" : ` ${String(error)}`}\n`);
    },
  });
}
