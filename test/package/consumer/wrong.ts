/** What a user may not write: every line below a `@ts-expect-error` is refused by the types. */

import { open } from "pawl";
import { simulate } from "pawl/testing";

const pawl = await open("memory:");
const visits = pawl.slot<number>("visits", { initial: 0 });
const name = pawl.slot<string>("name");

// @ts-expect-error a decision must not be async
await pawl.transact(async () => 1);

// @ts-expect-error a decision must not return a promise
await pawl.transact(() => Promise.resolve(1));

// @ts-expect-error what a decision returns is what one gets
const text: string = await pawl.transact(() => 1);

// @ts-expect-error a slot of numbers takes no string
await visits.set("one");

// @ts-expect-error an update returns what the slot holds
await visits.update((n) => `${n}`);

// @ts-expect-error an update must not be async
await visits.update(async (n) => n + 1);

// @ts-expect-error without an initial value there may be none
await name.update((now) => now.toUpperCase());

// @ts-expect-error the initial value is one of the slot's
pawl.slot<number>("visits", { initial: "none" });

// @ts-expect-error an option that does not exist is refused
await visits.set(1, { expectVersion: 3 });

// @ts-expect-error a try must expect something
await visits.trySet(1);

// @ts-expect-error a value that was read is not to be changed
(await visits.get()).version = 1;

// @ts-expect-error only slots can be touched
await pawl.transact(() => 1, { touches: ["visits"] });

// @ts-expect-error a durability that does not exist is refused
await open("pawl.db", { durability: "none" });

// @ts-expect-error the kernel is not public
pawl.kernel;

// @ts-expect-error a fault that does not exist is refused
await simulate("mine", { seeds: 1, crush: 0.1 }, async () => {});

export { text };
