/**
 * Goal: the code of a run sees the history of its own claim, and nothing that was written when the claim was over.
 * Method: a history on a memory store that is longer than it was at the claim.
 */

import { expect, test } from "vitest";
import { bench } from "../../../test/kernel/kit.ts";
import { type RunValue, runAt } from "../stored.ts";
import { Coroutine } from "./coroutine.ts";
import { replay } from "./replay.ts";

const VALUE: RunValue = { workflow: "it", incarnation: 1, seed: "seed", startedAtMs: 0, from: 1 };

/** Gives a run that has begun to code that asks for nothing, as under a claim at which the history ended there. */
async function replayed(claim: { readonly fence: number; readonly head: number } | undefined): Promise<void> {
  const { kernel } = bench();
  const at = runAt("run");
  await kernel.transact(
    (tx) => {
      const record = tx.record(at);
      record.write({ value: VALUE });
      record.append("started", { input: 1 });
      record.append("step a", { ok: 1 });
    },
    [at],
  );
  const coroutine = new Coroutine("run", 0);
  await replay({ kernel, at, value: VALUE, coroutine, begin: () => {}, claim, isOver: () => false });
}

test("facts that another wrote after the claim contradict nothing: the run was taken over", async () => {
  await expect(replayed({ fence: 7, head: 1 })).rejects.toMatchObject({ code: "fenced", data: { fence: 7 } });
});

test("facts of the claim that the code did not ask for contradict it", async () => {
  await expect(replayed({ fence: 7, head: 2 })).rejects.toMatchObject({ code: "history_contradiction" });
  await expect(replayed(undefined)).rejects.toMatchObject({ code: "history_contradiction" });
});
