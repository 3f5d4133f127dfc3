// Goal: each event that was committed is handled with exactly one lasting effect at its target, in the order of its stream, although processes die, pause
// past their leases, lose replies and fail; invariants hold against reactions as against any other caller; and once faults stop, all of it is done
// (G12, G13, G25).
// Method: two writers append to three streams, and withdraw from an account beside a reaction that does the same. Two workers know two reactions each,
// one of them in common: "copy", by a computed target, emits a copy of each event; "pay", by stream, withdraws in the commit of its progress, or notes
// that there was nothing left. Handlers sleep for longer than their lease, fail, and defer. Streams are the ledger.

import { aggregate, CommandRefusedError, event, reaction } from "../../../src/index.ts";
import { checkCommits } from "../../../src/testing/checkers/commits.ts";
import type { Process, World } from "../../../src/testing/index.ts";
import { until } from "./transfers.ts";

const Sent = event<{ readonly n: number }>("Sent");
const Copied = event<{ readonly of: string; readonly target: string }>("Copied");
const Paid = event<{ readonly for: string }>("Paid");
const Missed = event<{ readonly for: string }>("Missed");

const LEASE_MS = 5_000;
const FUNDS = 4;
const STREAMS = ["a", "b", "c"];

const purse = aggregate("purse", {
  initial: FUNDS,
  on: [[Paid, (left) => left - 1]],
  commands: {
    pay: (left, reason: string, { emit, refuse }) => {
      if (left === 0) refuse("empty");
      emit(Paid({ for: reason }));
    },
  },
});

class Hiccup extends Error {}

export const reactions = {
  name: "each event is handled once at its target",
  options: { faultsMs: 120_000 },
  regressions: [309],
  async scenario(world: World): Promise<void> {
    const acknowledged = new Set<string>();
    const overlaps: string[] = [];
    let writersLeft = 2;
    for (const name of ["north", "south"])
      world.process(name, async ({ pawl, random, sleep }) => {
        for (let i = 0; i < 4; i++) {
          const stream = STREAMS[Math.floor(random() * STREAMS.length)] ?? "a";
          await until(
            async () => {
              const n = Math.floor(random() * 10);
              const { ids } = await pawl.stream(stream).append([Sent({ n }), Sent({ n: n + 1 })]);
              for (const id of ids) acknowledged.add(id);
            },
            { sleep, random } as Process,
          );
          if (random() < 0.3)
            await pawl
              .aggregate(purse, "purse")
              .tryExecute("pay", name)
              .catch(() => {});
          await sleep(random() * 3_000);
        }
        writersLeft -= 1;
      });
    for (const name of ["w1", "w2"])
      world.process(
        name,
        async (process) => void process.pawl.work(definitions(process, overlaps), { lease: LEASE_MS }),
        {
          service: true,
        },
      );
    // An operator, who also waits for the end of it all.
    world.process("operator", async (process) => {
      const { pawl } = process;
      let idleLooks = 0;
      while (idleLooks < 3) {
        await process.sleep(2_000);
        await until(async () => {
          const all = await pawl.reactions.list();
          let isIdle = all.length === 2;
          for (const { name, unrouted } of all) {
            await pawl.reactions.unblock(name, {});
            const { targets } = await pawl.reactions.targets(name);
            isIdle &&= unrouted === 0 && targets.every(({ pending }) => pending === 0);
          }
          idleLooks = isIdle && writersLeft === 0 ? idleLooks + 1 : 0;
        }, process);
      }
    });
    await world.finish();
    checkCommits(world);
    await judge(world, acknowledged);
    // A process whose clock, or that of the store, was moved, or that stood still, may count on a lease that is over: then only the fence protects.
    const { storeClockJump, clockJump, pause } = world.faults.struck;
    if (storeClockJump + clockJump + pause === 0) world.check(overlaps.length === 0, overlaps[0] ?? "");
  },
};

/** The handlers of one process; those of one target that overlap while the lease of the first is valid are added to `overlaps`. */
function definitions({ random, sleep }: Process, overlaps: string[]) {
  const running = new Map<string, AbortSignal>();
  const retry = { attempts: 6, delay: 200, maxDelay: 2_000 };
  const trouble = async (): Promise<void> => {
    if (random() < 0.15) await sleep(random() * 3 * LEASE_MS);
    if (random() < 0.15) throw new Hiccup("not now");
  };
  const copy = reaction(
    "copy",
    { on: [Sent], target: (e) => `t${e.data.n % 2}`, retry, lease: LEASE_MS },
    async (e, { emit, defer, target }) => {
      emit("copies", [Copied({ of: e.id, target })]);
      if (random() < 0.1) defer(1_000);
      await trouble();
    },
  );
  const pay = reaction(
    "pay",
    { on: [Sent], retry, lease: LEASE_MS },
    async (e, { commit, emit, target, abortSignal }) => {
      if (running.get(target)?.aborted === false) overlaps.push(`two handlers were at work on target ${target}`);
      running.set(target, abortSignal);
      try {
        await trouble();
        await commit((tx) => tx.aggregate(purse, "purse").execute("pay", e.id));
        await sleep(50);
      } catch (error) {
        if (!(error instanceof CommandRefusedError)) throw error;
        emit("missed", [Missed({ for: e.id })]);
      } finally {
        if (running.get(target) === abortSignal) running.delete(target);
      }
    },
  );
  return [copy, pay];
}

async function judge(world: World, acknowledged: ReadonlySet<string>): Promise<void> {
  const pawl = world.open();
  const sent: { readonly id: string; readonly stream: string; readonly n: number }[] = [];
  for (const stream of STREAMS)
    for await (const { id, data } of pawl.stream(stream).read({ events: [Sent] })) sent.push({ id, stream, n: data.n });
  const ids = sent.map(({ id }) => id);
  for (const id of acknowledged) world.check(ids.includes(id), `event ${id} was acknowledged and is gone`);
  const copies: { readonly of: string; readonly target: string }[] = [];
  for await (const { data } of pawl.stream("copies").read({ events: [Copied] })) copies.push(data);
  const paid: string[] = [];
  for await (const { data } of pawl.stream("purse").read({ events: [Paid] })) paid.push(data.for);
  const missed: string[] = [];
  for await (const { data } of pawl.stream("missed").read({ events: [Missed] })) missed.push(data.for);
  for (const { id, n } of sent) {
    const found = copies.filter((one) => one.of === id);
    world.check(found.length === 1, `event ${id} was copied ${found.length} times`);
    world.check(found[0]?.target === `t${n % 2}`, `event ${id} was copied at ${found[0]?.target}`);
    const settled = [...paid, ...missed].filter((one) => one === id).length;
    world.check(settled === 1, `event ${id} was settled ${settled} times`);
  }
  world.check(copies.length === sent.length, `${copies.length} copies of ${sent.length} events`);
  world.check(paid.length <= FUNDS, `${paid.length} payments from a purse of ${FUNDS}`);
  world.check(missed.length === 0 || paid.length === FUNDS, "a payment was refused although there was something left");
  for (const stream of STREAMS)
    for (const target of ["t0", "t1"]) {
      const wanted = sent.filter((one) => one.stream === stream && `t${one.n % 2}` === target).map(({ id }) => id);
      const order = copies.map(({ of }) => of).filter((of) => wanted.includes(of));
      world.check(String(order) === String(wanted), `events of ${stream} were copied at ${target} in another order`);
    }
}
