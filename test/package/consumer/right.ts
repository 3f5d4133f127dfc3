/** What a user may write: all of it compiles, and the types come out as the user expects them. */

import { open, PawlError } from "pawl";

await using pawl = await open("memory:");

const visits = pawl.slot<number>("visits", { initial: 0 });
await visits.set(1, { expectedVersion: 3 });
await visits.update((n) => n + 1);

export const count: number = await pawl.transact((tx) => {
  const slot = tx.slot(visits);
  slot.update((n) => n + 1);
  return slot.get().value;
});

try {
  await visits.get();
} catch (error) {
  if (!(error instanceof PawlError)) throw error;
  const code: string = error.code;
  throw new Error(`refused: ${code}`, { cause: error });
}
