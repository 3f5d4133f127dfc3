/**
 * Goal: whatever runs are started, end, are canceled, expire or are retried in whatever order, under whatever limits, what is stored about admission
 * stays right, and runs of one line and priority begin in the order of their starts.
 * Method: random operations as decisions on one kernel in memory, without workers; after each one everything that is stored is checked.
 */

import fc from "fast-check";
import { expect, test } from "vitest";
import { trapAmbient } from "../../src/node/trap.ts";
import { type ConcurrencyLimit, checkFlow, gateRequest } from "../../src/workflow/definitions/flow.ts";
import { expireIfDue, passClaimed } from "../../src/workflow/flow/gate.ts";
import { admitMore, declareLimit } from "../../src/workflow/flow/places.ts";
import { HURRIED_QUEUE, limitAt, type PlaceRef } from "../../src/workflow/flow/stored.ts";
import { cancelRun, endRun } from "../../src/workflow/runs/end.ts";
import { retryRun } from "../../src/workflow/runs/retry.ts";
import { startRun } from "../../src/workflow/runs/start.ts";
import { startFlow } from "../../src/workflow/runs/start-flow.ts";
import { type RunValue, runAt } from "../../src/workflow/stored.ts";
import { bench } from "../kernel/kit.ts";
import { wrongPlaces } from "./checker.ts";

interface Input {
  readonly tenant: string;
  readonly account: string;
}

const noRates = () => {
  throw new Error("there are no rates here");
};

type Act =
  | {
      readonly is: "start";
      readonly tenant: number;
      readonly account: number;
      readonly priority: number;
      readonly ttl: boolean;
    }
  | { readonly is: "end"; readonly which: number; readonly fails: boolean }
  | { readonly is: "cancel"; readonly which: number }
  | { readonly is: "retry"; readonly which: number }
  | { readonly is: "later"; readonly ms: number }
  | { readonly is: "max"; readonly of: number; readonly max: number };

const nat = (max: number) => fc.integer({ min: 0, max });
const act: fc.Arbitrary<Act> = fc.oneof(
  {
    weight: 6,
    arbitrary: fc.record({
      is: fc.constant("start" as const),
      tenant: nat(2),
      account: nat(2),
      priority: nat(1),
      ttl: fc.boolean(),
    }),
  },
  { weight: 4, arbitrary: fc.record({ is: fc.constant("end" as const), which: nat(50), fails: fc.boolean() }) },
  { weight: 2, arbitrary: fc.record({ is: fc.constant("cancel" as const), which: nat(50) }) },
  { weight: 1, arbitrary: fc.record({ is: fc.constant("retry" as const), which: nat(50) }) },
  { weight: 1, arbitrary: fc.record({ is: fc.constant("later" as const), ms: nat(90_000) }) },
  {
    weight: 1,
    arbitrary: fc.record({ is: fc.constant("max" as const), of: nat(3), max: fc.integer({ min: 1, max: 4 }) }),
  },
);

const excess = fc.constantFrom(
  "queue" as const,
  "queue" as const,
  "queue" as const,
  "replace" as const,
  "drop" as const,
);
const flows = fc.record({
  all: fc.option(fc.integer({ min: 1, max: 4 })),
  tenant: fc.option(fc.record({ max: fc.integer({ min: 1, max: 3 }), excess })),
  account: fc.option(fc.record({ max: fc.integer({ min: 1, max: 2 }), excess })),
  fair: fc.boolean(),
  acts: fc.array(act, { minLength: 1, maxLength: 60 }),
});

test("what is stored about admission is right after every commit", async () => {
  await fc.assert(
    fc.asyncProperty(flows, async ({ all, tenant, account, fair, acts }) => {
      const limits: ConcurrencyLimit<Input>[] = [
        ...(account === null ? [] : [{ name: "account", ...account, key: (input: Input) => input.account }]),
        ...(tenant === null ? [] : [{ name: "tenant", ...tenant, key: (input: Input) => input.tenant }]),
        ...(all === null ? [] : [{ max: all }]),
      ];
      if (limits.length === 0) return;
      const flow = checkFlow("job", {
        concurrency: limits as ConcurrencyLimit<never>[],
        ...(fair ? { fairness: { key: ({ tenant: by }: Input) => by } as never } : {}),
      });
      if (flow === undefined) throw new Error("it has limits");
      const { clock, kernel } = bench({ trap: trapAmbient });
      const inputs = new Map<string, Input>();
      /** The runs in the order in which they were admitted. */
      const begun: string[] = [];
      const started: string[] = [];
      let maxima = flow.limits.map(({ max }) => max);
      const statusOf = async (id: string) => (await kernel.read([runAt(id)]))[0]?.status ?? "";
      const living = async () => {
        const found: string[] = [];
        for (const id of started) if (["pending", "queued", "running"].includes(await statusOf(id))) found.push(id);
        return found;
      };
      /** Runs that are due pass the gate, as a worker lets them. */
      const claimAll = async () => {
        for await (const row of kernel.rows("limit"))
          if (row.kind === HURRIED_QUEUE)
            await kernel.transact((tx) => admitMore(tx, tx.record(limitAt([row.key])), 0), []);
        for (const id of started) {
          const [row] = await kernel.read([runAt(id)]);
          if (row?.value == null || row.status !== "pending" || row.dueMs === null || row.dueMs > clock.wallMs())
            continue;
          const { gate } = kernel.decode(row, row.value) as RunValue;
          if (gate?.isOpen !== true) {
            const request = gateRequest(
              { ...flow, limits: flow.limits.map((limit, i) => ({ ...limit, max: maxima[i] ?? 1 })) },
              inputs.get(id),
              gate?.priority,
              noRates,
            );
            await kernel.transact((tx) => {
              const passed = passClaimed(tx, tx.record(runAt(id)), { request, timeoutMs: null, ttlMs: null });
              if (passed === "open") tx.record(runAt(id)).write({ status: "running", dueMs: null });
            }, []);
            if ((await statusOf(id)) === "running") begun.push(id);
          } else {
            begun.push(id);
            await kernel.transact((tx) => tx.record(runAt(id)).write({ status: "running", dueMs: null }), []);
          }
        }
      };
      let count = 0;
      for (const one of acts) {
        if (one.is === "start") {
          const id = `run-${count++}`;
          const input = { tenant: `t${one.tenant}`, account: `a${one.account}` };
          inputs.set(id, input);
          const now = { ...flow, limits: flow.limits.map((limit, i) => ({ ...limit, max: maxima[i] ?? 1 })) };
          const start = startFlow(
            now,
            input,
            { priority: one.priority, ...(one.ttl ? { ttlMs: 60_000 } : {}) },
            noRates,
          );
          const { isNew, id: actual } = await kernel.transact(
            (tx) =>
              startRun(tx, {
                id,
                workflow: "job",
                input,
                fingerprint: null,
                timeoutMs: null,
                ifExists: "join",
                flow: start,
              }),
            [],
          );
          if (isNew) started.push(id);
          else expect(started).toContain(actual);
        } else if (one.is === "later") {
          clock.spend(one.ms);
          for (const id of await living()) await kernel.transact((tx) => expireIfDue(tx, tx.record(runAt(id))), []);
        } else if (one.is === "max") {
          const index = one.of % flow.limits.length;
          // Lowering takes effect as runs end, and the checker knows only the present maximum: so it is raised.
          maxima = maxima.map((max, i) => (i === index ? Math.max(max, one.max) : max));
          const name = flow.limits[index]?.name ?? "";
          const keys: PlaceRef[] = [
            [name],
            ...["t0", "t1", "t2", "a0", "a1", "a2"].map((key): PlaceRef => [name, key]),
          ];
          for (const ref of keys) await kernel.transact((tx) => declareLimit(tx, ref, maxima[index] ?? 1), []);
        } else {
          const all = one.is === "retry" ? started : await living();
          const id = all[one.which % Math.max(1, all.length)];
          if (id !== undefined)
            await kernel.transact((tx) => {
              const record = tx.record(runAt(id));
              if (one.is === "retry") {
                if (record.status === "failed" || record.status === "expired") retryRun(tx, id);
              } else if (one.is === "cancel") cancelRun(tx, id, {});
              else if (record.status === "running")
                endRun(tx, record, id, one.fails ? "failed" : "completed", { ok: 1 });
            }, []);
        }
        await claimAll();
        expect(await wrongPlaces(kernel)).toEqual([]);
      }
      // Everything ends at last: nothing is left behind.
      for (let left = await living(); left.length > 0; left = await living()) {
        const running: string[] = [];
        for (const id of left) if ((await statusOf(id)) === "running") running.push(id);
        expect(running, "some run can end").not.toEqual([]);
        for (const id of running)
          await kernel.transact((tx) => endRun(tx, tx.record(runAt(id)), id, "completed", { ok: 1 }), []);
        await claimAll();
        expect(await wrongPlaces(kernel)).toEqual([]);
      }
    }),
    { numRuns: 150 },
  );
});
