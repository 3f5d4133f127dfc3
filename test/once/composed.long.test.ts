/**
 * The crash sweep of a composed decision (G29): an order is placed as examples/composed.ts does it, and its process dies before and after
 * every single call to the store.
 *
 * Goal: the coupon, the order, the run and the stored answer are there together or not at all, wherever the process died; its successor
 * asks again, and then they are there once, with one answer for everybody.
 * Method: real stores behind one that stops its caller for good at a call: before it, or after its effect and before its reply. A
 * second handle, which is another process to the store, looks before and after each of these calls. Both ways to store the answer are
 * swept, inside the decision and by an attempt, and so is a request that is refused by its second part, of which nothing may ever be seen. A
 * planted mistake, in which each part is a commit of its own, must be found by the same sweep.
 *
 * Out of scope: real processes and SIGKILL, which are in processes.long.test.ts.
 */

import { setTimeout as sleep } from "node:timers/promises";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { FencedError, IdempotencyInProgressError, open, type Pawl } from "../../src/index.ts";
import type { Store } from "../../src/kernel/contract.ts";
import { WrappedStore } from "../../src/testing/wrapped-store.ts";
import {
  fulfil,
  looksOf,
  order,
  partsOf,
  placeApart,
  placeAtOnce,
  placeByAttempt,
  type Receipt,
  type Request,
  runOf,
} from "./shop.ts";
import { type Ground, grounds } from "./stores.ts";

const LEASE_MS = 250;
const REQUEST: Request = { id: "o1", coupon: "c1" };
const ACTIONS = { pepper: "a pepper for the tests" };

type Place = (pawl: Pawl, request: Request) => Promise<Receipt>;

const WAYS = {
  "in one decision": placeAtOnce,
  "by an attempt": (pawl, request) => placeByAttempt(pawl, request, LEASE_MS),
} satisfies Record<string, Place>;

// ------------------------------------------------------------------------------------------------- stores

interface Death {
  /** The call to the store, counted from 1; 0 for none. */
  readonly call: number;
  readonly when: "before" | "after";
}

const NONE: Death = { call: 0, when: "before" };

/** A store whose caller dies at one of its calls: from then on nothing passes in either direction. */
class DeadlyStore extends WrappedStore {
  readonly #death: Death;
  readonly #look: () => Promise<void>;
  readonly died = Promise.withResolvers<void>();
  #isDead = false;
  calls = 0;

  constructor(store: Store, death: Death, look: () => Promise<void>) {
    super(store);
    this.#death = death;
    this.#look = look;
  }

  protected override async call<T>(_name: string, act: () => Promise<T>): Promise<T> {
    this.calls += 1;
    const isIt = this.calls === this.#death.call;
    await this.#look();
    if (isIt && this.#death.when === "before") this.#die();
    if (this.#isDead) return new Promise(() => {});
    const answer = await act();
    if (isIt) this.#die();
    await this.#look();
    return this.#isDead ? new Promise(() => {}) : answer;
  }

  #die(): void {
    this.#isDead = true;
    this.died.resolve();
  }

  /** Processes that do not notify each other poll. */
  override watch(): () => void {
    return () => {};
  }
}

// ------------------------------------------------------------------------------------------------- one trial

let trials = 0;

class Trial {
  readonly faults: string[] = [];
  readonly #ground: Ground;
  readonly #place: Place;
  readonly #namespace = `trial-${trials++}`;
  readonly #opened: Store[] = [];
  #looking: Promise<void> = Promise.resolve();
  #outside: Pawl | undefined;
  /** Whether the order was seen to be placed. */
  isPlaced = false;
  /** How many calls the process made that was not to die. */
  calls = 0;

  constructor(ground: Ground, place: Place) {
    this.#ground = ground;
    this.#place = place;
  }

  /** What is there is made by the second handle, which then only looks. */
  async prepare(isCanceled: boolean): Promise<void> {
    const store = await this.#ground.connect(this.#namespace);
    const pawl = await open({ store, namespace: this.#namespace, checkPurity: false, actions: ACTIONS });
    await pawl.actions.create({ id: REQUEST.coupon });
    await pawl.machine(order).create(REQUEST.id);
    if (isCanceled) await pawl.machine(order).transition(REQUEST.id, "canceled");
    this.#outside = pawl;
  }

  get outside(): Pawl {
    if (this.#outside === undefined) throw new Error("nothing is prepared");
    return this.#outside;
  }

  /** One look after another: of two at the same time, the earlier one could end last. */
  look(): Promise<void> {
    this.#looking = this.#looking.then(() => this.#look());
    return this.#looking;
  }

  async #look(): Promise<void> {
    const rows = await this.outside.kernel.read(partsOf(REQUEST));
    const { placed, parts } = looksOf(
      [REQUEST],
      rows.filter((row) => row !== null),
    );
    this.faults.push(...parts);
    if (this.isPlaced && placed.length === 0) this.faults.push("it was placed, and is not any more");
    this.isPlaced = placed.length > 0;
  }

  /** A process places the order, perhaps works on its run, and dies. Returns the results that it got by then. */
  async live(death: Death, doesWork: boolean): Promise<Receipt | undefined> {
    const store = await this.#ground.connect(this.#namespace);
    this.#opened.push(store);
    const deadly = new DeadlyStore(store, death, () => this.look());
    let heard: Receipt | undefined;
    const life = (async () => {
      const pawl = await open({ store: deadly, namespace: this.#namespace, checkPurity: false, actions: ACTIONS });
      if (doesWork) pawl.work([fulfil], { lease: LEASE_MS });
      heard = await this.#answered(pawl);
      if (doesWork) await pawl.run(fulfil, heard.run).result();
      this.calls = deadly.calls;
      await pawl.close();
    })();
    await Promise.race([life, deadly.died.promise]);
    await this.look();
    return heard;
  }

  async #answered(pawl: Pawl): Promise<Receipt> {
    for (;;)
      try {
        return await this.#place(pawl, REQUEST);
      } catch (error) {
        // A predecessor has the key, for as long as its lease lasts.
        if (error instanceof IdempotencyInProgressError) await sleep(Math.min(20, error.data.retryAfterMs));
        else if (!(error instanceof FencedError)) throw error;
      }
  }

  /** The end, as the second handle sees it: everything once. */
  async check(heard: readonly (Receipt | undefined)[]): Promise<void> {
    const pawl = this.outside;
    const numbers = new Set(heard.flatMap((receipt) => receipt?.number ?? []));
    if (numbers.size !== 1) this.faults.push(`there are ${numbers.size} answers`);
    if (!this.isPlaced) this.faults.push("it was not placed");
    const coupon = (await pawl.actions.history(REQUEST.coupon)).map(({ name }) => name);
    if (coupon.join() !== "created,consumed") this.faults.push(`the coupon was ${coupon.join()}`);
    const moves = (await pawl.machine(order).history(REQUEST.id)).map(({ outcome }) => outcome);
    if (moves.join() !== "created,moved") this.faults.push(`the order was ${moves.join()}`);
    const { runs } = await pawl.runs.list();
    if (runs.map(({ id, status }) => `${id} ${status}`).join() !== `${runOf(REQUEST.id)} completed`)
      this.faults.push(`the runs are ${JSON.stringify(runs)}`);
  }

  async end(): Promise<void> {
    for (const store of this.#opened) await store.close().catch(() => {});
    await this.#outside?.close();
  }
}

/** One process dies at the call, and the next one continues to the end. Returns what went wrong. */
async function interrupted(ground: Ground, place: Place, death: Death, doesWork: boolean): Promise<string[]> {
  const trial = new Trial(ground, place);
  await trial.prepare(false);
  const first = await trial.live(death, doesWork);
  const second = await trial.live(NONE, true);
  await trial.check([first, second]);
  await trial.end();
  return trial.faults.map((fault) => `${death.when} call ${death.call}: ${fault}`);
}

async function callsOf(ground: Ground, place: Place, doesWork: boolean): Promise<number> {
  const trial = new Trial(ground, place);
  await trial.prepare(false);
  const heard = await trial.live(NONE, doesWork);
  const { calls } = trial;
  if (doesWork) await trial.check([heard]);
  expect(trial.faults).toEqual([]);
  await trial.end();
  return calls;
}

describe.each(grounds)("an order on %s whose process dies at any call", (store, make) => {
  let ground: Ground;
  beforeAll(async () => {
    ground = await make();
  });
  afterAll(() => ground.leave());

  for (const [way, place] of Object.entries(WAYS))
    for (const doesWork of [false, true])
      test(`is placed ${way}${doesWork ? " and worked on" : ""}, whole or not at all`, {
        timeout: 120_000,
      }, async () => {
        const calls = await callsOf(ground, place, doesWork);
        const faults: string[] = [];
        for (let call = 1; call <= calls; call++)
          for (const when of ["before", "after"] as const)
            faults.push(...(await interrupted(ground, place, { call, when }, doesWork)));
        console.log(`composed on ${store}, ${way}: ${calls} calls, ${faults.length} faults`);
        expect(faults).toEqual([]);
        expect(calls).toBeGreaterThan(1);
      });

  test.each(Object.entries(WAYS))("that is refused %s leaves nothing, ever", async (_, place) => {
    for (let call = 0; call < 12; call++)
      for (const when of ["before", "after"] as const) {
        const trial = new Trial(ground, place);
        await trial.prepare(true);
        const code = trial.live({ call, when }, false).then(
          () => "died",
          (error: { code: string }) => error.code,
        );
        expect(["died", "illegal_transition"]).toContain(await code);
        await trial.look();
        expect(trial.isPlaced).toBe(false);
        expect(trial.faults).toEqual([]);
        expect((await trial.outside.actions.get(REQUEST.coupon))?.state).toBe("active");
        expect((await trial.outside.runs.list()).runs).toEqual([]);
        await trial.end();
      }
  });

  test("would be seen in parts if each part were a commit of its own", async () => {
    const faults: string[] = [];
    for (let call = 1; call < 8; call++)
      faults.push(...(await interrupted(ground, placeApart, { call, when: "after" }, false)));
    expect(faults).not.toEqual([]);
  });
});
