/** What a user may not write: every line below a `@ts-expect-error` is refused by the types. */

import { open } from "pawl";

const pawl = await open("memory:");
const visits = pawl.slot<number>("visits", { initial: 0 });

// @ts-expect-error a decision must not be async
await pawl.transact(async () => 1);

// @ts-expect-error a slot of numbers takes no string
await visits.set("one");

// @ts-expect-error an update returns what the slot holds
await visits.update((n) => `${n}`);

// @ts-expect-error the initial value is one of the slot's
pawl.slot<number>("visits", { initial: "none" });

// @ts-expect-error an option that does not exist is refused
await visits.set(1, { expectVersion: 3 });
