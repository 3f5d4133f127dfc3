// Goal: each event that was committed is in the rows of a projection exactly once, readers never see a part of a rebuild, and a caller that waited for its
// append sees it, although processes die, pause past their leases and lose replies, and two releases of the projection are at work side by side (G12, G13, G25).
// Method: two writers append to three streams, and wait for what they appended. Two workers have the older code of a projection that
// collects the ids of the events of each stream; a third one has the newer code, which also counts them. An operator begins rebuilds. A reader looks all the time: once
// it has seen an event, that must stay, whichever generation it sees.

import { event, ProjectionNotFoundError, projection } from "../../../src/index.ts";
import { checkCommits } from "../../../src/testing/checkers/commits.ts";
import type { Process, World } from "../../../src/testing/index.ts";
import { until } from "./transfers.ts";

const Marked = event("Marked");
const Other = event("Other");
const STREAMS = ["a", "b", "c"];
const LEASE_MS = 5_000;

interface Marks {
  readonly marks: readonly string[];
  readonly count?: number;
}

const older = projection("marks", { on: [Marked], version: "1" }, (row: Marks | undefined, e) => ({
  marks: [...(row?.marks ?? []), e.id],
}));

const newer = projection("marks", { on: [Marked], version: "2" }, (row: Marks | undefined, e) => ({
  marks: [...(row?.marks ?? []), e.id],
  count: (row?.count ?? 0) + 1,
}));

export const projections = {
  name: "each event is in a projection once, and readers see it whole",
  options: { faultsMs: 90_000 },
  regressions: [80],
  async scenario(world: World): Promise<void> {
    const acknowledged = new Map<string, string>();
    let writersLeft = 2;
    let isOver = false;
    for (const name of ["north", "south"])
      world.process(name, async (process) => {
        const { pawl, random, sleep } = process;
        for (let i = 0; i < 5; i++) {
          const stream = STREAMS[Math.floor(random() * STREAMS.length)] ?? "a";
          // Once only: what has an unknown outcome may be there or not.
          const appended = await pawl
            .stream(stream)
            .append([Marked(), Other()])
            .catch(() => undefined);
          if (appended !== undefined) {
            const [mark = ""] = appended.ids;
            acknowledged.set(mark, stream);
            const isSeen = await pawl
              .projection(newer)
              .waitFor(appended, { timeout: 20_000 })
              .then(
                () => true,
                () => false,
              );
            const row = isSeen ? await read(process, stream) : undefined;
            world.check(
              !isSeen || row === undefined || row.marks.includes(mark),
              `${mark} was waited for and is not there`,
            );
          }
          await sleep(random() * 4_000);
        }
        writersLeft -= 1;
      });
    for (const [name, code] of [
      ["w1", older],
      ["w2", older],
      ["w3", newer],
    ] as const)
      world.process(name, async ({ pawl }) => void pawl.work([code], { lease: LEASE_MS }), { service: true });
    world.process(
      "reader",
      async (process) => {
        const seen = new Set<string>();
        while (!isOver) {
          for (const stream of STREAMS) {
            const row = await read(process, stream);
            if (row === undefined) continue;
            for (const mark of row.marks) seen.add(`${stream} ${mark}`);
            for (const one of seen)
              if (one.startsWith(`${stream} `))
                world.check(row.marks.includes(one.slice(stream.length + 1)), `${one} was seen and is gone`);
            world.check(new Set(row.marks).size === row.marks.length, `${stream} has an event twice: ${row.marks}`);
            world.check(row.count === undefined || row.count === row.marks.length, `${stream} counts ${row.count}`);
          }
          await process.sleep(700);
        }
      },
      { service: true },
    );
    // An operator, who also waits for the end of it all.
    world.process("operator", async (process) => {
      const { pawl, random, sleep } = process;
      let idleLooks = 0;
      while (idleLooks < 3) {
        await sleep(3_000);
        if (writersLeft > 0 && random() < 0.3)
          await pawl
            .projection("marks")
            .rebuild()
            .catch(() => {});
        await until(async () => {
          const isIdle = await pawl
            .projection("marks")
            .status()
            .then(
              ({ live, building }) => live !== null && live.behind === 0 && building === null,
              (error: unknown) => {
                // No worker has begun it yet.
                if (error instanceof ProjectionNotFoundError) return false;
                throw error;
              },
            );
          idleLooks = isIdle && writersLeft === 0 ? idleLooks + 1 : 0;
        }, process);
      }
      isOver = true;
    });
    await world.finish();
    checkCommits(world);
    await judge(world, acknowledged);
  },
};

/** The row of a stream; undefined where it cannot be read now. */
async function read({ pawl }: Process, stream: string): Promise<Marks | undefined> {
  try {
    return (await pawl.projection(newer).get(stream)) ?? { marks: [] };
  } catch {
    return undefined;
  }
}

async function judge(world: World, acknowledged: ReadonlyMap<string, string>): Promise<void> {
  const pawl = world.open();
  for (const stream of STREAMS) {
    const marks: string[] = [];
    for await (const { id } of pawl.stream(stream).read({ events: [Marked] })) marks.push(id);
    const row = (await pawl.projection(newer).get(stream)) ?? { marks: [] };
    world.check(String(row.marks) === String(marks), `the row of ${stream} is ${row.marks}, its events are ${marks}`);
    for (const [mark, of] of acknowledged)
      if (of === stream) world.check(marks.includes(mark), `${mark} was acknowledged and is gone`);
  }
  const rows = await pawl.kernel.list({ space: "projection-generation", prefix: "", after: null, limit: 100 });
  world.check(
    rows.filter(({ kind }) => kind !== "projection-retired").length === 1,
    `${rows.length} generations are left`,
  );
}
