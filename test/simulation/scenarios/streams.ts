// Goal: each expected version of a stream has one success, also of one that is new, and each append that was acknowledged is there once; commands of two
// releases keep an invariant; and a reader of all streams misses nothing, wherever it stops, although processes die and replies are lost (G11, G12).
// Method: two writers append where they have read, to two streams that exist and to new ones; what has an unknown outcome is sent again with the
// same expected version. They also take from a purse and fill it, by commands of an older and a newer release with different states, and by plain
// appends, which the commands have to fold first. A reader follows all streams, leaves off in the middle of pages, and continues at its cursor.

import { aggregate, event, type Pawl, StoreError } from "../../../src/index.ts";
import { checkCommits } from "../../../src/testing/checkers/commits.ts";
import type { Process, World } from "../../../src/testing/index.ts";
import { until } from "./transfers.ts";

const Sent = event<{ readonly mark: string }>("Sent");
const Filled = event<{ readonly by: string }>("Filled");
const Taken = event<{ readonly by: string }>("Taken");

const ROUNDS = 6;

/** The older release counts what is left. */
const older = aggregate("purse", {
  initial: 0,
  on: [
    [Filled, (left) => left + 1],
    [Taken, (left) => left - 1],
  ],
  commands: {
    take: (left, by: string, { emit, refuse }) => {
      // It has emitted when it finds out.
      emit(Taken({ by }));
      if (left === 0) refuse("empty");
    },
  },
});

/** The newer one counts both sides. */
const newer = aggregate("purse", {
  initial: { filled: 0, taken: 0 },
  on: [
    [Filled, ({ filled, taken }) => ({ filled: filled + 1, taken })],
    [Taken, ({ filled, taken }) => ({ filled, taken: taken + 1 })],
  ],
  commands: {
    take: ({ filled, taken }, by: string, { emit, refuse }) => {
      if (filled === taken) refuse("empty");
      emit(Taken({ by }));
    },
  },
});

interface Attempt {
  readonly stream: string;
  readonly expected: number;
  readonly marks: readonly string[];
  acknowledged: boolean;
  /** It was refused, and no earlier attempt at it has an unknown outcome. */
  isRefused: boolean;
}

export const streams = {
  name: "a stream has one success for each version, and all streams one order",
  options: { faultsMs: 60_000 },
  async scenario(world: World): Promise<void> {
    const attempts: Attempt[] = [];
    const takes = new Map<string, "taken" | "refused" | "unknown">();
    let names = 0;
    const name = (): string => `m${names++}`;
    let writersLeft = 2;
    for (const [writer, which] of ["north", "south"].entries())
      world.process(which, async (process) => {
        const { pawl, random, sleep } = process;
        for (let i = 0; i < ROUNDS; i++) {
          const stream = random() < 0.3 ? `new-${i}` : random() < 0.5 ? "a" : "b";
          await append(process, attempts, stream, random() < 0.3 ? [name(), name()] : [name()]);
          if (random() < 0.4)
            await until(async () => void (await pawl.stream("purse").append([Filled({ by: which })])), process);
          await take(pawl, writer === 0 ? older : newer, name(), takes);
          if (random() < 0.3) await pawl.transact((tx) => tx.aggregate(older, "purse").state).catch(() => {});
          await sleep(random() * 2_000);
        }
        writersLeft -= 1;
      });
    const readings: string[][] = [];
    world.process("reader", async (process) => {
      const seen: string[] = [];
      readings.push(seen);
      let after = "0";
      for (let isLast = false; !isLast; ) {
        isLast = writersLeft === 0;
        await process.sleep(500);
        await until(async () => {
          const reading = process.pawl.events.read({ after });
          for await (const { stream, version } of reading) {
            seen.push(`${stream} ${version}`);
            after = reading.cursor;
            // It leaves off, and continues where it was.
            if (!isLast && process.random() < 0.2) return;
          }
          after = reading.cursor;
        }, process);
      }
    });
    await world.finish();
    checkCommits(world);
    await judge(world, attempts, takes, readings);
  },
};

/** Appends where the stream ends; what has an unknown outcome is sent again as it was. */
async function append(process: Process, attempts: Attempt[], stream: string, marks: readonly string[]): Promise<void> {
  const { pawl } = process;
  let expected = 0;
  await until(async () => {
    expected = await pawl.stream(stream).head();
  }, process);
  const attempt: Attempt = { stream, expected, marks, acknowledged: false, isRefused: false };
  attempts.push(attempt);
  let isUnknown = false;
  await until(async () => {
    try {
      const events = marks.map((mark) => Sent({ mark }));
      const { ok } = await pawl.stream(stream).tryAppend(events, { expectedVersion: expected });
      attempt.acknowledged = ok;
      attempt.isRefused = !ok && !isUnknown;
    } catch (error) {
      if (error instanceof StoreError && error.code === "outcome_unknown") isUnknown = true;
      throw error;
    }
  }, process);
}

async function take(
  pawl: Pawl,
  release: typeof older | typeof newer,
  mark: string,
  takes: Map<string, "taken" | "refused" | "unknown">,
): Promise<void> {
  takes.set(mark, "unknown");
  try {
    const { ok } = await pawl.aggregate(release as typeof older, "purse").tryExecute("take", mark);
    takes.set(mark, ok ? "taken" : "refused");
  } catch (error) {
    if (!(error instanceof StoreError)) throw error;
    if (error.code !== "outcome_unknown") takes.set(mark, "refused");
  }
}

async function judge(
  world: World,
  attempts: readonly Attempt[],
  takes: ReadonlyMap<string, "taken" | "refused" | "unknown">,
  readings: readonly (readonly string[])[],
): Promise<void> {
  const pawl = world.open();
  const order: string[] = [];
  const heads = new Map<string, number>();
  const places = new Map<string, string[]>();
  let left = 0;
  for await (const { stream, version, data } of pawl.events.read({ events: [Sent, Filled, Taken] })) {
    order.push(`${stream} ${version}`);
    world.check(
      version === (heads.get(stream) ?? 0) + 1,
      `${stream} has version ${version} after ${heads.get(stream)}`,
    );
    heads.set(stream, version);
    if ("mark" in data) places.set(data.mark, [...(places.get(data.mark) ?? []), `${stream} ${version}`]);
  }
  for await (const event of pawl.stream("purse").read({ events: [Filled, Taken] })) {
    left += event.name === Filled.name ? 1 : -1;
    world.check(left >= 0, `the purse has ${left} after version ${event.version}`);
    if (event.name === Taken.name) {
      const said = takes.get(event.data.by);
      world.check(said !== "refused", `${event.data.by} was refused, and has taken`);
      places.set(event.data.by, [...(places.get(event.data.by) ?? []), `purse ${event.version}`]);
    }
  }
  for (const [mark, said] of takes)
    world.check(said !== "taken" || places.has(mark), `${mark} has taken, and it is gone`);
  for (const { stream, expected, marks, acknowledged, isRefused } of attempts) {
    const there = marks.flatMap((mark) => places.get(mark) ?? []);
    const wanted = marks.map((_, i) => `${stream} ${expected + 1 + i}`);
    const is = there.join(", ");
    world.check(
      is === "" || is === wanted.join(", "),
      `${marks} expected version ${expected} of ${stream}, and is ${is}`,
    );
    world.check(!acknowledged || is !== "", `${marks} was acknowledged and is gone`);
    world.check(!isRefused || is === "", `${marks} was refused, and is ${is}`);
  }
  for (const [mark, found] of places)
    world.check(found.length === 1, `${mark} is there ${found.length} times: ${found}`);
  const old = await pawl.aggregate(older, "purse").state();
  world.check(old.state === left, `the older release has ${old.state} left, and there are ${left}`);
  const { state } = await pawl.aggregate(newer, "purse").state();
  world.check(
    state.filled - state.taken === left,
    `the newer release has ${JSON.stringify(state)}, and there are ${left}`,
  );
  // A reader that died began anew, and the last one has come to the end.
  for (const seen of readings)
    world.check(String(seen) === String(order.slice(0, seen.length)), `a reader saw ${seen}, and it is ${order}`);
  world.check(readings.at(-1)?.length === order.length, `the reader saw ${readings.at(-1)?.length} of ${order.length}`);
}
