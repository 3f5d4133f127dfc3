// Two people edit the same document. The second to save gets an error, instead of silently overwriting the first.

import { open, VersionConflictError } from "pawl";

await using pawl = await open("docs.db");
const page = pawl.slot<string>("page/home");

await page.set("Hello", { expectedVersion: 0 }); // 0: it must not exist yet
const ann = await page.get();
const bob = await page.get();

await page.set(`${ann.value}, world`, { expectedVersion: ann.version });
try {
  await page.set(`${bob.value}!`, { expectedVersion: bob.version });
} catch (error) {
  if (!(error instanceof VersionConflictError)) throw error;
  console.log(error.code, error.data);
}

// The variant that returns a result instead of throwing.
console.log(await page.trySet("Hi", { expectedVersion: bob.version }));
console.log((await page.get()).value);

// Output:
// version_conflict { name: 'slot "page/home"', expected: 1, current: 2 }
// { ok: false, code: 'version_conflict', current: 2 }
// Hello, world
