/**
 * Goal: whatever arrives at the same moment, one caller wins each use, all others get its name, and the winner gets the same result again
 * (G4).
 * Method: clients in several processes, which are separate handles on one database. A barrier holds all commits back until every client has
 * called, so that each race happens in every test.
 */

import { describe, expect, test } from "vitest";
import type { Actions } from "../../src/action/actions.ts";
import { drained, gate } from "../kernel/kit.ts";
import { Scene, STORES } from "./kit.ts";

const PROCESSES = 8;

interface Arena {
  readonly scene: Scene;
  readonly processes: readonly Actions[];
}

async function arena(scene: Scene): Promise<Arena> {
  const processes = await Promise.all(Array.from({ length: PROCESSES }, () => scene.process()));
  return { scene, processes };
}

/** Lets every client ask before any commit reaches the store. */
async function atOnce<T>(
  { scene, processes }: Arena,
  clients: number,
  ask: (actions: Actions, client: number) => Promise<T>,
): Promise<T[]> {
  const barrier = gate();
  scene.barrier = barrier.opened;
  const asked = Array.from({ length: clients }, (_, i) => ask(processes[i % PROCESSES] as Actions, i));
  const answers = Promise.all(asked);
  await drained();
  barrier.open();
  return answers;
}

describe.each(STORES)("on %s", (store) => {
  test("a coupon redeemed by 1,000 clients concurrently has one winner, and all get its name", async () => {
    await using scene = new Scene(store);
    const race = await arena(scene);
    await race.processes[0]?.create({ id: "coupon", payload: "10 %" });
    const redeem = (actions: Actions, i: number) =>
      actions.tryConsume("coupon", { by: `client-${i}`, consumerKey: `key-${i}` });
    const answers = await atOnce(race, 1_000, redeem);
    const winners = answers.flatMap((answer, i) => (answer.ok ? [i] : []));
    expect(winners.length).toBe(1);
    const winner = `client-${winners[0]}`;
    const told = answers.filter((answer) => !answer.ok && answer.code === "already_used" && answer.by === winner);
    expect(told.length).toBe(999);
    // Everybody asks again: the winner hears the same, and nobody else wins.
    const again = await atOnce(race, 1_000, redeem);
    expect(
      again.flatMap((answer, i) => (answer.ok && answer.replayed && answer.payload === "10 %" ? [i] : [])),
    ).toEqual(winners);
    expect(again.filter(({ ok }) => ok).length).toBe(1);
    expect((await race.processes[1]?.history("coupon"))?.map(({ name }) => name)).toEqual(["created", "consumed"]);
  });

  test("of 100 uses, exactly 100 of 600 clients have one", async () => {
    await using scene = new Scene(store);
    const race = await arena(scene);
    await race.processes[0]?.create({ id: "seats", uses: 100 });
    // Each client asks twice at once, as with a double click.
    const ask = (actions: Actions, i: number) => actions.tryConsume("seats", { consumerKey: `key-${i % 600}` });
    const answers = await atOnce(race, 1_200, ask);
    const fresh = answers.filter((answer) => answer.ok && !answer.replayed);
    expect(fresh.length).toBe(100);
    expect(new Set(fresh.map((answer) => answer.ok && answer.usesLeft)).size).toBe(100);
    const clients = new Set(answers.flatMap((answer, i) => (answer.ok ? [i % 600] : [])));
    expect(clients.size).toBe(100);
    for (const [i, answer] of answers.entries()) expect(answer.ok).toBe(clients.has(i % 600));
    expect(await race.processes[3]?.get("seats")).toMatchObject({ state: "consumed", usesLeft: 0 });
  });

  test("64 clients on 100 actions: each has one winner", async () => {
    await using scene = new Scene(store);
    const race = await arena(scene);
    const ids = Array.from({ length: 100 }, (_, i) => `a${i}`);
    await race.processes[0]?.createMany(ids.map((id) => ({ id })));
    const wins = new Map<string, number>();
    await atOnce(race, 64, async (actions, client) => {
      for (let i = 0; i < ids.length; i++) {
        const id = ids[(i + client) % ids.length] as string;
        if ((await actions.tryConsume(id)).ok) wins.set(id, (wins.get(id) ?? 0) + 1);
      }
    });
    expect([...wins.values()]).toEqual(ids.map(() => 1));
  });

  test("a double-clicked button is one use, and both clicks succeed", async () => {
    await using scene = new Scene(store);
    const race = await arena(scene);
    await race.processes[0]?.create({ id: "order", payload: 1 });
    const answers = await atOnce(race, 2, (actions) => actions.consume("order", { consumerKey: "button" }));
    expect(answers.map(({ replayed }) => replayed).sort()).toEqual([false, true]);
    expect(answers[0]?.consumedAt).toEqual(answers[1]?.consumedAt);
  });

  test("concurrent consume, cancel and claim have one outcome, and all callers get the same", async () => {
    await using scene = new Scene(store);
    const race = await arena(scene);
    const outcomes = new Set<string>();
    for (let round = 0; round < 24; round++) {
      const id = `a${round}`;
      await race.processes[0]?.create({ id });
      const verbs = ["consume", "cancel", "claim"] as const;
      const answers = await atOnce(race, 3, async (actions, i) => {
        // Whoever comes first in the queue of one process is another in each round.
        const verb = verbs[(i + round) % 3] ?? "consume";
        const by = verb;
        const answer =
          verb === "consume"
            ? await actions.tryConsume(id, { by })
            : verb === "cancel"
              ? await actions.tryCancel(id, { by })
              : await actions.tryClaim(id, { by });
        return { verb, answer };
      });
      const won = answers.filter(({ answer }) => answer.ok);
      expect(won.length).toBe(1);
      const verb = won[0]?.verb ?? "consume";
      const code = { consume: "already_used", cancel: "canceled", claim: "claimed" }[verb];
      for (const { answer } of answers) if (!answer.ok) expect(answer).toMatchObject({ code, by: verb });
      outcomes.add(verb);
    }
    expect(outcomes.size).toBeGreaterThan(1);
  });

  test("50 concurrent claims have one holder, and of 50 completions of one fence one is the use", async () => {
    await using scene = new Scene(store);
    const race = await arena(scene);
    await race.processes[0]?.create({ id: "a", payload: 1 });
    const claims = await atOnce(race, 50, (actions, i) => actions.tryClaim("a", { by: `c${i}` }));
    const held = claims.filter((claim) => claim.ok);
    expect(held.length).toBe(1);
    const fence = held[0]?.ok === true ? held[0].fence : 0;
    const answers = await atOnce(race, 50, (actions) => actions.complete("a", { fence }));
    expect(answers.filter(({ replayed }) => !replayed).length).toBe(1);
  });

  test("of 100 concurrent creators of the same action, one created it", async () => {
    await using scene = new Scene(store);
    const race = await arena(scene);
    const made = await atOnce(race, 100, (actions) => actions.create({ id: "a", payload: "same", owner: "ann" }));
    expect(made.filter(({ isNew }) => isNew).length).toBe(1);
    expect((await race.processes[2]?.list({ owner: "ann" }))?.actions.length).toBe(1);
  });

  test("a sweep that meets a late asker removes it whole, or not at all", async () => {
    await using scene = new Scene(store);
    const race = await arena(scene);
    await race.processes[0]?.create({ id: "a", uses: 3, owner: "ann", payload: 1, expiresIn: 10 });
    for (const key of ["x", "y"]) await race.processes[0]?.consume("a", { consumerKey: key });
    scene.nowMs += 31 * 86_400_000;
    const answers = await atOnce(race, 16, async (actions, i) =>
      i % 2 === 0 ? actions.sweep() : actions.tryConsume("a", { consumerKey: "x" }),
    );
    const removed = answers.reduce((sum, answer) => sum + ("removed" in answer ? answer.removed : 0), 0);
    // The action, its name in the owner's list, its payload and two uses.
    expect(removed).toBe(5);
    for (const answer of answers)
      if ("ok" in answer) expect(answer.ok ? answer.replayed : answer.code).toBe(answer.ok ? true : "action_not_found");
    expect(await race.processes[0]?.get("a")).toBeNull();
  });
});
