// Goal: handlers that write nothing in Pawl may be ahead of what is committed, and yet no event is passed by: each is handled until it has succeeded once, in the order of its
// stream, whatever crashes, pauses or fails in between; and once faults stop, all of them are done (G12, G13, G25).
// Method: a writer appends to two streams. Two workers have a reaction whose handlers are quick or slow, fail, defer, and now and then emit an event. A ledger outside the
// simulated store has what succeeded. Where a handler begins, all events of the stream before its own must be there.

import { event, reaction } from "../../../src/index.ts";
import { checkCommits } from "../../../src/testing/checkers/commits.ts";
import type { Process, World } from "../../../src/testing/index.ts";
import { until } from "./transfers.ts";

const Noticed = event<{ readonly n: number }>("Noticed");
const Copied = event<{ readonly of: string }>("Copied");

const LEASE_MS = 5_000;
const STREAMS = ["a", "b"];
const ROUNDS = 4;

export const notices = {
  name: "no event is passed by where handlers are ahead of what is committed",
  options: { faultsMs: 120_000 },
  async scenario(world: World): Promise<void> {
    const succeeded = new Map(STREAMS.map((stream) => [stream, new Set<number>()]));
    const passed: string[] = [];
    let isWritten = false;
    world.process("writer", async ({ pawl, random, sleep }) => {
      for (let round = 0; round < ROUNDS; round++) {
        for (const stream of STREAMS) {
          const events = Array.from({ length: 1 + Math.floor(random() * 5) }, (_, n) => Noticed({ n }));
          await until(async () => void (await pawl.stream(stream).append(events)), { sleep, random } as Process);
        }
        await sleep(random() * 3_000);
      }
      isWritten = true;
    });
    const notice = ({ random, sleep }: Process) =>
      reaction(
        "notice",
        { on: [Noticed], retry: { attempts: 6, delay: 200, maxDelay: 2_000 }, lease: LEASE_MS },
        async ({ id, stream, version }, { emit, defer }) => {
          const before = succeeded.get(stream) ?? new Set();
          for (let earlier = 1; earlier < version; earlier++)
            if (!before.has(earlier)) passed.push(`event ${version} of ${stream} was handled before event ${earlier}`);
          if (random() < 0.1) await sleep(random() * 3 * LEASE_MS);
          else if (random() < 0.2) await sleep(10);
          if (random() < 0.1) throw new Error("not now");
          if (random() < 0.05) defer(1_000);
          if (random() < 0.1) emit("copies", [Copied({ of: id })]);
          before.add(version);
        },
      );
    for (const name of ["w1", "w2"])
      world.process(name, async (process) => void process.pawl.work([notice(process)], { lease: LEASE_MS }), {
        service: true,
      });
    // An operator, who also waits for the end of it all.
    world.process("operator", async (process) => {
      const { pawl } = process;
      let idleLooks = 0;
      while (idleLooks < 3) {
        await process.sleep(2_000);
        await until(async () => {
          const [found] = await pawl.reactions.list();
          let isIdle = found?.unrouted === 0;
          if (found !== undefined) {
            await pawl.reactions.unblock("notice", {});
            const { targets } = await pawl.reactions.targets("notice");
            isIdle &&= targets.length === STREAMS.length && targets.every(({ pending }) => pending === 0);
          }
          idleLooks = isIdle && isWritten ? idleLooks + 1 : 0;
        }, process);
      }
    });
    await world.finish();
    checkCommits(world);
    world.check(passed.length === 0, passed[0] ?? "");
    const pawl = world.open();
    for (const [stream, versions] of succeeded) {
      const head = await pawl.stream(stream).head();
      world.check(versions.size === head, `${versions.size} of ${head} events of ${stream} were handled`);
    }
    const copies: string[] = [];
    for await (const { data } of pawl.stream("copies").read({ events: [Copied] })) copies.push(data.of);
    world.check(new Set(copies).size === copies.length, "an event was copied twice");
  },
};
