/**
 * Goal: values of a statement that cannot be read fail the statement, and leave nothing behind that fails later (G33).
 * Method: proxies that were revoked, as the list and in it, with statements that are awaited and that are not.
 */

import { expect, test } from "vitest";
import { unhandledDuring } from "../kernel/kit.ts";
import { onStores, SQL } from "../workflow/kit.ts";

function revoked(target: object): unknown {
  const { proxy, revoke } = Proxy.revocable(target, {});
  revoke();
  return proxy;
}

onStores(SQL, (place) => {
  test.each([
    ["the list", () => revoked([])],
    ["a list in it", () => [revoked([])]],
    ["an object in it", () => [revoked({})]],
  ])("%s", async (_, values) => {
    const pawl = await place.open();
    const text = place.store === "PostgreSQL" ? "select $1::text" : "select ?";
    const unhandled = await unhandledDuring(async () => {
      const query = (isAwaited: boolean) =>
        pawl.transact.sql(async (sql) => {
          const asked = sql.query(text, values() as never);
          if (isAwaited) await asked;
        });
      for (const isAwaited of [true, false]) await expect(query(isAwaited)).rejects.toThrow();
      expect(await pawl.slot("s").set(1)).toEqual({ version: 1 });
      // What its connection has left fails when that is closed.
      await pawl.close();
    });
    expect(unhandled).toEqual([]);
  });
});
