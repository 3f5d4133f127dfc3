/**
 * The ways to reach a PostgreSQL store on which the laws of the store contract are checked: for `conformance.test.ts` and
 * `conformance.long.test.ts`.
 *
 * There is no difference from the laws. The laws of one store run a few at a time, most on connections that they share.
 */

import { afterAll, beforeAll, describe, test } from "vitest";
import { type Harness, storeConformance } from "../../src/testing/conformance/conformance.ts";
import { type HarnessOptions, harness, poolOn } from "./kit.ts";

/** Where the laws are checked, and how to leave it. */
export interface Place {
  readonly url: string;
  readonly options?: HarnessOptions;
  leave(): Promise<void>;
}

export interface Way {
  readonly name: string;
  readonly lanes: number;
  arrive(): Promise<Place>;
}

/** Laws that use connections and schemas of laws before them. */
export function again(url: string, leave: () => Promise<unknown>, options: HarnessOptions = {}): Place {
  const pool = poolOn(url, 40);
  return {
    url,
    options: { pool, ...options },
    async leave() {
      await pool.end();
      await leave();
    },
  };
}

/** The tests of every law in these ways. */
export function testLaws(ways: readonly Way[]): void {
  describe.each(ways)("$name", ({ lanes, arrive }) => {
    let place: Place | undefined;
    beforeAll(async () => {
      place = await arrive();
    });
    afterAll(() => place?.leave());

    let law: (() => Promise<Harness>) | undefined;
    const open = () => {
      if (place === undefined) throw new Error("there is no server");
      law ??= harness(place.url, lanes, place.options);
      return law();
    };
    for (const law of storeConformance({ open, patienceMs: 120_000 })) test.concurrent(law.name, law.check);
  });
}
