// Goal: a task has one outcome, whatever settles it: a response, a signal, its timeout or a cancellation; and every caller gets that one (G15, G2). The
// attempts of a task have one key, and fences that only rise; a token is the same for everybody who creates the task again, and is never unknown; each end is
// notified as what it was.
// Method: two workers that crash, stand still and stop make the calls, over a network that loses, delays and refuses requests. Several clients create the
// same tasks under the same idempotency keys; each of them then waits a while, which is about as long as the tasks wait, and signals, cancels or looks, twice,
// and again after a lost reply. What each was told is compared with the others and with the end.

import { httpTasks, type TaskOutcome } from "../../../src/index.ts";
import type { Process, World } from "../../../src/testing/index.ts";
import { outcomeText } from "../../task/race.ts";
import { until } from "./transfers.ts";

const LEASE_MS = 10_000;
const CLIENTS = ["c1", "c2", "c3"];
const RETRY = { attempts: 30, delay: 500, maxDelay: 4_000 };

interface Plan {
  readonly id: string;
  readonly waits: boolean;
  readonly maxWaitMs: number;
  readonly isNotified: boolean;
}

/** What everybody was told of a task. */
interface Told {
  readonly tasks: Set<string>;
  readonly tokens: Set<string>;
  readonly outcomes: Set<string>;
}

export const tasks = {
  name: "a task has one outcome, the same for everybody",
  async scenario(world: World): Promise<void> {
    const plans: readonly Plan[] = ["t0", "t1", "t2"].map((id) => ({
      id,
      waits: id !== "t2" || world.random.chance(0.5),
      maxWaitMs: 500 + world.random.below(4_000),
      isNotified: world.random.chance(0.5),
    }));
    const told = new Map<string, Told>(
      plans.map(({ id }) => [id, { tasks: new Set(), tokens: new Set(), outcomes: new Set() }]),
    );
    const network = watchNetwork(world);
    for (const name of ["w1", "w2"]) world.process(name, work, { service: true });
    for (const name of CLIENTS)
      world.process(name, async (process) => {
        // A client that works, too, begins what it creates.
        if (process.random() < 0.3) process.pawl.work([httpTasks()], { lease: LEASE_MS });
        await Promise.all(plans.map((plan) => play(world, process, plan, told.get(plan.id))));
      });
    await world.finish();
    await checkEnds(world, plans, told, network);
  },
};

/** Works for as long as the world lives; now and then it stops in good order and begins again. */
async function work(process: Process): Promise<void> {
  for (;;) {
    const worker = process.pawl.work([httpTasks()], { lease: LEASE_MS });
    await process.sleep(process.random() * 300_000);
    await worker.stop({ timeout: process.random() < 0.5 ? 2_000 : undefined });
  }
}

async function play(world: World, process: Process, plan: Plan, told: Told | undefined): Promise<void> {
  if (told === undefined) return;
  const { id, waits, maxWaitMs, isNotified } = plan;
  let task = "";
  let token: string | null = null;
  await until(async () => {
    const created = await process.pawl.tasks.create({
      targetUrl: `https://target.example/${id}`,
      idempotencyKey: id,
      retry: RETRY,
      timeout: 3_000,
      ...(waits ? { waitForSignal: true, maxWaitTime: maxWaitMs } : {}),
      ...(isNotified ? { onCompleteUrl: `https://inbox.example/${id}` } : {}),
    });
    task = created.task.id;
    token = created.signalToken;
  }, process);
  told.tasks.add(task);
  told.tokens.add(String(token));
  world.check(told.tasks.size === 1, `${id} is ${[...told.tasks].join(" and ")}`);
  world.check(told.tokens.size === 1, `${id} has several tokens`);
  for (let round = 0; round < 2; round++) {
    await process.sleep(process.random() * 2 * maxWaitMs);
    const choice = process.random();
    await until(async () => {
      const outcome = await settle(world, process, task, token, choice);
      if (outcome !== null) told.outcomes.add(outcomeText(outcome));
    }, process);
    world.check(told.outcomes.size <= 1, `of ${id} callers were told ${[...told.outcomes].join(" and ")}`);
  }
  for (let isOver = false; !isOver; )
    await until(async () => {
      const { outcome } = await process.pawl.tasks.get(task, { wait: 5_000 });
      if (outcome !== null) told.outcomes.add(outcomeText(outcome));
      isOver = outcome !== null;
    }, process);
  world.check(told.outcomes.size === 1, `of ${id} callers were told ${[...told.outcomes].join(" and ")}`);
}

/** Signals, cancels or looks; returns the outcome that it was told, if there is one. */
async function settle(
  world: World,
  { pawl, name }: Process,
  task: string,
  token: string | null,
  choice: number,
): Promise<TaskOutcome | null> {
  if (choice < 0.15) return (await pawl.tasks.cancel(task, { reason: name })).outcome;
  if (choice < 0.7 && token !== null) {
    const said = choice < 0.4 ? "completed" : "failed";
    const tried = await pawl.tasks.trySignal(token, { status: said, value: choice < 0.5 ? name : "same" });
    world.check(tried.ok || tried.code !== "token_not_found", `the token of ${task} is unknown`);
    return "outcome" in tried ? tried.outcome : null;
  }
  return (await pawl.tasks.get(task)).outcome;
}

interface Network {
  /** The keys that the calls for each task had. */
  readonly keys: ReadonlyMap<string, ReadonlySet<string>>;
  /** The notifications that arrived for each task: their ids, and what they said. */
  readonly notified: ReadonlyMap<string, ReadonlyMap<string, string>>;
}

/** Targets and inboxes, with a ledger. */
function watchNetwork(world: World): Network {
  const keys = new Map<string, Set<string>>();
  const fences = new Set<string>();
  const notified = new Map<string, Map<string, string>>();
  world.outside = {
    sent({ url, headers }) {
      const key = headers["idempotency-key"] ?? "";
      const fence = `${key} ${headers["pawl-fence"]}`;
      world.check(!fences.has(fence), `two attempts have the same key and fence: ${fence}`);
      fences.add(fence);
      const id = url.pathname.slice(1);
      if (url.hostname === "target.example") keys.set(id, (keys.get(id) ?? new Set()).add(key));
    },
    handle({ url, headers, body }) {
      if (url.hostname === "target.example") return { status: world.random.chance(0.3) ? 500 : 200, body: "fine" };
      const id = url.pathname.slice(1);
      const seen = notified.get(id) ?? new Map<string, string>();
      notified.set(id, seen.set(headers["webhook-id"] ?? "", String(body)));
      return { status: 200 };
    },
  };
  return { keys, notified };
}

async function checkEnds(
  world: World,
  plans: readonly Plan[],
  told: ReadonlyMap<string, Told>,
  { keys, notified }: Network,
): Promise<void> {
  const pawl = world.open();
  for (const { id, isNotified } of plans) {
    const { tasks, outcomes } = told.get(id) ?? { tasks: [], outcomes: [] };
    const [task = ""] = tasks;
    const { outcome, status } = await pawl.tasks.get(task);
    world.check(
      outcome !== null && outcome.status === status,
      `${id} is ${status}, and its outcome is ${outcome?.status}`,
    );
    const [only] = outcomes;
    world.check(
      outcome !== null && only === outcomeText(outcome),
      `${id} ended as ${JSON.stringify(outcome)}, and callers were told ${only}`,
    );
    world.check((keys.get(id)?.size ?? 0) <= 1, `the attempts of ${id} have several keys`);
    const attempts = await pawl.tasks.attempts(task);
    for (const [i, { number, fence }] of attempts.entries()) {
      world.check(number === i + 1, `the attempts of ${id} are not counted without gaps`);
      world.check(i === 0 || fence > (attempts[i - 1]?.fence ?? 0), `the fences of ${id} do not rise`);
    }
    const said = notified.get(id) ?? new Map<string, string>();
    world.check(said.size <= (isNotified ? 1 : 0), `${said.size} notifications of ${id} have arrived`);
    for (const body of said.values()) {
      const { data } = JSON.parse(body) as { data: { status: string; by: string } };
      world.check(data.status === outcome?.status && data.by === outcome.by, `${id} was notified as ${body}`);
    }
  }
}
