/**
 * What `npm run bench -- --against` compares: one operation of users each, through public names only, so that older releases run them too.
 */

import type * as Package from "../src/index.ts";

/** The exports of one checkout. */
export type Api = typeof Package;

export interface AgainstCase {
  readonly id: string;
  readonly title: string;
  /** Prepares a handle, and returns the operation that each caller repeats. */
  prepare(api: Api, pawl: Package.Pawl): Operation;
}

/** `turn` is new in every call; `caller` counts from 0. */
export type Operation = (caller: number, turn: number) => Promise<unknown>;

const runs =
  (steps: number): AgainstCase["prepare"] =>
  (api, pawl) => {
    const charges = api.workflow("charges", async (ctx, count: number) => {
      for (let step = 0; step < count; step++)
        await ctx.step("charge", () => ({ step, charge: "ch_000001", total: 1999, currency: "EUR" }));
      return count;
    });
    pawl.work([charges], { concurrency: 1000 });
    return async () => (await pawl.start(charges, steps)).result();
  };

export const againstCases: readonly AgainstCase[] = [
  { id: "w1", title: "runs of one step", prepare: runs(1) },
  { id: "w10", title: "runs of ten steps", prepare: runs(10) },
  {
    id: "slot",
    title: "slot.update, a slot for each caller",
    prepare: (_, pawl) => {
      const slots = Array.from({ length: 1000 }, (_, caller) => pawl.slot<number>(`slot-${caller}`, { initial: 0 }));
      return (caller) => slots[caller]?.update((count) => count + 1) ?? Promise.resolve();
    },
  },
  {
    id: "hot",
    title: "slot.update, one slot for all callers",
    prepare: (_, pawl) => {
      const slot = pawl.slot<number>("hot", { initial: 0 });
      return () => slot.update((count) => count + 1);
    },
  },
  {
    id: "two",
    title: "transact over two slots",
    prepare: (_, pawl) => {
      const slots = Array.from({ length: 1000 }, (_, n) => pawl.slot<number>(`account-${n}`, { initial: 0 }));
      return (caller) =>
        pawl.transact((tx) => {
          const [from, to] = [slots[2 * caller], slots[2 * caller + 1]];
          if (from === undefined || to === undefined) throw new Error("there are 500 callers at most");
          tx.slot(from).update((count) => count - 1);
          tx.slot(to).update((count) => count + 1);
        });
    },
  },
  {
    id: "lock",
    title: "pawl.lock: acquire and release",
    prepare: (_, pawl) => (caller) => pawl.lock(`lock-${caller}`, async () => {}),
  },
  {
    id: "dedupe",
    title: "dedupe of new messages",
    prepare: (_, pawl) => (caller, turn) => pawl.dedupe("mail", `message-${caller}-${turn}`, () => {}),
  },
  {
    id: "idem",
    title: "idempotent, first use",
    prepare: (_, pawl) => (caller, turn) =>
      pawl.idempotent(`key-${caller}-${turn}`, { fingerprint: "same", ttl: "1 day" }, async () => turn),
  },
];
