// A licence with three seats, and a payload that unlocks the product. Each machine has its own key, so it takes one seat however often it starts.

import { hkdfSync } from "node:crypto";
import { open } from "pawl";

const key = new Uint8Array(hkdfSync("sha256", "a secret from your key store", "", "actions", 32));
const actions = { pepper: "another secret from your key store", keys: { current: "k1", ring: { k1: key } } };
await using pawl = await open("licences.db", { actions });

await pawl.actions.create({ id: "licence-7", uses: 3, payload: { unlock: "0xC0FFEE" } });

async function start(machine: string): Promise<string> {
  const answer = await pawl.actions.tryConsume<{ unlock: string }>("licence-7", { by: machine, consumerKey: machine });
  if (!answer.ok) return `${machine}: no seat left`;
  return `${machine}: ${answer.payload.unlock}, ${answer.replayed ? "again" : `seats left: ${answer.usesLeft}`}`;
}

for (const machine of ["laptop", "desktop", "laptop", "server", "tablet", "server"]) console.log(await start(machine));

// Output:
// laptop: 0xC0FFEE, seats left: 2
// desktop: 0xC0FFEE, seats left: 1
// laptop: 0xC0FFEE, again
// server: 0xC0FFEE, seats left: 0
// tablet: no seat left
// server: 0xC0FFEE, again
