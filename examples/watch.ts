// Watching a slot: the current value first, then newer ones. Changes by other processes on the same file arrive too.

import { open } from "pawl";

await using pawl = await open("flags.db");
const flag = pawl.slot<string>("flag", { initial: "off" });

const seen: string[] = [];
for await (const { value } of flag.watch()) {
  seen.push(value);
  if (value === "off") await flag.set("on");
  else break;
}
console.log(seen.join(" then "));

for (const name of ["color/blue", "color/red", "size/xl"]) await pawl.slot(name).set(true);
const { slots } = await pawl.slots.list({ prefix: "color/" });
console.log(slots.map((slot) => slot.name));

// Output:
// off then on
// [ 'color/blue', 'color/red' ]
