/** A worker that handles what a reaction is behind by, and says when that is all. */

import { open, reaction } from "../../../src/index.ts";
import { Deposited } from "../kit.ts";

const [store, namespace, count] = process.argv.slice(2);
if (import.meta.main && store !== undefined && namespace !== undefined) {
  const pawl = await open(store, { namespace });
  let handled = 0;
  const mail = reaction("mail", { on: [Deposited] }, async () => {
    handled += 1;
    if (handled === Number(count)) process.stdout.write("drained\n");
  });
  pawl.work([mail]);
}
