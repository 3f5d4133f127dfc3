/**
 * The crash sweep of tasks: a process that creates tasks, calls their targets and settles them stops before and after every single call to its store,
 * and the caller repeats what it did elsewhere.
 *
 * Goal: wherever a process stops, a task is created once, with one token (G2); it has one outcome, and whoever was told it before or asks for it afterwards gets that
 * one (G15); and all of its attempts have one key, with fences that rise.
 * Method: each case is a script. A process follows it and works on tasks. For a call k to the store it dies before it, or after its effect and before its
 * reply. Then another process, which works on tasks, does the whole script again, as a caller without a reply does. Leases of the dead process are
 * ended by the test.
 */

import { expect } from "vitest";
import type { CreatedTask, Pawl, TaskOptions, TaskOutcome } from "../../src/index.ts";
import { endLease, PATIENCE, type Place } from "../workflow/kit.ts";
import { KEYS, receiver, reply, type Seen, TASKS, tokenOf } from "./kit.ts";

interface Script {
  readonly pawl: Pawl;
  readonly url: string;
  create(more?: Partial<TaskOptions>): Promise<CreatedTask>;
  told(outcome: TaskOutcome | null): void;
}

interface Case {
  readonly script: (script: Script) => Promise<void>;
  /** How the task may end. */
  readonly ends: readonly TaskOutcome["by"][];
  readonly replies?: readonly number[];
}

const WAITS = { waitForSignal: true } as const;
const ended = async ({ pawl, told }: Script, { task }: CreatedTask): Promise<void> =>
  told((await pawl.tasks.get(task.id, { wait: "60s" })).outcome);

export const CASES: Readonly<Record<string, Case>> = {
  "a call succeeds": {
    script: async (script) => ended(script, await script.create()),
    ends: ["response"],
  },
  "a call is tried again, and succeeds": {
    script: async (script) => ended(script, await script.create()),
    replies: [500],
    ends: ["response"],
  },
  "a signal comes at once": {
    async script(script) {
      const created = await script.create(WAITS);
      script.told((await script.pawl.tasks.signal(tokenOf(created), { status: "completed", value: 1 })).outcome);
    },
    ends: ["signal"],
  },
  "a signal and a cancellation": {
    async script(script) {
      const created = await script.create(WAITS);
      script.told((await script.pawl.tasks.cancel(created.task.id)).outcome);
      const tried = await script.pawl.tasks.trySignal(tokenOf(created), { status: "failed" });
      script.told("outcome" in tried ? tried.outcome : null);
    },
    ends: ["cancel"],
  },
  "a signal and the timeout": {
    async script(script) {
      const created = await script.create({ ...WAITS, maxWaitTime: 5 });
      const tried = await script.pawl.tasks.trySignal(tokenOf(created), { status: "completed" });
      if ("outcome" in tried) script.told(tried.outcome);
      await ended(script, created);
    },
    ends: ["signal", "timeout"],
  },
  "the timeout, and then the others": {
    async script(script) {
      const created = await script.create({ ...WAITS, maxWaitTime: 5 });
      await ended(script, created);
      script.told((await script.pawl.tasks.cancel(created.task.id)).outcome);
      const tried = await script.pawl.tasks.trySignal(tokenOf(created), { status: "completed" });
      script.told("outcome" in tried ? tried.outcome : null);
    },
    ends: ["timeout"],
  },
  "everything in one commit": {
    async script({ pawl, url, told }) {
      const options = { ...WAITS, targetUrl: url, idempotencyKey: "k", onCompleteUrl: url };
      const outcome = await pawl.transact((tx) => {
        const created = tx.tasks.create(options);
        return tx.tasks.signal(tokenOf(created), { status: "completed" }).outcome;
      });
      told(outcome);
    },
    ends: ["signal"],
  },
};

/** Follows the script of a case; dies at a call to its store, and does it again. Returns whether the process lived long enough to die. */
export async function sweep(place: Place, name: string, call: number, when: "before" | "after"): Promise<boolean> {
  const one = CASES[name];
  if (one === undefined) throw new Error(`there is no case "${name}"`);
  place.begin();
  const { url, seen } = await receiver(...(one.replies ?? []).map((status) => reply(status)), reply());
  const told = new Set<string>();
  const tokens = new Set<string | null>();
  const tasks = new Set<string>();
  const follow = (pawl: Pawl): Promise<void> =>
    one.script({
      pawl,
      url,
      async create(more = {}) {
        const created = await pawl.tasks.create({
          targetUrl: url,
          idempotencyKey: "k",
          retry: { delay: 1, maxDelay: 1 },
          ...more,
        });
        tokens.add(created.signalToken);
        tasks.add(created.task.id);
        return created;
      },
      told: (outcome) => void told.add(JSON.stringify(outcome)),
    });
  const first = await place.openHandle(KEYS);
  const { died } = first.dieAt(call, when);
  first.pawl.work([TASKS]);
  const isDead = await Promise.race([died.then(() => true), follow(first.pawl).then(() => first.isDead())]);
  if (!isDead) first.die();
  const second = await place.open(KEYS);
  for (const { id, status } of (await second.tasks.list()).tasks) if (status === "running") await endLease(second, id);
  second.work([TASKS]);
  await follow(second);
  const [task, ...more] = (await second.tasks.list()).tasks;
  expect(more).toEqual([]);
  expect([...tasks].filter((id) => id !== task?.id)).toEqual([]);
  expect(tokens.size).toBeLessThanOrEqual(1);
  expect(one.ends).toContain(task?.outcome?.by);
  expect([...told]).toEqual([JSON.stringify(task?.outcome)]);
  await checkAttempts(second, task?.id ?? "", seen);
  await place.end();
  return isDead;
}

async function checkAttempts(pawl: Pawl, task: string, seen: readonly Seen[]): Promise<void> {
  const calls = seen.filter(({ body }) => body === "");
  expect(new Set(calls.map(({ key }) => key)).size).toBeLessThanOrEqual(1);
  const fences = calls.map(({ fence }) => fence);
  expect(new Set(fences).size).toBe(fences.length);
  const attempts = await pawl.tasks.attempts(task);
  expect(attempts.map(({ number }) => number)).toEqual(attempts.map((_, i) => i + 1));
  expect(attempts.map(({ fence }) => fence)).toEqual(attempts.map(({ fence }) => fence).sort((a, b) => a - b));
  const deliveries = await pawl.tasks.deliveries(task);
  for (const { id } of deliveries)
    await expect
      .poll(async () => (await pawl.tasks.deliveries(task)).find((one) => one.id === id)?.status, PATIENCE)
      .toBe("completed");
}
