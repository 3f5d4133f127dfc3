/**
 * Goal: ten thousand people are as good as one: each has a key of its own, half of them are forgotten, and exactly these are.
 * Method: 400 people in each of 25 streams, and all of them in one stream; a reading of everything; every second one is forgotten.
 */

import { expect, test } from "vitest";
import { FORGOTTEN } from "../../src/index.ts";
import { codeOf } from "../kernel/kit.ts";
import { EVERY, onStores } from "../workflow/kit.ts";
import { ann, customer, KEYS, Registered } from "./forget-kit.ts";
import { all } from "./kit.ts";

const PEOPLE = 10_000;
const ids = Array.from({ length: PEOPLE }, (_, n) => `c-${String(n).padStart(5, "0")}`);
const registered = (id: string) => Registered({ ...ann, id, email: `${id}@canary.example` });

onStores(EVERY, (place) => {
  test("ten thousand people", { timeout: 600_000 }, async () => {
    const [one, two] = [await place.open(KEYS), await place.open(KEYS)];
    for (let n = 0; n < PEOPLE; n += 400) {
      const some = ids.slice(n, n + 400).map(registered);
      await one.stream(`s-${n}`).append(some);
      await two.stream("all").append(some);
    }
    // A commit touches at most 1,000 records, two for each person.
    expect(await codeOf(one.stream("all").append(ids.slice(0, 500).map(registered)))).toBe("too_many_keys");
    await two.aggregate(customer, "all").state();
    const emails = async (prefix: string) => {
      const events = await all(two.events.read({ prefix, events: [Registered] }));
      return new Map(events.map(({ data }) => [data.id, data.email]));
    };
    for (const prefix of ["s-", "all"])
      expect(await emails(prefix)).toEqual(new Map(ids.map((id) => [id, `${id}@canary.example`])));
    const gone = ids.filter((_, n) => n % 2 === 0);
    await one.forgotten.reapply(gone);
    const isGone = new Set(gone);
    for (const prefix of ["s-", "all"])
      expect(await emails(prefix)).toEqual(
        new Map(ids.map((id) => [id, isGone.has(id) ? FORGOTTEN : `${id}@canary.example`])),
      );
    expect((await two.aggregate(customer, "all").state({ asOf: 1 })).state.email).toBe(FORGOTTEN);
    const listed: string[] = [];
    for (let after: string | undefined; ; ) {
      const page = await two.forgotten.list({ limit: 1000, ...(after === undefined ? {} : { after }) });
      listed.push(...page.subjects.map(({ subject }) => subject));
      if (page.next === null) break;
      after = page.next;
    }
    expect(listed).toEqual(gone);
  });
});
