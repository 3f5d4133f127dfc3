// Goal: under one key there is one effect, and all callers get the same answer, although processes die and sleep in the middle, replies are
// lost, and several callers send the same request concurrently; another request never gets it; an attempt that was taken over stores nothing;
// and a key whose process died is taken over (G2, G3, G6, G25, G29).
// Method: three shops send the same orders, by every method: an effect that is committed with its answer, one in a decision, one that is done
// outside and answered later, and one whose refusal is stored. The work sleeps for longer than its lease, and fails. A stranger sends another
// request under the same keys. A message is delivered to all of them.

import { isReplayed } from "../../../src/idempotency/errors.ts";
import { Idempotency } from "../../../src/idempotency/idempotency.ts";
import { FencedError, InvalidArgumentError, PawlError } from "../../../src/index.ts";
import { address } from "../../../src/kernel/contract.ts";
import type { Tx } from "../../../src/kernel/decision.ts";
import { plainly } from "../../../src/kernel/sql/in-sql.ts";
import { checkCommits } from "../../../src/testing/checkers/commits.ts";
import type { Process, World } from "../../../src/testing/index.ts";
import { until } from "./transfers.ts";

const LEASE_MS = 5_000;
const KEPT = { lease: LEASE_MS, ttl: "30 days" };

const effectAt = (key: string) => address("effect", key);

/** Counts one more effect of this key; returns a value that cannot be guessed. */
function act(tx: Tx, key: string): string {
  const effect = tx.record(effectAt(key));
  effect.write({ value: (effect.exists ? (effect.value as number) : 0) + 1 });
  return tx.uuid();
}

class Refusal extends Error {
  readonly code = "refused";
}

class Hiccup extends Error {}

type Keys = Idempotency<Tx, object>;

const WAYS = ["committed", "decided", "outside", "refused"] as const;

export const idempotency = {
  name: "a key has one effect and one answer",
  async scenario(world: World): Promise<void> {
    const heard = new Map<string, Set<string>>();
    const fences = new Set<string>();
    const outside: string[] = [];
    const tell = (key: string, answer: string) => {
      const all = heard.get(key) ?? new Set();
      heard.set(key, all.add(answer));
      world.check(all.size === 1, `${key} was answered with ${[...all].join(" and ")}`);
    };

    /** Every attempt has a fence of its own. */
    const begin = (key: string, { fence }: { readonly fence: number }) => {
      world.check(!fences.has(`${key} ${fence}`), `two attempts under ${key} had fence ${fence}`);
      fences.add(`${key} ${fence}`);
    };
    /** Work sleeps and fails in the middle. */
    const trouble = async ({ random, sleep }: Process) => {
      if (random() < 0.3) await sleep(random() * 3 * LEASE_MS);
      if (random() < 0.15) throw new Hiccup();
    };

    const ask = async (process: Process, keys: Keys, key: string, way: (typeof WAYS)[number]): Promise<string> => {
      const options = { ...KEPT, fingerprint: { key } };
      switch (way) {
        case "committed": {
          const { value } = await keys.idempotent(key, options, async (attempt) => {
            begin(key, attempt);
            await trouble(process);
            const answer = await attempt.commit((tx) => act(tx, key));
            await trouble(process);
            return answer;
          });
          return value;
        }
        case "decided":
          return process.pawl.kernel.transact(
            (tx) => keys.within(tx).idempotent(key, { ttl: KEPT.ttl, fingerprint: { key } }, () => act(tx, key)).value,
            [effectAt(key)],
          );
        case "outside": {
          const { value } = await keys.idempotent(key, options, async (attempt) => {
            begin(key, attempt);
            outside.push(key);
            await trouble(process);
            return `${key} under ${attempt.fence}`;
          });
          return value;
        }
        case "refused":
          try {
            await keys.idempotent(
              key,
              { ...options, storeErrors: (error) => error instanceof Refusal },
              async (attempt) => {
                begin(key, attempt);
                await trouble(process);
                throw new Refusal(`refused under ${attempt.fence}`);
              },
            );
          } catch (error) {
            if (error instanceof Refusal || isReplayed(error)) return error.message;
            throw error;
          }
          throw new InvalidArgumentError("a refusal", "must be thrown");
      }
    };

    const insist = async (process: Process, keys: Keys, key: string, way: (typeof WAYS)[number]): Promise<void> => {
      for (;;) {
        try {
          tell(key, await ask(process, keys, key, way));
          return;
        } catch (error) {
          if (error instanceof FencedError) world.note(`${process.name} was fenced`);
          else if (!(error instanceof Hiccup) && codeOf(error) !== "idempotency_in_progress") throw error;
          await process.sleep(500 + process.random() * 1_000);
        }
      }
    };

    const effects = new Map<string, number>();
    for (const name of ["s1", "s2", "s3"])
      world.process(name, async (process) => {
        const keys: Keys = new Idempotency(process.pawl.kernel, plainly);
        for (const way of WAYS) await until(() => insist(process, keys, way, way), process);
        await until(async () => {
          const { deduplicated } = await keys.dedupe("shop", "m1", (tx) => act(tx, "m1"), { ttl: KEPT.ttl });
          if (!deduplicated) effects.set("m1", (effects.get("m1") ?? 0) + 1);
          world.check((effects.get("m1") ?? 0) <= 1, "a message was new twice");
        }, process);
      });
    world.process("stranger", async (process) => {
      const keys: Keys = new Idempotency(process.pawl.kernel, plainly);
      for (const key of ["committed", "refused"] as const)
        await until(async () => {
          for (;;) {
            // Before anybody has asked, or when the work has just failed, the key would be the stranger's.
            if (!heard.has(key)) await process.sleep(2_000);
            else {
              const asked = keys.idempotent(key, { ...KEPT, fingerprint: "something else" }, () => "strange");
              const code = await asked.then(() => "answered", codeOf);
              world.check(code === "idempotency_mismatch", `another request under ${key} was ${code}`);
              return;
            }
          }
        }, process);
    });
    await world.finish();
    checkCommits(world);
    checkAnswers(world);

    const { kernel } = world.open();
    for (const key of ["committed", "decided", "m1"]) {
      const [row] = await kernel.read([effectAt(key)]);
      world.check(row?.value === "1", `${key} had ${row?.value ?? "no"} effects`);
    }
    world.check(outside.length > 0, "nothing was done outside");
  },
};

/** A store that failed is a reason to try again, and to be told apart from a refusal. */
function codeOf(error: unknown): string {
  if (error instanceof PawlError && !error.code.startsWith("store_") && error.code !== "outcome_unknown")
    return error.code;
  throw error;
}

/** An answer that is stored stays as it is. */
function checkAnswers(world: World): void {
  for (const { puts } of world.database.commits)
    for (const { was, row } of puts) {
      if (!row.space.startsWith("idempotent") || was === null) continue;
      const isAnswered = was.status === "completed" || was.status === "failed";
      world.check(!isAnswered, `the answer of ${row.key} was written again`);
    }
}
