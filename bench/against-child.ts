/**
 * One process of `npm run bench -- --against`: two checkouts in turns, a few hundred milliseconds each, on databases of their own.
 *
 * Both sides live in one process, so a slow moment of the machine meets both; which one begins is drawn anew for each pair of slices, and what
 * one leaves for the garbage collector is collected before the other begins.
 */

import { pathToFileURL } from "node:url";
import { type AgainstCase, type Api, againstCases, type Operation } from "./against-cases.ts";

export interface AgainstTask {
  readonly id: string;
  readonly callers: number;
  readonly pairs: number;
  readonly sliceMs: number;
  /** The folders of both checkouts, and where each opens its database: the old one first. */
  readonly sides: readonly { readonly root: string; readonly place: string }[];
}

/** What one slice took for each operation, by the wall and by the processor. */
export interface Slice {
  readonly wallUs: number;
  readonly cpuUs: number;
}

interface Side {
  readonly operation: Operation;
  turn: number;
}

process.on("message", (task: AgainstTask) => {
  measure(task).then(
    (pairs) => process.send?.(pairs, () => process.exit(0)),
    (error: unknown) => {
      console.error(error);
      process.exit(1);
    },
  );
});

async function measure({ id, sides, callers, pairs, sliceMs }: AgainstTask): Promise<Slice[][]> {
  const found = againstCases.find((one) => one.id === id);
  if (found === undefined) throw new Error(`there is no case "${id}"`);
  const opened = await Promise.all(sides.map(({ root, place }) => openSide(found, root, place)));
  for (const { side } of opened) await slice(side, callers, sliceMs);
  const results: Slice[][] = [];
  for (let pair = 0; pair < pairs; pair++) {
    const order = Math.random() < 0.5 ? [0, 1] : [1, 0];
    const both: Slice[] = [];
    for (const index of order) {
      const one = opened[index];
      if (one !== undefined) both[index] = await slice(one.side, callers, sliceMs);
    }
    results.push(both);
  }
  await Promise.all(opened.map(({ close }) => close()));
  return results;
}

async function openSide(
  one: AgainstCase,
  root: string,
  place: string,
): Promise<{ side: Side; close(): Promise<void> }> {
  const api: Api = await import(pathToFileURL(`${root}/src/index.ts`).href);
  const pawl = await api.open(place);
  return { side: { operation: one.prepare(api, pawl), turn: 0 }, close: () => pawl.close() };
}

async function slice(side: Side, callers: number, sliceMs: number): Promise<Slice> {
  globalThis.gc?.();
  let done = 0;
  const startedMs = performance.now();
  const cpu = process.cpuUsage();
  const call = async (_: unknown, caller: number): Promise<void> => {
    while (performance.now() - startedMs < sliceMs) {
      side.turn += 1;
      await side.operation(caller, side.turn);
      done += 1;
    }
  };
  await Promise.all(Array.from({ length: callers }, call));
  const { user, system } = process.cpuUsage(cpu);
  return { wallUs: (1000 * (performance.now() - startedMs)) / done, cpuUs: (user + system) / done };
}
