// Goal: an action has one winner for each use, ever, which gets the same result when it asks again; a loser stays a loser; a wrong PIN never
// consumes and is counted before it is checked; a client that lost its lease completes nothing; and what is done in the same decision is done
// exactly as often as the action is used (G2, G4, G5, G6, G29).
// Method: three clients create the same actions and consume all of them, each under its own key, again and again after crashes and lost
// replies. One cancels what the others consume. A sweeper records the leases that ended without completion. All results that a client got for
// an action must agree with those of the others, and with the audit trail.

import { createHash } from "node:crypto";
import { Actions } from "../../../src/action/actions.ts";
import type { ActionRefusal } from "../../../src/action/decide.ts";
import { checkCommits } from "../../../src/testing/checkers/commits.ts";
import type { Process, World } from "../../../src/testing/index.ts";
import { until } from "./transfers.ts";

const CLIENTS = ["ann", "bob", "cy"];
const LEASE_MS = 10_000;
const SEATS = 2;
const MAX_TRIES = 2;
const OPTIONS = {
  pepper: "a pepper for the simulator",
  keys: { current: "k1", ring: { k1: new Uint8Array(32).fill(1) } },
};

const ALL = [
  { id: "coupon", payload: "prize" },
  { id: "seats", uses: SEATS, payload: "licence" },
  { id: "meeting" },
  { id: "gift" },
  { id: "job" },
  { id: "guarded", pin: "1234", payload: "vault" },
  { id: "guessed", pin: "1234", maxPinTries: MAX_TRIES },
];

/** The results that one client got for one action, in all its incarnations. */
interface ClientResults {
  readonly client: string;
  readonly id: string;
  /** When it consumed the action; the same in each result. */
  wonAtMs?: number;
  /** The code with which it lost the action, if it did. */
  lost?: ActionRefusal["code"];
}

class Ledger {
  readonly #world: World;
  readonly #heard = new Map<string, ClientResults>();
  readonly made = new Map<string, number>();
  /** Wrong PINs that were hashed. */
  guesses = 0;
  /** How often a client got the result that it completed the job. */
  completions = 0;

  constructor(world: World) {
    this.#world = world;
  }

  heard(client: string, id: string): ClientResults {
    const key = `${client} ${id}`;
    const heard = this.#heard.get(key) ?? { client, id };
    this.#heard.set(key, heard);
    return heard;
  }

  won(client: string, id: string, at: Date): void {
    const heard = this.heard(client, id);
    this.#world.check(heard.lost === undefined, `${client} lost ${id} (${heard.lost}) and then won it`);
    const before = heard.wonAtMs ?? at.getTime();
    this.#world.check(before === at.getTime(), `${client} got two different times of winning ${id}`);
    heard.wonAtMs = before;
  }

  lost(client: string, id: string, code: ActionRefusal["code"]): void {
    const heard = this.heard(client, id);
    this.#world.check(heard.wonAtMs === undefined, `${client} won ${id} and then got ${code}`);
    heard.lost = code;
  }

  winners(id: string): readonly string[] {
    return [...this.#heard.values()]
      .filter((one) => one.id === id && one.wonAtMs !== undefined)
      .map((one) => one.client);
  }
}

export const actions = {
  name: "an action has one winner, which gets the same result again",
  async scenario(world: World): Promise<void> {
    const ledger = new Ledger(world);
    for (const client of CLIENTS)
      world.process(client, async (process) => {
        const here = actionsOf(process);
        await until(async () => {
          const made = await here.createMany(ALL);
          for (const { id, isNew } of made) if (isNew) ledger.made.set(id, (ledger.made.get(id) ?? 0) + 1);
        }, process);
        const consume = async (id: string, pin?: string): Promise<void> => {
          const answer = await here.tryConsume(id, {
            consumerKey: client,
            by: client,
            ...(pin === undefined ? {} : { pin }),
          });
          if (answer.ok) {
            ledger.won(client, id, answer.consumedAt);
            const { payload } = ALL.find((one) => one.id === id) ?? {};
            world.check(answer.payload === payload, `${client} won ${id} and got ${String(answer.payload)}`);
          } else if (answer.code !== "claimed" && answer.code !== "busy") ledger.lost(client, id, answer.code);
        };
        const inOrder = [
          () => consume("coupon"),
          () => consume("seats"),
          () => (client === "bob" ? cancel(world, here, ledger) : consume("meeting")),
          () => gift(process, here, ledger, client),
          () => job(process, here, ledger, client),
          // A right PIN may find its action locked, if crashes have spent all tries.
          () => consume("guarded", "1234"),
          () => guess(actionsOf(process, ledger), world),
        ];
        // Each asks for everything, in an order of its own, and then once more for what it may have won.
        for (const [i] of inOrder.entries()) {
          const act = inOrder[(i + CLIENTS.indexOf(client)) % inOrder.length];
          if (act !== undefined) await until(act, process);
        }
        for (const id of ["coupon", "seats", "gift"]) await until(() => consume(id), process);
      });
    world.process(
      "sweeper",
      async (process) => {
        const here = actionsOf(process);
        for (;;) {
          await process.sleep(5_000 + process.random() * 20_000);
          await until(async () => void (await here.sweep(10)), process);
        }
      },
      { service: true },
    );
    await world.finish();
    checkCommits(world);
    await checkOutcomes(world, ledger);
  },
};

/** Actions of one life of a process, with a hash that takes its time in the world's. */
function actionsOf(process: Process, ledger?: Ledger): Actions {
  const slowHash = async (secret: Uint8Array, salt: Uint8Array): Promise<Uint8Array> => {
    if (ledger !== undefined) ledger.guesses += 1;
    await process.sleep(100);
    return createHash("sha256").update(secret).update(salt).digest();
  };
  return new Actions(process.pawl.kernel, OPTIONS, { slowHash });
}

async function cancel(world: World, here: Actions, ledger: Ledger): Promise<void> {
  const answer = await here.tryCancel("meeting", { by: "bob" });
  if (answer.ok) ledger.won("bob", "meeting", answer.canceledAt);
  else {
    world.check(answer.code === "already_used", `a cancelation was answered ${answer.code}`);
    ledger.lost("bob", "meeting", answer.code);
  }
}

/** The coupon and the count of gifts move in one decision. */
async function gift({ pawl }: Process, here: Actions, ledger: Ledger, client: string): Promise<void> {
  const given = pawl.slot<number>("gifts", { initial: 0 });
  const answer = await pawl.kernel.transact((tx) => {
    const answer = here.within(tx).tryConsume("gift", { consumerKey: client });
    if (answer.ok && !answer.replayed) given.within(tx).update((n) => n + 1);
    return answer;
  }, []);
  if (answer.ok) ledger.won(client, "gift", answer.consumedAt);
  else ledger.lost(client, "gift", answer.code);
}

/** Claims, works, often for longer than the lease, and completes or releases. */
async function job(process: Process, here: Actions, ledger: Ledger, client: string): Promise<void> {
  // With a key, the client continues with the claim of its previous incarnation.
  const key = process.random() < 0.5 ? { consumerKey: client } : {};
  for (;;) {
    const claim = await here.tryClaim("job", { lease: LEASE_MS, by: client, ...key });
    if (!claim.ok && claim.code !== "claimed") return;
    await process.sleep(process.random() * 2 * LEASE_MS);
    if (!claim.ok) continue;
    if (process.random() < 0.2) {
      await here.tryAbandon("job", { fence: claim.fence });
      continue;
    }
    const answer = await here.tryComplete("job", { fence: claim.fence, ...key });
    if (!answer.ok) continue;
    if (!answer.replayed) ledger.completions += 1;
    return;
  }
}

/** Tries wrong PINs until the action is locked. */
async function guess(here: Actions, world: World): Promise<void> {
  const pins = ["0000", "0001", "0002", "0003"];
  const answers = await Promise.all(pins.map((pin) => here.tryConsume("guessed", { pin })));
  for (const answer of answers) world.check(!answer.ok, "a wrong PIN consumed");
}

async function checkOutcomes(world: World, ledger: Ledger): Promise<void> {
  const here = new Actions(world.open().kernel, OPTIONS);
  const uses: Record<string, number> = {};
  for (const { id } of ALL) {
    const trail = await here.history(id);
    const consumed = trail.filter(({ name }) => name === "consumed");
    uses[id] = consumed.length;
    const most = id === "seats" ? SEATS : 1;
    const winners = ledger.winners(id);
    world.check((ledger.made.get(id) ?? 0) <= 1, `${id} was made ${ledger.made.get(id)} times`);
    world.check(winners.length <= most, `${id} has ${winners.length} winners: ${winners.join(", ")}`);
    world.check(consumed.length <= most, `${id} was used ${consumed.length} times`);
    // A claim has the fence under which it is completed, unless it was given away since.
    const claims = trail.filter(({ name }) => name === "claimed").map(({ data }) => (data as { fence: number }).fence);
    const completed = consumed
      .map(({ data }) => (data as { fence?: number }).fence)
      .filter((fence) => fence !== undefined);
    for (const fence of completed) world.check(fence === claims.at(-1), `${id} was completed under an old fence`);
  }
  for (const id of ["coupon", "gift", "job", "seats"])
    world.check(uses[id] === (id === "seats" ? SEATS : 1), `${id} was used ${uses[id]} times`);
  const { value: gifts } = await world.open().slot<number>("gifts", { initial: 0 }).get();
  world.check(gifts === 1, `${gifts} gifts were given for one coupon`);
  const meeting = await here.get("meeting");
  const isCanceled = meeting?.state === "canceled";
  world.check(
    isCanceled === ledger.winners("meeting").includes("bob"),
    `meeting is ${meeting?.state} in contradiction to the results of its clients`,
  );
  world.check(isCanceled !== (uses["meeting"] === 1), "meeting was both canceled and used");
  world.check(ledger.guesses <= MAX_TRIES, `${ledger.guesses} wrong PINs were hashed`);
  world.check(ledger.completions <= 1, `the job was completed ${ledger.completions} times`);
  const guessed = await here.get("guessed");
  world.check(guessed?.usesLeft === 1, "a wrong PIN consumed");
}
