/**
 * Whether one process is woken by another, through whatever is between them and the server.
 *
 * A process of its own watches a slot, waits for a lock and works on a run that waits for a signal; this one writes, releases and signals,
 * and measures how long the other took to report it. The median is reported; only a missing wake-up is an error, so that a busy machine
 * breaks nothing.
 */

import { join } from "node:path";
import { signal } from "../../src/index.ts";
import { open } from "../../src/open.ts";
import { Child, spawnNode } from "../node/child.ts";

export interface WakeUps {
  /** Whether the other process was warned that notifications do not arrive. */
  readonly isWarned: boolean;
  /** How long it took, by what was waited for. */
  readonly medianMs: ReadonlyMap<string, number>;
  readonly wrong: readonly string[];
}

export interface WaiterArguments {
  readonly store: string;
  readonly namespace: string;
}

/** What both sides know. */
export const names = { slot: "bell", lock: "gate", workflow: "bellman" } as const;
export const rung = signal<number>("rung");

const ROUNDS = 9;
/** A listener is known to everybody by then; before that it polls quickly anyhow. */
const SETTLE_MS = 3_000;
const WITHIN_MS = 15_000;

const sleep = (ms: number): Promise<void> => new Promise((resolve) => setTimeout(resolve, ms));

export async function checkWakeUps(store: string, namespace: string): Promise<WakeUps> {
  const wrong: string[] = [];
  const times = new Map<string, number[]>();
  const file = join(import.meta.dirname, "children", "waiter.ts");
  const args: WaiterArguments = { store, namespace };
  const child = new Child(spawnNode(file, [JSON.stringify(args)]), "waiter.ts");
  const hush = () => {};
  // This process is warned as well, and only needs to be once.
  process.on("warning", hush);
  const pawl = await open(store, { namespace });
  try {
    const isWarned = (await child.line()) === "warned";
    const slot = pawl.slot<number>(names.slot, { initial: 0 });
    const start = (await slot.get()).value;
    const run = await pawl.start(names.workflow, null, { id: `${names.workflow}-${start}` });
    await sleep(SETTLE_MS);
    const timed = async (what: string, said: string, act: () => Promise<unknown>): Promise<void> => {
      const startedMs = performance.now();
      await act();
      const line = await Promise.race([child.line(), sleep(WITHIN_MS)]);
      if (line !== said) throw new Error(`${what}: expected "${said}" within ${WITHIN_MS} ms, and heard "${line}"`);
      times.set(what, [...(times.get(what) ?? []), performance.now() - startedMs]);
    };
    try {
      for (let n = start + 1; n <= start + ROUNDS; n++) {
        await timed("slot", `saw ${n}`, () => slot.set(n));
        const hold = await pawl.mutex(names.lock).acquire();
        child.tell("lock");
        const line = await child.line();
        if (line !== "waiting") throw new Error(`lock: expected "waiting", and heard "${line}"`);
        // It says so before it waits; an immediate grant would be no wake-up.
        while ((await pawl.mutex(names.lock).inspect()).waiters.length === 0) await sleep(20);
        await timed("lock", "granted", () => hold.release());
        await timed("signal", `signaled ${n}`, () => run.signal(rung, n));
      }
    } catch (error) {
      wrong.push(`a process was not woken: ${error instanceof Error ? error.message : error}`);
    }
    return { isWarned, medianMs: medians(times), wrong };
  } finally {
    process.off("warning", hush);
    await child.kill();
    await pawl.close();
  }
}

function medians(times: ReadonlyMap<string, readonly number[]>): ReadonlyMap<string, number> {
  return new Map(
    [...times].map(([what, all]) => [what, Math.round(all.toSorted((a, b) => a - b)[Math.floor(all.length / 2)] ?? 0)]),
  );
}
