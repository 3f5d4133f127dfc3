/** What a user may write: all of it compiles, and the types come out as the user expects them. */

import { type Codec, jsonCodec, open, PawlError, type StoreError, transformed, VersionConflictError } from "pawl";
import {
  type Harness,
  History,
  isLinearizable,
  type Law,
  neverStruck,
  type Store,
  simulate,
  storeConformance,
  type World,
} from "pawl/testing";

await using pawl = await open("memory:", { namespace: "billing", patience: "10s", maxValueBytes: 4096 });

// With an initial value there is always one; without, there may be none.
const visits = pawl.slot<number>("visits", { initial: 0 });
const name = pawl.slot<string>("name");
export const always: number = (await visits.get()).value;
export const perhaps: string | undefined = (await name.get()).value;

await visits.set(1, { expectedVersion: 3 });
const updated = await visits.update((n) => n + 1);
export const version: number = updated.version;
await name.update((now) => `${now ?? "nobody"}!`);

const answer = await visits.trySet(5, { expectedVersion: updated.version });
export const outcome: number = answer.ok ? answer.version : answer.current;
export const { deleted }: { deleted: boolean } = await visits.delete();

for await (const { value } of name.watch({ abortSignal: AbortSignal.timeout(1) })) {
  const seen: string | undefined = value;
  if (seen === "stop") break;
}

let after: string | null = null;
do {
  const page = await pawl.slots.list({ prefix: "visit", limit: 10, after });
  const listed: readonly { name: string; value: unknown; version: number }[] = page.slots;
  after = listed.length === 0 ? null : page.next;
} while (after !== null);

export const count: number = await pawl.transact(
  (tx) => {
    const slot = tx.slot(visits);
    slot.update((n) => n + 1);
    const { value }: { value: string | undefined } = tx.slot(name).get();
    tx.slot(name).set(`${value ?? ""} ${tx.uuid()} ${tx.random()} ${tx.nowMs}`);
    return slot.get().value;
  },
  { touches: [visits, name] },
);

try {
  await visits.get();
} catch (error) {
  if (error instanceof VersionConflictError) throw new Error(`it is at ${error.data.current}`, { cause: error });
  if (!(error instanceof PawlError)) throw error;
  const code: string = error.code;
  throw new Error(`refused: ${code}`, { cause: error });
}

export const isUnknown = (error: StoreError): boolean => error.code === "outcome_unknown";

export const codec: Codec = transformed(jsonCodec, { name: "none", seal: (text) => text, open: (text) => text });

const report = await simulate("mine", { seeds: 1, crash: 0.1 }, async (world: World) => {
  world.process("p", async (process) => {
    await process.pawl.slot<number>("n", { initial: 0 }).update((n) => n + 1);
  });
  await world.finish();
  world.check((await world.open().slot<number>("n", { initial: 0 }).get()).value >= 1, "it was counted");
});
export const holes: readonly string[] = neverStruck([report]);

const history = new History<number, number>();
export const isFine: boolean = isLinearizable(history.operations, {
  initial: 0,
  apply: (state, input) => ({ state: state + input, output: state }),
});

export const laws = (harness: () => Promise<Harness>): readonly Law[] => storeConformance({ open: harness });
export const onMine = (store: Store) => open({ store });
