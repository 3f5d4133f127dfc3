// A ticket is scanned at two gates at the same moment. One gate opens; the other can tell the guest where the ticket was used. A ticket is
// valid from its day on.

import { open } from "pawl";

await using pawl = await open("tickets.db");
const today = Date.UTC(2020, 5, 1);
await pawl.actions.create({ id: "seat-12", owner: "ann", activeAt: today });
await pawl.actions.create({ id: "seat-13", owner: "bob", activeAt: Date.UTC(2999, 5, 1) });

async function scan(ticket: string, gate: string): Promise<string> {
  const answer = await pawl.actions.tryConsume(ticket, { by: gate });
  if (answer.ok) return "welcome";
  if (answer.code === "already_used") return `used at the ${answer.by} gate`;
  if (answer.code === "not_active") return `valid from ${answer.activeAt.toISOString().slice(0, 10)}`;
  return answer.code;
}

console.log(await Promise.all([scan("seat-12", "north"), scan("seat-12", "south")]));
console.log(await scan("seat-13", "north"));
console.log(await scan("seat-14", "north"));
for (const { name, data } of await pawl.actions.history("seat-12")) console.log(name, data);

// Output:
// [ 'welcome', 'used at the north gate' ]
// valid from 2999-06-01
// action_not_found
// created {}
// consumed { by: 'north', usesLeft: 0 }
