/**
 * Goal: a policy whose worker dies before or after any call of its store loses no event and counts nothing twice: another worker ends what was begun.
 * Method: for each call, a worker on a policy and streams of their own that dies there, and then another one, for which everything is due.
 */

import { expect, test } from "vitest";
import { type StreamPolicyOptions, streamPolicy } from "../../src/index.ts";
import { streamAt } from "../../src/stream/stored.ts";
import { EVERY, onStores } from "../workflow/kit.ts";
import { account, all, deposits } from "./kit.ts";
import { keptIn, makeDue, Shelf, workerOn } from "./policies-kit.ts";

onStores(EVERY, (place) => {
  test.each([
    { what: "prunes", rules: { prune: { keep: 3 } }, changes: {}, kept: [3, 4, 5], counts: { pruned: 1, removed: 2 } },
    {
      what: "closes",
      rules: { close: { idleFor: "1 day" } },
      changes: { idleMs: 0 },
      kept: [6],
      counts: { closed: 1, removed: 5 },
    },
  ] satisfies readonly { what: string; rules: Partial<StreamPolicyOptions>; [more: string]: unknown }[])(
    "a worker that $what and dies at any of its calls",
    async ({ rules, changes, kept, counts }) => {
      const archive = new Shelf();
      const reference = await place.open({ archive });
      let calls = 0;
      for (let isOver = false; !isOver; )
        for (const when of ["before", "after"] as const) {
          if (when === "before") calls += 1;
          const stream = `s-${calls}-${when}`;
          await reference.stream(stream).append(deposits(5));
          await reference.aggregate(account, stream).execute("look");
          const policy = streamPolicy(`p-${calls}-${when}`, { prefix: stream, ...rules });
          const handle = await place.openHandle({ archive });
          const { died } = handle.dieAt(calls, when);
          const dying = workerOn(handle.pawl, policy, changes);
          await Promise.race([dying.begin().then(() => dying.look()), died]);
          if (!handle.isDead()) await dying.stop();
          // Readable all the time.
          const versions = (await all(reference.stream(stream).read())).map(({ version }) => version);
          expect(versions.slice(0, 5)).toEqual([1, 2, 3, 4, 5]);
          const next = workerOn(reference, policy, changes);
          await next.begin();
          await next.find();
          await makeDue(reference, policy, stream);
          await next.look();
          await next.stop();
          expect(await keptIn(reference, stream)).toEqual(kept);
          const left = await reference.kernel.entries(streamAt(stream), 0, 10);
          expect(left.map(({ version }) => version)).toEqual(kept);
          const gone = [1, 2, 3, 4, 5].filter((version) => !kept.includes(version));
          expect(archive.versions(stream)).toEqual(gone);
          const found = (await reference.streams.policies()).find(({ name }) => name === policy.name);
          expect(found).toMatchObject({ closed: 0, pruned: 0, failures: 0, ...counts });
          expect([...next.errors, ...dying.errors]).toEqual([]);
          await reference.streams.removePolicy(policy.name);
          isOver = !handle.isDead();
        }
      expect(calls).toBeGreaterThan(25);
    },
    300_000,
  );
});
